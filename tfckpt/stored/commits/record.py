"""The content of a commit record: JSON, one value per line, with a checksum of itself at the end.

A record is refused where the checksum does not match. As that can be forged, also refused are
fields that are missing, of a wrong type or out of range, and file names outside of the checkpoint.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import hashlib
import json
import math
import os
import re
import time
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Dataset, Entry, Inventory, Restored, Role, Root
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.commits import lineage, record_entries
from tfckpt.stored.paths.parts import is_part
from tfckpt.stored.paths.wrong_paths import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORMAT = 1
MAX_DIGITS = 20
# Only one record in thousands contains as many digits in a row by chance.
_LONG = b"0" * MAX_DIGITS
_DIGITS = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else 32 for byte in range(256))
_DATA = re.compile(rf"(.+){DATA}", re.DOTALL)
_ROOT_KINDS = ("", "model", "optimizer")
_ENTRIES = b'"entries": [\n'
_SEAL = b',\n"sha256": "'
# What a value has where its record does not say otherwise.
_DEFAULTS = {"nbytes": 0, "key": "", "slot": "", "of": "", "crc32c": None}


@dataclasses.dataclass(frozen=True)
class CommitRecord:
    """What a save records about itself.

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
        run_first: number of the run's first save in this directory. A run that resumes from a
            checkpoint of the directory counts as the run that saved it.
        preserved: numbers of the checkpoints that ``every_n_hours`` keeps permanently.
        files: names of the data files and of files that registered savers wrote.
        lineage: the restores that the values come from, oldest first.
    """

    number: int
    inventory: Inventory
    index_sha256: str
    created: str
    step: int | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    best_by: tuple[str, str] | None = None
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    finite: bool | None = None
    run_began: float | None = None
    run_first: int | None = None
    preserved: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    lineage: tuple[Restored, ...] = ()

    @property
    def mid_epoch(self) -> bool:
        """Whether ``fit`` was in the middle of an epoch, before its validation."""
        position = self.training.get("fit")
        return isinstance(position, dict) and position.get("ended") is False

    @functools.cached_property
    def time(self) -> float:
        """Unix time of the save."""
        return datetime.datetime.fromisoformat(self.created).timestamp()


def now() -> str:
    """The current time in the format of a record.

    >>> datetime.datetime.fromisoformat(now()).utcoffset()
    datetime.timedelta(0)
    """
    return datetime.datetime.fromtimestamp(time.time(), datetime.timezone.utc).isoformat()


def _head(record: CommitRecord) -> dict[str, Any]:
    """All fields but the values, as plain JSON types."""
    inventory = record.inventory
    return {
        "format": FORMAT,
        "number": record.number,
        "created": record.created,
        "step": record.step,
        "epoch": record.epoch,
        "metrics": dict(record.metrics),
        "training": dict(record.training),
        "versions": dict(record.versions),
        "finite": record.finite,
        "run_began": record.run_began,
        "run_first": record.run_first,
        "preserved": list(record.preserved),
        "files": list(record.files),
        "metadata": dict(record.metadata),
        "best_by": None if record.best_by is None else list(record.best_by),
        "lineage": lineage.plain(record.lineage),
        "index_sha256": record.index_sha256,
        "complete": inventory.complete,
        "containers": record_entries.containers_to_json(inventory.containers),
        "private": None if inventory.private is None else dict(inventory.private),
        "aliases": dict(inventory.aliases),
        "optimizers": dict(inventory.optimizers),
        "roots": {k: [root.component, root.kind] for k, root in inventory.roots.items()},
        "left_out": dict(inventory.left_out),
        "datasets": {name: [*dataset] for name, dataset in inventory.datasets.items()},
    }


_FIELDS = frozenset(_head(CommitRecord(0, Inventory("", {}), "", "")))


def render(record: CommitRecord) -> bytes:
    """The file content of a record; equal records give equal bytes."""
    lines = [f"{_json(name)}: {_json(value)}" for name, value in _head(record).items()]
    entries = record_entries.render(record.inventory.entries.values())
    lines.append(f"{_ENTRIES.decode()}{entries}\n]")
    body = ("{\n" + ",\n".join(lines)).encode()
    return body + _SEAL + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def parse(data: bytes, path: str, prefix: str, *, head: bool = False) -> CommitRecord:
    """The record in the content of its file; ``head`` leaves out the values, which are most of it.

    ``path`` is for messages; ``prefix`` becomes the ``source`` of the inventory.
    """
    return _RecordReader(path).record(data, prefix, head=head)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def integer(digits: str) -> int:
    """An integer of at most ``MAX_DIGITS`` digits."""
    # Python before 3.10.7 converts a million digits, in time that grows with their square.
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


class _RecordReader:
    """Parses a record and names the invalid value."""

    def __init__(self, path: str) -> None:
        self.path = path

    def damaged(self, message: str, name: str = "") -> DamagedCheckpointError:
        return DamagedCheckpointError(message, path=self.path, name=name)

    def record(self, data: bytes, prefix: str, *, head: bool) -> CommitRecord:
        body, seal, rest = data.rpartition(_SEAL)
        if not seal or not rest.endswith(b'"\n}\n'):
            raise self.damaged("the commit record is truncated")
        if hashlib.sha256(body).hexdigest().encode() != rest[:-4]:
            raise self.damaged("the commit record does not match its own checksum")
        number = integer if _LONG in data.translate(_DIGITS) else None
        before, mark, text = body.partition(_ENTRIES)
        values = record_entries.read(text, number) if mark and not head else None
        if head or values is not None:
            data = before + _ENTRIES + b"]}"
        try:
            tree = json.loads(data, parse_int=number)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"the commit record is not valid JSON: {error}") from None
        if self.get(tree, "format", int) != FORMAT:
            message = f"the commit record has format {tree['format']} of a newer tfckpt"
            raise UnsupportedCheckpointError(message, path=self.path, hint="Upgrade tfckpt.")
        if missing := sorted(_FIELDS - tree.keys()):
            raise UnsupportedCheckpointError(
                f"the commit record has no {missing[0]!r}: tfckpt wrote it before version 0.1.0",
                path=self.path,
                hint="Remove this file, restore the checkpoint as one of plain TensorFlow, and "
                "save it again with this version.",
            )
        restored = self.get(tree, "lineage", list)
        return CommitRecord(
            number=self.natural(tree, "number"),
            inventory=self.inventory(tree, prefix, values),
            index_sha256=self.get(tree, "index_sha256", str),
            created=self.time(tree),
            step=self.natural(tree, "step", optional=True),
            epoch=self.natural(tree, "epoch", optional=True),
            metrics=self.mapping(tree, "metrics", float, int),
            metadata=self.get(tree, "metadata", dict),
            best_by=self.best_by(tree),
            training=self.get(tree, "training", dict),
            versions=self.mapping(tree, "versions", str),
            finite=self.get(tree, "finite", bool, type(None)),
            run_began=self.seconds(tree, "run_began"),
            run_first=self.natural(tree, "run_first", optional=True),
            preserved=self.numbers(tree, "preserved"),
            files=self.files(tree, os.path.split(prefix)[1]),
            lineage=lineage.parse(restored, self.damaged) if restored else (),
        )

    def get(self, tree: Any, field: str, *types: type, name: str = "") -> Any:
        value = tree.get(field, _DEFAULTS.get(field)) if type(tree) is dict else None
        if type(value) not in types:
            raise self.damaged(f"{field!r} is missing or has the wrong type", name)
        return value

    def natural(self, tree: Any, field: str, name: str = "", *, optional: bool = False) -> Any:
        types = (int, type(None)) if optional else (int,)
        value = self.get(tree, field, *types, name=name)
        if value is not None and not 0 <= value < 1 << 63:
            raise self.damaged(f"{field!r} is out of range", name)
        return value

    def mapping(self, tree: Any, field: str, *types: type) -> dict[str, Any]:
        value: dict[str, Any] = self.get(tree, field, dict)
        if any(type(item) not in types for item in value.values()):
            raise self.damaged(f"{field!r} contains a value of the wrong type")
        return value

    def seconds(self, tree: Any, field: str) -> float | None:
        value: float | None = self.get(tree, field, float, int, type(None))
        if value is not None and not math.isfinite(value):
            raise self.damaged(f"{field!r} must be a finite number of seconds")
        return value

    def best_by(self, tree: Any) -> tuple[str, str] | None:
        """The metric that the best checkpoint is chosen by, and whether to take its minimum."""
        value = self.get(tree, "best_by", list, type(None))
        if value is None:
            return None
        if [type(part) for part in value] != [str, str] or value[1] not in {"min", "max"}:
            raise self.damaged("'best_by' must be a metric, and min or max")
        return value[0], value[1]

    def numbers(self, tree: Any, field: str) -> tuple[int, ...]:
        values = self.get(tree, field, list)
        if any(type(value) is not int for value in values):
            raise self.damaged(f"{field!r} must be a list of integers")
        return tuple(values)

    def files(self, tree: Any, base: str) -> tuple[str, ...]:
        """File names that are deleted with the checkpoint, so only its own are valid.

        If the checkpoint was copied or renamed, its files have the new name, too.
        """
        names, own = self.get(tree, "files", list), []
        written = next((m[1] for name in names if (m := _DATA.fullmatch(str(name)))), base)
        for name in names:
            ours = type(name) is str and name.startswith(written)
            own.append(base + name[len(written) :] if ours else "")
            if not is_part(own[-1], base):
                raise self.damaged(
                    f"'files' lists {name!r}, which is not a file of this checkpoint"
                )
        return tuple(own)

    def time(self, tree: Any) -> str:
        text: str = self.get(tree, "created", str)
        try:
            offset = datetime.datetime.fromisoformat(text).utcoffset()
        except ValueError:
            offset = None
        if offset != datetime.timedelta(0):
            raise self.damaged("'created' must be an ISO 8601 time in UTC")
        return text

    def inventory(self, tree: Any, prefix: str, values: Mapping[str, Entry] | None) -> Inventory:
        items = self.get(tree, "entries", list)
        entries = self.entries(items) if values is None else values
        return Inventory(
            prefix,
            entries,
            record_entries.containers_from_json(
                self.mapping(tree, "containers", list), self.damaged
            ),
            self.mapping(tree, "aliases", str),
            self.mapping(tree, "optimizers", str),
            self.get(tree, "complete", bool),
            self.roots(tree, entries),
            self.mapping(tree, "left_out", str),
            datasets=self.datasets(tree),
            private=self.get(tree, "private", dict, type(None))
            and self.mapping(tree, "private", str),
        )

    def datasets(self, tree: Any) -> dict[str, Dataset]:
        datasets = self.mapping(tree, "datasets", list)
        for name, item in datasets.items():
            if [type(part) for part in item] != [str, int, str]:
                raise self.damaged("'datasets' contains an invalid description", name)
        return {name: Dataset(*item) for name, item in datasets.items()}

    def entries(self, items: Sequence[Any]) -> dict[str, Entry]:
        """The values, checked one by one to name the first invalid one."""
        entries: dict[str, Entry] = {}
        for item in items:
            entry = self.entry(item)
            if entry.name in entries:
                raise self.damaged("two values have this name", entry.name)
            entries[entry.name] = entry
        return entries

    def roots(self, tree: Any, entries: Mapping[str, Entry]) -> dict[str, Root]:
        roots = {k: self.root(item) for k, item in self.mapping(tree, "roots", list).items()}
        counts = collections.Counter(root.component for root in roots.values())
        again = {k for k, r in roots.items() if counts[r.component] > 1 and k != r.component}
        tops = {name.partition("/")[0] for name in entries} if again else set()
        for keyword in roots:
            # One object under two keywords has one name; a second name is another object.
            if keyword in again & tops:
                raise self.damaged(f"'roots' gives {keyword!r} the name of another object")
        return roots

    def root(self, item: Any) -> Root:
        if [type(part) for part in item] != [str, str] or item[1] not in _ROOT_KINDS:
            raise self.damaged("'roots' contains an invalid object")
        return Root(*item)

    def entry(self, item: Any) -> Entry:
        name: str = self.get(item, "name", str)
        if not name:
            raise self.damaged("a value has no name")
        if unknown := item.keys() - record_entries.FIELDS:
            raise self.damaged(f"unknown field {min(unknown)!r}", name)
        role = self.get(item, "role", str, name=name)
        if role not in Role._value2member_map_:
            raise self.damaged(f"unknown role {role!r}", name)
        shape = self.get(item, "shape", list, type(None), name=name)
        if shape is not None:
            if any(type(size) is not int or not 0 <= size < 1 << 63 for size in shape):
                raise self.damaged("'shape' must be a list of non-negative integers", name)
            shape = tuple(shape)
        crc32c = self.get(item, "crc32c", int, type(None), name=name)
        if crc32c is not None and not 0 <= crc32c < 1 << 32:
            raise self.damaged("'crc32c' is out of range", name)
        return Entry(
            name,
            Role(role),
            self.get(item, "dtype", str, name=name),
            shape,
            self.natural(item, "nbytes", name),
            self.get(item, "key", str, name=name),
            self.get(item, "slot", str, name=name),
            self.get(item, "of", str, name=name),
            crc32c,
        )
