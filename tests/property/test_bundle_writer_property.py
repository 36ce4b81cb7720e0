"""What tfckpt writes, whatever it is, TensorFlow reads bit by bit, and would have written so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo.tensors import KEYS, assert_same, save, values

from tfckpt.core.dtypes import dtype_name
from tfckpt.stored.bundles.bundle import Bundle, index_path
from tfckpt.stored.bundles.write import (
    BundleValue,
    BundleWriter,
    Target,
    encode_index,
    write_in_parallel,
)
from tfckpt.stored.io.files import SCRATCH


@pytest.fixture(scope="session")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


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
