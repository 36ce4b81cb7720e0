from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.io.files import LocalFiles

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def save(prefix: str, values: dict[str, Any]) -> None:
    tf = pytest.importorskip("tensorflow")
    tensors = [tf.constant(value) for value in values.values()]
    specs = [""] * len(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(values), shape_and_slices=specs, tensors=tensors
    )


@pytest.fixture(scope="module")
def _two_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tf = pytest.importorskip("tensorflow")
    directory = tmp_path_factory.mktemp("shards")
    parts = [str(directory / "part_0"), str(directory / "part_1")]
    save(parts[0], {"a": np.arange(6, dtype=np.float32).reshape(2, 3)})
    save(parts[1], {"b": np.int64(5), "t": np.array([b"x", b"yz"])})
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=str(directory / "ckpt-1")
    )
    return directory


@pytest.fixture
def prefix(_two_shards: Path, tmp_path: Path) -> str:
    """A fresh copy of a checkpoint in two data files: ``a`` in one, ``b`` and ``t`` in another."""
    directory = tmp_path / "run"
    shutil.copytree(_two_shards, directory)
    return str(directory / "ckpt-1")


def shard(prefix: str, number: int) -> Path:
    return Path(f"{prefix}.data-{number:05d}-of-00002")


def shard_of(prefix: str, key: str) -> Path:
    with Bundle.open(prefix) as bundle:
        return shard(prefix, bundle.entries[key].shard)


def test_two_shards_are_one_checkpoint(prefix: str) -> None:
    with Bundle.open(prefix) as bundle:
        assert (bundle.prefix, bundle.missing_files) == (prefix, {})
        assert {key: (e.dtype, e.shape) for key, e in bundle.entries.items()} == {
            "a": ("float32", (2, 3)),
            "b": ("int64", ()),
            "t": ("string", (2,)),
        }
        assert np.array_equal(bundle.read("a"), [[0, 1, 2], [3, 4, 5]])
        assert bundle.read("t").tolist() == [b"x", b"yz"]
        bundle.verify(bundle.entries)


def test_an_unknown_key_is_a_key_error(prefix: str) -> None:
    with Bundle.open(prefix) as bundle, pytest.raises(KeyError, match="'c'"):
        bundle.read("c")


def test_what_is_open_outlives_its_files(prefix: str) -> None:
    with Bundle.open(prefix) as bundle:
        shutil.rmtree(Path(prefix).parent)
        assert bundle.read("b") == 5
        bundle.verify(bundle.entries)


@pytest.mark.parametrize("pointer", [False, True])
def test_a_missing_shard_matters_only_when_a_value_of_it_is_needed(
    prefix: str, pointer: bool
) -> None:
    lost = shard_of(prefix, "b")
    lost.unlink()
    if pointer:
        lost.write_bytes(LFS)
    with Bundle.open(prefix) as bundle:
        assert list(bundle.missing_files) == [str(lost)]
        assert list(bundle.entries) == ["a", "b", "t"]
        assert bundle.read("a")[1, 2] == 5
        bundle.verify(["a"])
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match="missing") as caught:
                use("b")
            assert (caught.value.path, caught.value.name) == (str(lost), "b")


def test_the_first_damage_is_named(prefix: str) -> None:
    damaged = shard_of(prefix, "a")
    content = bytearray(damaged.read_bytes())
    content[0] ^= 1
    damaged.write_bytes(content)
    with Bundle.open(prefix) as bundle:
        bundle.verify(["b", "t"])
        with pytest.raises(DamagedCheckpointError, match="checksum") as caught:
            bundle.verify(bundle.entries)
        assert (caught.value.path, caught.value.name) == (str(damaged), "a")


def test_a_shard_that_shrinks_while_open_is_damage(prefix: str) -> None:
    with Bundle.open(prefix) as bundle:
        for number in (0, 1):
            shard(prefix, number).write_bytes(b"")
        for key in bundle.entries:
            with pytest.raises(DamagedCheckpointError):
                bundle.read(key)
            with pytest.raises(DamagedCheckpointError):
                bundle.verify([key])


