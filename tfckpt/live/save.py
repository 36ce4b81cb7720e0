"""Writes one checkpoint: files, fsync, read-back, commit record.

This adds what TensorFlow's own saver lacks: no variable is left out, files are synced and read
back, a record commits the checkpoint, and a failure leaves no files behind.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import inspect
import math
import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.dtypes import DTYPES, ITEM_BYTES
from tfckpt.core.inventory import Role
from tfckpt.core.text import listed, no_space
from tfckpt.errors import CheckpointError, SaveError
from tfckpt.live.by_tensorflow import writable
from tfckpt.live.paths import also
from tfckpt.live.snapshot import recorded
from tfckpt.live.variables import array_of, as_int, is_variable, raw
from tfckpt.stored.bundles.bundle import Bundle, data_path, index_path
from tfckpt.stored.bundles.parallel import Parallel, cores
from tfckpt.stored.bundles.write import (
    FOREGROUND,
    BundleValue,
    Target,
    checksum,
    encode_index,
    files_for,
    read_coded,
    write_in_parallel,
)
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.numbering import SaveNumber, take_number
from tfckpt.stored.commits.record_file import PART
from tfckpt.stored.io import state_file
from tfckpt.stored.io.files import Files, join
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.live.checkpoint import Checkpoint
    from tfckpt.live.inventory import Live
    from tfckpt.live.snapshot import Snapshot
    from tfckpt.live.workers import Together
    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.commits.commit import Saving
    from tfckpt.stored.commits.record_file import CommitRecord

PIECE = 1 << 26  # bytes that are copied off an accelerator at a time
_FULL_TO_TENSORFLOW = tf.errors.ResourceExhaustedError


class Destination:
    """Where one save goes, and how: as here under its own name, without a number.

    Attributes:
        path: as the caller spells it; with the number, once there is one.
        prefix: the same, absolute.
        before: an earlier checkpoint, whose data files are shared where they hold what is frozen;
            "" where there is none yet; None to write everything.
        counts: whether ``save_counter`` gets the number of the save.
        frozen: the names of the frozen values.
        sound: what was read of shared files and had its checksum, since it was last written.
        chunk: bytes that are written at a time.
    """

    on_nonfinite = on_unsavable = "warn"
    before: str | None = None
    counts = True
    frozen: frozenset[str] = frozenset()
    sound: set[tuple[str, float, str]]
    chunk = FOREGROUND

    def __init__(self, path: str, prefix: str, files: Files) -> None:
        self.path, self.prefix, self.files = path, prefix, files

    def take_number(
        self, checkpoint: Checkpoint, workers: Together, undo: contextlib.ExitStack
    ) -> SaveNumber | None:
        """The number of the save, the same in all workers; None if none is due.

        ``undo`` is for what a save changes that fails later.
        """
        checkpoint._background.finish()
        return SaveNumber()

    def describe(self, record: CommitRecord) -> None:
        """Add what the directory knows to a record."""

    def committed(self, record: CommitRecord) -> None:
        """The checkpoint is on disk, whatever follows."""

    def is_elsewhere(self, written: str) -> tuple[str, str]:
        """The directory of a worker that has one of its own, and a line on where the chief's is.

        It is made, since TensorFlow's would be: a program may remove it after the save.
        """
        own, directory = (os.path.split(path)[0] for path in (self.prefix, written))
        if self.files.exists(f"{self.prefix}.index"):  # the chief's, under another path
            return own, ""
        with contextlib.suppress(OSError):  # the save is done; who removes it will see
            self.files.makedirs(own)
        return own, f"only the chief writes, into {directory}: restore from there"


class NumberedDestination(Destination):
    """Under the next number, which the state file then names, as TensorFlow's does."""

    def take_number(
        self, checkpoint: Checkpoint, workers: Together, undo: contextlib.ExitStack
    ) -> SaveNumber | None:
        checkpoint._background.finish()
        number = None
        if workers.chief:
            with as_save_errors(self.path):
                number = take_number(self.prefix, self.files, as_int(checkpoint.save_counter))
            undo.callback(number.give_back)
        return workers.number(number)

    def committed(self, record: CommitRecord) -> None:
        directory, name = os.path.split(self.prefix)
        try:
            state_file.write_state(directory, self.files, [name])
        except OSError as error:
            logging.warning("the state file for TensorFlow's tools was not written: %s", error)


