"""What the commands do, called from Python: values, statistics, differences, errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.values import read

import tfckpt
from tfckpt.core.distance import Distance, difference
from tfckpt.tools.statistics import BINS, statistics

RANDOM = np.random.default_rng(6)
ONE, OTHER = RANDOM.normal(size=(2, 6, 4)).astype("float32")
ZEROS = np.zeros(4, "float32")


def build() -> Any:
    model = keras.Sequential([keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2)])
    model.build((None, 4))
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three checkpoints of a run, of which the second is the best."""
    model = build()
    checkpoint = tfckpt.Checkpoint(model=model)
    keep = [{"best": 3, "monitor": "loss", "mode": "min"}]
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "runs", None, keep=keep)
    for number, loss in enumerate([0.5, 0.25, 0.75]):
        model.layers[0].bias.assign([number, number, number])
        manager.save(step=10 * number, metrics={"loss": loss}, metadata={"commit": "1c9f"})
    return tmp_path / "runs"


def test_inspect_diff_and_export(runs: Path) -> None:
    found = tfckpt.inspect(runs, values=True)
    assert found.path == str(runs / "ckpt-3")
    assert [one.number for one in found.candidates] == [3, 2, 1]
    assert (found.record.step, found.record.metrics["loss"]) == (20, 0.75)
    entry = found.inventory.entries["model/hidden/kernel"]
    assert (entry.dtype, entry.shape, entry.nbytes) == ("float32", (4, 3), 48)
    kernel = tf.train.load_checkpoint(found.path).get_tensor(entry.key)
    numbers = found.statistics["model/hidden/kernel"]
    assert np.isclose(numbers.mean, kernel.mean())
    assert pickle.loads(pickle.dumps(found)).to_json() == found.to_json()
    assert len(repr(found)) < 1000

    changed = tfckpt.diff(runs / "ckpt-1", runs / "ckpt-3", values=True)
    assert {one.entry.name for one in changed.differences} == {"model/hidden/bias", "save_counter"}
    distance = changed.distances["model/hidden/bias", "model/hidden/bias"]
    assert (distance.count, distance.largest, distance.relative) == (3, 2.0, 1.0)
    model = build()
    path = tfckpt.Checkpoint(model=model).write(runs / "other")
    assert tfckpt.diff(path, model, values=True).same
    model.layers[1].kernel.assign_add(tf.ones((3, 2)) / 2)
    (only,) = (live := tfckpt.diff(path, {"model": model}, values=True)).differences
    assert only.kind.value == "value"
    assert np.isclose(live.distances[only.a.name, only.b.name].largest, 0.5)
    assert tfckpt.diff(path, model).not_compared > 0  # without `values`, no content is compared

    trained, new = keras.optimizers.Adam(), keras.optimizers.Adam()
    trained.build(model.trainable_variables)
    path = tfckpt.Checkpoint(model=model, optimizer=trained).write(runs / "trained")
    before = read(new)
    assert tfckpt.diff(path, {"model": model, "optimizer": new}, values=True).same
    assert len(read(new)) == len(before)  # what was built to compare is taken back

    source = runs / "ckpt-1"
    arrays = np.load(tfckpt.export(source, runs / "w.npz"))
    np.testing.assert_array_equal(arrays["model/hidden/kernel"], kernel)
    other = build()
    other.load_weights(tfckpt.export(source, runs / "w.weights.h5", build()))
    np.testing.assert_array_equal(other.get_weights()[0], kernel)


# --- statistics and differences


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype="float32").reshape(3, 4) + 2,
        RANDOM.normal(size=2_500_000).astype("float32"),
        np.array([np.nan, np.inf, -np.inf, 1.0]),
        np.array([1.0, 3.0], ml_dtypes.bfloat16),
        np.array([True, False]),
        np.array([2**60, 2**60 + 1]),
        np.array([2**64 - 1, 2**64 - 2], "uint64"),
    ],
    ids=lambda array: f"{array.dtype} {array.size}",
)
def test_statistics_are_those_of_numpy(array: Any) -> None:
    found: Any = statistics(array)
    numbers = array.astype("float64") if array.dtype.kind in "fV" else array.astype(object)
    finite = np.array([one + 0 for one in numbers.ravel().tolist() if abs(one) < np.inf])
    assert (found.count, found.nonfinite) == (array.size, array.size - finite.size)
    assert found.zeros == np.count_nonzero(finite == 0)
    assert (found.least, found.greatest) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.astype("float64").mean())
    assert found.std == pytest.approx((finite - finite.min()).astype("float64").std(), abs=1e-9)
    assert sum(found.histogram) == finite.size
    if array.size > 100:
        assert found.histogram == tuple(np.histogram(finite.astype("float64"), BINS)[0])


def test_what_has_no_numbers_has_no_statistics() -> None:
    for array in (np.full(3, np.nan), np.zeros((0, 3))):
        found: Any = statistics(array)
        assert (found.least, found.mean, found.std, found.histogram) == (None, None, None, ())
    assert statistics(np.array([b"a"], object)) is None
    for array in (np.array([5e-324, 1e-323]), np.array([1.7e308, -1.7e308]), np.array([3 + 4j])):
        found = statistics(array)
        assert sum(found.histogram) == array.size


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2**60], [2**60 + 1], 1.0),
        ([-(2**63)], [2**63 - 1], float(2**64)),
        (np.array([127], np.int8), np.array([-128], np.int8), 255.0),
        ([True], [False], 1.0),
    ],
)
def test_how_far_apart_integers_are_is_exact(a: Any, b: Any, expected: float) -> None:
    found = difference(np.array(a), np.array(b))
    assert (found.count, found.largest) == (1, expected)
    assert difference(np.array([np.nan]), np.array([np.nan])) == Distance(0, 0.0, 0.0)


