"""`tfckpt diff`: two checkpoints, or a checkpoint and a model."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.command_line import document, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RANDOM = np.random.default_rng(6)
ONE, OTHER = RANDOM.normal(size=(2, 6, 4)).astype("float32")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a checkpoint of plain TensorFlow with these values."""
    import tensorflow as tf

    def make(name: str, **values: Any) -> str:
        tree = tf.train.Checkpoint()
        for path, value in values.items():
            at = tree
            *parents, last = path.split("__")
            for part in parents:
                if not hasattr(at, part):
                    setattr(at, part, tf.train.Checkpoint())
                at = getattr(at, part)
            setattr(at, last, tf.Variable(value))
        return str(tree.write(f"{tmp_path}/{name}"))

    return make


def kinds(found: Any) -> set[tuple[str, str | None, str | None]]:
    return {
        (one["kind"], one["a"] and one["a"]["name"], one["b"] and one["b"]["name"])
        for one in found["differences"]
    }


def test_what_is_equal_is_said_to_be(write: Callable[..., str]) -> None:
    a, b = write("a", m__w=ONE, m__b=np.zeros(4)), write("b", m__w=ONE, m__b=np.zeros(4))
    assert document("diff", a, b)["same"] is True
    assert document("diff", a, b, "--values")["equal"] == 2
    assert run("diff", a, b).status == 0


def test_each_kind_of_difference(write: Callable[..., str]) -> None:
    double = np.float64(1)
    a = write(
        "a", m__w=ONE, m__old=[1.0, 2.0, 3.0], m__s=np.ones(3), m__t=np.float32(1), m__k=OTHER
    )
    b = write("b", m__w=ONE + 1, m__new=[4.0, 5.0, 6.0], m__s=np.ones(4), m__t=double, m__k=OTHER)
    found = document("diff", a, b, status=1)
    assert kinds(found) == {
        ("only_a", "m/old", None),
        ("only_b", None, "m/new"),
        ("shape", "m/s", "m/s"),
        ("dtype", "m/t", "m/t"),
        ("value", "m/w", "m/w"),
    }
    assert found["equal"] == 1
    text = run("diff", a, b).out
    assert "only in a" in text
    assert "float64 (3) → float64 (4)" in text


def test_how_far_apart_values_are(write: Callable[..., str]) -> None:
    changed = ONE.copy()
    changed[2, 1] += 0.25
    a, b = write("a", w=ONE, n=[np.nan, 1.0]), write("b", w=changed, n=[np.nan, np.inf])
    w, n = document("diff", a, b, "--values", status=1)["differences"]
    if w["a"]["name"] == "n":
        w, n = n, w
    assert w["differing"] == 1
    assert w["largest"] == pytest.approx(0.25, rel=1e-5)
    scale = max(np.abs(ONE).max(), np.abs(changed).max())
    assert w["relative"] == pytest.approx(0.25 / scale, rel=1e-5)
    assert (n["differing"], n["largest"], n["relative"]) == (1, None, None)
    rows = [line.split() for line in run("diff", a, b, "--values").out.splitlines()]
    assert ["w", "float32", "(6,", "4)", "1", "0.25"] in [row[:6] for row in rows]


def test_a_renamed_layer_has_moved_but_for_its_zeros(write: Callable[..., str]) -> None:
    a = write("a", m__enc__w=ONE, m__enc__b=np.zeros(4, "float32"))
    b = write("b", m__new__w=ONE, m__new__b=np.zeros(4, "float32"))
    assert kinds(document("diff", a, b, status=1)) == {
        ("moved", "m/enc/w", "m/new/w"),
        ("only_a", "m/enc/b", None),  # zeros are everywhere
        ("only_b", None, "m/new/b"),
    }


def test_two_layers_that_changed_places_have_moved(write: Callable[..., str]) -> None:
    a, b = write("a", m__p__w=ONE, m__q__w=OTHER), write("b", m__p__w=OTHER, m__q__w=ONE)
    assert kinds(document("diff", a, b, status=1)) == {
        ("moved", "m/p/w", "m/q/w"),
        ("moved", "m/q/w", "m/p/w"),
    }
    assert "m/p/w → m/q/w" in run("diff", a, b).out