@contextlib.contextmanager
def as_save_errors(prefix: str, space: Callable[[], str] = str) -> Iterator[None]:
    """Turn errors of the system and of TensorFlow into a SaveError that names the prefix.

    ``space`` returns text about the disk space, for a full disk.
    """
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise SaveError(
            f"{prefix!r}: the path is not valid UTF-8, as TensorFlow requires"
        ) from None
    try:
        yield
    except SaveError:
        raise
    except (OSError, CheckpointError, tf.errors.OpError) as error:
        full = isinstance(error, _FULL_TO_TENSORFLOW)
        full = full or getattr(error, "errno", None) in state_file.FULL
        more = f"; {text}" if full and (text := space()) else ""
        save_error = SaveError(
            f"{prefix}: the checkpoint could not be written: {error}{more}",
            hint="no files of it were left, and earlier checkpoints are unchanged",
        )
        by_tensorflow = isinstance(error, tf.errors.OpError)
        raise (also(save_error, error) if by_tensorflow else save_error) from error


def write(
    snapshot: Snapshot, options: Any, to: Destination, record: CommitRecord, saving: Saving
) -> bytes:
    """Write a snapshot, make it durable, and complete its record; returns the index."""
    live, keys = snapshot.live, snapshot.keys
    if record.step is None:
        record.step = snapshot.step
    data = write_files(snapshot, options, to, saving.taken)
    if data.nonfinite and (bad := [name for name, key in keys.items() if key in data.nonfinite]):
        _report_nonfinite(bad, to.prefix, to.on_nonfinite)
    number = re.search(r"-([0-9]{1,18})\Z", to.prefix)
    entries = recorded(live, keys, data.entries, to.prefix)
    record.number = int(number[1]) if number else 0
    record.inventory = dataclasses.replace(live.inventory, source=to.prefix, entries=entries)
    record.index_sha256 = hashlib.sha256(data.encoded).hexdigest()
    record.created, record.versions = record_file.now(), _versions()
    record.finite, record.files = not data.nonfinite, saving.files(data.total)
    return data.encoded


def disk_space(snapshot: Snapshot, to: Destination) -> str:
    """How much a save needs and there is, for the message about a full disk."""
    with contextlib.suppress(OSError):
        free = to.files.free(os.path.split(to.prefix)[0])
        least = needed(snapshot.live.inventory, to.frozen if to.before else ())
        return "" if free is None else no_space(least, free)
    return ""


class _DataFiles(NamedTuple):
    """Data files on disk.

    Attributes:
        total: how many they are.
        entries: key → index entry of each value in them.
        encoded: the content of the index, which is not written yet.
        nonfinite: the keys of weights, slots and arrays that hold NaN or infinity.
    """

    total: int
    entries: Mapping[str, BundleEntry]
    encoded: bytes
    nonfinite: frozenset[str]


