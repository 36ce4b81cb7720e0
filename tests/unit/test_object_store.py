"""Stores through fsspec, the in-memory bucket of the fault tests, and a real server, alike."""

from __future__ import annotations

import contextlib
import errno
import importlib
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
from zoo.bucket import Bucket
from zoo.s3_server import BUCKET, S3Server

import tfckpt
from tfckpt.errors import NotInstalledError, UnsupportedCheckpointError
from tfckpt.stored.io.files import files_of
from tfckpt.stored.io.object_store import object_store

pytest.importorskip("fsspec", reason="needs fsspec; setup.cfg has it in `test`")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server():
    for package in ("s3fs", "moto.server"):
        pytest.importorskip(package, reason="needs s3fs and moto; setup.cfg has them in `test`")
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        object_store.cache_clear()
        yield server
    object_store.cache_clear()


@pytest.fixture(params=["memory", "s3", "the double"])
def place(request) -> str:
    """A fresh directory of a store."""
    if request.param == "the double":
        return Bucket(request.getfixturevalue("monkeypatch")).directory
    if request.param == "s3":
        request.getfixturevalue("server")
        return f"s3://{BUCKET}/unit-{next(_numbers)}/run"
    return f"memory://unit-{next(_numbers)}/run"


@pytest.fixture
def store(place):
    return files_of(place)


def test_objects_are_written_whole_and_read_by_ranges(store, place) -> None:
    data, path = np.random.default_rng(0).bytes(300_000), f"{place}/data"
    with contextlib.closing(store.create(path)) as output:
        output.write(data)
    assert store.status(path)[0] == len(data)
    with contextlib.closing(store.open_read(path)) as handle:
        assert handle.size == len(data)
        assert handle.pread(7, 5) == data[7:12]
        assert handle.pread(len(data) - 3, 10) == data[-3:]
        assert handle.pread(len(data), 10) == b""
        buffer = bytearray(200_000)
        assert handle.readinto(99_999, memoryview(buffer)) == 200_000
        assert buffer == data[99_999:299_999]
    store.write_atomic(path, b"replaced")
    with contextlib.closing(store.open_read(path)) as handle:
        assert handle.pread(0, handle.size) == b"replaced"
    with pytest.raises(FileExistsError):
        store.create(path)


def test_a_directory_is_what_begins_with_its_name(store, place) -> None:
    for call in (store.open_read, store.status, store.listdir, store.remove_tree):
        with pytest.raises(FileNotFoundError, match="absent") as caught:
            call(f"{place}/absent")
        assert caught.value.errno == errno.ENOENT
    assert not store.exists(f"{place}/absent")
    assert not store.is_dir(place)
    store.makedirs(place)
    assert store.listdir(place) == []  # what was made in this process is known
    store.write_atomic(f"{place}/ckpt-1.tmp/inner/file", b"1")
    store.write_atomic(f"{place}/ckpt-1.tmp2", b"2")
    assert store.listdir(place) == ["ckpt-1.tmp", "ckpt-1.tmp2"]
    assert store.listdir(f"{place}/ckpt-1.tmp") == ["inner"]
    directories = (place, f"{place}/ckpt-1.tmp", f"{place}/ckpt-1", f"{place}/ckpt-1.tmp2")
    assert [store.is_dir(path) for path in directories] == [True, True, False, False]
    with pytest.raises(UnsupportedCheckpointError, match="is a directory"):
        store.open_read(f"{place}/ckpt-1.tmp")
    store.remove_tree(f"{place}/ckpt-1.tmp")
    assert not store.exists(f"{place}/ckpt-1.tmp/inner/file")
    assert store.listdir(place) == ["ckpt-1.tmp2"]
    store.remove_tree(f"{place}/ckpt-1.tmp2")
    with pytest.raises(FileNotFoundError):
        store.remove_tree(f"{place}/ckpt-1.tmp")


def test_names_that_mean_something_to_a_shell_mean_nothing_here(store, place) -> None:
    for name in ("run[1]*", "a b+c%20", "é?"):
        store.write_atomic(f"{place}/{name}/x?", b"1")
        store.rename(f"{place}/{name}/x?", f"{place}/{name}/y*")
        assert store.listdir(f"{place}/{name}") == ["y*"]
    store.write_atomic(f"{place}/run1x/file", b"2")
    store.remove_tree(f"{place}/run[1]*")
    assert store.listdir(place) == ["a b+c%20", "run1x", "é?"]


