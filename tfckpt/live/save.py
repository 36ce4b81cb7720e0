"""One save from start to end, around TensorFlow's own writing of the files.

TensorFlow writes data and index; here is what it does not do: refuse to leave a variable out,
fsync, read back, commit by a record, and leave nothing behind when any of it fails.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import inspect
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import CheckpointError, SaveError, TfckptError
from tfckpt.live.coverage import keys_of, whole_view
from tfckpt.stored import commit, discover, proto
from tfckpt.stored.bundle import Bundle, data_path, index_path
from tfckpt.stored.checkpoint import OBJECT_GRAPH
from tfckpt.stored.files import LOCAL
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfckpt.live.inventory import Live

__all__ = [
    "About",
    "commit_files",
    "is_remote",
    "last_number",
    "run_callbacks",
    "whole_view",
    "writing",
]


@dataclasses.dataclass(frozen=True)
class About:
    """What the commit record says beside the values.

    Attributes:
        step: of training; the optimizer's iterations where not given.
        epoch: epochs finished.
        metrics: measured at this step.
        training: further state, as JSON values.
    """

    step: int | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def is_remote(prefix: str) -> bool:
    """Whether a path is one of tf.io.gfile's file systems, ``gs://…``."""
    return "://" in prefix


def last_number(file_prefix: str, counter: int) -> int:
    """What ``save_counter`` must be so that the next number is above every one in the directory.

    Raises:
        SaveError: the directory cannot be read.
    """
    directory, name = os.path.split(file_prefix)
    try:
        return max(counter, discover.highest_number(directory or ".", name))
    except CheckpointError as error:
        raise _failed(file_prefix, error) from error


@contextlib.contextmanager
def writing(prefix: str) -> Iterator[None]:
    """Whatever fails inside leaves no file of this save, and what stood there before as it was.

    Raises:
        SaveError: the disk is full, the directory cannot be written, or the like.
    """
    directory, name = os.path.split(prefix)
    directory = directory or "."
    record = commit.path_of(prefix)
    try:
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103 (a prefix is no Path)
        before = _listing(directory, name)
        old_record = _content(record) if LOCAL.exists(record) else None
        if old_record is not None:
            LOCAL.remove(record)  # from here on the old files vouch for themselves
    except OSError as error:
        raise _failed(prefix, error) from error
    try:
        yield
    except BaseException as error:
        _clean_up(directory, name, before)
        if old_record is not None and _listing(directory, name) == before:
            LOCAL.write_atomic(record, old_record)
        if isinstance(error, OSError | tf.errors.OpError) and not isinstance(error, TfckptError):
            raise _failed(prefix, error) from error
        raise


def _failed(prefix: str, error: Exception) -> SaveError:
    return SaveError(
        f"{prefix}: the checkpoint could not be written: {error}",
        hint="nothing of it is left; the checkpoints before it are as they were",
    )


def _content(path: str) -> bytes:
    handle = LOCAL.open_read(path)
    try:
        return handle.pread(0, handle.size)
    finally:
        handle.close()


def _listing(directory: str, name: str) -> dict[str, tuple[int, int]]:
    """The files of a prefix but its record, with what changes when one is replaced."""
    mine = re.compile(re.escape(name) + r"(\.index|\.data-\d{5}-of-\d{5}|_temp)(\.tempstate\d+)?")
    found = {}
    for entry in os.scandir(directory):
        if mine.fullmatch(entry.name):
            status = entry.stat(follow_symlinks=False)
            found[entry.name] = (status.st_ino, status.st_mtime_ns)
    return found


def _clean_up(directory: str, name: str, before: Mapping[str, object]) -> None:
    for entry in (*_listing(directory, name), f"{name}{commit.SUFFIX}"):
        path = os.path.join(directory, entry)  # noqa: PTH118
        if entry not in before and LOCAL.exists(path):
            shutil.rmtree(path) if os.path.isdir(path) else LOCAL.remove(path)  # noqa: PTH112


def commit_files(prefix: str, live: Live, view: Any, about: About | None) -> None:
    """Make what TensorFlow wrote durable, read it back, and write the record: the commit.

    Raises:
        CoverageError: a live value is not in it.
        DamagedCheckpointError: it does not read back as what was to be written.
    """
    directory = os.path.dirname(prefix) or "."  # noqa: PTH120
    about = about or About()
    with Bundle.open(prefix) as bundle:
        shards = bundle.index.header.num_shards
        for shard in range(shards):
            LOCAL.fsync(data_path(prefix, shard, shards))
        LOCAL.fsync(index_path(prefix))
        LOCAL.fsync_dir(directory)
        graph = proto.parse_object_graph(
            bytes(bundle.read(OBJECT_GRAPH).item()), path=prefix, name=OBJECT_GRAPH
        )
        keys = keys_of(live, view.breadth_first_traversal()[0], graph, bundle)
        entries = {
            name: dataclasses.replace(
                entry,
                key=keys[name],
                crc32c=bundle.entries[keys[name]].crc32c if keys[name] in bundle.entries else None,
                nbytes=bundle.entries[keys[name]].nbytes if keys[name] in bundle.entries else 0,
            )
            for name, entry in live.inventory.entries.items()
        }
    record = commit.CommitRecord(
        number=_number(prefix),
        inventory=dataclasses.replace(live.inventory, source=prefix, entries=entries),
        index_sha256=commit.index_digest(prefix),
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        step=_step(live) if about.step is None else about.step,
        epoch=about.epoch,
        metrics=about.metrics,
        training=about.training,
        versions=_versions(),
    )
    commit.write(prefix, record)


def run_callbacks(callbacks: Iterable[Callable[..., None]], path: str) -> None:
    """What CheckpointOptions asks for after a write: callables of the path, or of nothing."""
    for callback in callbacks:
        callback(*(path,) if inspect.signature(callback).parameters else ())


def _number(prefix: str) -> int:
    found = re.search(r"-(\d+)$", prefix)
    return int(found.group(1)) if found else 0


def _step(live: Live) -> int | None:
    counters = [n for n in live.variables if n.endswith("optimizer/iterations")]
    return int(live.variables[counters[0]]) if len(counters) == 1 else None


def _versions() -> dict[str, str]:
    found = {"tfckpt": __version__}
    for name in ("tensorflow", "keras", "tf_keras"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            found[name] = str(version)
    return found
