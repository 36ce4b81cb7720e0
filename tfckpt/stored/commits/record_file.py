"""The commit record, the file that marks a checkpoint as committed by tfckpt.

``ckpt-12.tfckpt.json`` is there last, so where it exists everything else is on disk. It
holds what the index cannot: canonical names and roles, step, epoch, metrics. It also holds the
digest of its index, so that it never vouches for the files of another save: where another program
has written over them since, there is no record. Where a writer died between index and record, the
record is its draft.

It is JSON, one value per line, with a checksum of itself at the end. A record is refused where the
checksum does not match. As that can be forged, also refused are fields that are missing, of a wrong
type or out of range, and file names outside of the checkpoint.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import functools
import hashlib
import itertools
import json
import os
import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tfckpt.core.builds import Builds
from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.inventory import (
    Container,
    Dataset,
    Entry,
    Inventory,
    Layer,
    Restored,
    Role,
    Root,
)
from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.io import limits
from tfckpt.stored.io.explain import DATA
from tfckpt.stored.io.files import LOCAL, Files, content, reading

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

FORMAT = 1
MAX_DIGITS = 20
_ENTRIES = b'"entries": ['
_SEAL = b',\n"sha256": "'
_DATA = re.compile(rf"(?P<name>.*){DATA}", re.DOTALL)
_NOT_A_SAVERS = re.compile(
    rf".*({DATA}|\.index|\.tfckpt\.(?:json|mark|draft|part)|\.[0-9a-f]{{8}}\.tmp|_temp)",
    re.DOTALL,
)

_Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_MOST = sys.float_info.max
_Seconds = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]  # finite
# The fields of an Entry.
_Entry = tuple[
    Annotated[str, msgspec.Meta(min_length=1)],
    Role,
    str,
    tuple[_Natural, ...] | None,
    _Natural,
    str,
    str,
    str,
    Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] | None,
]
# The fields of a Layer that are not of live layers alone, and of a Container.
_Layer = tuple[str, str, bool, bool | None, str, int, str, str, str]
_LAYER = 9
_Container = tuple[
    Literal["sequence", "list", "dict", "attributes"],
    tuple[_Layer, ...],
    Literal["all", "keras", "class", "created"],
    tuple[int, ...],
]
_DECODER = msgspec.json.Decoder(list[_Entry])
_ENCODER = msgspec.json.Encoder()


@dataclasses.dataclass(repr=False)
class CommitRecord:
    """What a save records about itself: its caller begins it, and each station adds what it knows.

    Attributes:
        number: of the checkpoint, TensorFlow's ``save_counter``.
        inventory: every value in the checkpoint, with its key.
        index_sha256: digest of the index file; :func:`index_digest`.
        created: ISO 8601, in UTC: ``2025-01-31T12:00:00+00:00``.
        step: training step, None where unknown.
        epoch: training epoch, None where unknown.
        metrics: compared by ``keep: best``.
        metadata: the caller's own, as JSON values.
        best_by: metric and mode of the first ``best`` rule at the time.
        training: further training state as JSON values.
        versions: of tfckpt, TensorFlow and Keras.
        finite: whether all weights and slots are finite; None where not checked.
        run_began: Unix time from which ``keep: every_n_hours`` counts.
        run: an id of the run. One that resumes from a checkpoint of its own directory goes on
            with the id of the run that saved it.
        preserved: numbers of the checkpoints that ``every_n_hours`` keeps permanently.
        files: names of the data files and of files that registered savers wrote.
        lineage: the restores that the values come from, oldest first.
        outputs: what the models returned for the batch of ``probe=``; None without one.
        builds: how layers and optimizers were built; None from an earlier release.
    """

    number: int = 0
    inventory: Inventory = dataclasses.field(default_factory=partial(Inventory, "", {}))
    index_sha256: str = ""
    created: str = ""
    step: int | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    best_by: tuple[str, str] | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    finite: bool | None = None
    run_began: float | None = None
    run: str | None = None
    preserved: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    lineage: tuple[Restored, ...] = ()
    outputs: Mapping[str, Any] | None = None
    builds: Builds | None = None

    def __repr__(self) -> str:
        return f"<CommitRecord: number {self.number}, step {self.step}, epoch {self.epoch}>"

    @property
    def mid_epoch(self) -> bool:
        """Whether ``fit`` was in the middle of an epoch, before its validation."""
        position = self.training.get("fit")
        return isinstance(position, dict) and position.get("ended") is False

    @property
    def fit(self) -> int | None:
        """The number of the ``fit`` that saved it, from 0; None for a loop of one's own."""
        position = self.training.get("fit")
        number = position.get("fit") if isinstance(position, dict) else None
        return number if type(number) is int else None

    @functools.cached_property
    def time(self) -> float:
        """Unix time of the save."""
        return datetime.datetime.fromisoformat(self.created).timestamp()


