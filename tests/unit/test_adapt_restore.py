"""Adapted restores from start to end: into both Keras flavours, and all of it or none of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from zoo.command_line import document, run

import tfckpt
from tfckpt.live import apply
from tfckpt.live.adapt import FUNCTIONS
from tfckpt.stored.formats.open import open_checkpoint

QKV = ["model/q/*", "model/k/*", "model/v/*"]


def config(path: Any, rules: list[dict[str, Any]], **policy: Any) -> dict[str, Any]:
    policy = {"api": "read", "adapt": rules, **policy}
    return {"version": 1, "restore": {"path": str(path), "policy": policy}}


def attention(keras: Any, words: int, fused: bool) -> Any:
    """An embedding and a layer of attention's projections, fused into one or not."""
    layers = keras.layers
    tokens = keras.Input((3,), dtype="int32")
    x = layers.Embedding(words, 6, name="words")(tokens)
    if fused:
        x = layers.Dense(12, name="qkv")(x)
    else:
        x = layers.Concatenate()([layers.Dense(4, name=name)(x) for name in ("q", "k", "v")])
    model = keras.Model(tokens, x)
    model.compile(keras.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    random = np.random.default_rng(words)
    for variable in [*model.variables, *model.optimizer.variables][: 100 if fused else 7]:
        if "float" in str(variable.dtype) and variable.shape.rank:
            variable.assign(random.normal(size=variable.shape))
    return model


def test_a_fused_attention_and_another_vocabulary(flavour: Any, tmp_path: Path) -> None:
    old, new = attention(flavour, 4, fused=True), attention(flavour, 5, fused=False)
    tfckpt.Checkpoint(model=old).write(tmp_path / "ckpt")
    (tmp_path / "old.txt").write_text("[pad]\na\nb\nc\n")
    (tmp_path / "new.txt").write_text("[pad]\nc\nd\na\ne\n")
    rows = {"old": str(tmp_path / "old.txt"), "new": str(tmp_path / "new.txt"), "missing": "mean"}
    rules = [
        {"how": "vocabulary", "model": "model/words/embeddings", **rows},
        {"how": "split", "checkpoint": "model/qkv/*", "model": QKV, "axis": -1},
    ]
    slots = [
        {"how": "vocabulary", "model": "optimizer/*/words/embeddings", **rows, "missing": "zeros"},
        {
            "how": "split",
            "checkpoint": "optimizer/*/qkv/*",
            "model": [name.replace("model", "optimizer/*") for name in QKV],
            "axis": -1,
        },
    ]
    before = new.get_layer("q").kernel.numpy()
    with pytest.raises(tfckpt.RefusedError, match="its variable is adapted"):
        tfckpt.restore(config(tmp_path / "ckpt", rules), model=new)
    np.testing.assert_array_equal(new.get_layer("q").kernel, before)

    report = tfckpt.restore(config(tmp_path / "ckpt", rules + slots, verify="values"), model=new)
    assert report.counts[tfckpt.Status.ADAPTED] == 7 * 3  # values, momenta, velocities
    here = [new.get_layer(name) for name in "qkv"]
    there = old.get_layer("qkv")
    np.testing.assert_array_equal(np.hstack([layer.kernel for layer in here]), there.kernel)
    np.testing.assert_array_equal(np.hstack([layer.bias for layer in here]), there.bias)
    table, words = (m.get_layer("words").embeddings.numpy() for m in (old, new))
    np.testing.assert_array_equal(words[[0, 1, 3]], table[[0, 3, 1]])
    np.testing.assert_allclose(words[[2, 4]], [table.mean(0)] * 2, rtol=1e-5)

    optimizers = [tfckpt.Checkpoint(model=model) for model in (old, new)]
    paths = [c.write(tmp_path / f"again-{i}") for i, c in enumerate(optimizers)]
    whole, parts = map(values_of, paths)
    for slot in ("momentum", "velocity"):
        split = [parts[f"optimizer/{slot}/{name}/kernel"] for name in "qkv"]
        np.testing.assert_array_equal(np.hstack(split), whole[f"optimizer/{slot}/qkv/kernel"])


def values_of(path: str) -> dict[str, Any]:
    """Canonical name → value."""
    with open_checkpoint(path) as stored:
        reader = tf.train.load_checkpoint(path)
        return {n: reader.get_tensor(e.key) for n, e in stored.inventory.entries.items()}


def test_and_back_into_one(flavour: Any, tmp_path: Path) -> None:
    old, new = attention(flavour, 4, fused=False), attention(flavour, 4, fused=True)
    tfckpt.Checkpoint(model=old).write(tmp_path / "ckpt")
    rule = {"how": "concat", "checkpoint": QKV, "model": "model/qkv/*", "axis": -1}
    made = config(tmp_path / "ckpt", [rule], optimizer={"slots": "reset"})
    tfckpt.restore(made, model=new)
    for value in ("kernel", "bias"):
        parts = [getattr(old.get_layer(name), value) for name in "qkv"]
        np.testing.assert_array_equal(getattr(new.get_layer("qkv"), value), np.hstack(parts))


# --- all or nothing


class Two(tf.Module):
    """Two values; the first in every order is ``a``."""

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__()
        self.a = tf.Variable(a)
        self.b = tf.Variable(b)

    def write(self, directory: Path) -> str:
        return str(tfckpt.Checkpoint(net=self).write(directory / "ckpt"))

    def state(self) -> list[list[float]]:
        return [self.a.numpy().tolist(), self.b.numpy().tolist()]


@pytest.fixture
def calls() -> Any:
    """Registers a function for a test; it remembers what it was called with."""
    seen: list[Any] = []

    def register(function: Any) -> list[Any]:
        def counted(*values: Any) -> Any:
            seen.append(values)
            return function(*values)

        tfckpt.register_adaptation("test: ours")(counted)
        return seen

    yield register
    FUNCTIONS.pop("test: ours", None)


OURS = {"how": "function", "model": "net/b", "name": "test: ours"}


def _fails(_: Any) -> Any:
    raise KeyError("a mistake")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_fails, "'test: ours' failed, and nothing was changed: KeyError: 'a mistake'"),
        (lambda b: b, r"returned float32 \(2\), but the model needs float32 \(3\)"),
        (lambda b: np.zeros(3, "float64"), r"returned float64 \(3\)"),
        (lambda b: None, r"returned object \(\)"),
        (lambda b: [[1], [2, 3]], "failed"),
    ],
)
@pytest.mark.parametrize("verify", ["none", "checksums"])
def test_a_function_that_fails_changes_nothing(
    function: Any, text: str, verify: str, calls: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(apply, "AT_A_TIME", 0)
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    net = Two([0.0], [0.0, 0.0, 0.0])
    calls(function)
    with pytest.raises(tfckpt.RestoreError, match=text):
        tfckpt.restore(path, net=net, adapt=[OURS], verify=verify)
    assert net.state() == [[0.0], [0.0, 0.0, 0.0]]


def test_a_function_that_nobody_registered_is_refused_when_planning(tmp_path: Path) -> None:
    path = Two([1.0], [2.0]).write(tmp_path)
    (step,) = tfckpt.plan(config(path, [OURS]), net=Two([0.0], [0.0])).errors
    assert "no function is registered as 'test: ours'" in step.reason
    assert "tfckpt.register_adaptation" in step.hint


def test_a_name_is_registered_once(calls: Any) -> None:
    calls(len)
    with pytest.raises(ValueError, match=r"already registered, for .*counted"):
        tfckpt.register_adaptation("test: ours")(len)


def test_an_initializer_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    net = Two([0.0], [0.0, 0.0, 0.0])
    rule = {"how": "pad", "model": "net/b", "value": "orthogonal"}  # which needs two axes
    with pytest.raises(tfckpt.RestoreError, match=r"'orthogonal' failed for the shape \(3\)"):
        tfckpt.restore(config(path, [rule]), net=net)
    assert net.state() == [[0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("rule", "stored", "policy"),
    [
        ({"how": "cast", "casting": "same_kind"}, [1e6], {}),
        ({"how": "slice"}, [1e6, 0.0], {"on_dtype_mismatch": "cast"}),
    ],
)
def test_a_value_that_a_type_cannot_hold_changes_nothing(
    rule: dict[str, Any], stored: list[float], policy: dict[str, Any], tmp_path: Path
) -> None:
    path = Two([1.0], stored).write(tmp_path)
    net = Two([0.0], np.zeros(1, "float16"))
    with pytest.raises(tfckpt.RestoreError, match="net/b: float16 cannot hold 1000000"):
        tfckpt.restore(config(path, [{"model": "net/b", **rule}], **policy), net=net)
    assert net.state() == [[0.0], [0.0]]


def test_damage_of_any_joined_part_changes_nothing(tmp_path: Path) -> None:
    saved, net = tf.Module(), tf.Module()
    saved.a, saved.b, saved.c = (tf.Variable([x]) for x in (1.0, 2.0, 3.0))
    path = tfckpt.Checkpoint(net=saved).write(tmp_path / "ckpt")
    data = Path(f"{path}.data-00000-of-00001")
    content = data.read_bytes()
    at = content.index(np.float32([3.0]).tobytes())
    data.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    net.a, net.both = tf.Variable([0.0]), tf.Variable([0.0, 0.0])
    rule = {"how": "concat", "checkpoint": ["net/b", "net/c"], "model": "net/both", "axis": 0}
    with pytest.raises(tfckpt.DamagedCheckpointError):
        tfckpt.restore(config(path, [rule]), net=net)
    assert [net.a.numpy().tolist(), net.both.numpy().tolist()] == [[0.0], [0.0, 0.0]]


def test_what_is_here_already_fills_the_rest(tmp_path: Path) -> None:
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    net = Two([0.0], [7.0, 8.0, 9.0])
    rule = {"how": "pad", "model": "net/b", "value": "initialize", "before": [1]}
    tfckpt.restore(config(path, [rule], verify="values"), net=net)
    assert net.state() == [[1.0], [7.0, 2.0, 3.0]]


def test_a_file_of_words_that_is_none_is_the_policys_fault(tmp_path: Path) -> None:
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("a\n\n")
    rule = {"how": "vocabulary", "model": "net/b", "old": str(words), "new": str(words)}
    with pytest.raises(tfckpt.PolicyError, match=r"words\.txt:2:1: the line is empty"):
        tfckpt.plan(config(path, [rule]), net=Two([0.0], [0.0, 0.0]))


def test_the_command_line_shows_every_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    rules = [{"how": "concat", "checkpoint": ["net/b", "net/a"], "model": "net/ba", "axis": 0}]
    Path("config.yaml").write_text(yaml.safe_dump(config(path, rules)))
    Path("joined_script.py").write_text(
        "import tensorflow as tf\n"
        "def build():\n"
        "    net = tf.Module()\n"
        "    net.ba = tf.Variable([0.0, 0.0, 0.0])\n"
        "    return {'net': net}\n"
    )
    (step,) = document("plan", "config.yaml", "--model", "joined_script:build")["steps"]
    assert (step["name"], step["source"]) == ("net/ba", "net/b")
    assert [part["source"] for part in step["parts"]] == ["net/a"]
    assert [change["how"] for change in step["changes"]] == ["concat"]
    ended = run("plan", "config.yaml", "--model", "joined_script:build")
    assert "net/ba ← net/b + net/a" in ended.out
    assert "concat axis 0: (2) + (1) → (3)" in ended.out
