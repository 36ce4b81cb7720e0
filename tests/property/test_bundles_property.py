"""Whatever TensorFlow or tfckpt writes, the other reads bit by bit; what is not finite is told."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph
from zoo.bundles import write_bundle
from zoo.tensors import KEYS, assert_same, random_array, save, values

from tfckpt.core.dtypes import DTYPES as NAMES_OF_DTYPES
from tfckpt.core.dtypes import dtype_name
from tfckpt.errors import CheckpointNotFoundError, DamagedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, object_graph
from tfckpt.stored.bundles.write import (
    BundleValue,
    Target,
    all_finite,
    encode_index,
    write_in_parallel,
)
from tfckpt.stored.io.files import SCRATCH

CONTENT = st.dictionaries(KEYS, values(), min_size=1, max_size=6)


@pytest.fixture(scope="session")
def directory(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("bundles")


def anew(prefix: str) -> None:
    for file in Path(prefix).parent.glob(f"{Path(prefix).name}.*"):
        file.unlink()


def write(prefix: str, content: dict[str, Any], shards: dict[str, int], number: int = 1) -> None:
    """By tfckpt, one value after the other, in the order given, which is TensorFlow's."""
    anew(prefix)
    write_bundle(prefix, content, number, lambda key: shards.get(key, 0))


def write_together(prefix: str, content: dict[str, Any], num_shards: int) -> dict[str, int]:
    """By tfckpt, several files at once; the file of each key."""
    anew(prefix)
    given = [
        BundleValue(key, dtype_name(value.dtype), value.shape, value.nbytes, True, value)
        for key, value in sorted(content.items())
    ]
    place = Target(prefix, range(num_shards), num_shards, SCRATCH)
    written = write_in_parallel(given, lambda value: (value.held,), place, 64)
    index = encode_index(prefix, written.entries, num_shards)
    SCRATCH.write_atomic(index_path(prefix), index)
    with Bundle.open(prefix, SCRATCH) as bundle:
        return {key: entry.shard for key, entry in bundle.entries.items()}


def files(prefix: str) -> dict[str, bytes]:
    found = Path(prefix).parent.glob(f"{Path(prefix).name}.*")
    return {file.name.partition(".")[2]: file.read_bytes() for file in found}


def check(prefix: str, content: dict[str, Any]) -> None:
    """That both readers find it there."""
    listed = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    with Bundle.open(prefix, SCRATCH) as bundle:
        bundle.verify(bundle.entries)
        assert {key: list(entry.shape) for key, entry in bundle.entries.items()} == listed
        assert set(listed) == set(content)
        for key, written in content.items():
            dtype = tf.string if written.dtype == object else tf.as_dtype(written.dtype)
            (read,) = tf.raw_ops.RestoreV2(
                prefix=prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[dtype]
            )
            # A scalar string comes as bytes.
            theirs = read.numpy() if written.shape else np.asarray(read.numpy(), written.dtype)
            assert_same(tf, theirs, written)
            assert_same(tf, bundle.read(key), written)


@given(content=CONTENT)
def test_a_file_is_tensorflows_byte_for_byte(directory, content) -> None:
    theirs, ours = str(directory / "theirs-1"), str(directory / "ours-1")
    save(tf, theirs, content)
    write(ours, content, {})
    assert files(ours) == files(theirs)
    check(theirs, content)


@settings(max_examples=50)
@given(content=CONTENT, num_shards=st.integers(1, 4), seed=st.randoms(use_true_random=False))
def test_several_files_are_tensorflows_byte_for_byte(directory, content, num_shards, seed) -> None:
    together, ours = str(directory / "together"), str(directory / "ours-2")
    shards = write_together(together, content, num_shards)
    check(together, content)
    for by in (shards, {key: seed.randrange(num_shards) for key in content}):
        write(ours, dict(sorted(content.items())), by, num_shards)
        check(ours, content)
        if by is shards:
            assert files(ours) == files(together)
        if set(by.values()) != set(range(num_shards)):
            continue  # TensorFlow cannot write an empty file
        prefixes = [str(directory / f"part-{number}") for number in range(num_shards)]
        for number, prefix in enumerate(prefixes):
            save(tf, prefix, {key: content[key] for key in sorted(by) if by[key] == number})
        theirs = str(directory / "merged")
        anew(theirs)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=theirs)
        assert files(ours) == files(theirs)


