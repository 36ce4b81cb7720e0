"""Bundles: one checkpoint of several data files, read and written by several threads."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import shutil
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tfckpt
from tfckpt.core.dtypes import DTYPES
from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, object_graph
from tfckpt.stored.bundles.write import (
    BundleValue,
    BundleWriter,
    Target,
    encode_index,
    write_in_parallel,
)
from tfckpt.stored.io import messages
from tfckpt.stored.io.files import SCRATCH, LocalOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfckpt.stored.bundles.write import Written


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


def test_what_is_open_outlives_its_files(prefix: str) -> None:
    with Bundle.open(prefix) as bundle:
        shutil.rmtree(Path(prefix).parent)
        assert bundle.read("b") == 5
        bundle.verify(bundle.entries)


def test_a_shard_that_shrinks_while_open_is_damage(prefix: str) -> None:
    with Bundle.open(prefix) as bundle:
        for number in (0, 1):
            shard(prefix, number).write_bytes(b"")
        for key in bundle.entries:
            with pytest.raises(DamagedCheckpointError):
                bundle.read(key)
            with pytest.raises(DamagedCheckpointError):
                bundle.verify([key])


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


def hint_of(prefix: str) -> str:
    with pytest.raises(CheckpointNotFoundError) as caught:
        Bundle.open(prefix)
    assert caught.value.path == prefix
    assert isinstance(caught.value, FileNotFoundError)
    return str(caught.value)


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


FAST = 1 << 10
SHARDS = 3


def values(count: int = 12, size: int = 3000) -> list[BundleValue]:
    arrays = [np.full(size + number, number, np.float32) for number in range(count)]
    return [
        BundleValue(f"v{number:02d}", "float32", array.shape, array.nbytes, True, array)
        for number, array in enumerate(arrays)
    ]


def pieces(value: BundleValue) -> Iterator[np.ndarray]:
    middle = len(value.held) // 2
    yield from (value.held[:middle], value.held[middle:])


def write(prefix: Path, written: list[BundleValue], **more: Any) -> Written:
    place = Target(str(prefix), range(SHARDS), SHARDS, SCRATCH)
    return write_in_parallel(written, more.get("read", pieces), place, FAST)


def others() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("tfckpt-file")]


@pytest.fixture
def struck(monkeypatch) -> Callable[..., None]:
    """``struck("write", error, when)``: that call of an output fails where ``when`` says so."""

    def strike(name: str, error: BaseException, when: Callable[[], bool]) -> None:
        genuine = getattr(LocalOutput, name)

        def call(self: LocalOutput, *data: Any) -> None:
            if when():
                raise error
            genuine(self, *data)

        monkeypatch.setattr(LocalOutput, name, call)

    return strike


def aside() -> bool:
    return threading.current_thread() is not threading.main_thread()


def test_every_value_is_in_one_of_the_files_as_it_was(tmp_path) -> None:
    expected = {value.key: value.held.copy() for value in values()}
    written = write(tmp_path / "ckpt", values())
    (tmp_path / "ckpt.index").write_bytes(encode_index(written.coded, SHARDS))
    sizes = [(tmp_path / f"ckpt.data-0000{n}-of-00003").stat().st_size for n in range(SHARDS)]
    assert sum(sizes) == sum(array.nbytes for array in expected.values())
    assert max(sizes) - min(sizes) <= max(array.nbytes for array in expected.values())
    with Bundle.open(str(tmp_path / "ckpt")) as bundle:
        bundle.verify(bundle.entries)
        assert {key: bundle.read(key).tobytes() for key in bundle.entries} == {
            key: array.tobytes() for key, array in expected.items()
        }


@pytest.mark.parametrize("name", ["write", "sync", "close"])
@pytest.mark.parametrize("here", [True, False], ids=["here", "in a thread"])
def test_a_failure_in_one_thread_stops_the_others_and_is_raised(
    tmp_path, struck, name, here
) -> None:
    given = values()
    held = [weakref.ref(value.held) for value in given]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    struck(name, full, lambda: aside() is not here)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "ckpt", given)
    assert caught.value is full
    assert others() == []
    assert sum(ref() is not None for ref in held) <= SHARDS  # those that were being written


THEIRS = {
    "BundleHeader": ("tensorflow.core.protobuf.tensor_bundle_pb2", "BundleHeaderProto"),
    "BundleEntry": ("tensorflow.core.protobuf.tensor_bundle_pb2", "BundleEntryProto"),
    "ObjectGraph": (
        "tensorflow.core.protobuf.trackable_object_graph_pb2",
        "TrackableObjectGraph",
    ),
    "CheckpointState": ("tensorflow.python.training.checkpoint_state_pb2", "CheckpointState"),
    "SavedTensorSlices": ("tensorflow.core.util.saved_tensor_slice_pb2", "SavedTensorSlices"),
    "SavedModel": ("tensorflow.core.protobuf.saved_model_pb2", "SavedModel"),
    "KerasMetadata": ("tf_keras.protobuf.saved_metadata_pb2", "SavedMetadata"),
}


def their(name: str) -> Any:
    module, cls = THEIRS[name]
    return getattr(importlib.import_module(module), cls)


def kind(field: Any) -> tuple[Any, ...]:
    shown = field.TYPE_INT32 if field.type == field.TYPE_ENUM else field.type
    if field.is_repeated and shown in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        shown = field.TYPE_BYTES  # as which a packed list is stored
    if shown == field.TYPE_DOUBLE and field.name.endswith("timestamps"):
        shown = field.TYPE_BYTES
    return field.number, field.is_repeated, shown, field.has_presence


def compare(ours: Any, theirs: Any) -> None:
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert kind(field) == kind(other), field.full_name
        if field.message_type:
            compare(field.message_type, other.message_type)


@pytest.mark.parametrize("name", THEIRS)
def test_messages_are_declared_as_tensorflow_declares_them(name: str) -> None:
    compare(getattr(messages, name).DESCRIPTOR, their(name).DESCRIPTOR)


def test_dtypes_are_those_of_tensorflow() -> None:
    assert {n: tf.dtypes.as_dtype(n).name for n in DTYPES} == DTYPES


def written(path: Any, graph: bytes) -> str:
    prefix = str(path / "ckpt")
    with BundleWriter(prefix) as writer:
        writer.add(OBJECT_GRAPH, np.array(graph, object))
        writer.finish()
    return prefix


def graph_of(path: Any, graph: bytes) -> Any:
    with Bundle.open(written(path, graph)) as bundle:
        return object_graph(bundle)


def graph(**changes: int) -> Any:
    message = their("ObjectGraph")()
    root, variable, _ = (message.nodes.add() for _ in range(3))
    root.children.add(node_id=1, local_name="kernel")
    root.children.add(node_id=changes.get("child", 2), local_name="Ä/ö")
    root.slot_variables.add(
        original_variable_node_id=1, slot_name="m", slot_variable_node_id=changes.get("slot", 2)
    )
    variable.attributes.add(name="VARIABLE_VALUE", full_name="d/kernel", checkpoint_key="k/.A/V")
    variable.has_checkpoint_values.value = True
    return message


@pytest.mark.parametrize("change", [{"child": 3}, {"slot": 2**30}, {"child": -1}, {"slot": -1}])
def test_a_reference_to_a_node_that_is_none_is_damage(tmp_path, change: dict[str, int]) -> None:
    with pytest.raises(DamagedCheckpointError, match="object graph") as caught:
        graph_of(tmp_path, graph(**change).SerializeToString())
    assert caught.value.path == str(tmp_path / "ckpt")


@given(data=st.data())
def test_a_graph_cut_anywhere_and_any_bytes_are_a_graph_or_damage(
    tmp_path_factory, data: Any
) -> None:
    whole = graph().SerializeToString()
    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    content = data.draw(cut | st.binary(max_size=80))
    try:
        read = graph_of(tmp_path_factory.mktemp("graph"), content)
    except DamagedCheckpointError:
        return
    assert read.nodes
    assert str(read) == str(their("ObjectGraph").FromString(content)) or not content


CALLS = ("open", "pread", "preadv", "fsync", "write", "rename", "replace", "fstat", "unlink")


def open_files() -> list[str]:
    """What the process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing itself
            found.append(str(link.readlink()))
    return sorted(path for path in found if path.startswith("/"))


