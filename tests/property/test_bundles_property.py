"""Whatever TensorFlow or tfckpt writes, the other reads bit by bit; what is not finite is told."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zoo.tensors import DTYPES, KEYS, SHAPES, assert_same, random_array, save, values

from tfckpt.core.dtypes import dtype_name
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.bundles.write import (
    BundleValue,
    BundleWriter,
    Target,
    all_finite,
    encode_index,
    write_in_parallel,
)
from tfckpt.stored.io.files import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable


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


def write(prefix: str, content: dict[str, Any], shards: dict[str, int] | None = None) -> None:
    """By tfckpt, anew, in the order given, which is TensorFlow's."""
    for file in Path(prefix).parent.glob(f"{Path(prefix).name}.*"):
        file.unlink()
    shards = shards or {}
    with BundleWriter(prefix, max(shards.values(), default=0) + 1, SCRATCH) as writer:
        for key, value in content.items():
            writer.add(key, value, shards.get(key, 0))
        writer.finish()


def files(prefix: str) -> dict[str, bytes]:
    found = Path(prefix).parent.glob(f"{Path(prefix).name}.*")
    return {file.name.partition(".")[2]: file.read_bytes() for file in found}


@given(content=st.dictionaries(KEYS, values(), min_size=1, max_size=6))
def test_tensorflow_would_have_written_the_same_bytes(
    tf: Any, directory: Path, content: dict[str, Any]
) -> None:
    theirs, ours = str(directory / "theirs-1"), str(directory / "ours-1")
    save(tf, theirs, content)
    write(ours, content)
    assert files(ours) == files(theirs)


@settings(max_examples=50)
@given(
    content=st.dictionaries(KEYS, values(), min_size=1, max_size=6),
    seed=st.randoms(use_true_random=False),
)
def test_tensorflow_reads_what_is_spread_over_data_files(
    tf: Any, directory: Path, content: dict[str, Any], seed: Any
) -> None:
    prefix = str(directory / "spread-1")
    shards = {key: seed.randrange(4) for key in content}
    write(prefix, content, shards)
    reader = tf.train.load_checkpoint(prefix)
    assert set(reader.get_variable_to_shape_map()) == set(content)
    with Bundle.open(prefix, SCRATCH) as bundle:
        bundle.verify(bundle.entries)
        for key, written in content.items():
            (read,) = tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=[key],
                shape_and_slices=[""],
                dtypes=[tf.string if written.dtype == object else tf.as_dtype(written.dtype)],
            )
            assert_same(tf, read.numpy() if written.shape else as_array(read, written), written)
            assert_same(tf, bundle.read(key), written)


def write_together(prefix: str, content: dict[str, Any], num_shards: int) -> list[set[str]]:
    """By tfckpt, several files at once; the keys in each."""
    for file in Path(prefix).parent.glob(f"{Path(prefix).name}.*"):
        file.unlink()
    given = [
        BundleValue(key, dtype_name(value.dtype), value.shape, value.nbytes, True, value)
        for key, value in sorted(content.items())
    ]
    place = Target(prefix, range(num_shards), num_shards, SCRATCH)
    written = write_in_parallel(given, lambda value: (value.held,), place, 64)
    SCRATCH.write_atomic(index_path(prefix), encode_index(written.coded, num_shards))
    with Bundle.open(prefix, SCRATCH) as bundle:
        bundle.verify(bundle.entries)
        shards = {key: entry.shard for key, entry in bundle.entries.items()}
    return [{key for key in shards if shards[key] == number} for number in range(num_shards)]


@settings(max_examples=50)
@given(
    content=st.dictionaries(KEYS, values(), min_size=1, max_size=8),
    num_shards=st.integers(1, 4),
)
def test_what_is_written_at_once_is_tensorflows_byte_for_byte(
    tf: Any, directory: Path, content: dict[str, Any], num_shards: int
) -> None:
    ours, theirs = str(directory / "at-once"), str(directory / "merged")
    parts = write_together(ours, content, num_shards)
    reader = tf.train.load_checkpoint(ours)
    assert set(reader.get_variable_to_shape_map()) == set(content)
    if not all(parts):
        return  # TensorFlow cannot write an empty file
    prefixes = [str(directory / f"part-{number}") for number in range(num_shards)]
    for prefix, keys in zip(prefixes, parts, strict=True):
        save(tf, prefix, {key: content[key] for key in sorted(keys)})
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=theirs)
    assert files(ours) == files(theirs)
    for file in directory.glob("merged.*"):
        file.unlink()


def as_array(tensor: Any, written: Any) -> Any:
    """A scalar string comes as bytes."""
    return np.asarray(tensor.numpy(), written.dtype)


def test_an_index_of_many_blocks_is_tensorflows(tf: Any, directory: Path) -> None:
    zero = np.zeros((), np.float32)
    content = {f"model/layer_{n}/kernel\x7f/é{n % 7}": zero for n in range(12_000)}
    theirs, ours = str(directory / "many-1"), str(directory / "few-1")
    save(tf, theirs, content)
    write(ours, content)
    assert len(files(ours)["index"]) > 1 << 18
    assert files(ours) == files(theirs)