def test_an_index_of_many_blocks_is_tensorflows(directory) -> None:
    zero = np.zeros((), np.float32)
    content = {f"model/layer_{n}/kernel\x7f/é{n % 7}": zero for n in range(12_000)}
    theirs, ours = str(directory / "many-1"), str(directory / "few-1")
    save(tf, theirs, content)
    write(ours, content, {})
    assert len(files(ours)["index"]) > 1 << 18
    assert files(ours) == files(theirs)


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
SLICED = st.sampled_from(["float32", "float64", "int32", "int64", "bool", "bfloat16"])


@settings(max_examples=40)
@given(partition=partitions(), dtype=SLICED, key=KEYS)
def test_sliced_values_are_put_together(directory, partition, dtype, key) -> None:
    shape, edges = partition
    written = random_array(sum(shape), dtype, shape)
    boxes = list(itertools.product(*map(itertools.pairwise, edges)))
    specs = [
        " ".join(map(str, shape))
        + " "
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
    assert tf.train.load_checkpoint(prefix).get_tensor(key).tobytes() == written.tobytes()
    with Bundle.open(prefix) as bundle:
        assert list(bundle.entries) == [key]
        assert bundle.entries[key].sliced == (len(boxes) > 1)
        assert bundle.entries[key].nbytes == written.nbytes
        bundle.verify(bundle.entries)
        assert_same(tf, bundle.read(key), written)


MERGED = [[[0, 1, 2], [3, 4, 5]], 5, [b"x", b"yz"]]


@pytest.fixture
def prefix(tmp_path) -> str:
    """By TensorFlow, in two data files: ``a`` in one, ``b`` and ``t`` in another."""
    parts = [str(tmp_path / "parts" / name) for name in "01"]
    save(tf, parts[0], {"a": np.array(MERGED[0], np.float32)})
    save(tf, parts[1], {"b": np.int64(5), "t": np.array(MERGED[2], object)})
    path = str(tmp_path / "run" / "ckpt-1")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=path)
    return path


def merged(prefix: str) -> list[Any]:
    with Bundle.open(prefix) as bundle:
        bundle.verify(bundle.entries)
        return [bundle.read(key).tolist() for key in "abt"]


def test_two_shards_are_one_checkpoint_that_outlives_its_files(prefix) -> None:
    with Bundle.open(prefix) as bundle:
        assert (bundle.prefix, bundle.missing_files) == (prefix, {})
        files = sorted(Path(prefix).parent.iterdir())
        shutil.copytree(Path(prefix).parent, f"{prefix}-copy")
        for file in files:
            file.unlink()
        bundle.verify(bundle.entries)
        assert [bundle.read(key).tolist() for key in "abt"] == MERGED
    with Bundle.open(f"{prefix}-copy/ckpt-1") as bundle:
        for file in Path(f"{prefix}-copy").glob("*.data-*"):
            os.truncate(file, 0)
        for key in bundle.entries:
            with pytest.raises(DamagedCheckpointError):
                bundle.read(key)
            with pytest.raises(DamagedCheckpointError):
                bundle.verify([key])


def test_any_name_and_links_as_model_caches_make_them_are_read(prefix, tmp_path) -> None:
    for name in ("", "run[1]", "a b*?", "ckpt.v2-3.5", "ü"):
        for file in Path(prefix).parent.glob("ckpt-1.*"):
            (tmp_path / file.name.replace("ckpt-1", name)).symlink_to(file)
        assert merged(f"{tmp_path}/{name}") == MERGED
    with pytest.raises(CheckpointNotFoundError, match="'ckpt-1'") as caught:
        Bundle.open(wrong := f"{Path(prefix).parent}/ckpt-2")
    assert caught.value.path == wrong
    assert isinstance(caught.value, FileNotFoundError)


