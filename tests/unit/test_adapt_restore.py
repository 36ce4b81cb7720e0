"""Adapted restores from start to end: into both Keras flavours, and all of it or none of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import config

import tfckpt
from tfckpt.live import apply
from tfckpt.live.adapt import FUNCTIONS, read_words


def tables(k: Any, words: int) -> tuple[Any, list[Any]]:
    """A model, and the variables with a row for each word: the embeddings and Adam's two slots."""
    model = k.Sequential([k.Input((3,)), k.layers.Embedding(words, 6, name="words")])
    model.compile(k.optimizers.Adam(), "mse")
    model.optimizer.build(model.trainable_variables)
    found = [each for each in model.optimizer.variables if len(each.shape) == 2]
    random = np.random.default_rng(words)
    for variable in (*model.variables, *found):
        variable.assign(random.normal(size=variable.shape))
    return model, [*model.variables, *found]


def test_words_move_with_their_slots_or_not_at_all(flavour: Any, tmp_path: Path) -> None:
    (old, stored), (new, live) = tables(flavour, 4), tables(flavour, 5)
    path = tfckpt.Checkpoint(model=old).write(tmp_path / "ckpt")
    (tmp_path / "old.txt").write_text("[pad]\na\nb\nc\n")
    (tmp_path / "new.txt").write_text("[pad]\nc\nd\na\ne\n")
    rule = {"how": "vocabulary", "old": tmp_path / "old.txt", "new": tmp_path / "new.txt"}
    weights = {**rule, "model": "model/words/embeddings", "missing": "mean"}
    slots = {**rule, "model": "optimizer/*/words/embeddings", "missing": "zeros"}
    before = live[0].numpy()
    with pytest.raises(tfckpt.RefusedError, match="its variable is adapted"):
        tfckpt.restore(config(path, adapt=[weights], api="read"), model=new)
    np.testing.assert_array_equal(live[0], before)
    adapt = [weights, slots]
    report = tfckpt.restore(config(path, adapt=adapt, api="read", verify="values"), model=new)
    assert report.counts[tfckpt.Status.ADAPTED] == len(live) == 3
    lost = [stored[0].numpy().mean(0), 0, 0]
    arrays = [[variable.numpy() for variable in side] for side in (stored, live)]
    for there, here, fill in zip(*arrays, lost, strict=True):
        np.testing.assert_array_equal(here[[0, 1, 3]], there[[0, 3, 1]])
        np.testing.assert_allclose(here[[2, 4]], [np.broadcast_to(fill, 6)] * 2, rtol=1e-5)


# All or nothing


class Two(tf.Module):
    """Two values; the first in every order is ``a``."""

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__()
        self.a, self.b = tf.Variable(a), tf.Variable(b)

    def write(self, directory: Path) -> str:
        return str(tfckpt.Checkpoint(net=self).write(directory / "ckpt"))

    def state(self) -> list[list[float]]:
        return [self.a.numpy().tolist(), self.b.numpy().tolist()]


OURS = {"how": "function", "model": "net/b", "name": "test: ours"}


def _fails(_: Any) -> Any:
    raise KeyError("a mistake")


# the function, or another rule; what is stored and here; what is said
FAILURES = [
    (_fails, [2.0, 3.0], "'test: ours' failed, and nothing was changed: KeyError: 'a mistake'"),
    (lambda b: b, [2.0, 3.0], r"returned float32 \(2\), but the model needs float32 \(3\)"),
    (lambda b: np.zeros(3, "float64"), [2.0, 3.0], r"returned float64 \(3\)"),
    (lambda b: None, [2.0, 3.0], r"returned object \(\)"),
    (lambda b: [[1], [2, 3]], [2.0, 3.0], "failed"),
    ({"how": "pad", "value": "orthogonal"}, [2.0, 3.0], r"'orthogonal' failed for the shape \(3\)"),
    ({"how": "cast", "casting": "same_kind"}, [1e6] * 3, "net/b: float16 cannot hold 1000000"),
    ({"how": "slice"}, [1e6, 0.0, 0.0, 0.0], "net/b: float16 cannot hold 1000000"),
    ({"how": "cast", "casting": "any"}, [0.0, 2.0**31, 0.0], "int32 cannot hold 2147483648"),
    ({"how": "cast", "casting": "any"}, [0.0, -1.0, 0.0], "uint8 cannot hold -1"),
]