def test_merged_shards_are_tensorflows(tf: Any, directory: Path) -> None:
    parts = [{"a/x": 1, "b": 2}, {"a/y": 3, "a/z": 4}]
    prefixes = [str(directory / f"part-{number}") for number in range(2)]
    for prefix, part in zip(prefixes, parts, strict=True):
        save(tf, prefix, {key: np.array(value) for key, value in part.items()})
    merged, ours = str(directory / "merged-2"), str(directory / "ours-2")
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=merged)
    content = {key: np.array(value) for part in parts for key, value in part.items()}
    write(ours, content, {key: number for number, part in enumerate(parts) for key in part})
    assert files(ours) == files(merged)


SHARDS = st.integers(1, 4)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=8
)


@st.composite
def arrays(draw: Any) -> Any:
    dtype = draw(st.sampled_from(DTYPES))
    return random_array(draw(st.integers(0, 2**32)), dtype, draw(SHAPES))


CONTENTS = st.dictionaries(NAMES, arrays(), min_size=1, max_size=6)


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any], int], None]:
    """Saves by one and restores by the other, both ways."""
    tf = pytest.importorskip("tensorflow")
    import tfckpt
    from tfckpt.live import save

    directory = tmp_path_factory.mktemp("both")

    def check(content: dict[str, Any], shards: int) -> None:
        for file in directory.glob("ckpt*"):
            file.unlink()
        for saves, restores in (
            (tfckpt.Checkpoint, tf.train.Checkpoint),
            (tf.train.Checkpoint, tfckpt.Checkpoint),
        ):
            prefix = str(directory / f"ckpt-{saves.__module__.partition('.')[0]}")
            old = {name: tf.Variable(value) for name, value in content.items()}
            new = {name: tf.Variable(np.zeros_like(value)) for name, value in content.items()}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(save, "files_for", lambda _: shards)
                path = saves(values=old).write(prefix)
            restores(values=new).read(path).assert_existing_objects_matched()
            for name, value in content.items():
                assert np.asarray(new[name]).tobytes() == value.tobytes(), name
        assert len(list(directory.glob("ckpt-tfckpt.data-*"))) == shards

    return check


@settings(max_examples=15)
@example(content={"²": np.float32(3)}, shards=1)  # a digit to Python, and no number
@given(content=CONTENTS, shards=SHARDS)
def test_a_sample_of_checkpoints(both: Any, content: dict[str, Any], shards: int) -> None:
    both(content, shards)


@pytest.mark.long
@settings(max_examples=500)
@given(content=CONTENTS, shards=SHARDS)
def test_five_hundred_checkpoints(both: Any, content: dict[str, Any], shards: int) -> None:
    both(content, shards)


KINDS = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "complex64")},
    "complex128": np.dtype("complex128"),
    **{
        name: np.dtype(getattr(ml_dtypes, name))
        for name in (
            "bfloat16",
            "float8_e5m2",
            "float8_e4m3fn",
            "float8_e5m2fnuz",
            "float8_e4m3fnuz",
            "float8_e4m3b11fnuz",
        )
    },
}


def expected(values: np.ndarray) -> bool:
    wide = values if values.dtype.kind in "fc" else values.astype(np.float64)
    return bool(np.isfinite(wide).all())


@settings(max_examples=300)
@given(dtype=st.sampled_from(sorted(KINDS)), data=st.binary(max_size=64))
def test_any_bits_at_all(dtype: str, data: bytes) -> None:
    kind = KINDS[dtype]
    raw = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], np.uint8)
    assert all_finite(raw, dtype) == expected(raw.view(kind))


@pytest.mark.parametrize("dtype", [name for name, kind in KINDS.items() if kind.itemsize <= 2])
def test_every_number_of_a_small_type(dtype: str) -> None:
    kind = KINDS[dtype]
    raw = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    told = [all_finite(raw[at : at + 1].view(np.uint8), dtype) for at in range(len(raw))]
    with np.errstate(all="ignore"):
        wide = raw.view(kind).astype(np.float64)
    assert told == np.isfinite(wide).tolist()


def test_other_types_are_always_finite() -> None:
    assert all_finite(np.full(8, 255, np.uint8), "int32")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@given(
    count=st.integers(1, 3000),
    scale=st.sampled_from([1e-40, 1.0, 3e38]),
    odd=st.lists(st.tuples(st.integers(0, 2999), st.sampled_from([np.inf, -np.inf, np.nan]))),
)
def test_one_in_a_thousand_and_numbers_whose_sum_is_too_large(
    dtype: str, count: int, scale: float, odd: list[tuple[int, float]]
) -> None:
    values = np.full(count, scale, dtype)
    for at, value in odd:
        values[at % count] = value
    assert all_finite(values.view(np.uint8), dtype) == (not odd)