class _Facts(msgspec.Struct):
    """The fields of a record but for its inventory."""

    number: _Natural
    index_sha256: str
    created: str
    step: _Natural | None
    epoch: _Natural | None
    metrics: dict[str, float]
    metadata: dict[str, Any]
    best_by: tuple[str, Literal["min", "max"]] | None
    training: dict[str, Any]
    versions: dict[str, str]
    finite: bool | None
    run_began: _Seconds | None
    run: str | None
    preserved: tuple[int, ...]
    files: tuple[str, ...]
    lineage: tuple[Restored, ...]
    outputs: dict[str, Any] | None = None
    builds: Builds | None = None


class _Structure(msgspec.Struct):
    """The fields of an inventory but for its values."""

    complete: bool
    containers: dict[str, _Container]
    private: dict[str, str] | None
    aliases: dict[str, str]
    optimizers: dict[str, str]
    roots: dict[str, tuple[str, Literal["", "model", "optimizer"]]]
    left_out: dict[str, str]
    datasets: dict[str, Dataset]
    accumulation: dict[str, int] = msgspec.field(default_factory=dict)


def now() -> str:
    """The current time in the format of a record.

    >>> datetime.datetime.fromisoformat(now()).utcoffset()
    datetime.timedelta(0)
    """
    return datetime.datetime.fromtimestamp(time.time(), datetime.timezone.utc).isoformat()


# When it is first asked msgspec resolves the types of a class: not in two threads at once.
_RESOLVED = msgspec.json.Decoder(_Facts), msgspec.json.Decoder(_Structure)


def render(record: CommitRecord) -> bytes:
    """The file content of a record; equal records give equal bytes."""
    inventory = record.inventory
    head: dict[str, Any] = {"format": FORMAT}
    head |= {name: getattr(record, name) for name in _Facts.__struct_fields__}
    head |= {name: getattr(inventory, name) for name in _Structure.__struct_fields__}
    for name in ("outputs", "builds", "accumulation"):
        if not head[name]:
            del head[name]
    head["containers"] = {
        path: (held.kind, [layer[:_LAYER] for layer in held.layers], held.order, held.sizes)
        for path, held in inventory.containers.items()
    }
    head["roots"] = {name: (root.component, root.kind) for name, root in inventory.roots.items()}
    lines = [f"{_json(name)}: {_json(value)}".encode() for name, value in head.items()]
    values = b",\n".join(map(_ENCODER.encode, inventory.entries.values()))
    return _sealed(b"{\n" + b",\n".join([*lines, _ENTRIES + b"\n" + values + b"\n]"]))


def _sealed(body: bytes) -> bytes:
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def _json(value: Any) -> str:
    # not msgspec, which writes null for what is not finite
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_plain
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Builds):
        return msgspec.to_builtins(value)
    return dataclasses.asdict(value) if isinstance(value, Restored) else dict(value)