def interrupted(body: Callable[[], Any], at: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run it with Ctrl-C in that call; whether there were as many."""
    count = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise KeyboardInterrupt
            return call(*arguments, **named)

        return counted

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrapped(getattr(os, name)))
        try:
            body()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("way", ["save", "restore"])
def test_no_file_stays_open(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = tf.Variable([1.0, 2.0])
    checkpoint = tfckpt.Checkpoint(model=tf.train.Checkpoint(a=variable))
    path = checkpoint.write(tmp_path / "source")
    ways = {
        "save": lambda: checkpoint.save(tmp_path / "run/ckpt"),
        "restore": lambda: tfckpt.restore(path, model=tf.train.Checkpoint(a=variable)),
    }
    ways[way]()
    before, at = open_files(), 1
    while interrupted(ways[way], at, monkeypatch):
        assert open_files() == before, f"after call {at}"
        at += 1
    assert at > 5
    ways[way]()
    assert variable.numpy().tolist() == [1.0, 2.0]


def test_the_first_lock_of_a_directory_is_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tfckpt.Checkpoint(model=tf.train.Checkpoint(a=tf.Variable(1.0)))
    for at in range(1, 6):
        directory = tmp_path / f"run-{at}"
        save = partial(checkpoint.save, directory / "ckpt")
        interrupted(save, at, monkeypatch)
        save()
        assert open_files().count(f"{directory}/.tfckpt.lock") == 1
