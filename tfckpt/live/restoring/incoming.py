"""Reads and checks the values that a restore assigns, within a bound on memory.

Everything is read once if half of the memory that the system has available suffices, or as much as
the policy's ``max_memory`` says. What does not fit is read twice: :func:`limit` bytes suffice for a
model of any size.

A value that needs no change is read straight into the future memory of its variable, several in
parallel (:mod:`tfckpt.stored.bundles.read`). Adapted and cast values, strings, slices and
other formats are read one by one through the open checkpoint.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.text import size
from tfckpt.live.io.available_memory import available_memory
from tfckpt.live.restoring import buffers
from tfckpt.live.restoring.adapt import adapted, cast_value, may_fail, unrepeatable
from tfckpt.live.variables.variables import raw
from tfckpt.planning import Status
from tfckpt.stored.bundles.bundle import OPAQUE, Bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.planning import Step
    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.formats.checkpoint import Values
    from tfckpt.stored.open import StoredCheckpoint

_INDIRECT = frozenset({"string", *OPAQUE})
KEPT_BYTES = 96 << 20
BATCH_BYTES = 32 << 20


def limit(sizes: Sequence[int]) -> int:
    """The bytes besides the variables that a restore of values of these sizes can do with.

    >>> limit([64 << 20] * 16) >> 20, limit([1 << 20]) >> 20
    (230, 96)
    """
    return max(KEPT_BYTES, sum(sorted(sizes)[-2:]) + sum(sizes) // 10)


def kept_bytes(sizes: Sequence[int], max_memory: int | None = None) -> int:
    """The bytes of values of these sizes that are kept from the check to the assignment.

    >>> kept_bytes([64 << 20] * 16, max_memory=1 << 30) >> 20
    1024
    """
    least = limit(sizes)
    if sum(sizes) <= least:
        return least
    return max(least, (available_memory() or 0) // 2 if max_memory is None else max_memory)


@dataclasses.dataclass(slots=True)
class Direct:
    """A value that is assigned as it is stored."""

    step: Step
    variable: Any
    plain: bool
    source: str
    entry: BundleEntry
    buffer: buffers.Buffer | None = None
    copied: bool = False


class Incoming:
    """The values that the steps of a plan assign."""

    def __init__(
        self,
        source: str,
        stored: Mapping[str, StoredCheckpoint],
        variables: Mapping[str, Any],
        *,
        keep: bool,
    ) -> None:
        self._source = source
        self._stored: Mapping[str, Values] = {name: item.values for name, item in stored.items()}
        self._variables = variables
        self._keep = keep
        self._ready: dict[str, Any] = {}
        self._spare: dict[Any, list[buffers.Buffer]] = {}

    def direct(self, steps: Iterable[Step]) -> dict[str, Direct]:
        """The steps whose values are assigned as they are stored, by name."""
        found = {}
        for step in steps:
            source = step.origin or self._source
            stored = self._stored[source]
            if step.changes or step.stored is None or not isinstance(stored, Bundle):
                continue
            entry = stored.entries.get(step.stored.key)
            if entry is None or entry.slices or entry.dtype in _INDIRECT:
                continue
            variable = raw(self._variables[step.name])
            plain = buffers.is_plain(variable, entry.dtype)
            if plain or variable.dtype.base_dtype.name == entry.dtype:
                found[step.name] = Direct(step, variable, plain, source, entry)
        return found

    def keep(self, direct: Iterable[Direct], bound: int | None) -> None:
        """Allocate memory for values, up to ``bound`` bytes (None: all), before any is assigned.

        If not all fit: for the largest, whose memory is used again for the others in turn, and then
        for the smallest, because their number takes the time. Where the system has less memory than
        it said, fewer are kept.
        """
        ordered = sorted(direct, key=lambda item: item.entry.nbytes)
        if bound is not None and sum(item.entry.nbytes for item in ordered) > bound:
            first = next(_batches(reversed(ordered)))
            for item in first:
                self._allocate(item)
                item.copied = buffers.is_copied(item.entry, plain=item.plain)
                bound -= item.entry.nbytes
            ordered = ordered[: -len(first)]
        kept = 0
        for item in ordered:
            kept += item.entry.nbytes
            if bound is not None and kept > bound:
                break
            try:
                self._allocate(item)
            except MemoryError:
                if bound is None:
                    raise
                break

    def _allocate(self, item: Direct) -> None:
        form = item.plain, item.entry.shape, item.entry.dtype
        if self._spare.get(form):
            item.buffer = self._spare[form].pop()
            return
        try:
            item.buffer = buffers.empty(item.entry, plain=item.plain)
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(f"{item.step.name}: {size(item.entry.nbytes)}") from error

    def read(self, steps: Iterable[Step], direct: Mapping[str, Direct]) -> None:
        """Check the stored values of each checkpoint, and read those that have memory."""
        wanted: dict[str, list[tuple[str, Any]]] = {}
        for step in steps:
            item = direct.get(step.name)
            content = item.buffer.content if item is not None and item.buffer is not None else None
            keys = wanted.setdefault(step.origin or self._source, [])
            keys += [(entry.key, content) for entry in step.reads]
        for source, keys in wanted.items():
            stored = self._stored[source]
            if isinstance(stored, Bundle):
                stored.fetch(keys)
            else:
                stored.verify([key for key, _ in keys])

    def in_turn(self, direct: Iterable[Direct]) -> Iterator[tuple[Direct, buffers.Buffer]]:
        """Each value with its memory: those already read, then the others, a few at a time.

        The others are copied into the memory that their variables have, and their own is used
        again. A C library cannot pass on the memory of old values: it keeps holes that are a few
        bytes too small for the new ones.
        """
        read = [item for item in direct if item.buffer is not None]
        read.sort(key=lambda item: item.copied)
        rest = sorted(
            (item for item in direct if item.buffer is None),
            key=lambda item: item.entry.nbytes,
            reverse=True,
        )
        yield from self._passed_on(read)
        for batch in _batches(rest):
            for item in batch:
                self._allocate(item)
                item.copied = buffers.is_copied(item.entry, plain=item.plain)
            self._spare.clear()
            self.read([item.step for item in batch], {item.step.name: item for item in batch})
            yield from self._passed_on(batch)
        self._spare.clear()

    def _passed_on(self, batch: Iterable[Direct]) -> Iterator[tuple[Direct, buffers.Buffer]]:
        for item in batch:
            if item.buffer is not None:
                yield item, item.buffer
                if item.copied:
                    form = item.plain, item.entry.shape, item.entry.dtype
                    self._spare.setdefault(form, []).append(item.buffer)
                item.buffer = None

    def check(self, steps: Iterable[Step]) -> None:
        """Compute values that may fail; keep those that could differ if computed again."""
        for step in steps:
            if step.status is Status.CAST or may_fail(step):
                value = cast_for(step.name, self._variables[step.name], self._compute(step))
                if unrepeatable(step):
                    self._ready[step.name] = value

    def take(self, step: Step) -> Any:
        """The value of a step; it is freed unless all values are compared later."""
        if step.name not in self._ready:
            return self._compute(step)
        return self._ready[step.name] if self._keep else self._ready.pop(step.name)

    def _compute(self, step: Step) -> Any:
        stored = self._stored[step.origin or self._source]
        values = [stored.read(entry.key) for entry in step.reads]
        return adapted(step, values, self._variables[step.name]) if step.changes else values[0]


def _batches(rest: Iterable[Direct]) -> Iterator[list[Direct]]:
    """Batches of at most ``BATCH_BYTES`` bytes, with at least one value each."""
    batch: list[Direct] = []
    nbytes = 0
    for item in rest:
        nbytes += item.entry.nbytes
        if batch and nbytes > BATCH_BYTES:
            yield batch
            batch, nbytes = [], item.entry.nbytes
        batch.append(item)
    if batch:
        yield batch


def cast_for(name: str, variable: Any, value: Any) -> Any:
    """A value in the dtype of a variable."""
    return cast_value(name, value, raw(variable).dtype.base_dtype.as_numpy_dtype)
