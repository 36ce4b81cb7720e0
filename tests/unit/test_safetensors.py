"""safetensors files, made by hand from the format's description."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = np.arange(6, dtype="float32").reshape(2, 3)
BIAS = np.arange(3, dtype="int64")
HEADER: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "dense/kernel": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "model/dense/bias": {"dtype": "I64", "shape": [3], "data_offsets": [24, 48]},
}


def write(path: Path, header: Any, data: bytes = KERNEL.tobytes() + BIAS.tobytes()) -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return str(path)


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path / "w.safetensors", HEADER)) as opened:
        entries = opened.inventory.entries
        assert list(entries) == ["model/dense/kernel", "model/dense/bias"]
        found = [opened.values.read(entry.key) for entry in entries.values()]
    assert found[0].dtype == KERNEL.dtype
    assert (found[0] == KERNEL).all()
    assert (found[1] == BIAS).all()


def changed(**fields: Any) -> dict[str, Any]:
    return {**HEADER, "dense/kernel": {**HEADER["dense/kernel"], **fields}}


@pytest.mark.parametrize(
    "header",
    [
        changed(dtype="F99"),
        changed(shape=[2, 4]),
        changed(shape=[-2, -3]),
        changed(shape=[2, 3.0]),
        changed(shape=None),
        changed(data_offsets=[0, 28]),
        changed(data_offsets=[24, 48]),
        changed(data_offsets=[1, 25]),
        changed(data_offsets=[0]),
        b'{"a": {}, "a": {}}',
        b'{"a": ' * 100_000,
        b"{not json",
    ],
)
def test_a_header_that_contradicts_itself_is_damaged(tmp_path: Path, header: Any) -> None:
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(write(tmp_path / "w.safetensors", header))


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    whole = open(write(path, HEADER), "rb").read()  # noqa: PTH123, SIM115
    for end in (len(whole) - 1, len(whole) - 48, 40, 9, 8, 4, 0):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path))
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(str(path))


def test_roles_are_those_that_the_metadata_tells(tmp_path: Path) -> None:
    metadata = {"tfckpt.roles": '{"model/dense/bias": "state"}'}
    path = write(tmp_path / "w.safetensors", {**HEADER, "__metadata__": metadata})
    with open_checkpoint(path) as opened:
        found = {name: entry.role.value for name, entry in opened.inventory.entries.items()}
    assert found == {"dense/kernel": "weight", "model/dense/bias": "state"}


@pytest.mark.parametrize("roles", ["[]", "{", '{"a": "king"}', '{"a": []}', 7, "[" * 100_000])
def test_roles_that_are_none_are_damage(tmp_path: Path, roles: Any) -> None:
    header = {**HEADER, "__metadata__": {"tfckpt.roles": roles}}
    path = write(tmp_path / "w.safetensors", header)
    with pytest.raises(DamagedCheckpointError, match="roles"):
        open_checkpoint(path)


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    """As other libraries write a large model: `model-00001-of-00002.safetensors`, and an index."""
    numpy_files = pytest.importorskip("safetensors.numpy")
    names = [f"model-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    values = {"dense/kernel": KERNEL, "dense/bias": BIAS}
    for name, (key, value) in zip(names, values.items(), strict=True):
        numpy_files.save_file({key: value}, tmp_path / name)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = dict(zip(values, names, strict=True))
    index.write_text(json.dumps({"metadata": {"total_size": 48}, "weight_map": weight_map}))
    found = tfckpt.inspect(index)
    assert [*found.inventory.entries] == ["model/dense/kernel", "model/dense/bias"]
    with open_checkpoint(str(index)) as opened:
        assert (opened.values.read("dense/kernel") == KERNEL).all()
        assert (opened.values.read("dense/bias") == BIAS).all()
    assert [one.prefix for one in tfckpt.list_checkpoints(tmp_path)] == [str(index)]
    assert tfckpt.verify(index)[0].ok

    import tensorflow as tf

    dense = tf.train.Checkpoint(kernel=tf.Variable(0 * KERNEL), bias=tf.Variable(0 * BIAS))
    tfckpt.restore(index, model=tf.train.Checkpoint(dense=dense))
    np.testing.assert_array_equal(dense.kernel.numpy(), KERNEL)
    np.testing.assert_array_equal(dense.bias.numpy(), BIAS)

    (tmp_path / names[1]).unlink()
    with pytest.raises(DamagedCheckpointError, match=f"{names[1]}: does not exist") as raised:
        tfckpt.inspect(index)
    assert "Copy all shards" in str(raised.value)


def test_a_value_in_two_shards_is_damage(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, HEADER)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    with pytest.raises(DamagedCheckpointError, match="is in two shards"):
        open_checkpoint(str(index))
