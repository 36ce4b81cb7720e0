"""What TensorFlow writes, whatever it is, is read bit by bit."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo.tensors import KEYS, assert_same, random_array, save, values

from tfckpt.stored.bundles.bundle import Bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@given(content=st.dictionaries(KEYS, values(), min_size=1, max_size=6))
def test_values_read_as_written(tf: Any, directory: Path, content: dict[str, Any]) -> None:
    prefix = str(directory / "ckpt-1")
    save(tf, prefix, content)
    listed = dict(tf.train.list_variables(prefix))
    with Bundle.open(prefix) as bundle:
        bundle.verify(bundle.entries)
        assert {key: list(entry.shape) for key, entry in bundle.entries.items()} == listed
        for key, written in content.items():
            assert_same(tf, bundle.read(key), written)


@settings(max_examples=30)
@given(
    parts=st.lists(st.dictionaries(KEYS, values(), min_size=1, max_size=3), min_size=2, max_size=4)
)
def test_merged_shards_read_as_written(tf: Any, directory: Path, parts: list[Any]) -> None:
    prefixes = [str(directory / f"part_{number}") for number in range(len(parts))]
    content: dict[str, Any] = {}
    for number, (prefix, part) in enumerate(zip(prefixes, parts, strict=True)):
        named = {f"{number}/{key}": value for key, value in part.items()}
        save(tf, prefix, named)
        content |= named
    merged = str(directory / "merged-1")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=merged)
    with Bundle.open(merged) as bundle:
        assert {entry.shard for entry in bundle.entries.values()} == set(range(len(parts)))
        assert set(bundle.entries) == set(content)
        bundle.verify(bundle.entries)
        for key, written in content.items():
            assert_same(tf, bundle.read(key), written)


@st.composite
def partitions(draw: Any) -> tuple[tuple[int, ...], list[list[int]]]:
    """A shape and, per axis, where it is cut."""
    shape = draw(st.lists(st.integers(1, 150), min_size=1, max_size=3))
    cuts = [
        sorted(draw(st.sets(st.integers(1, size - 1), max_size=2))) if size > 1 else []
        for size in shape
    ]
    return tuple(shape), [[0, *cut, size] for cut, size in zip(cuts, shape, strict=True)]


# TensorFlow's reader puts slices together for these.
@settings(max_examples=40)
@given(
    partition=partitions(),
    dtype=st.sampled_from(["float32", "float64", "int32", "int64", "bool", "bfloat16"]),
    key=KEYS,
)
def test_sliced_values_are_put_together(
    tf: Any, directory: Path, partition: Any, dtype: str, key: str
) -> None:
    shape, edges = partition
    written = random_array(sum(shape), dtype, shape)
    boxes: list[list[tuple[int, int]]] = [[]]
    for cut in edges:
        boxes = [[*box, pair] for box in boxes for pair in itertools.pairwise(cut)]
    sizes = " ".join(map(str, shape))
    specs = [
        f"{sizes} "
        + ":".join(
            "-" if (start, end) == (0, size) else f"{start},{end - start}"
            for (start, end), size in zip(box, shape, strict=True)
        )
        for box in boxes
    ]
    tensors = [tf.constant(written[tuple(slice(*pair) for pair in box)]) for box in boxes]
    prefix = str(directory / "sliced-1")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[key] * len(boxes), shape_and_slices=specs, tensors=tensors
    )
    read_back = tf.train.load_checkpoint(prefix).get_tensor(key)
    assert read_back.tobytes() == written.tobytes()
    with Bundle.open(prefix) as bundle:
        assert list(bundle.entries) == [key]
        assert bundle.entries[key].sliced == (len(boxes) > 1)
        assert bundle.entries[key].nbytes == written.nbytes
        bundle.verify(bundle.entries)
        assert_same(tf, bundle.read(key), written)