def test_the_same_value_twice_has_moved_nowhere_for_certain(write: Callable[..., str]) -> None:
    a, b = write("a", p=ONE, q=ONE), write("b", r=ONE, s=ONE)
    assert {kind for kind, *_ in kinds(document("diff", a, b, status=1))} == {"only_a", "only_b"}


def test_strings_and_slices_are_compared(write: Callable[..., str]) -> None:
    a, b = write("a", t=["x", "yz"], u=["same"]), write("b", t=["xy", "z"], u=["same"])
    found = document("diff", a, b, "--values", status=1)
    assert kinds(found) == {("value", "t", "t")}
    assert found["differences"][0]["differing"] == 2


@pytest.fixture
def model_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "diff_script.py").write_text(
        "import keras, numpy as np\n"
        "def build():\n"
        "    print('building')\n"
        "    layers = [keras.Input((6,)), keras.layers.Dense(4, name='d'),\n"
        "              keras.layers.Dense(2, name='head')]\n"
        "    model = keras.Sequential(layers)\n"
        "    for v in model.variables: v.assign(np.ones(v.shape))\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "diff_script", raising=False)
    return "diff_script:build"


def test_a_checkpoint_and_a_model(model_module: str, tmp_path: Path) -> None:
    import keras

    import tfckpt

    layers = [
        keras.Input((6,)),
        keras.layers.Dense(4, name="d"),
        keras.layers.Dense(3, name="head"),
    ]
    model = keras.Sequential(layers)
    for variable in model.variables:
        variable.assign(np.ones(variable.shape))
    model.layers[0].kernel.assign(ONE)
    path = tfckpt.Checkpoint(model=model).write(f"{tmp_path}/ckpt")
    found = document("diff", path, "--model", model_module, status=1)
    assert kinds(found) == {
        ("shape", "model/head/kernel", "model/head/kernel"),
        ("shape", "model/head/bias", "model/head/bias"),
    }
    assert (found["equal"], found["not_compared"]) == (0, 2)
    found = document("diff", path, "--model", model_module, "--values", status=1)
    assert ("value", "model/d/kernel", "model/d/kernel") in kinds(found)
    largest = {one["a"]["name"]: one.get("largest") for one in found["differences"]}
    assert largest["model/d/kernel"] == pytest.approx(np.abs(ONE - 1).max())
    assert found["equal"] == 1


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "b", "c"), ("a", "b", "--model", "m:f")])
def test_other_than_two_sides_is_misuse(arguments: tuple[str, ...]) -> None:
    assert run("diff", *arguments).status == 2


@pytest.mark.parametrize("person", [False, True])
def test_no_name_is_cut_in_80_columns(
    write: Callable[..., str], person: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    values = {f"net__block_{n}_up__kernel": RANDOM.normal(size=(640, 2, 1, 640)) for n in range(2)}
    write("a", **{n: v.astype("float32") for n, v in values.items()})
    write("b", **{n: v.astype("float64") for n, v in values.items()})
    monkeypatch.chdir(tmp_path)
    out = run("diff", "a", "b", "--values", terminal=person).out
    out = re.sub(r"\x1b\[\d*m", "", out)
    assert max(map(len, out.splitlines())) <= 80
    for n in range(2):
        place = out.splitlines().index(f"net/block_{n}_up/kernel")
        assert out.splitlines()[place + 1].split()[:5] == ["float32", "→", "float64", "(640,", "2,"]


def test_differences_are_listed_by_their_numbers(write: Callable[..., str]) -> None:
    a = write("a", **{f"m__v{n}": np.arange(9.0) + n for n in range(12)})
    b = write("b", **{f"m__v{n}": np.arange(9.0) * n for n in range(12)})
    out = run("diff", a, b, "--values").out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("m/v")] == [
        f"m/v{n}" for n in range(12)
    ]
