"""What the commands do, called from Python: values, errors, and that TensorFlow is not needed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import run

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


def build(keras: Any) -> Any:
    model = keras.Sequential([keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2)])
    model.build((None, 4))
    model.compile("adam", "mse")
    return model


@pytest.fixture
def runs(flavour: Any, tmp_path: Path) -> Path:
    """Three checkpoints of a run, of which the second is the best."""
    model = build(flavour)
    checkpoint = tfckpt.Checkpoint(model=model)
    keep = [{"best": 3, "monitor": "loss", "mode": "min"}]
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path / "runs", None, keep=keep)
    for number, loss in enumerate([0.5, 0.25, 0.75]):
        model.layers[0].bias.assign([number, number, number])
        manager.save(step=10 * number, metrics={"loss": loss}, metadata={"commit": "1c9f"})
    return tmp_path / "runs"


def test_inspect_gives_values_record_and_statistics(runs: Path) -> None:
    found = tfckpt.inspect(runs, values=True)
    assert found.path == str(runs / "ckpt-3")
    assert [one.number for one in found.candidates] == [3, 2, 1]
    assert found.record is not None
    assert (found.record.step, found.record.metrics["loss"]) == (20, 0.75)
    kernel = found.inventory.entries["model/hidden/kernel"]
    assert (kernel.dtype, kernel.shape, kernel.nbytes) == ("float32", (4, 3), 48)
    stored = tf.train.load_checkpoint(found.path).get_tensor(kernel.key)
    assert found.statistics is not None
    statistics = found.statistics["model/hidden/kernel"]
    assert np.isclose(statistics.mean, stored.mean())  # type: ignore[union-attr]
    assert statistics.greatest == stored.max()  # type: ignore[union-attr]
    assert tfckpt.inspect(runs).statistics is None
    assert pickle.loads(pickle.dumps(found)).to_json() == found.to_json()
    assert len(repr(found)) < 1000


def test_diff_compares_checkpoints_or_live_objects(runs: Path, flavour: Any) -> None:
    found = tfckpt.diff(runs / "ckpt-1", runs / "ckpt-3", values=True)
    assert not found.same
    changed = {one.entry.name for one in found.differences}
    assert changed == {"model/hidden/bias", "save_counter"}
    assert found.distances is not None
    distance = found.distances["model/hidden/bias", "model/hidden/bias"]
    assert (distance.count, distance.largest, distance.relative) == (3, 2.0, 1.0)
    model = build(flavour)
    path = tfckpt.Checkpoint(model=model).write(runs / "other")
    assert tfckpt.diff(path, model, values=True).same
    model.layers[1].kernel.assign_add(tf.ones((3, 2)) / 2)
    found = tfckpt.diff(path, {"model": model}, values=True)
    (only,) = found.differences
    assert only.kind.value == "value"
    assert np.isclose(found.distances[only.a.name, only.b.name].largest, 0.5)  # type: ignore[index,union-attr]
    assert tfckpt.diff(path, model).not_compared > 0  # without `values`, no content is compared


def test_rewrite_and_convert_write_what_plain_readers_find(runs: Path, flavour: Any) -> None:
    source = runs / "ckpt-1"
    kernel = tf.train.load_checkpoint(str(source)).get_tensor(
        tfckpt.inspect(source).inventory.entries["model/hidden/kernel"].key
    )
    rename = [{"checkpoint": "model/hidden/**", "model": "model/body/**"}]
    half = tfckpt.rewrite(
        source,
        runs / "half",
        rename=rename,
        drop_optimizer=True,
        cast={"": "float16", "model/hidden/bias": "float64"},
    )
    assert half == str(runs / "half")
    entries = tfckpt.inspect(half).inventory.entries
    assert not any(name.startswith("optimizer/") for name in entries)
    assert entries["model/body/bias"].dtype == "float64"
    found = tf.train.load_checkpoint(half).get_tensor(entries["model/body/kernel"].key)
    np.testing.assert_array_equal(found, kernel.astype("float16"))
    mean = tfckpt.rewrite(source, runs / "mean", average=[runs / "ckpt-3"])
    bias = tfckpt.inspect(mean, values=True).statistics["model/hidden/bias"]  # type: ignore[index]
    assert (bias.least, bias.greatest) == (1.0, 1.0)  # type: ignore[union-attr]
    arrays = np.load(tfckpt.convert(source, runs / "w.npz", include=["model/**"]))
    np.testing.assert_array_equal(arrays["model/hidden/kernel"], kernel)
    weights = tfckpt.convert(source, runs / "w.weights.h5", build(flavour))
    other = build(flavour)
    other.load_weights(weights)
    np.testing.assert_array_equal(other.get_weights()[0], kernel)


def test_a_refused_plan_writes_nothing(runs: Path) -> None:
    before = sorted(runs.iterdir())
    with pytest.raises(tfckpt.RefusedError, match="'model/hiden/") as refused:
        tfckpt.rewrite(runs / "ckpt-1", runs / "new", include=["model/hiden/**"])
    assert not refused.value.plan.ok
    with pytest.raises(tfckpt.RefusedError):
        tfckpt.convert(runs / "ckpt-1", runs / "new.npz", include=["model/hiden/**"])
    assert sorted(runs.iterdir()) == before


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda p: tfckpt.rewrite(p, f"{p}-n", cast="floot"), "'floot' is not a dtype"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", cast={"x": "int8"}), "x=int8 matches no value"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", policy={}, include=["a"]), "remove `include`"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", policy={"inclde": "a"}), "include"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", include=["re:("]), "include"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", include="a"), "write a list: ['a']"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", shard_size=0), "a number of bytes, found 0"),
        (lambda p: tfckpt.rewrite(p, f"{p}-n", shard_size="2G"), "of bytes, found '2G'"),
        (lambda p: tfckpt.convert(p, f"{p}.pt"), "cannot write .pt"),
        (lambda p: tfckpt.convert(p, f"{p}.npz", shard_size=9), "`shard_size` is only for"),
        (lambda p: tfckpt.convert(p, f"{p}.npz", object()), "`model` is only for a new name"),
        (lambda p: tfckpt.convert(p, f"{p}.weights.h5"), "needs `model`"),
        (lambda p: tfckpt.convert(p, f"{p}.weights.h5", 1, cast="int8"), "remove `cast`"),
        (lambda p: tfckpt.convert(p, f"{p}.weights.h5", 1), "must be a Keras model"),
        (lambda p: tfckpt.list_checkpoints(Path(p).parent, keep=[{"latst": 1}]), "latst"),
        (lambda p: tfckpt.list_checkpoints(Path(p).parent, keep=[{"latest": 0}]), "latest"),
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


@pytest.mark.parametrize("name", ["", "absent", "absent/ckpt-1", "file", "empty", "ckpt-1.index"])
def test_a_wrong_path_is_the_same_error_as_of_the_command(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("some text")
    (tmp_path / "empty").mkdir()
    tf.train.Checkpoint(a=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    path = f"{tmp_path}/{name}" if name else f"{tmp_path}/ckpt-2"
    calls = {
        "inspect": tfckpt.inspect,
        "verify": tfckpt.verify,
        "list": tfckpt.list_checkpoints,
        "diff": lambda path: tfckpt.diff(path, path),
        "rewrite": lambda path: tfckpt.rewrite(path, f"{path}-new"),
        "convert": lambda path: tfckpt.convert(path, f"{path}.npz"),
    }
    targets = {
        "diff": [path],
        "rewrite": [f"{path}-new"],
        "convert": [f"{path}.npz"],
    }
    for command, call in calls.items():
        ended = run(command, path, *targets.get(command, ()))
        if command == "verify" and ended.status == 1 and not ended.err:
            (verdict,) = call(path)  # a damaged file is a verdict
            assert not verdict.ok
            continue
        with pytest.raises(tfckpt.CheckpointError) as error:
            call(path)
        assert ended.status == 1
        assert ended.err == f"tfckpt: {error.value}\n"


def test_none_and_other_things_are_no_path(tmp_path: Path) -> None:
    for call in (tfckpt.inspect, tfckpt.verify, tfckpt.list_checkpoints):
        with pytest.raises(FileNotFoundError, match=r"latest_checkpoint returns None"):
            call(tf.train.latest_checkpoint(str(tmp_path)))
        with pytest.raises(TypeError):
            call(3)  # type: ignore[arg-type]
    path = tf.train.Checkpoint(a=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.UntrackedError):
        tfckpt.diff(path, 3)