def parse(data: bytes, path: str, prefix: str, *, head: bool = False) -> CommitRecord:
    """The record in the content of its file; ``head`` leaves out the values, which are most of it.

    ``path`` is for messages; ``prefix`` becomes the ``source`` of the inventory.
    """
    body, seal, rest = data.rpartition(_SEAL)
    if not seal or not rest.endswith(b'"\n}\n'):
        raise DamagedCheckpointError("the commit record is truncated", path=path)
    if hashlib.sha256(body).hexdigest().encode() != rest[:-4]:
        message = "the commit record does not match its own checksum"
        raise DamagedCheckpointError(message, path=path)
    before, mark, values = body.partition(_ENTRIES)
    try:
        if not mark:
            raise ValueError("it has no 'entries'")
        tree = json.loads(before + _ENTRIES + b"]}", parse_int=_integer)
        if type(tree.get("format")) is not int:
            raise ValueError("it has no number of its format")
        if tree["format"] != FORMAT:
            message = f"the commit record has format {tree['format']} of a newer tfckpt"
            raise UnsupportedCheckpointError(message, path=path, hint="Upgrade tfckpt.")
        facts, structure = msgspec.convert(tree, _Facts), msgspec.convert(tree, _Structure)
        entries = {} if head else _entries(b"[" + values, path)
        facts.files = _files(facts.files, os.path.split(prefix)[1])
        _check(facts, structure, entries)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:  # among them those of msgspec
        message = f"the commit record cannot be read: {error}"
        raise DamagedCheckpointError(message, path=path) from None
    held = msgspec.structs.asdict(structure)
    held["containers"] = {
        path: Container(kind, tuple(itertools.starmap(Layer, layers)), order, sizes)
        for path, (kind, layers, order, sizes) in structure.containers.items()
    }
    held["roots"] = {keyword: Root(*root) for keyword, root in structure.roots.items()}
    return CommitRecord(
        inventory=Inventory(prefix, entries, **held), **msgspec.structs.asdict(facts)
    )


def _integer(digits: str) -> int:
    # Python before 3.10.7 converts a million digits, in time that grows with their square.
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _entries(data: bytes, path: str) -> dict[str, Entry]:
    try:
        values = _DECODER.decode(data)
    except msgspec.ValidationError as error:
        place = re.search(r"\$\[(\d+)\]", str(error))
        invalid = msgspec.json.decode(data)[int(place[1])] if place else None
        name = str(invalid[0]) if isinstance(invalid, list) and invalid else ""
        message = f"the commit record cannot be read: {error}"
        raise DamagedCheckpointError(message, path=path, name=name) from None
    # like Entry(…), without calling a Python function
    entries = {value[0]: tuple.__new__(Entry, value) for value in values}
    if len(entries) < len(values):
        name, _ = collections.Counter(value[0] for value in values).most_common(1)[0]
        raise DamagedCheckpointError("two values have this name", path=path, name=name)
    return entries


def _files(names: Sequence[str], base: str) -> tuple[str, ...]:
    """File names that are deleted with the checkpoint, so only its own are valid.

    If the checkpoint was copied or renamed, its files have the new name, too.
    """
    written = next((m["name"] for name in names if (m := _DATA.fullmatch(name))), base)
    own = tuple(base + n[len(written) :] if n.startswith(written) else "" for n in names)
    for name, file in zip(names, own, strict=True):
        if not is_part(file, base):
            raise ValueError(f"'files' lists {name!r}, which is not a file of this checkpoint")
    return own


def is_part(file: str, base: str) -> bool:
    """Whether a file is a data file of a checkpoint, or may come from one of its registered savers.

    These receive ``<prefix>-<name of the saver>`` to write to (``registered_saver_filename`` in
    tensorflow/python/checkpoint/functional_saver.py), or the prefix.

    >>> is_part("ckpt-1.data-00000-of-00001", "ckpt-1"), is_part("../ckpt-1-x", "ckpt-1")
    (True, False)
    >>> is_part("ckpt-1.json", "ckpt-1"), is_part("ckpt-12.json", "ckpt-1")
    (True, False)
    """
    if shards_of(file, base) is not None:
        return True
    plain = os.path.split(file)[1] == file and not {"/", "\0"} & set(file)
    ours = file.startswith(base) and not file[len(base) : len(base) + 1].isalnum()
    return plain and ours and file != base and _NOT_A_SAVERS.fullmatch(file) is None


def _check(facts: _Facts, structure: _Structure, names: Collection[str]) -> None:
    """Raise ValueError for what the types allow and a record does not."""
    if datetime.datetime.fromisoformat(facts.created).utcoffset() != datetime.timedelta(0):
        raise ValueError("'created' must be an ISO 8601 time in UTC")
    for restored in facts.lineage:
        if any(count < 0 for count in restored.counts.values()):
            raise ValueError("'lineage' contains a number that is out of range")
    counts = collections.Counter(component for component, _ in structure.roots.values())
    again = {k for k, (name, _) in structure.roots.items() if counts[name] > 1 and k != name}
    # One object under two keywords has one name; a second name is another object.
    if again and (others := again & {name.partition("/")[0] for name in names}):
        raise ValueError(f"'roots' gives {min(others)!r} the name of another object")