@pytest.mark.parametrize(("rule", "stored", "text"), FAILURES, ids=range(len(FAILURES)))
@pytest.mark.parametrize("verify", ["none", "checksums"])
def test_what_fails_changes_nothing(rule, stored, text, verify, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(apply, "AT_A_TIME", 0)
    path = Two([1.0], stored).write(tmp_path)
    needed = [dtype for dtype in ("float16", "int32", "uint8") if f"{dtype} cannot" in text]
    net = Two([0.0], np.zeros(3, needed[0] if needed else "float32"))
    if callable(rule):
        monkeypatch.setitem(FUNCTIONS, "test: ours", rule)
        rule = OURS
    policy = {"on_dtype_mismatch": "cast"} if rule["how"] == "slice" else {}
    adapt = [{"model": "net/b", **rule}]
    with pytest.raises(tfckpt.RestoreError, match=text):
        tfckpt.restore(config(path, adapt=adapt, verify=verify, **policy), net=net)
    assert net.state() == [[0.0], [0.0, 0.0, 0.0]]


def test_a_function_is_registered_once_and_by_its_name(tmp_path: Path, request) -> None:
    path = Two([1.0], [2.0]).write(tmp_path)
    net = Two([0.0], [0.0])
    (step,) = tfckpt.plan(config(path, adapt=[OURS]), net=net).errors
    assert "no function is registered as 'test: ours'" in step.reason
    assert "tfckpt.register_adaptation" in step.hint
    request.addfinalizer(lambda: FUNCTIONS.pop("test: ours", None))
    tfckpt.register_adaptation("test: ours")(lambda b: b + 1)
    with pytest.raises(ValueError, match=r"already registered, for "):
        tfckpt.register_adaptation("test: ours")(len)
    tfckpt.restore(config(path, adapt=[OURS]), net=net)
    assert net.state() == [[1.0], [3.0]]


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
        tfckpt.restore(config(path, adapt=[rule]), net=net)
    assert [net.a.numpy().tolist(), net.both.numpy().tolist()] == [[0.0], [0.0, 0.0]]


def test_what_is_here_already_fills_the_rest(tmp_path: Path) -> None:
    path = Two([1.0], [2.0, 3.0]).write(tmp_path)
    net = Two([0.0], [7.0, 8.0, 9.0])
    rule = {"how": "pad", "model": "net/b", "value": "initialize", "before": [1]}
    tfckpt.restore(config(path, adapt=[rule], verify="values"), net=net)
    assert net.state() == [[1.0], [7.0, 2.0, 3.0]]


# Values


def resized(image: Any, method: str, *sizes: int) -> Any:
    return tf.image.resize(image[None], sizes, method).numpy()[0]


def padded(value: Any, before: int, fill: float) -> Any:
    return np.pad(value, [(0, 1), (before, 1)], constant_values=fill)


def spread(value: Any) -> Any:
    return np.repeat(value[:, None] / np.float32(5), 5, axis=1)


def of_words(table: Any) -> Any:
    """`- a b c ~` becomes `- c x a ~`, where x is new."""
    return np.stack([*table.T[[0, 3]], table.T[1:4].mean(0), *table.T[[1, 4]]], axis=1)


WORDS_OF_TABLE = {"old": "a b c", "new": "c x a", "before": 1, "oov": 1, "axis": -1}
VALUES: list[tuple[dict[str, Any], tuple[int, ...], Any]] = [
    ({"how": "transpose", "axes": [1, 2, 0]}, (2, 3, 4), lambda v: v.transpose(1, 2, 0)),
    ({"how": "reshape", "shape": [-1, 6]}, (2, 3, 4), lambda v: v.reshape(4, 6)),
    ({"how": "slice", "start": [1, 0, 2]}, (2, 3, 4), lambda v: v[1:, :2, 2:]),
    ({"how": "pad", "value": 7, "before": [0, 2]}, (2, 3), lambda v: padded(v, 2, 7)),
    ({"how": "pad", "value": "ones"}, (2, 3), lambda v: padded(v, 0, 1)),
    ({"how": "tile", "times": [2, 1, 3]}, (2, 3, 4), lambda v: np.tile(v, (2, 1, 3))),
    ({"how": "tile", "axis": 1, "scale": "mean"}, (2, 3), spread),
    ({"how": "resize", "method": "nearest"}, (2, 3, 4), lambda v: resized(v, "nearest", 5, 2)),
    ({"how": "resize", "axes": [0]}, (4, 2), lambda v: resized(v[:, None], "bilinear", 6, 1)[:, 0]),
    ({"how": "vocabulary", **WORDS_OF_TABLE, "missing": "mean"}, (2, 5), of_words),
    ({"how": "cast", "casting": "any"}, (2, 3), lambda v: v.astype("uint8")),
]


@pytest.mark.parametrize(("rule", "shape", "expect"), VALUES, ids=range(len(VALUES)))
def test_values_are_those_of_numpy_and_tensorflow(rule, shape, expect, tmp_path) -> None:
    value = np.random.default_rng(1).uniform(0, 100, shape).astype("float32")
    expected, files = expect(value), {}
    for key in {"old", "new"} & {*rule}:
        files[key] = tmp_path / key
        files[key].write_text(rule[key].replace(" ", "\n"))
    net = Two([0.0], np.zeros_like(expected))
    path = Two([1.0], value).write(tmp_path)
    tfckpt.restore(config(path, adapt=[{"model": "net/b", **rule, **files}]), net=net)
    np.testing.assert_allclose(net.b, expected, rtol=1e-6)


# Files of words

WORDS = [
    (b"a\nb\n", ("a", "b")), (b"a\nb", ("a", "b")), (b"a\r\nb\r\n", ("a", "b")),
    ("ä\n 日本\n[PAD]\n".encode(), ("ä", " 日本", "[PAD]")), (b" \na b\n\t\n", (" ", "a b", "\t")),
    (b"a\n\nb\n", (2, "the line is empty")), (b"a\nb\n\n", (3, "the line is empty")),
    (b"a\nb\na\n", (3, "duplicate word 'a', first on line 1")),
    (b"a\n\xff\n", (2, "not valid UTF-8")), (b"", (0, "no words")),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), WORDS)
def test_each_line_of_a_file_of_words_is_one_or_is_named(tmp_path: Path, content, expected) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    if isinstance(expected[0], str):
        assert read_words(str(path)) == expected
        return
    line, text = expected
    with pytest.raises(tfckpt.PolicyError, match=text) as caught:
        read_words(str(path))
    assert str(caught.value).startswith(f"{path}:{line}:" if line else f"{path}: ")
    for absent in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(tfckpt.PolicyError, match="cannot be read"):
            read_words(str(absent))
