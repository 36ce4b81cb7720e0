"""Files of TF1's first Saver, wrong on purpose and with valid checksums: one error, no other."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from attacks.forging import plain_block, table
from tensorflow.core.util import saved_tensor_slice_pb2

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.table import read_table
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

v1 = tf.compat.v1
Slices = saved_tensor_slice_pb2.SavedTensorSlices
Items = dict[bytes, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: Any) -> bytes:
    """``kernel`` in two slices, a scalar ``step`` and two strings."""
    path = tmp_path_factory.mktemp("v1") / "ckpt"
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("kernel", (4, 3), partitioner=v1.fixed_size_partitioner(2))
        v1.get_variable("step", initializer=tf.constant(7, tf.int64))
        v1.get_variable("words", initializer=tf.constant([b"a", b"bc"]), use_resource=False)
        session.run(v1.global_variables_initializer())
        v1.train.Saver(write_version=v1.train.SaverDef.V1).save(
            session, str(path), write_meta_graph=False
        )
    return path.read_bytes()


@pytest.fixture
def forge(original: bytes, tmp_path: Path) -> Callable[[Callable[[Items], None]], str]:
    """``forge(change)``: the path of a file whose messages were changed."""

    def make(change: Callable[[Items], None]) -> str:
        items = {key: Slices.FromString(value) for key, value in read_table(original, "ckpt")}
        change(items)
        pairs = sorted(
            (key, value if isinstance(value, bytes) else value.SerializeToString())
            for key, value in items.items()
        )
        path = tmp_path / "forged"
        path.write_bytes(table([plain_block(pairs)], [pairs[-1][0] + b"\xff"] if pairs else [b""]))
        return str(path)

    return make


def read_all(path: str) -> dict[str, Any]:
    with open_checkpoint(path, roots={}) as stored:
        return {e.name: stored.values.read(e.key) for e in stored.inventory.entries.values()}


def listed(items: Items, name: str) -> Any:
    return next(each for each in items[b""].meta.tensor if each.name == name)


def values(items: Items, name: str) -> Any:
    return next(item.data.data for key, item in items.items() if key and item.data.name == name)


def test_the_forge_itself_forges_nothing(forge) -> None:
    found = read_all(forge(lambda items: None))
    assert found["kernel"].shape == (4, 3)
    assert found["step"] == 7
    assert found["words"].tolist() == [b"a", b"bc"]


def _shape(*sizes: int) -> Callable[[Items], None]:
    def change(items: Items) -> None:
        shape = listed(items, "kernel").shape
        del shape.dim[:]
        for size in sizes:
            shape.dim.add(size=size)

    return change


def _extent(axis: int, start: int, length: int) -> Callable[[Items], None]:
    def change(items: Items) -> None:
        extent = listed(items, "kernel").slice[0].extent[axis]
        extent.start, extent.length = start, length

    return change


def _do(action: Callable[[Items], object]) -> Callable[[Items], None]:
    def change(items: Items) -> None:
        action(items)

    return change


FORGERIES: dict[str, Callable[[Items], None]] = {
    "no list": _do(lambda items: items.pop(b"")),
    "a list that is no message": _do(lambda items: items.update({b"": b"\xff\xff"})),
    "a list of 300 axes": _shape(*[1] * 300),
    "a negative size": _shape(-4, 3),
    "a shape beyond all memory": _shape(1 << 40, 1 << 40),
    "a large shape without its numbers": _shape(1 << 30, 3),
    "another shape": _shape(3, 4),
    "one axis": _shape(12),
    "a slice outside": _extent(0, 3, 2),
    "a slice that overlaps": _extent(0, 1, 2),
    "a slice that starts late": _extent(1, 1, 2),
    "a slice that is missing": _do(lambda items: listed(items, "kernel").slice.pop()),
    "a slice twice": _do(
        lambda items: listed(items, "kernel").slice.add().CopyFrom(listed(items, "kernel").slice[0])
    ),
    "a slice that is not in the table": _do(
        lambda items: items.pop(next(k for k in items if k and items[k].data.name == "kernel"))
    ),
    "a scalar of two": _do(lambda items: values(items, "step").int64_val.append(1)),
    "a scalar of none": _do(lambda items: values(items, "step").ClearField("int64_val")),
    "too few numbers": _do(lambda items: values(items, "kernel").float_val.pop()),
    "too few strings": _do(lambda items: values(items, "words").string_val.pop()),
    "a type that is none": _do(lambda items: setattr(listed(items, "step"), "type", 77)),
    "a type in another field": _do(lambda items: setattr(listed(items, "step"), "type", 1)),
    "a number out of its range": _do(
        lambda items: (
            setattr(listed(items, "step"), "type", 4),
            values(items, "step").ClearField("int64_val"),
            values(items, "step").int_val.append(256),
        )
    ),
    "two shapes of one tensor": _do(
        lambda items: items[b""].meta.tensor.add(name="step", type=9).shape.dim.add(size=2)
    ),
    "a tensor without slices": _do(
        lambda items: items[b""].meta.tensor.add(name="more", type=9).shape.dim.add(size=2)
    ),
    "half a float": _do(
        lambda items: items.update(
            {k: b"\x12\x09\x1a\x07\x2a\x05abcde" for k in items if k and b"kernel" in k}
        )
    ),
    "a number without an end": _do(
        lambda items: items.update(
            {k: b"\x12\x06\x1a\x04\x52\x02\xff\xff" for k in items if k and b"step" in k}
        )
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_damage(forge, name) -> None:
    path = forge(FORGERIES[name])
    tracemalloc.start()
    try:
        with pytest.raises(DamagedCheckpointError) as caught:
            read_all(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path in str(caught.value)
    assert peak < 50 << 20


def test_a_later_version_is_not_supported(forge) -> None:
    with pytest.raises(UnsupportedCheckpointError, match="version 9"):
        read_all(forge(lambda items: setattr(items[b""].meta.versions, "min_consumer", 9)))


@pytest.mark.parametrize("dtype", [20, 21, 24, 29])
def test_types_that_such_files_cannot_hold_are_listed(forge, dtype) -> None:
    path = forge(lambda items: setattr(listed(items, "step"), "type", dtype))
    with open_checkpoint(path, roots={}) as stored:
        entry = stored.inventory.entries["step"]
        stored.values.verify(["step", "kernel"])
        with pytest.raises(UnsupportedCheckpointError, match=entry.dtype):
            stored.values.read("step")
        np.testing.assert_equal(stored.values.read("words").tolist(), [b"a", b"bc"])


@pytest.mark.parametrize(
    "content",
    [table([], []), table([plain_block([])], [b"a"]), table([], [], magic=b"12345678")],
    ids=["no blocks", "an empty block", "another magic"],
)
def test_tables_with_nothing_in_them(tmp_path, content) -> None:
    (tmp_path / "ckpt").write_bytes(content)
    with pytest.raises(CheckpointError):
        open_checkpoint(str(tmp_path / "ckpt"))