# The object graph


def graph_of(path: Path, graph: bytes) -> Any:
    write_bundle(str(path / "ckpt"), {OBJECT_GRAPH: np.array(graph, object)})
    with Bundle.open(str(path / "ckpt")) as bundle:
        return object_graph(bundle)


def graph(child: int = 2, slot: int = 2) -> bytes:
    message = TrackableObjectGraph()
    root, variable, _ = (message.nodes.add() for _ in range(3))
    root.children.add(node_id=1, local_name="kernel")
    root.children.add(node_id=child, local_name="Ä/ö")
    root.slot_variables.add(original_variable_node_id=1, slot_name="m", slot_variable_node_id=slot)
    variable.attributes.add(name="VARIABLE_VALUE", full_name="d/kernel", checkpoint_key="k/.A/V")
    variable.has_checkpoint_values.value = True
    return message.SerializeToString()


@pytest.mark.parametrize("change", [{"child": 3}, {"slot": 2**30}, {"child": -1}, {"slot": -1}])
def test_a_reference_to_a_node_that_is_none_is_damage(tmp_path, change) -> None:
    with pytest.raises(DamagedCheckpointError, match="object graph") as caught:
        graph_of(tmp_path, graph(**change))
    assert caught.value.path == str(tmp_path / "ckpt")


@given(content=st.integers(0, len(graph())).map(lambda end: graph()[:end]) | st.binary(max_size=80))
def test_a_graph_cut_anywhere_and_any_bytes_are_a_graph_or_damage(
    tmp_path_factory, content
) -> None:
    try:
        read = graph_of(tmp_path_factory.mktemp("graph"), content)
    except DamagedCheckpointError:
        return
    assert read.nodes
    assert str(read) == str(TrackableObjectGraph.FromString(content)) or not content


# Whether all is finite

SMALL = ("bfloat16", *(f"float8_{end}" for end in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz")))
KINDS = {
    **{n: np.dtype(n) for n in ("float16", "float32", "float64", "complex64", "complex128")},
    **{n: np.dtype(getattr(ml_dtypes, n)) for n in (*SMALL, "float8_e4m3b11fnuz")},
}


@settings(max_examples=300)
@given(dtype=st.sampled_from(sorted(KINDS)), data=st.binary(max_size=64))
def test_any_bits_at_all(dtype, data) -> None:
    kind = KINDS[dtype]
    raw = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], np.uint8)
    found = raw.view(kind)
    with np.errstate(all="ignore"):  # of a NaN that signals
        wide = found if kind.kind in "fc" else found.astype(np.float64)
        finite = bool(np.isfinite(wide).all())
    assert all_finite(raw, dtype) == finite


def test_other_types_have_no_infinity_and_all_types_are_tensorflows() -> None:
    assert all_finite(np.full(8, 255, np.uint8), "int32")
    assert {name: tf.dtypes.as_dtype(name).name for name in NAMES_OF_DTYPES} == NAMES_OF_DTYPES


@given(
    dtype=st.sampled_from(["float32", "float64", "complex64"]),
    count=st.integers(1, 3000),
    scale=st.sampled_from([1e-40, 1.0, 3e38]),
    odd=st.lists(st.tuples(st.integers(0, 2999), st.sampled_from([np.inf, -np.inf, np.nan]))),
)
def test_one_in_a_thousand_and_numbers_whose_sum_is_too_large(dtype, count, scale, odd) -> None:
    values = np.full(count, scale, dtype)
    for at, value in odd:
        values[at % count] = value
    assert all_finite(values.view(np.uint8), dtype) == (not odd)