def written(path: Path, **values: Any) -> str:
    """A checkpoint of plain TensorFlow's with values at paths of `__`."""
    tree = tf.train.Checkpoint()
    for name, value in values.items():
        at, (*parents, last) = tree, name.split("__")
        for part in parents:
            setattr(at, part, getattr(at, part, tf.train.Checkpoint()))
            at = getattr(at, part)
        setattr(at, last, tf.Variable(value))
    return str(tree.write(str(path)))


def test_each_kind_of_difference(tmp_path: Path) -> None:
    changed = ONE.copy()
    changed[2, 1] += 0.25
    same = {"m__k": OTHER, **{f"v{n}": np.arange(9.0) for n in range(3)}}
    a = {"m__w": ONE, "m__old": [1.0, 2.0], "m__s": np.ones(3), "m__t": np.float32(1)}
    a |= {"m__n": [np.nan, 1.0], "m__enc__w": OTHER[:3], "m__enc__b": ZEROS, **same}
    b = {"m__w": changed, "m__new": [4.0, 5.0, 6.0], "m__s": np.ones(4), "m__t": np.float64(1)}
    b |= {"m__n": [np.nan, np.inf], "m__dec__w": OTHER[:3], "m__dec__b": ZEROS, **same}
    paths = written(tmp_path / "a", **a), written(tmp_path / "b", **b)
    found = document("diff", *paths, "--values", status=1)
    by_names = {
        (one["kind"], *(one[side] and one[side]["name"] for side in "ab")): one
        for one in found["differences"]
    }
    assert by_names.keys() == {
        ("only_a", "m/old", None),
        ("only_b", None, "m/new"),
        ("shape", "m/s", "m/s"),
        ("dtype", "m/t", "m/t"),
        ("value", "m/w", "m/w"),
        ("value", "m/n", "m/n"),
        ("moved", "m/enc/w", "m/dec/w"),
        ("only_a", "m/enc/b", None),  # zeros are everywhere
        ("only_b", None, "m/dec/b"),
    }
    assert found["equal"] == 4
    w, n = (by_names["value", name, name] for name in ("m/w", "m/n"))
    scale = max(np.abs(ONE).max(), np.abs(changed).max())
    assert [w["differing"], w["largest"], w["relative"]] == pytest.approx(
        [1, 0.25, 0.25 / scale], rel=1e-5
    )
    assert (n["differing"], n["largest"], n["relative"]) == (1, None, None)
    text = " ".join(run("diff", *paths).out.split())
    assert "only in a" in text
    assert "float64 (3) → float64 (4)" in text


# --- what is refused


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda p: tfckpt.export(p, f"{p}.pt"), "it is a local .npz or .safetensors"),
        (lambda p: tfckpt.export(p, f"{p}.npz", policy={}), "into `model`, which is missing"),
        (lambda p: tfckpt.export(p, f"{p}.npz", 1), "with `model`, it ends with .weights.h5"),
        (lambda p: tfckpt.export(p, f"{p}.weights.h5", 1), "must be a Keras model"),
        (lambda p: tfckpt.list_checkpoints(Path(p).parent, keep=[{"latst": 1}]), "latst"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[str], Any], says: str, tmp_path: Path) -> None:
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(a=tf.Variable([1.0])), tmp_path, None)
    path = manager.save()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(tfckpt.PolicyError) as error:
        call(path)
    assert str(error.value).startswith("the arguments: ")
    assert says in str(error.value)
    assert sorted(tmp_path.iterdir()) == before


def test_none_and_other_things_are_no_path(tmp_path: Path) -> None:
    for call in (tfckpt.inspect, tfckpt.verify, tfckpt.list_checkpoints):
        with pytest.raises(FileNotFoundError, match=r"latest_checkpoint returns None"):
            call(tf.train.latest_checkpoint(str(tmp_path)))
        with pytest.raises(TypeError):
            call(3)
    path = tf.train.Checkpoint(a=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.UntrackedError):
        tfckpt.diff(path, 3)


def test_an_evaluator_gets_each_newest_checkpoint_that_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "run"
    assert list(tfckpt.checkpoints_iterator(place, timeout=0)) == []
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="None was given"):
        next(tfckpt.checkpoints_iterator(None))
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(a=tf.Variable(1.0)), str(place), 3)
    asked: list[int] = []

    def over() -> bool:
        """Called after each checkpoint, as TensorFlow's: saves one more, three times."""
        asked.append(1)
        if len(asked) < 4:
            manager.save()
        return len(asked) == 4

    found = list(tfckpt.checkpoints_iterator(place, timeout=0, timeout_fn=over))
    assert found == [f"{place}/ckpt-{number}" for number in (1, 2, 3)]
    assert found[-1:] == list(tf.train.checkpoints_iterator(str(place), timeout=0))
    # What a killed save has left, and a stale file `checkpoint`.
    (place / "ckpt-4.data-00000-of-00001").write_bytes(b"1234")
    (place / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"')
    assert list(tfckpt.checkpoints_iterator(place, timeout=0)) == found[-1:]
    tf.train.Checkpoint(a=tf.Variable(2.0)).write(str(place / "ckpt-9"))
    assert list(tfckpt.checkpoints_iterator(place, timeout=0)) == [f"{place}/ckpt-9"]
