"""`tfckpt inspect --model`: where each value of a checkpoint would go in a model."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo import command_line

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def script(monkeypatch: Any) -> Callable[[Any], str]:
    """Makes a function that returns a model what `--model` names."""

    def named(model: Any) -> str:
        module = ModuleType("made")
        module.build = lambda: model  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "made", module)
        return "made:build"

    return named


def dense(k: Any, names: tuple[str, ...], classes: int) -> Any:
    layers = [k.layers.Dense(8, name=name) for name in names]
    return k.Sequential([k.Input((4,)), *layers, k.layers.Dense(classes, name="head")])


@pytest.fixture
def written(flavour: Any, tmp_path: Any) -> str:
    model = dense(flavour, ("body", "neck"), 3)
    return str(tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt")))


def blocks(text: str) -> list[list[list[str]]]:
    """The words of each line of each paragraph."""
    return [[line.split() for line in part.splitlines()] for part in text.split("\n\n")]


def test_what_goes_where_and_what_does_not(written: str, flavour: Any, script: Any) -> None:
    target = script(dense(flavour, ("stem", "neck"), 5))
    ended = command_line.run("inspect", written, "--model", target)
    assert ended.status == 0
    _, lead, policy, pairs, apart = blocks(ended.out)
    assert " ".join(lead[0]) == "this policy restores 4 of 6 values; model/head stays new:"
    assert policy[1] == ["exclude:", '["model/head/**"]']
    assert pairs == [
        ["checkpoint", "model"],
        ["model/neck/bias", "model/neck/bias"],
        ["model/neck/kernel", "model/neck/kernel"],
        ["model/body/bias", "model/stem/bias"],
        ["model/body/kernel", "model/stem/kernel"],
    ]
    assert apart == [
        ["not", "restored", "(2)", "checkpoint", "model"],
        ["model/head/bias", "float32", "(3)", "float32", "(5)"],
        ["model/head/kernel", "float32", "(8,", "3)", "float32", "(8,", "5)"],
    ]


def test_what_only_one_side_has(written: str, flavour: Any, script: Any) -> None:
    layers = [flavour.layers.Dense(n, name=name) for n, name in ((8, "body"), (8, "neck"))]
    other = flavour.layers.Conv1D(2, 3, name="other")
    model = flavour.Sequential(
        [flavour.Input((4,)), *layers, flavour.layers.Reshape((8, 1)), other]
    )
    ended = command_line.run("inspect", written, "--model", script(model))
    stored, live = blocks(ended.out)[-2:]
    assert [words[0] for words in stored[1:]] == ["model/head/bias", "model/head/kernel"]
    assert live == [
        ["only", "in", "the", "model", "(2)", "type"],
        ["model/other/bias", "float32", "(2)"],
        ["model/other/kernel", "float32", "(3,", "1,", "2)"],
    ]


def test_as_json(written: str, flavour: Any, script: Any) -> None:
    target = script(dense(flavour, ("stem", "neck"), 5))
    found = command_line.document("inspect", written, "--model", target)
    shown = found["model"]
    assert (shown["target"], shown["ok"]) == (target, False)
    assert shown["suggestion"]["exclude"] == ["model/head/**"]
    went = {one["model"]: (one["checkpoint"], one["status"]) for one in shown["pairs"]}
    assert went == {
        **{f"model/neck/{w}": (f"model/neck/{w}", "LOADED") for w in ("bias", "kernel")},
        **{f"model/stem/{w}": (f"model/body/{w}", "RENAMED") for w in ("bias", "kernel")},
        **{f"model/head/{w}": (f"model/head/{w}", "EXCLUDED") for w in ("bias", "kernel")},
    }
    assert {one["checkpoint"] for one in shown["pairs"]} == {one["name"] for one in found["values"]}


def test_a_restore_that_needs_no_policy(written: str, flavour: Any, script: Any) -> None:
    target = script(dense(flavour, ("body", "neck"), 3))
    ended = command_line.run("inspect", written, "--model", target)
    _, verdict, pairs = blocks(ended.out)
    assert verdict[0][:2] == ["6", "values"]
    assert all(old == new for old, new in pairs[1:])
    assert command_line.document("inspect", written, "--model", target)["model"]["ok"] is True


def test_the_checkpoint_has_the_names_that_inspect_prints(flavour: Any, tmp_path: Any, script: Any):
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.enc = flavour.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.enc(x)

    first, second = Net(), Net()
    for model in (first, second):
        model(np.ones((1, 4), "float32"))
    path = str(tf.train.Checkpoint(first).write(str(tmp_path / "weights")))
    found = command_line.document("inspect", path, "--model", script(second))
    printed = {value["name"] for value in found["values"]}
    assert printed != {"model/enc/bias", "model/enc/kernel"}
    pairs = found["model"]["pairs"]
    assert {one["checkpoint"] for one in pairs} == printed
    assert {one["model"] for one in pairs} == {"model/enc/bias", "model/enc/kernel"}


def deep(count: int) -> Any:
    x = inputs = keras.Input((8, 8, 3))
    for n in range(count):
        name = f"block_{n}_convolution_with_a_long_name"
        x = keras.layers.Conv2D(3, 3, padding="same", name=name)(x)
    return keras.Model(inputs, x)


def test_long_names_are_whole_and_lines_are_not_long(
    tmp_path: Any, script: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    model = deep(12)
    model.save_weights("deep.weights.h5")
    out = command_line.run("inspect", "deep.weights.h5", "--model", script(deep(12))).out
    assert max(map(len, out.splitlines())) <= 80
    for layer in model.layers[1:]:
        assert out.split().count(f"model/{layer.name}/kernel") == 2


def test_a_terminal_shows_equal_blocks_as_one(tmp_path: Any, script: Any, monkeypatch: Any) -> None:
    from tfckpt.cli.output import tables

    monkeypatch.setattr(tables, "is_terminal", lambda: True)
    path = str(tmp_path / "deep.weights.h5")
    deep(12).save_weights(path)
    out = command_line.run("inspect", path, "--model", script(deep(12))).out
    assert out.split().count("model/block_{0…11}_convolution_with_a_long_name/kernel") == 2