class FailingHandle:
    """A file that can be opened but not read to its end."""

    def __init__(self, inner: Any, good: int) -> None:
        self.inner, self.good = inner, good
        self.size = inner.size

    def _count(self) -> None:
        self.good -= 1
        if self.good < 0:
            raise OSError(5, "Input/output error")

    def pread(self, offset: int, length: int) -> bytes:
        self._count()
        return self.inner.pread(offset, length)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        self._count()
        return self.inner.readinto(offset, buffer)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("good", range(5))
def test_a_disk_that_fails_is_the_packages_own_error(prefix: str, good: int) -> None:
    class Failing(LocalFiles):
        def open_read(self, path: str) -> Any:
            return FailingHandle(super().open_read(path), good)

    def read_all() -> None:
        with Bundle.open(prefix, Failing()) as bundle:
            for key in bundle.entries:
                bundle.read(key)
                bundle.verify([key])

    with pytest.raises(DamagedCheckpointError, match="Input/output error"):
        read_all()


def test_opaque_values_are_listed_and_do_not_break_the_rest(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    prefix = str(tmp_path / "ckpt-1")
    stacked = tf.raw_ops.TensorListReserve(
        element_shape=tf.constant([], tf.int32), num_elements=2, element_dtype=tf.float32
    )
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["list", "x"],
        shape_and_slices=["", ""],
        tensors=[stacked, tf.constant(3.0)],
    )
    with Bundle.open(prefix) as bundle:
        assert bundle.entries["list"].dtype == "variant"
        assert bundle.read("x") == 3
        bundle.verify(bundle.entries)
        with pytest.raises(UnsupportedCheckpointError, match="variant") as caught:
            bundle.read("list")
        assert caught.value.name == "list"


def test_large_values_are_read_and_verified_in_chunks(tmp_path: Path) -> None:
    texts = [b"a" * 3_000_000, b"", b"b" * 5] + [b"short"] * 400_000
    values = {"x": np.arange(700_000, dtype=np.float64), "s": np.array(texts, object)}
    save(str(tmp_path / "big"), values)
    sizes = []

    class Recording(LocalFiles):
        def open_read(self, path: str) -> Any:
            handle = super().open_read(path)
            readinto = handle.readinto
            handle.readinto = lambda at, to: sizes.append((at, len(to))) or readinto(at, to)
            return handle

    with Bundle.open(str(tmp_path / "big"), Recording()) as bundle:
        strings = bundle.entries["s"].offset  # those are read whole
        bundle.verify(bundle.entries)
        assert max(length for at, length in sizes if at != strings) <= 4 << 20
        assert np.array_equal(bundle.read("x"), values["x"])
        assert bundle.read("s").tolist() == texts


def hint_of(prefix: str) -> str:
    with pytest.raises(CheckpointNotFoundError) as caught:
        Bundle.open(prefix)
    assert caught.value.path == prefix
    assert isinstance(caught.value, FileNotFoundError)
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00002", ".tfckpt.json"])
def test_a_file_of_a_checkpoint_is_not_its_prefix(prefix: str, suffix: str) -> None:
    Path(f"{prefix}.tfckpt.json").touch()
    assert f"Use {prefix!r}" in hint_of(prefix + suffix)


def test_a_directory_is_not_a_prefix_and_the_newest_in_it_is_suggested(prefix: str) -> None:
    directory = Path(prefix).parent
    shutil.copy(f"{prefix}.index", directory / "ckpt-10.index")
    shutil.copy(f"{prefix}.index", directory / "ckpt-9.index")
    message = hint_of(str(directory))
    assert "directory" in message
    assert f"Use {str(directory / 'ckpt-10')!r}" in message
    empty = directory / "empty"
    empty.mkdir()
    assert "It is empty." in hint_of(str(empty))


def test_a_saved_model_is_not_a_prefix_and_its_variables_are(prefix: str, tmp_path: Path) -> None:
    variables = tmp_path / "model" / "variables"
    variables.mkdir(parents=True)
    shutil.copy(f"{prefix}.index", variables / "variables.index")
    assert f"Use {str(variables / 'variables')!r}" in hint_of(str(tmp_path / "model"))


def test_a_wrong_number_or_name_is_answered_with_those_that_exist(prefix: str) -> None:
    directory = Path(prefix).parent
    assert "'ckpt-1'" in hint_of(str(directory / "ckpt-7"))
    assert "'ckpt-1'" in hint_of(str(directory / "cpkt-1"))
    assert "is not a directory" in hint_of(str(directory / "absent" / "ckpt-1"))
    assert "There is no checkpoint in" in hint_of(str(directory.parent / "ckpt-1"))


