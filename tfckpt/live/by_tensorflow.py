"""What only TensorFlow can read and write: iterators, lookup tables, registered savers' files.

It is given local files: of an object store, a copy of what it needs. Each iterator or table is
restored alone by its own methods, through a chain of empty checkpoints along its path in the stored
object graph.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.errors import RestoreError
from tfckpt.live.paths import without_pattern
from tfckpt.stored.bundles.bundle import Bundle, data_path, index_path
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, edges, object_graph
from tfckpt.stored.bundles.write import Shard, encode_index
from tfckpt.stored.commits.record_file import parts
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import LOCAL, SCRATCH, Files, files_of, join

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

_COPIED = 1 << 22  # bytes at a time
_NAME = "ckpt"
_WRITTEN_ANEW = re.compile(rf"{DATA}|\.index|\.tfckpt\.json")


def restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    """Restore each object (checkpoint key → live object) from the state under its key."""
    with readable_part(prefix, objects) as path:
        for key, obj in objects.items():
            chain = obj
            for edge in reversed(edges(key)):
                holder = tf.train.Checkpoint()
                setattr(holder, edge, chain)
                chain = holder
            chain.read(path).assert_existing_objects_matched().expect_partial()


@contextlib.contextmanager
def put_back_on_failure(objects: Iterable[Any]) -> Iterator[None]:
    """Put the state of objects back if the body raises.

    An iterator that rejects a state is exhausted afterwards. One whose state cannot be saved is
    left alone; TensorFlow also checks that first.
    """
    before = [_what_puts_back(obj) for obj in objects]
    try:
        yield
    except BaseException:
        for put_back in before:
            put_back()
        raise


def _what_puts_back(obj: Any) -> Callable[[], object]:
    """A function that puts the state back, if it can be saved; else one that does nothing."""
    try:
        state = obj._serialize_to_tensors()
    except Exception:  # a user's class may raise anything
        return lambda: None

    def put_back() -> None:
        try:
            obj._restore_from_tensors(state)
        except Exception as error:
            logging.warning("an object other than a variable was not put back: %s", error)

    return put_back


def not_taken(prefix: str, error: Exception) -> RestoreError:
    """The error for an iterator, table or the like that rejected its stored state."""
    found = re.search(r"Failed to restore dataset iterator[^:]*: (\S+?)\.? ", str(error))
    if found is None:
        text = re.sub(r"\{\{.*?\}\} ", "", str(error))
        return RestoreError(
            f"{prefix}: an object other than a variable (an iterator or a table) rejected its "
            f"stored state, and no variable was changed: {text}",
            hint="exclude it by its name in the policy to restore the rest",
        )
    return RestoreError(
        f"{prefix}: the stored position of an iterator does not fit its dataset, whose pipeline "
        f"differs from the saved one at {found[1]}. Nothing was restored; the iterator continues "
        "from where it was",
        hint="build the dataset as it was when saved; or exclude the iterator by its name in a "
        "policy, or do not pass it to the checkpoint: the data then start from the beginning",
    )


def readable(prefix: str, without: Collection[str] = ()) -> str:
    """A prefix at which TensorFlow can read a checkpoint until the process exits."""
    files = files_of(prefix)
    if files.renames:  # it is no object store
        return without_pattern(prefix)
    directory = tempfile.mkdtemp(prefix="tfckpt-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with Bundle.open(prefix, files) as bundle:
        return _copied(bundle, bundle.entries.keys() - {*without}, files, directory)


@contextlib.contextmanager
def readable_part(prefix: str, keys: Iterable[str]) -> Iterator[str]:
    """A prefix at which TensorFlow can read the objects of some keys, within the block."""
    files = files_of(prefix)
    if files.renames:  # it is no object store
        yield without_pattern(prefix)
        return
    with tempfile.TemporaryDirectory(prefix="tfckpt-") as directory:
        with Bundle.open(prefix, files) as bundle:
            target = _copied(bundle, _keys_below(bundle, keys), files, directory)
        yield target


@contextlib.contextmanager
def writable(prefix: str, files: Files) -> Iterator[str]:
    """A prefix at which TensorFlow can write; what it wrote is under ``prefix`` after the block."""
    if files.renames:  # it is no object store
        yield prefix
        return
    parent, name = os.path.split(prefix)
    with tempfile.TemporaryDirectory(prefix="tfckpt-") as directory:
        yield join(directory, name)
        for file in LOCAL.listdir(directory):
            if not LOCAL.is_dir(join(directory, file)):  # it may leave `ckpt-1_temp`, empty
                _copy(join(directory, file), LOCAL, join(parent, file), files)


def _keys_below(bundle: Bundle, keys: Iterable[str]) -> set[str]:
    """The keys of the objects that some keys belong to, and of all objects below these."""
    nodes = object_graph(bundle).nodes
    found: set[int] = set()
    for key in keys:
        at = 0
        for edge in edges(key):
            at = next(c.node_id for c in nodes[at].children if c.local_name == edge)
        left = [at]
        while left:
            if (at := left.pop()) not in found:
                found.add(at)
                left += [child.node_id for child in nodes[at].children]
    # An iterator stores its state under the key with `_STATE` added, a table two with others.
    begin = tuple(each.checkpoint_key for at in found for each in nodes[at].attributes)
    return {key for key in bundle.entries if key.startswith(begin)}


def _copied(bundle: Bundle, keys: Collection[str], files: Files, directory: str) -> str:
    """The prefix of a local copy of some values, and of what registered savers wrote."""
    target, parent = join(directory, _NAME), os.path.split(bundle.prefix)[0]
    shard = Shard(data_path(target, 0, 1), 0, SCRATCH)
    with contextlib.closing(shard):
        for key in sorted({OBJECT_GRAPH, *keys} & bundle.entries.keys()):
            _add(shard, key, bundle)
        shard.finish()
    SCRATCH.write_atomic(index_path(target), encode_index(target, shard.entries, 1))
    name = os.path.split(bundle.prefix)[1]
    for file in parts(bundle.prefix, {*files.listdir(parent)}, files):
        if file.startswith(name) and not _WRITTEN_ANEW.fullmatch(file.removeprefix(name)):
            _copy(join(parent, file), files, target + file.removeprefix(name), SCRATCH)
    return target


def _add(shard: Shard, key: str, bundle: Bundle) -> None:
    """Copy a value as it is stored; one that is stored in slices becomes whole."""
    entry = bundle.entries[key]
    if entry.sliced:
        shard.add(key, entry.dtype, entry.shape, (bundle.read(key),))
    else:
        shard.add_raw(key, entry, bundle.read_raw(key))


def _copy(source: str, source_files: Files, target: str, files: Files) -> None:
    with (
        contextlib.closing(source_files.open_read(source)) as handle,
        contextlib.closing(files.create(target)) as output,
    ):
        for start in range(0, handle.size, _COPIED):
            output.write(handle.pread(start, _COPIED))
