"""Writes the checkpoint of a rewrite plan: the key of each value, and the commit record.

A checkpoint with an object graph keeps its graph and keys; values that the inventory does not name
(the parts of a lookup table) are kept or dropped with their object. Others get keys and a graph
made of their canonical names.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import LostNumberError, cast, numpy_dtype
from tfckpt.core.inventory import Restored, Role
from tfckpt.core.text import free_name
from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.planning.checks.step import Status
from tfckpt.planning.rewrite import structure
from tfckpt.stored.bundles.bundle import OPAQUE
from tfckpt.stored.bundles.keys import ATTRIBUTES, OBJECT_GRAPH, object_graph
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.commit import CheckpointValue, write_values
from tfckpt.stored.formats.graph_writer import graph_of_names, key_of, prune
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    import numpy as np

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan, Step
    from tfckpt.stored.bundles.bundle import Bundle
    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

_HINT = "exclude it: --exclude with its name"
_PART = 1 << 20
_NUMBERED = re.compile(r".*-([0-9]{1,18})", re.DOTALL)


def rewrite(
    reader: StepReader, plan: Plan, target: str, shard_bytes: int | None = None
) -> CommitRecord:
    """Write a new checkpoint from another.

    The plan is one of :func:`tfckpt.planning.rewrite.derive` without errors; ``target`` is the
    prefix of the new checkpoint; ``shard_bytes`` limits the size of a data file.
    """
    stored = reader.stored
    for step in plan.assignments:
        if step.entry.shape is not None and step.entry.dtype in OPAQUE:
            message = f"values of dtype {step.entry.dtype} can be read only by TensorFlow"
            raise UnsupportedCheckpointError(
                message, path=stored.prefix, name=step.source, hint=_HINT
            )
    bundle = stored.graph
    inventory = stored.members[0].inventory if stored.members else stored.inventory
    keys = _keys(plan, bundle.entries if bundle else {}, kept=bundle is not None)
    values = {
        keys[step.name]: reader.value(step, keys[step.name])
        for step in plan.assignments
        if step.entry.shape is not None
    }
    if bundle is not None:
        values = dict(_with_graph(bundle, inventory, plan, values))
    else:
        values[OBJECT_GRAPH] = _text(OBJECT_GRAPH, graph_of_names(keys).SerializeToString())

    before = stored.record.lineage if stored.record else ()
    counts = {status.value: count for status, count in plan.counts.items()}

    def describe(bundle: Bundle, _: None, files: tuple[str, ...]) -> CommitRecord:
        entries = [_written(step, keys[step.name], bundle) for step in plan.assignments]
        inventory = structure(stored.inventory, plan, entries, target)
        number = _NUMBERED.fullmatch(target)
        described = record_file.CommitRecord(
            number=int(number[1]) if number else 0,
            inventory=inventory,
            index_sha256=bundle.digest,
            created=record_file.now(),
            versions={"tfckpt": __version__},
            finite=reader.finite,
            files=files,
            lineage=(*before, Restored(plan.origins, counts)),
        )
        return _with_source_metadata(stored, plan, described)

    return write_values(target, list(values.values()), describe, shard_bytes=shard_bytes)


class StepReader:
    """Reads the values of a plan in the dtypes that they are to have."""

    def __init__(
        self, stored: StoredCheckpoint, plan: Plan, advance: Callable[[int, int], None]
    ) -> None:
        self.stored = stored
        self.finite = True
        self._advance = advance
        self._total = plan.nbytes
        self._done = 0
        advance(self._done, self._total)

    def value(self, step: Step, key: str) -> CheckpointValue:
        return CheckpointValue(key, step.entry.nbytes, partial(self.read, step))

    def read(self, step: Step) -> np.ndarray:
        """The value, cast if the step says so."""
        entry = _stored(step)
        array = self.stored.values.read(entry.key)
        self._done += entry.nbytes
        self._advance(self._done, self._total)
        if step.status is Status.CAST:
            try:
                array = cast(array, numpy_dtype(step.entry.dtype))
            except LostNumberError as error:
                raise UnsupportedCheckpointError(
                    str(error),
                    path=self.stored.prefix,
                    name=step.source,
                    hint="exclude this value from the cast, or use a wider dtype",
                ) from None
        if entry.role in (Role.WEIGHT, Role.SLOT):
            self.finite = self.finite and _finite(array)
        return array


def _keys(plan: Plan, taken: Container[str], *, kept: bool) -> dict[str, str]:
    """New name → key: the source's if kept, each used once; else one made of the name."""
    keys: dict[str, str] = {}
    used = set[str]()

    def is_used(name: str) -> bool:
        return (key := key_of(name)) in taken or key in used

    for step in plan.assignments:
        key = _stored(step).key if kept else ""
        if not kept or key in used:
            key = key_of(free_name(step.name, is_used) if kept else step.name)
        keys[step.name] = key
        used.add(key)
    return keys


