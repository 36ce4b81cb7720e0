"""Files of TF1's first Saver, wrong on purpose and with valid checksums: one error, no other."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from attacks.forging import items_of, plain_block, table, table_of
from tensorflow.core.util import saved_tensor_slice_pb2

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

v1 = tf.compat.v1
Slices = saved_tensor_slice_pb2.SavedTensorSlices
Items = dict[bytes, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: Any) -> Path:
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
    return path


@pytest.fixture
def forge(original: Path, tmp_path: Path) -> Callable[[Callable[[Items], object]], str]:
    """``forge(change)``: the path of a file whose messages were changed."""

    def make(change: Callable[[Items], object]) -> str:
        items = items_of(original, lambda key: Slices)
        change(items)
        path = tmp_path / "forged"
        path.write_bytes(table_of(items))
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


def shape(items: Items, *sizes: int) -> None:
    found = listed(items, "kernel").shape
    del found.dim[:]
    for size in sizes:
        found.dim.add(size=size)


def extent(items: Items, axis: int, start: int, length: int) -> None:
    found = listed(items, "kernel").slice[0].extent[axis]
    found.start, found.length = start, length


def number_out_of_range(items: Items) -> None:
    listed(items, "step").type = 4
    values(items, "step").ClearField("int64_val")
    values(items, "step").int_val.append(256)


def replace(items: Items, name: bytes, message: bytes) -> None:
    items.update({key: message for key in items if key and name in key})


def one_more(items: Items, name: str) -> None:
    items[b""].meta.tensor.add(name=name, type=9).shape.dim.add(size=2)


FORGERIES: dict[str, Callable[[Items], object]] = {
    "no list": lambda i: i.pop(b""),
    "a list that is no message": lambda i: i.update({b"": b"\xff\xff"}),
    "a list of 300 axes": lambda i: shape(i, *[1] * 300),
    "a negative size": lambda i: shape(i, -4, 3),
    "a shape beyond all memory": lambda i: shape(i, 1 << 40, 1 << 40),
    "a large shape without its numbers": lambda i: shape(i, 1 << 30, 3),
    "another shape": lambda i: shape(i, 3, 4),
    "one axis": lambda i: shape(i, 12),
    "a slice outside": lambda i: extent(i, 0, 3, 2),
    "a slice that overlaps": lambda i: extent(i, 0, 1, 2),
    "a slice that starts late": lambda i: extent(i, 1, 1, 2),
    "a slice that is missing": lambda i: listed(i, "kernel").slice.pop(),
    "a slice twice": lambda i: listed(i, "kernel").slice.append(listed(i, "kernel").slice[0]),
    "a slice that is not in the table": lambda i: i.pop(
        next(key for key in i if key and i[key].data.name == "kernel")
    ),
    "a scalar of two": lambda i: values(i, "step").int64_val.append(1),
    "a scalar of none": lambda i: values(i, "step").ClearField("int64_val"),
    "too few numbers": lambda i: values(i, "kernel").float_val.pop(),
    "too few strings": lambda i: values(i, "words").string_val.pop(),
    "a type that is none": lambda i: setattr(listed(i, "step"), "type", 77),
    "a type in another field": lambda i: setattr(listed(i, "step"), "type", 1),
    "a number out of its range": number_out_of_range,
    "two shapes of one tensor": lambda i: one_more(i, "step"),
    "a tensor without slices": lambda i: one_more(i, "more"),
    "half a float": lambda i: replace(i, b"kernel", b"\x12\x09\x1a\x07\x2a\x05abcde"),
    "a number without an end": lambda i: replace(i, b"step", b"\x12\x06\x1a\x04\x52\x02\xff\xff"),
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


EMPTY = {"no blocks": table([], []), "an empty block": table([plain_block([])], [b"a"])}
EMPTY["another magic"] = EMPTY["no blocks"][:-8] + b"12345678"


@pytest.mark.parametrize("content", EMPTY.values(), ids=EMPTY)
def test_tables_with_nothing_in_them(tmp_path, content) -> None:
    (tmp_path / "ckpt").write_bytes(content)
    with pytest.raises(CheckpointError):
        open_checkpoint(str(tmp_path / "ckpt"))