def write_files(
    snapshot: Snapshot, options: Any, to: Destination, taken: frozenset[int]
) -> _DataFiles:
    """Write data files to disk; frees the tensors of the snapshot one by one.

    ``options`` are for TensorFlow's part; ``taken`` are total numbers of files that others have.
    """
    prefix, files, tensors = to.prefix, to.files, snapshot.tensors
    part, theirs = join(prefix + PART, os.path.split(prefix)[1]), 0
    entries: Mapping[str, BundleEntry] = {}
    coded: list[tuple[bytes, bytes]] = []
    if snapshot.others:
        files.makedirs(prefix + PART)
        with writable(part, files) as path:
            snapshot.write_others(path, options)
        _sync_all(part, files)
        their_index, coded = read_coded(part, files)
        theirs, entries = their_index.num_shards, their_index.entries
    nonfinite = snapshot.nonfinite_others()
    computed = snapshot.computed()
    values = [_value(key, tensors.pop(key), key in computed) for key in sorted(tensors)]
    frozen = {snapshot.keys[name] for name in to.frozen}
    shared, still = _share(prefix, [v for v in values if v.key in frozen], to)
    known = {key for file in shared for key in file.entries}
    apart = set() if shared else frozen
    # What does not train is apart, for the saves that follow, and what is as it was from the rest.
    groups: list[list[BundleValue]] = [[], [], []]
    for value in values:
        if value.key not in known:
            groups[2 if value.key in still else value.key in apart].append(value)
    values.clear()
    counts = [files_for(sum(v.nbytes for v in group)) if group else 0 for group in groups]
    while (total := theirs + sum(counts) + len(shared)) in taken:
        counts[0] += 1
    for shard in range(theirs):
        old, new = data_path(part, shard, theirs), data_path(prefix, shard, total)
        files.rename(old, new)
    if theirs:
        files.remove(index_path(part))
    first, own = theirs, dict[str, Any]()
    for group, count in zip(groups, counts, strict=True):
        if count:
            target = Target(prefix, range(first, first + count), total, files)
            written = write_in_parallel(group, _pieces, target, to.chunk)
            own |= written.entries
            nonfinite += written.nonfinite
            first += count
    for shard, file in enumerate(shared, first):
        files.rename(file.path, path := data_path(prefix, shard, total))
        files.fsync(path)
        own |= {key: entry._replace(shard=shard) for key, entry in file.entries.items()}
        nonfinite += file.nonfinite
    index = encode_index(prefix, own, total, coded)
    return _DataFiles(total, {**entries, **own}, index, frozenset(nonfinite))


class _SharedFile(NamedTuple):
    """A data file of an earlier checkpoint under a further name, and what is as it was in it."""

    path: str
    entries: dict[str, BundleEntry]
    nonfinite: list[str]


def frozen_values(live: Live) -> frozenset[str]:
    """The names of the arrays that do not train: of frozen layers, and variables that never do."""
    layers = [layer for layer in live.layers.values() if layer.built and not layer.trainable]
    still = {id(raw(weight)) for layer in layers for weight in layer.weights}
    return frozenset(
        name
        for name, entry in live.inventory.entries.items()
        if entry.role in (Role.WEIGHT, Role.STATE) and entry.shape
        if is_variable(value := live.variables[name])
        if not getattr(value, "trainable", True) or id(raw(value)) in still
    )


def _share(
    prefix: str, values: Sequence[BundleValue], to: Destination
) -> tuple[list[_SharedFile], set[str]]:
    """The data files of the checkpoint before of which most is as it was, under new names.

    They are hard links: each checkpoint has all of its files, whichever is deleted. Also returns
    the keys of all values that are as they were, in whichever file.
    """
    files, found, still = to.files, list[_SharedFile](), set[str]()
    if not (values and to.before):
        return found, still
    try:
        with Bundle.open(to.before, files) as bundle:
            unchanged = _unchanged(values, bundle, to)
            still.update(*unchanged.values())
            for shard, stored in unchanged.items():
                path = bundle.path(shard)
                if 2 * sum(bundle.entries[key].nbytes for key in stored) <= files.status(path)[0]:
                    continue  # what else is in it would stay on the disk
                _check_stored(stored, bundle, path, to)
                files.makedirs(prefix + PART)
                link = join(prefix + PART, f"shared-{shard}")
                files.link(path, link)
                entries = {key: bundle.entries[key] for key in stored}
                nonfinite = [key for key, finite in stored.items() if not finite]
                found.append(_SharedFile(link, entries, nonfinite))
    except (OSError, CheckpointError) as error:
        logging.warning("%s: holds what is frozen once more: %s", prefix, error)
    return found, still