def _with_graph(
    bundle: Bundle, inventory: Inventory, plan: Plan, values: Mapping[str, CheckpointValue]
) -> Iterator[tuple[str, CheckpointValue]]:
    """All values that are not dropped, in the order of the source's files."""
    graph = object_graph(bundle)
    if any(node.registered_saver.name for node in graph.nodes):
        message = "has values of a registered saver, which only that saver can write"
        raise UnsupportedCheckpointError(message, path=bundle.prefix)
    taken = {_stored(step).name for step in plan.assignments}
    dropped = [entry for entry in inventory.entries.values() if entry.name not in taken]
    dropped_keys = {entry.key for entry in dropped}
    owners = {e.key.rpartition(ATTRIBUTES)[0] for e in dropped if e.shape is None} - {""}
    dropped_keys |= {key for key in bundle.entries if key.rpartition(ATTRIBUTES)[0] in owners}
    prune(graph, dropped_keys)
    rest = dict(values)
    for key, entry in sorted(bundle.entries.items(), key=lambda item: item[1][2:4]):
        written = rest.pop(key, None)
        if key == OBJECT_GRAPH:
            yield key, _text(key, graph.SerializeToString())
        elif written is not None:
            yield key, written
        elif key not in dropped_keys and entry.dtype in OPAQUE:  # the state of an iterator
            yield key, CheckpointValue(key, entry.nbytes, partial(bundle.read_raw, key), entry)
        elif key not in dropped_keys:
            yield key, CheckpointValue(key, entry.nbytes, partial(bundle.read, key))
    yield from rest.items()


def _stored(step: Step) -> Entry:
    assert step.stored is not None, "assignments have a stored value"  # noqa: S101 (narrows the type)
    return step.stored


def _text(key: str, content: bytes) -> CheckpointValue:
    import numpy as np

    return CheckpointValue(key, len(content), lambda: np.array(content, object))


def _written(step: Step, key: str, bundle: Bundle) -> Entry:
    """The entry of a value in the record."""
    stored = bundle.entries.get(key)
    nbytes, crc32c = (stored.nbytes, stored.crc32c) if stored else (0, None)
    if step.entry.shape is None:
        crc32c = None
    return step.entry._replace(key=key, nbytes=nbytes, crc32c=crc32c)


def _with_source_metadata(stored: StoredCheckpoint, plan: Plan, new: CommitRecord) -> CommitRecord:
    """The record with the source's metadata that is still true of the result."""
    old = stored.record
    if old is None:
        return new
    new = dataclasses.replace(new, step=old.step, epoch=old.epoch, proof=old.proof)
    whole = len(plan.assignments) == len(stored.inventory.entries)
    if Status.CAST in plan.counts or not whole:
        return new
    return dataclasses.replace(
        new, metrics=old.metrics, metadata=old.metadata, training=old.training
    )


def _finite(array: np.ndarray) -> bool:
    import numpy as np

    if array.dtype.hasobject or array.dtype.fields or array.dtype.kind in "biu":
        return True
    flat = array.reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    return all(bool(np.isfinite(part).all()) for part in parts)
