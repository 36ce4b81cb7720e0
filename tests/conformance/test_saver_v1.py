"""Checkpoints in version 1 of the Saver's format, against the values that were saved."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.graphs import save, v1

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint

V1 = v1.train.SaverDef.V1
# Those that TensorFlow can write in this version.
DTYPES = (
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "int64",
    "bool", "complex64", "complex128", "string",
)  # fmt: skip
NUMBERS = np.array([[0, 1, -1], [127, -128, 5]])


def typed() -> None:
    for dtype in DTYPES:
        if dtype == "string":
            initial = tf.constant([[b"a", b""], [b"x" * 300, b"\0\xff"]])
        else:
            initial = tf.cast(tf.constant(NUMBERS), dtype)
        v1.get_variable(dtype, initializer=initial, use_resource=False)
    v1.get_variable("scalar", initializer=tf.constant(2.5))
    v1.get_variable("empty", initializer=tf.zeros((0, 3)))
    v1.get_variable("big", (300, 1000))
    v1.get_variable("odd", initializer=tf.constant([1.0, 2.0]))


def written(path: Path) -> tuple[str, dict[str, Any]]:
    with tf.Graph().as_default(), v1.Session() as session:
        typed()
        session.run(v1.global_variables_initializer())
        named = {each.op.name.replace("odd", "odd\0 näme"): each for each in v1.global_variables()}
        saver = v1.train.Saver(named, write_version=V1)
        prefix = saver.save(session, str(path), write_meta_graph=False)
        return prefix, {name: each.eval() for name, each in named.items()}


@pytest.fixture(scope="module")
def single(tmp_path_factory: Any) -> tuple[str, dict[str, Any]]:
    return written(tmp_path_factory.mktemp("single") / "model.ckpt-3")


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: Any) -> Any:
    """Two files; one variable in four parts that lie in both."""

    def placed() -> None:
        part = iter(range(4))

        def device(op: Any) -> str:
            return f"/cpu:{next(part) % 2}" if op.type == "VarHandleOp" else ""

        for number in (0, 1):
            with v1.device(f"/cpu:{number}"):
                v1.get_variable(f"on_{number}", (3, 2))
        with v1.device(device):
            v1.get_variable("parted", (10, 4), partitioner=v1.fixed_size_partitioner(4))

    path = tmp_path_factory.mktemp("sharded") / "model.ckpt-3"
    return save(path, placed, version=V1, sharded=True, devices={"CPU": 2})


def read_all(prefix: str) -> dict[str, Any]:
    with open_checkpoint(prefix, roots={}) as stored:
        assert stored.kind == "tf1_saver_v1"
        return {e.name: stored.values.read(e.key) for e in stored.inventory.entries.values()}


def test_every_type_reads_as_it_was(single) -> None:
    prefix, expected = single
    found = read_all(prefix)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, name)


def test_what_is_listed_is_what_tensorflow_lists(single) -> None:
    prefix, _ = single
    reader = v1.train.NewCheckpointReader(prefix)
    with open_checkpoint(prefix, roots={}) as stored:
        entries = stored.inventory.entries.values()
        assert {e.key: list(e.shape) for e in entries} == reader.get_variable_to_shape_map()
        types = {key: dtype.name for key, dtype in reader.get_variable_to_dtype_map().items()}
        assert {e.key: e.dtype for e in entries} == types
        stored.values.verify(entry.key for entry in entries)
        assert stored.values.digest == hashlib.sha256(Path(prefix).read_bytes()).hexdigest()


def joined(values: dict[str, Any]) -> dict[str, Any]:
    parts = [values[f"parted/part_{n}"] for n in range(4)]
    whole = {name: value for name, value in values.items() if "part_" not in name}
    return {**whole, "parted": np.concatenate(parts)}


def test_shards_and_parts_become_one(sharded) -> None:
    directory = Path(sharded.path).parent
    names = [p.name for p in directory.glob("model*")]
    assert sorted(names) == [f"model.ckpt-3-0000{n}-of-00002" for n in (0, 1)]
    for prefix in (sharded.path, str(directory / "model.ckpt-3")):
        found = read_all(prefix)
        np.testing.assert_equal(found, joined(sharded.values))


def test_one_of_its_files_is_not_a_checkpoint(sharded) -> None:
    directory = Path(sharded.path).parent
    with pytest.raises(CheckpointNotFoundError, match="one of the 2 files") as caught:
        open_checkpoint(str(directory / "model.ckpt-3-00001-of-00002"))
    assert f"Use {str(directory / 'model.ckpt-3')!r}" in caught.value.hint


def test_a_missing_file_is_named(sharded, tmp_path) -> None:
    one = Path(sharded.path).parent / "model.ckpt-3-00001-of-00002"
    (tmp_path / one.name).write_bytes(one.read_bytes())
    with pytest.raises(
        DamagedCheckpointError, match="this file of the checkpoint is missing"
    ) as caught:
        open_checkpoint(str(tmp_path / "model.ckpt-3"))
    assert caught.value.path == str(tmp_path / "model.ckpt-3-00000-of-00002")


def test_an_index_under_another_name_is_not_taken_for_one(tmp_path) -> None:
    prefix = tf.train.Checkpoint(v=tf.Variable(1.0)).write(str(tmp_path / "ckpt"))
    other = tmp_path / "model.ckpt"
    other.write_bytes(Path(f"{prefix}.index").read_bytes())
    with pytest.raises(CheckpointNotFoundError, match="index of a checkpoint of version 2"):
        open_checkpoint(str(other))


def test_damage_to_one_value_is_that_values(single, tmp_path) -> None:
    prefix, expected = single
    content = bytearray(Path(prefix).read_bytes())
    at = content.find(expected["big"].tobytes()[:400])
    assert at > 0
    content[at] ^= 1
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    with open_checkpoint(str(copy), roots={}) as stored:
        np.testing.assert_array_equal(stored.values.read("scalar"), expected["scalar"])
        with pytest.raises(DamagedCheckpointError, match="checksum") as caught:
            stored.values.verify(["big"])
        assert caught.value.path == str(copy)


def test_mutants_are_errors_of_the_package_or_right(single, tmp_path) -> None:
    """Bits flipped, pieces cut out and doubled: never another exception, never other numbers."""
    prefix, expected = single
    content = Path(prefix).read_bytes()
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(60):
        copy = bytearray(content)
        at = rng.choice([rng.randrange(len(copy)), len(copy) - 1 - rng.randrange(3000)])
        kind = number % 3
        if kind == 0:
            copy[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del copy[at : at + rng.randrange(1, 5000)]
        else:
            copy[at:at] = copy[at : at + rng.randrange(1, 500)]
        (tmp_path / "mutant").write_bytes(copy)
        try:
            found = read_all(str(tmp_path / "mutant"))
        except (DamagedCheckpointError, UnsupportedCheckpointError, CheckpointNotFoundError):
            continue
        except CheckpointError as error:
            pytest.fail(repr(error))
        np.testing.assert_equal(found, expected)
