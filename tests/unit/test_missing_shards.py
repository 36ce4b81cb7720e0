"""A data file that is not there, or is cut off: named, with what it held, wherever it is needed."""

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
def test_all_of_them_missing(build, tmp_path, restore) -> None:
    prefix = sharded(numbered(build()), tmp_path)
    shard(prefix, 0).unlink(), shard(prefix, 1).unlink()
    with pytest.raises(tfckpt.DamagedCheckpointError) as error:
        restore(build(), prefix)
    assert "(1 other data file is missing too)" in str(error.value)


@pytest.mark.parametrize("restore", WAYS)
def test_the_only_one_of_a_committed_checkpoint(build, tmp_path, restore) -> None:
    prefix = tfckpt.Checkpoint(model=numbered(build())).save(str(tmp_path / "ckpt"))
    shard(prefix, 0, 1).unlink()
    with pytest.raises(tfckpt.DamagedCheckpointError) as error:
        restore(build(), prefix)
    assert f"{shard(prefix, 0, 1)} (value 'model/body/bias')" in str(error.value)
    assert "the data file is missing; it holds all 6 values of the checkpoint" in str(error.value)


@pytest.mark.parametrize("restore", WAYS)
def test_a_pointer_of_git_lfs(build, tmp_path, restore) -> None:
    prefix = sharded(numbered(build()), tmp_path)
    shard(prefix, 1).write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(tfckpt.DamagedCheckpointError, match="git lfs pull"):
        restore(build(), prefix)


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


@pytest.mark.parametrize("writer", [tfckpt.Checkpoint, tf.train.Checkpoint])
def test_a_damaged_value_is_named_as_reports_name_it(build, tmp_path, writer) -> None:
    """And so is one that was passed over for the next older checkpoint."""
    checkpoint, target = writer(model=numbered(build())), build()
    checkpoint.save(str(tmp_path / "ckpt"))
    path = checkpoint.save(str(tmp_path / "ckpt"))
    kernel = numbered(build()).layers[-1].kernel.numpy().tobytes()
    data = shard(path, 0, 1)
    content = bytearray(data.read_bytes())
    content[content.index(kernel)] ^= 1
    data.write_bytes(content)
    told = f"{data} (value 'model/head/kernel'): the 24 bytes at"
    with pytest.raises(tfckpt.DamagedCheckpointError) as error:
        tfckpt.Checkpoint(model=target).restore(path)
    assert str(error.value).startswith(told)
    config = {"version": 1, "restore": {"directory": str(tmp_path)}}
    report = tfckpt.restore(config, model=target)
    assert report.path == str(tmp_path / "ckpt-1")
    assert report.rejected[0].startswith(told)
