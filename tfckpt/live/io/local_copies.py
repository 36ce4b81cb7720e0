"""What TensorFlow alone can read or write, where it has no file system for the path.

Iterators, tables and what registered savers write go through TensorFlow's own C++. For a store that
is reached by ``fsspec``, it writes to a temporary directory, from which the files are uploaded, and
reads a copy. All other values are read and written without either.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
from typing import TYPE_CHECKING

from tfckpt.live.io.remote_files import files_of
from tfckpt.live.io.tf_paths import without_pattern
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.keys import OBJECT_GRAPH, edges, object_graph
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits.record_file import parts
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import LOCAL, SCRATCH, Files, join
from tfckpt.stored.io.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_CHUNK = 1 << 22
_NAME = "ckpt"
_WRITTEN_ANEW = re.compile(rf"{DATA}|\.index|\.tfckpt\.json")


def readable(prefix: str, without: Collection[str] = ()) -> str:
    """A prefix at which TensorFlow can read a checkpoint until the process exits."""
    files = files_of(prefix)
    if not isinstance(files, ObjectStore):
        return without_pattern(prefix)
    directory = tempfile.mkdtemp(prefix="tfckpt-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    with Bundle.open(prefix, files) as bundle:
        return _copied(bundle, bundle.entries.keys() - {*without}, files, directory)


@contextlib.contextmanager
def readable_part(prefix: str, keys: Iterable[str]) -> Iterator[str]:
    """A prefix at which TensorFlow can read the objects of some keys, within the block."""
    files = files_of(prefix)
    if not isinstance(files, ObjectStore):
        yield without_pattern(prefix)
        return
    with tempfile.TemporaryDirectory(prefix="tfckpt-") as directory:
        with Bundle.open(prefix, files) as bundle:
            target = _copied(bundle, _keys_below(bundle, keys), files, directory)
        yield target


@contextlib.contextmanager
def writable(prefix: str, files: Files) -> Iterator[str]:
    """A prefix at which TensorFlow can write; what it wrote is under ``prefix`` after the block."""
    if not isinstance(files, ObjectStore):
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
    with BundleWriter(target, files=SCRATCH) as writer:
        for key in sorted({OBJECT_GRAPH, *keys} & bundle.entries.keys()):
            _add(writer, key, bundle)
        writer.finish()
    name = os.path.split(bundle.prefix)[1]
    for file in parts(bundle.prefix, {*files.listdir(parent)}, files):
        if file.startswith(name) and not _WRITTEN_ANEW.fullmatch(file.removeprefix(name)):
            _copy(join(parent, file), files, target + file.removeprefix(name), SCRATCH)
    return target


def _add(writer: BundleWriter, key: str, bundle: Bundle) -> None:
    """Copy a value as it is stored; one that is stored in slices becomes whole."""
    entry = bundle.entries[key]
    if entry.sliced:
        writer.add(key, bundle.read(key))
    else:
        writer.add_raw(key, entry, bundle.read_raw(key))


def _copy(source: str, source_files: Files, target: str, files: Files) -> None:
    with (
        contextlib.closing(source_files.open_read(source)) as handle,
        contextlib.closing(files.create(target)) as output,
    ):
        for start in range(0, handle.size, _CHUNK):
            output.write(handle.pread(start, _CHUNK))