def _unchanged(
    values: Sequence[BundleValue], bundle: Bundle, to: Destination
) -> dict[int, dict[str, bool]]:
    """Data file → the values that it holds as they are, and whether these are finite."""
    held: dict[int, list[BundleValue]] = {}
    for value in values:
        entry = bundle.plain(value.key)
        if entry is not None and (entry.dtype, entry.shape) == (value.dtype, value.shape):
            held.setdefault(entry.shard, []).append(value)
    same: dict[int, dict[str, bool]] = {shard: {} for shard in held}
    parallel = Parallel()

    def compare(shard: int, value: BundleValue) -> None:
        crc, finite = checksum(value, _pieces, to.chunk, parallel.go_on)
        if crc == bundle.entries[value.key].crc32c:
            same[shard][value.key] = finite

    parallel.run((partial(compare, shard, v) for shard, of in held.items() for v in of), cores())
    return same


def _check_stored(keys: Iterable[str], bundle: Bundle, path: str, to: Destination) -> None:
    """Raise if what a file holds has been damaged, which the checksums in its index do not tell."""
    files, sound = to.files, to.sound
    _, written = files.status(path)
    unread = {(files.identity(path), written, key) for key in keys} - sound
    bundle.verify(key for *_, key in unread)
    sound |= unread


def _sync_all(prefix: str, files: Files) -> None:
    """Sync the files that TensorFlow and registered savers wrote."""
    directory, name = os.path.split(prefix)
    for file in files.listdir(directory):
        if file.startswith(name) and file != f"{name}_temp":
            files.fsync(join(directory, file))


def _value(key: str, tensor: Any, check_finite: bool) -> BundleValue:
    dtype, shape = DTYPES[tensor.dtype.as_datatype_enum], tuple(tensor.shape.as_list())
    nbytes = math.prod(shape) * ITEM_BYTES.get(dtype, 0)
    return BundleValue(key, dtype, shape, nbytes, check_finite, tensor)


def _pieces(value: BundleValue) -> Iterable[np.ndarray]:
    """The bytes of an eager tensor: without a copy on the CPU, else in pieces."""
    tensor = value.held
    if value.dtype == "string":
        return (np.array(tensor.numpy(), object),)
    if value.nbytes <= PIECE or tensor.device.endswith("CPU:0"):
        return (array_of(tensor),)
    return _taken_off(tensor, PIECE // ITEM_BYTES[value.dtype])


def _taken_off(tensor: Any, count: int) -> Iterator[np.ndarray]:
    with tf.device(tensor.device):
        flat = tf.reshape(tensor, [-1])
    for start in range(0, flat.shape[0], count):
        with tf.device(tensor.device):
            piece = flat[start : start + count]
        yield np.asarray(piece)


def needed(inventory: Inventory, frozen: Collection[str] = ()) -> int:
    """The least bytes that a save takes: those of the numbers that are not frozen."""
    entries = [entry for name, entry in inventory.entries.items() if name not in frozen]
    return sum(math.prod(e.shape) * ITEM_BYTES.get(e.dtype, 0) for e in entries if e.shape)


def _report_nonfinite(nonfinite: list[str], prefix: str, action: str) -> None:
    names = listed(nonfinite)
    if action == "refuse":
        raise SaveError(
            f"{prefix}: not saved, because values are NaN or infinite: {names}",
            hint="no files were left; set on_nonfinite: warn to save anyway",
        )
    if action == "warn":
        logging.warning("%s: values are NaN or infinite: %s", prefix, names)


def synchronous(options: Any) -> Any:
    """A copy of the options without TensorFlow's own asynchronous saving."""
    options = copy.copy(options) if options is not None else tf.train.CheckpointOptions()
    options.experimental_enable_async_checkpoint = False
    return options


def run_callbacks(callbacks: Iterable[Callable[..., None]], path: str) -> None:
    """Call the write callbacks of CheckpointOptions, with the path or without arguments."""
    for callback in callbacks:
        callback(*(path,) if inspect.signature(callback).parameters else ())


def _versions() -> dict[str, str]:
    found = {"tfckpt": __version__}
    for name in ("tensorflow", "keras", "tf_keras"):
        if (version := getattr(sys.modules.get(name), "__version__", None)) is not None:
            found[name] = str(version)
    return found


def by_tensorflow(options: Any) -> bool:
    """Whether ``tf.train.CheckpointOptions`` ask for features that only TensorFlow has."""
    return bool(options.experimental_io_device or options.experimental_sharding_callback)