def test_a_listing_knows_what_another_client_has_done(server) -> None:
    place = f"s3://{BUCKET}/others"
    store = files_of(place)
    store.write_atomic(f"{place}/a", b"1")
    assert store.listdir(place) == ["a"]
    server.put("others/b", b"2")
    server.client.delete_object(Bucket=BUCKET, Key="others/a")
    assert store.listdir(place) == ["b"]
    assert not store.exists(f"{place}/a")
    # TensorFlow's own file systems put an empty object for a directory.
    server.put("others/", b"")
    server.put("others/inner/", b"")
    assert store.listdir(place) == ["b", "inner"]
    assert store.listdir(f"{place}/inner") == []
    store.remove_tree(f"{place}/inner")
    assert server.objects("others") == ["", "b"]


def test_what_a_server_does_not_do_is_a_system_error(server, monkeypatch) -> None:
    store = files_of("s3://no-such-bucket/run")
    for call in (store.listdir, store.makedirs):
        with pytest.raises(OSError, match="there is no bucket or container 'no-such-bucket'") as at:
            call("s3://no-such-bucket/run")
        assert not isinstance(at.value, FileNotFoundError)
    assert [each["Name"] for each in server.client.list_buckets()["Buckets"]] == [BUCKET]
    path = f"s3://{BUCKET}/run"
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    object_store.cache_clear()
    for call in (files_of(path).listdir, files_of(path).exists, files_of(path).makedirs):
        with pytest.raises(OSError, match="Could not connect") as caught:
            call(path)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, path)
    object_store.cache_clear()


# Saves and restores


@pytest.mark.parametrize("place", ["memory"], indirect=True)
def test_what_only_tensorflow_can_write_or_comes_later_is_restored_from_there(store, place) -> None:
    iterator = iter(tf.data.Dataset.range(10))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    module = tf.Module()
    module.first, module.second = tf.Variable([1.0]), tf.Variable([2.0, 3.0])
    table.insert(["word"], [7])
    checkpoint = tfckpt.Checkpoint(iterator=iterator, table=table, module=module)
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    path = checkpoint.save(f"{place}/ckpt")
    assert int(next(iterator)) == 3
    table.insert(["word"], [8])
    checkpoint.restore(path).assert_consumed()
    assert int(next(iterator)) == 3
    assert table.lookup(tf.constant(["word"])).numpy().tolist() == [7]
    other = tf.Module()
    other.first = tf.Variable([0.0])
    status = tfckpt.Checkpoint(module=other).restore(path)
    other.second = tf.Variable([0.0, 0.0])
    status.assert_existing_objects_matched()
    assert (other.first.numpy().tolist(), other.second.numpy().tolist()) == ([1.0], [2.0, 3.0])
    values = [tf.Variable(tf.fill([300], float(n))) for n in range(4)]
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=2000)
    options = tf.train.CheckpointOptions(experimental_sharding_callback=policy)
    checkpoint = tfckpt.Checkpoint(values=values)
    path = checkpoint.save(f"{place}/divided", options)
    assert sum(name.startswith("divided-1.data-") for name in store.listdir(place)) > 1
    for value in values:
        value.assign(tf.zeros([300]))
    checkpoint.restore(path).assert_consumed()
    assert [float(value[7]) for value in values] == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("path", "said"),
    [("nosuchscheme://bucket/run", "has no file system for this"), ("s3://bucket/run", "s3fs")],
)
def test_what_is_missing_for_a_scheme_is_named_with_the_extra(monkeypatch, path, said) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "s3fs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known = importlib.import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, "s3", raising=False)
    object_store.cache_clear()
    with pytest.raises(NotInstalledError, match=said) as caught:
        tfckpt.CheckpointManager(tfckpt.Checkpoint(v=tf.Variable(1.0)), path, 3)
    assert "pip install 'tfckpt[remote]'" in str(caught.value)