def test_data_without_an_index_is_an_unfinished_save(prefix: str) -> None:
    Path(f"{prefix}.index").unlink()
    assert "not finished" in hint_of(prefix)


def test_a_git_lfs_pointer_is_named_as_such(prefix: str) -> None:
    Path(f"{prefix}.index").write_bytes(LFS)
    with pytest.raises(CheckpointNotFoundError, match="Git LFS pointer") as caught:
        Bundle.open(prefix)
    assert caught.value.path == f"{prefix}.index"
    pointer = Path(prefix).with_name("model.ckpt")
    pointer.write_bytes(LFS)
    assert "git lfs pull" in hint_of(str(pointer))


def test_the_state_file_is_not_a_checkpoint(prefix: str) -> None:
    state = Path(prefix).with_name("checkpoint")
    state.write_text('model_checkpoint_path: "ckpt-1"\n')
    assert "state file" in hint_of(str(state))
    other = Path(prefix).with_name("notes.txt")
    other.write_text("x")
    assert "is not a file of a checkpoint" in hint_of(str(other))


@pytest.mark.parametrize("name", ["", "checkpoint", "run[1]", "a b*?", "ckpt.v2-3.5", "ü"])
def test_odd_prefixes_are_taken_literally(prefix: str, tmp_path: Path, name: str) -> None:
    for file in Path(prefix).parent.glob("ckpt-1.*"):
        shutil.copy(file, tmp_path / file.name.replace("ckpt-1", name))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "x"\n')
    with Bundle.open(f"{tmp_path}/{name}") as bundle:
        assert bundle.read("b") == 5


def test_a_relative_prefix_and_an_empty_one(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(prefix).parent)
    with Bundle.open("ckpt-1") as bundle:
        bundle.verify(bundle.entries)
    assert "'ckpt-1'" in hint_of("ckpt-2")
    assert "'ckpt-1'" in hint_of("")


def test_a_checkpoint_made_of_links_is_read_as_model_caches_are(
    prefix: str, tmp_path: Path
) -> None:
    with Bundle.open(prefix) as bundle:
        expected = {key: bundle.read(key).tolist() for key in bundle.entries}
    elsewhere = tmp_path / "blobs"
    elsewhere.mkdir()
    for number, file in enumerate(sorted(Path(prefix).parent.glob(f"{Path(prefix).name}.*"))):
        file.rename(elsewhere / str(number))
        file.symlink_to(elsewhere / str(number))
    with Bundle.open(prefix) as bundle:
        assert {key: bundle.read(key).tolist() for key in bundle.entries} == expected


def test_directories_in_place_of_files_are_refused(prefix: str) -> None:
    data = shard(prefix, 0)
    data.rename(data.with_name("elsewhere"))
    data.mkdir()
    with pytest.raises(UnsupportedCheckpointError, match="a directory") as caught:
        Bundle.open(prefix)
    assert caught.value.path == str(data)
    data.rmdir()
    data.with_name("elsewhere").rename(data)
    index = Path(f"{prefix}.index")
    index.unlink()
    index.mkdir()
    with pytest.raises(UnsupportedCheckpointError, match="a directory"):
        Bundle.open(prefix)


def test_a_refused_checkpoint_leaves_no_file_open(prefix: str) -> None:
    shard(prefix, 1).write_bytes(b"")
    opened, closed = [], []

    class Counting(LocalFiles):
        def open_read(self, path: str) -> Any:
            handle = super().open_read(path)
            opened.append(handle)
            close = handle.close
            handle.close = lambda: closed.append(handle) or close()
            return handle

    with pytest.raises(DamagedCheckpointError):
        Bundle.open(prefix, Counting())
    assert len(opened) == 3
    assert set(closed) == set(opened)


def test_listing_imports_neither_tensorflow_nor_numpy(prefix: str) -> None:
    code = (
        "import sys; from tfckpt.stored.bundles.bundle import Bundle;"
        f"print(list(Bundle.open({prefix!r}).entries));"
        "print({'tensorflow', 'keras', 'numpy', 'ml_dtypes'} & {*sys.modules})"
    )
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    )
    assert out.stdout == "['a', 'b', 't']\nset()\n"
