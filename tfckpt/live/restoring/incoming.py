"""Reads and checks the values that a restore assigns, within a bound on memory.

A value that needs no change is read straight into the future memory of its variable, several in
parallel (:mod:`tfckpt.stored.bundles.parallel_read`). Adapted and cast values, strings, slices and
other formats are read one by one through the open checkpoint.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.live.restoring import buffers
from tfckpt.live.restoring.adapt import adapted, cast_value, may_fail, unrepeatable
from tfckpt.live.variables.variables import raw
from tfckpt.planning import Status
from tfckpt.stored.bundles.bundle import OPAQUE, Bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.planning import Step
    from tfckpt.stored.bundles.encoding.index_proto import BundleEntry
    from tfckpt.stored.formats.checkpoint import Values
    from tfckpt.stored.open import StoredCheckpoint

_INDIRECT = frozenset({"string", *OPAQUE})
KEPT_BYTES = 96 << 20


def limit(sizes: Sequence[int]) -> int:
    """The bytes that a restore of values of these sizes may use besides the variables.

    >>> limit([64 << 20] * 16) >> 20, limit([1 << 20]) >> 20
    (230, 96)
    """
    return max(KEPT_BYTES, sum(sorted(sizes)[-2:]) + sum(sizes) // 10)


@dataclasses.dataclass(slots=True)
class Direct:
    """A value that is assigned as it is stored.

    Attributes:
        step: its step in the plan.
        variable: the tf.Variable.
        plain: see :func:`tfckpt.live.restoring.buffers.is_plain`.
        source: the checkpoint's name in the plan.
        entry: its entry in the index.
        buffer: the memory for the value; None while it is not in memory.
    """

    step: Step
    variable: Any
    plain: bool
    source: str
    entry: BundleEntry
    buffer: buffers.Buffer | None = None


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
        """Allocate memory for values, the smallest first, up to ``bound`` bytes (None: all).

        Small values first, because their number takes the time.
        """
        kept = 0
        for item in sorted(direct, key=lambda item: item.entry.nbytes):
            kept += item.entry.nbytes
            if bound is not None and kept > bound:
                break
            item.buffer = buffers.empty(item.entry, plain=item.plain)

    def read(self, steps: Iterable[Step], direct: Mapping[str, Direct]) -> None:
        """Check the stored values of each checkpoint, and read those that have memory.

        Raises:
            DamagedCheckpointError: for the first value whose checksum does not match.
        """
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

    def in_turn(
        self, direct: Iterable[Direct], max_bytes: int
    ) -> Iterator[tuple[Direct, buffers.Buffer]]:
        """Each value with its memory: those already read, then the others in batches."""
        rest = []
        for item in direct:
            if item.buffer is None:
                rest.append(item)
                continue
            yield item, item.buffer
            item.buffer = None
        for batch in _batches(rest, max_bytes):
            self.keep(batch, None)
            self.read([item.step for item in batch], {item.step.name: item for item in batch})
            yield from self.in_turn(batch, max_bytes)

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


def _batches(rest: Iterable[Direct], max_bytes: int) -> Iterator[list[Direct]]:
    """Batches of at most ``max_bytes`` bytes, with at least one value each."""
    batch: list[Direct] = []
    nbytes = 0
    for item in rest:
        nbytes += item.entry.nbytes
        if batch and nbytes > max_bytes:
            yield batch
            batch, nbytes = [], item.entry.nbytes
        batch.append(item)
    if batch:
        yield batch


def cast_for(name: str, variable: Any, value: Any) -> Any:
    """A value in the dtype of a variable.

    Raises:
        RestoreError: the dtype cannot hold it.
    """
    return cast_value(name, value, raw(variable).dtype.base_dtype.as_numpy_dtype)
