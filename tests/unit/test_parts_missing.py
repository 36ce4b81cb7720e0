"""Damaged or missing parts: average, data files, versions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable


GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
HINT = "a checkpoint needs all of its data files; copy this one next to the index"


@pytest.fixture
def build(flavour) -> Callable[[], Any]:
    return lambda: flavour.Sequential(
        [
            flavour.Input((4,)),
            flavour.layers.Dense(3, name="body"),
            flavour.layers.Dense(2, name="head"),
        ]
    )


def sharded(model: Any, directory: Path, number: int = 1) -> str:
    """Plain TensorFlow's checkpoint of a model in two data files: the head's weights in the second.

    As a training with parameter servers leaves them (``MergeV2Checkpoints``).
    """
    whole = tf.train.Checkpoint(model=model).save(str(directory / "whole" / "ckpt"))
    head = [id_of(variable, whole) for variable in model.layers[-1].variables]
    keys = [key for key, _ in tf.train.list_variables(whole)]
    parts = []
    for part in ([key for key in keys if key not in head], head):
        parts.append(str(directory / "whole" / f"part_{len(parts)}"))
        tensors = [tf.constant(tf.train.load_variable(whole, key)) for key in part]
        tf.raw_ops.SaveV2(
            prefix=parts[-1], tensor_names=part, shape_and_slices=[""] * len(part), tensors=tensors
        )
    prefix = str(directory / f"ckpt-{number}")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix)
    shutil.rmtree(directory / "whole")
    return prefix


def id_of(variable: Any, prefix: str) -> str:
    """The key of a variable, by its value."""
    found = [
        key
        for key, shape in tf.train.list_variables(prefix)
        if shape == list(variable.shape)
        and key != GRAPH
        and np.array_equal(tf.train.load_variable(prefix, key), variable.numpy())
    ]
    assert len(found) == 1
    return found[0]


def shard(prefix: str, number: int, of: int = 2) -> Path:
    return Path(f"{prefix}.data-{number:05d}-of-{of:05d}")


def numbered(model: Any) -> Any:
    """Other numbers in every variable."""
    for number, variable in enumerate(model.variables):
        variable.assign(np.full(variable.shape, number + 1.0, np.float32))
    return model


def by_checkpoint(model: Any, prefix: str) -> Any:
    return tfckpt.Checkpoint(model=model).restore(prefix)


def by_config(model: Any, prefix: str) -> Any:
    return tfckpt.restore({"version": 1, "restore": {"path": prefix}}, model=model)


def by_plan(model: Any, prefix: str) -> Any:
    return tfckpt.plan({"version": 1, "restore": {"path": prefix}}, model=model)


WAYS = [by_checkpoint, by_config, by_plan]


@pytest.mark.parametrize("restore", WAYS)
@pytest.mark.parametrize(
    ("number", "held", "named"),
    [(1, "2 of the 6 values", " (value 'model/head/bias')"), (0, "4 of the 6 values", "")],
    ids=["of weights", "of the object graph"],
)
def test_a_missing_shard_is_named(build, tmp_path, restore, number, held, named) -> None:
    prefix = sharded(numbered(build()), tmp_path)
    shard(prefix, number).unlink()
    target = build()
    before = target.get_weights()
    with pytest.raises(tfckpt.DamagedCheckpointError) as error:
        restore(target, prefix)
    assert str(error.value) == (
        f"{shard(prefix, number)}{named}: the data file is missing; it holds {held} of the "
        f"checkpoint\n  {HINT}"
    )
    for one, other in zip(target.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("restore", WAYS)
def test_one_that_is_cut_off_names_the_file_and_the_value(build, tmp_path, restore) -> None:
    prefix = tfckpt.Checkpoint(model=numbered(build())).save(str(tmp_path / "ckpt"))
    data = shard(prefix, 0, 1)
    data.write_bytes(data.read_bytes()[:-12])
    with pytest.raises(tfckpt.DamagedCheckpointError, match=r"truncated, or of another") as error:
        restore(build(), prefix)
    assert str(error.value).startswith(f"{data} (value 'model/head/")


def test_what_is_not_needed_may_be_missing(build, tmp_path) -> None:
    """Plain TensorFlow reads the other values, too."""
    source, target = numbered(build()), build()
    prefix = sharded(source, tmp_path)
    shard(prefix, 1).unlink()
    policy = {"include": ["model/body/**"]}
    config = {"version": 1, "restore": {"path": prefix, "policy": policy}}
    report = tfckpt.restore(config, model=target)
    assert report.counts[tfckpt.Status.LOADED] == 2
    np.testing.assert_array_equal(target.layers[0].kernel.numpy(), source.layers[0].kernel.numpy())


@pytest.mark.parametrize("number", [0, 1])
def test_the_next_older_is_taken(build, tmp_path, number) -> None:
    older, newer, target = numbered(build()), build(), build()
    sharded(older, tmp_path, 1)
    prefix = sharded(newer, tmp_path, 2)
    shard(prefix, number).unlink()
    config = {"version": 1, "restore": {"directory": str(tmp_path)}}
    report = tfckpt.restore(config, model=target)
    assert report.path == str(tmp_path / "ckpt-1")
    assert str(shard(prefix, number)) in report.rejected[0]
    assert "the data file is missing" in report.rejected[0]
    np.testing.assert_array_equal(target.layers[1].kernel.numpy(), older.layers[1].kernel.numpy())


def test_an_average_of_which_one_lacks_a_file(build, tmp_path) -> None:
    first, second = (tmp_path / name for name in ("a", "b"))
    paths = [sharded(numbered(build()), place) for place in (first, second)]
    shard(paths[1], 1).unlink()
    config = {"version": 1, "restore": {"average": paths}}
    with pytest.raises(tfckpt.DamagedCheckpointError, match="the data file is missing"):
        tfckpt.restore(config, model=build())


def test_the_command_line_names_it(build, tmp_path, capsys) -> None:
    prefix = sharded(numbered(build()), tmp_path)
    shard(prefix, 1).unlink()
    assert main(["tfckpt", "inspect", prefix]) == 1
    found = capsys.readouterr()
    assert "model/head" in found.out or "head" in found.out
    assert (
        f"{shard(prefix, 1)}: the file is missing; it contains 2 of the 6 values of the checkpoint"
        in found.err
    )
    assert main(["tfckpt", "verify", prefix]) == 1
    assert f"{shard(prefix, 1).name}: the data file is missing" in " ".join(
        capsys.readouterr().out.split()
    )


SEED = 20
DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def draw(random: np.random.Generator) -> dict[str, np.ndarray]:
    """A value of each type; integers and text that are the same in all checkpoints."""
    values = {
        dtype: random.normal(size=(3, 2)).astype(tf.as_dtype(dtype).as_numpy_dtype)
        for dtype in DTYPES
    }
    return {**values, "same": np.arange(3), "text": np.array([b"a", b"b"])}


def variables(values: dict[str, Any]) -> dict[str, tf.Variable]:
    return {name: tf.Variable(value, name=name) for name, value in values.items()}


def save(prefix: str, values: dict[str, Any]) -> str:
    return tfckpt.Checkpoint(values=variables(values)).write(prefix)


def restored(live: dict[str, Any], average: Any, policy: Any = None, **more: Any) -> Any:
    source = {"average": average, "policy": policy or {}, **more}
    return tfckpt.restore({"version": 1, "restore": source}, values=live)


@pytest.mark.parametrize("weights", [None, [1, 1, 1], [0.5, 0.3, 0.2], [3, 2.5, 100]])
def test_it_is_numpys_in_every_type(weights) -> None:
    random = np.random.default_rng(SEED)
    drawn = [draw(random) for _ in range(3)]
    paths = [save(f"zoo/{number}", values) for number, values in enumerate(drawn)]
    live = variables({name: np.zeros_like(value) for name, value in drawn[0].items()})
    restored(live, paths, **({"weights": weights} if weights else {}))
    for dtype in DTYPES:
        wide = np.complex128 if dtype == "complex64" else np.float64
        stacked = np.stack([values[dtype].astype(wide) for values in drawn])
        expected = np.average(stacked, axis=0, weights=weights)
        got = live[dtype].numpy()
        assert got.dtype == drawn[0][dtype].dtype
        if dtype == "float64":
            np.testing.assert_allclose(got, expected, rtol=1e-15, err_msg=f"seed {SEED}")
        else:
            np.testing.assert_array_equal(got, expected.astype(got.dtype), f"seed {SEED}")
    np.testing.assert_array_equal(live["same"].numpy(), [0, 1, 2])
    assert live["text"].numpy().tolist() == [b"a", b"b"]


def test_integers_that_differ_are_left_out_with_the_reason() -> None:
    paths = [
        save(f"zoo/{count}", {"count": np.int64(count), "w": np.float32(count)}) for count in (2, 4)
    ]
    live = variables({"count": np.int64(-1), "w": np.float32(-1)})
    with pytest.raises(tfckpt.RefusedError, match="left out of the checkpoint: int64 is not aver"):
        restored(live, paths)
    assert (live["count"].numpy(), live["w"].numpy()) == (-1, -1)
    restored(live, paths, {"expect_missing": ["values/count"]})
    assert (live["count"].numpy(), live["w"].numpy()) == (-1, 3)


OTHERS: dict[str, dict[str, Any]] = {
    "is missing, but zoo/a has it": {"v": np.zeros(2, "f4")},
    "is not in zoo/a": {
        "w": np.zeros(2, "f4"), "v": np.zeros(2, "f4"), "u": np.zeros(2, "f4"),
    },
    "is float32 (3,), but float32 (2,) in zoo/a": {
        "w": np.zeros(3, "f4"), "v": np.zeros(2, "f4"),
    },
    "is float64 (2,), but float32 (2,) in zoo/a": {
        "w": np.zeros(2, "f8"), "v": np.zeros(2, "f4"),
    },
}  # fmt: skip


@pytest.mark.parametrize("said", OTHERS)
def test_checkpoints_that_are_not_alike_are_refused(said) -> None:
    save("zoo/a", {"w": np.ones(2, "f4"), "v": np.ones(2, "f4")})
    save("zoo/b", OTHERS[said])
    live = variables({"w": np.full(2, 7, "f4"), "v": np.full(2, 7, "f4")})
    with pytest.raises(tfckpt.UnsupportedCheckpointError) as caught:
        restored(live, ["zoo/a", "zoo/b"])
    assert caught.value.path == "zoo/b"
    assert caught.value.name in {"values/w", "values/u"}
    assert said in str(caught.value)
    assert [value.numpy().tolist() for value in live.values()] == [[7, 7], [7, 7]]


@pytest.fixture
def trained(flavour) -> Callable[[int, str], Any]:
    """``trained(seed, path)``: a model with an optimizer, saved by its manager."""

    def build(seed: int, directory: str = "") -> Any:
        model = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name="body"),
                flavour.layers.BatchNormalization(name="norm"),
                flavour.layers.Dense(2),
            ]
        )
        random = np.random.default_rng(seed)
        model.compile("adam", "mse")
        model.set_weights([random.uniform(0.1, 1, w.shape) for w in model.get_weights()])
        model.optimizer.build(model.trainable_variables)
        if directory:
            checkpoint = tfckpt.Checkpoint(model=model)
            tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=None).save()
        return model

    return build


def test_the_last_checkpoints_of_a_run(trained) -> None:
    model = trained(1)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "run", max_to_keep=None)
    saved = []
    for _ in range(3):
        model.set_weights([weight + 1 / 3 for weight in model.get_weights()])
        manager.save()
        saved.append(model.get_weights())
    other = trained(2)
    slots = [v.numpy() for v in other.optimizer.variables]
    config = {"version": 1, "restore": {"average": {"directory": "run", "latest": 2}}}
    report = tfckpt.restore(config, model=other)
    for got, *values in zip(other.get_weights(), *saved[1:], strict=True):
        np.testing.assert_array_equal(got, np.mean(values, axis=0, dtype="f8").astype("f4"))
    for variable, old in zip(other.optimizer.variables, slots, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    assert "only weights are averaged" in str(report)
    assert report.path == "the average of run/ckpt-3 and run/ckpt-2"
    assert (report.step, report.epoch) == (None, None)
    config["restore"]["average"]["latest"] = 4
    with pytest.raises(
        tfckpt.CheckpointNotFoundError, match="run: has 3 checkpoints, but `latest: 4`"
    ):
        tfckpt.restore(config, model=other)


def test_a_member_that_is_absent_or_damaged_changes_nothing(trained) -> None:
    trained(1, "a")
    trained(2, "b")
    model = trained(3)
    before = model.get_weights()

    def refused(*paths: str) -> str:
        config = {"version": 1, "restore": {"average": list(paths), "policy": {}}}
        with pytest.raises(tfckpt.CheckpointError) as caught:
            tfckpt.restore(config, model=model)
        for got, old in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(got, old)
        return str(caught.value)

    assert "c/ckpt-1" in refused("a/ckpt-1", "c/ckpt-1")
    data = Path("b/ckpt-1.data-00000-of-00001")
    content = data.read_bytes()
    data.write_bytes(bytes(byte ^ 1 for byte in content))
    assert "b/ckpt-1" in refused("a/ckpt-1", "b/ckpt-1")


def test_layers_in_another_order_are_refused(flavour) -> None:
    def model(*names: str) -> Any:
        layers = [flavour.layers.Dense(4, name=name) for name in names]
        return flavour.Sequential([flavour.Input((4,)), *layers])

    for number, names in enumerate((("x", "y"), ("y", "x"))):
        tfckpt.Checkpoint(model=model(*names)).write(f"zoo/{number}")
    config = {"version": 1, "restore": {"average": ["zoo/0", "zoo/1"]}}
    with pytest.raises(
        tfckpt.UnsupportedCheckpointError, match="in a different order than in zoo/0"
    ):
        tfckpt.plan(config, model=model("x", "y"))
