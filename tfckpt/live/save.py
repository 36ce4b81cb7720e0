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
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import CheckpointError, SaveError, TfckptError
from tfckpt.live.coverage import keys_of
from tfckpt.live.errors import also
from tfckpt.live.variables import as_int
from tfckpt.stored import commit, discover, proto
from tfckpt.stored.bundle import Bundle, data_path, index_path
from tfckpt.stored.checkpoint import OBJECT_GRAPH
from tfckpt.stored.files import LOCAL
from tfckpt.stored.footprint import Footprint
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfckpt.live.inventory import Live
    from tfckpt.records import Entry


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


def drop_record(file_prefix: Any) -> None:
    """Where TensorFlow writes alone, an older record of that name would vouch for it: remove it."""
    if isinstance(file_prefix, (str, os.PathLike)) and not is_remote(os.fspath(file_prefix)):
        record = commit.path_of(os.fspath(file_prefix))
        if LOCAL.exists(record):
            LOCAL.remove(record)


@contextlib.contextmanager
def writing(prefix: str) -> Iterator[None]:
    """Whatever fails inside leaves no file of this save, and what stood there before as it was.

    Raises:
        SaveError: the disk is full, the directory cannot be written, or the like.
    """
    try:
        footprint = Footprint.before_save(prefix)
    except (OSError, CheckpointError) as error:
        raise _failed(prefix, error) from error
    try:
        yield
    except BaseException as error:
        footprint.restore()
        if isinstance(error, OSError | tf.errors.OpError) and not isinstance(error, TfckptError):
            raise _failed(prefix, error) from error
        raise


def _failed(prefix: str, error: Exception) -> TfckptError:
    failed = SaveError(
        f"{prefix}: the checkpoint could not be written: {error}",
        hint="nothing of it is left; the checkpoints before it are as they were",
    )
    return also(failed, error) if isinstance(error, tf.errors.OpError) else failed


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
            name: _stored(entry, keys[name], bundle.entries.get(keys[name]))
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


def _stored(entry: Entry, key: str, found: proto.BundleEntry | None) -> Entry:
    """A live value's entry as the record has it; what is no tensor has keys of its own choice."""
    if found is None:
        return dataclasses.replace(entry, key=key, nbytes=0)
    return dataclasses.replace(entry, key=key, nbytes=found.nbytes, crc32c=found.crc32c)


def run_callbacks(callbacks: Iterable[Callable[..., None]], path: str) -> None:
    """What CheckpointOptions asks for after a write: callables of the path, or of nothing."""
    for callback in callbacks:
        callback(*(path,) if inspect.signature(callback).parameters else ())


def _number(prefix: str) -> int:
    found = re.search(r"-(\d+)$", prefix)
    return int(found.group(1)) if found else 0


def _step(live: Live) -> int | None:
    counters = [n for n in live.variables if n.endswith("optimizer/iterations")]
    return as_int(live.variables[counters[0]]) if len(counters) == 1 else None


def _versions() -> dict[str, str]:
    found = {"tfckpt": __version__}
    for name in ("tensorflow", "keras", "tf_keras"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            found[name] = str(version)
    return found