SUFFIX = ".tfckpt.json"
# Of what says that something is unfinished: :mod:`tfckpt.stored.commits.commit`.
MARK = ".tfckpt.mark"
# Of a record that is not in place yet, or not any more.
DRAFT = ".tfckpt.draft"
# Of a directory or a file with what is not in place yet.
PART = ".tfckpt.part"
_SHARD = re.compile(DATA)


def path_of(prefix: str) -> str:
    """The path of the record of a checkpoint.

    >>> path_of("run/ckpt-12")
    'run/ckpt-12.tfckpt.json'
    """
    return prefix + SUFFIX


def index_digest(prefix: str, files: Files = LOCAL) -> str:
    """SHA-256 of the index file, in hexadecimal."""
    path = f"{prefix}.index"
    with reading(path):
        try:
            return hashlib.sha256(content(path, files, limits.RECORD)).hexdigest()
        except FileNotFoundError:
            raise DamagedCheckpointError("the index is missing", path=path) from None


def write_draft(prefix: str, record: CommitRecord, files: Files = LOCAL) -> None:
    """Write the record of a checkpoint that is not committed yet."""
    with gc_paused():
        text = render(record)
    files.write_atomic(prefix + DRAFT, text)


def read(prefix: str, files: Files = LOCAL, digest: str | None = None) -> CommitRecord | None:
    """The record of a checkpoint, or None where it has none, or one of other files.

    ``digest`` is that of the index, read from disk if None. The inventory's ``source`` is this
    prefix, wherever the checkpoint was written.
    """
    for path in (path_of(prefix), prefix + DRAFT, path_of(prefix)):  # a draft becomes the record
        record = _read(path, prefix, files) if path != prefix + DRAFT else read_draft(prefix, files)
        if record is not None:
            digest = digest or index_digest(prefix, files)
            if record.index_sha256 == digest:
                return record
    return None


def read_draft(prefix: str, files: Files, *, head: bool = False) -> CommitRecord | None:
    """The record that is not in place; None where there is none, or half of one."""
    with contextlib.suppress(CheckpointError):
        return _read(prefix + DRAFT, prefix, files, head=head)
    return None


def names_of(prefix: str, files: Files = LOCAL) -> dict[str, str]:
    """Key → name, from the record; empty where it is missing or damaged."""
    with contextlib.suppress(CheckpointError):
        if (record := read(prefix, files)) is not None:
            return {entry.key: entry.name for entry in record.inventory.entries.values()}
    return {}


def read_head(prefix: str, files: Files = LOCAL) -> CommitRecord | None:
    """The record without its values, which is cheap to read; None where there is none."""
    if (record := _read(path_of(prefix), prefix, files, head=True)) is not None:
        return record
    draft = read_draft(prefix, files, head=True)
    with contextlib.suppress(CheckpointError):
        if draft is not None and draft.index_sha256 == index_digest(prefix, files):
            return draft
    return None


def _read(path: str, prefix: str, files: Files, *, head: bool = False) -> CommitRecord | None:
    with reading(path):
        try:
            data = content(path, files, limits.RECORD)
        except FileNotFoundError:
            return None
    return parse(data, path, prefix, head=head)


def parts(prefix: str, names: set[str], files: Files = LOCAL) -> list[str]:
    """The file names of a checkpoint, in the listing ``names``: record, index, then the others."""
    name, head = os.path.split(prefix)[1], None
    with contextlib.suppress(CheckpointError):
        head = read_head(prefix, files)
    return parts_of(name, names, data_files(names).get(name, ()), head)


def parts_of(
    name: str, names: set[str], data: Iterable[str], head: CommitRecord | None
) -> list[str]:
    """The same, of a checkpoint whose data files and record are known."""
    first = [path_of(name), f"{name}.index", *([name] if name else [])]
    rest = {*data, *(names & {*head.files} if head else ())}
    return [*(file for file in first if file in names), *sorted(rest - {*first})]


def data_files(names: Iterable[str]) -> dict[str, list[str]]:
    """The name of each checkpoint in a listing → its data files."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_DATA.fullmatch, names)):
        found.setdefault(match["name"], []).append(match[0])
    return found


def shards_of(file: str, name: str) -> int | None:
    """The number of data files of a checkpoint, from the name of one; None for other names."""
    match = _SHARD.fullmatch(file.removeprefix(name)) if file.startswith(name) else None
    return int(match["shards"]) if match else None
