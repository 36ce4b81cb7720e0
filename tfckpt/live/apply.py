"""Carrying out a plan, all of it or none of it: the only place that assigns a restored value.

Every needed value is checked on disk first, in small pieces and without being kept; then what is no
variable is restored, by TensorFlow; then one value after the other is read and assigned, so that a
restore needs little more memory than its largest value. A variable's old value is kept by
reference, which costs memory only once the variable has a new one: always for the first
``UNDO_BYTES``, and beyond that only where the caller says that an assertion may still ask for it.
Past the check, only a device that fails between two reads of the same bytes could need more, and
that is reported as what it is.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.errors import RestoreError
from tfckpt.live import delayed
from tfckpt.live.adapt import adapted, may_fail, unrepeatable
from tfckpt.live.casting import cast
from tfckpt.live.variables import raw
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.planning import Plan, Step
    from tfckpt.stored.checkpoint import StoredCheckpoint

UNDO_BYTES = 64 << 20
TRIM_BYTES = 32 << 20


@dataclasses.dataclass
class _Kept:
    """A variable's old value, and the new one: None while that is being assigned."""

    variable: Any
    old: tf.Tensor
    new: tf.Tensor | None = None


@dataclasses.dataclass
class Undo:
    """Old values, and what they were replaced with.

    Attributes:
        keep_all: whether they are kept whatever their size.
        complete: whether every one has been kept, and, once rolled back, put back.
    """

    keep_all: bool = False
    complete: bool = True
    _kept: list[_Kept] = dataclasses.field(default_factory=list)
    _bytes: int = 0
    _freed: int = 0

    def assign(self, variable: Any, value: Any) -> None:
        """Give a variable a new value, and remember the old one."""
        inner = raw(variable)
        self._bytes += inner.dtype.size * (inner.shape.num_elements() or 0)
        if not self.keep_all and self._bytes > UNDO_BYTES:
            self.complete = False
            inner.assign(value)
            self._freed += value.nbytes
            if self._freed > TRIM_BYTES:
                self._freed = 0
                _trim()
            return
        kept = _Kept(inner, inner.read_value())
        self._kept.append(kept)
        inner.assign(value)
        kept.new = inner.read_value()

    def watch(self, variables: Iterable[Any]) -> None:
        """Remember variables that something else is about to assign."""
        self._kept += [_Kept(inner, inner.read_value()) for inner in map(raw, variables)]

    def settle(self) -> None:
        """What is watched has been assigned."""
        for kept in self._kept:
            if kept.new is None:
                kept.new = kept.variable.read_value()

    def take_back(self) -> bool:
        """Put every value back, or none where one was changed since; whether that was done.

        A model of which one half was trained on and the other put back would be neither.
        """
        changed = any(
            kept.new is not None and not _same(kept.variable.read_value(), kept.new)
            for kept in self._kept
        )
        if changed:
            self.forget()
            return False
        self.roll_back()
        return self.complete

    def roll_back(self) -> None:
        """Put every kept value back."""
        for kept in reversed(self._kept):
            if _same(kept.variable.read_value(), kept.old):
                continue
            try:
                kept.variable.assign(kept.old)
            except Exception:  # the others are put back all the same
                self.complete = False
        self.forget()

    def forget(self) -> None:
        self._kept.clear()


def _trim() -> None:
    """Old values go back to the system: glibc would keep them, in pieces too short for new ones.

    Measured on 768 MiB in values of 16 MiB: 600 MiB of holes (malloc_trim(3); others have none).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _same(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Whether two tensors hold the same bytes; the same buffer, on a CPU that is all it takes."""
    return _same_bytes(np.asarray(one.numpy()), np.asarray(other.numpy()))


def _same_bytes(one: Any, other: Any) -> bool:
    if one.dtype.kind in "OS":  # strings
        return bool(one.tolist() == other.tolist())
    if one.ctypes.data == other.ctypes.data:
        return True
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))


def apply(
    plan: Plan,
    stored: Mapping[str, StoredCheckpoint],
    variables: Mapping[str, Any],
    *,
    verify: str = "checksums",
    keep_all: bool = False,
    resets: Mapping[str, Any] | None = None,
    objects: Mapping[str, Mapping[str, Any]] | None = None,
) -> Undo:
    """Assign what the plan says.

    Args:
        plan: one without errors.
        stored: source → the checkpoint it was made from, still open.
        variables: canonical name → variable.
        verify: ``checksums`` checks all values on disk before the first is assigned; ``values``
            also compares every variable with the file afterwards; ``none`` leaves the checking to
            the reads.
        keep_all: whether the old values are kept whatever their size.
        resets: canonical name → the value that a reset gives back.
        objects: prefix → checkpoint key → what is no variable. TensorFlow restores it, before the
            first assignment, since that cannot be undone and is likelier to fail than one.

    Raises:
        DamagedCheckpointError: a value is not what its checksum says; nothing was changed.
        RestoreError: a variable or another object would not take its value, or its type cannot
            hold it; no variable was changed.
    """
    steps = [step for step in plan.assignments if all(e.shape is not None for e in step.reads)]
    values = _Values(plan.source, stored, variables, keep=verify == "values")
    if verify != "none":
        values.verify(steps)
    for step in steps:
        values.check(step)
    for prefix, found in (objects or {}).items():
        _restore_objects(prefix, found)
    undo = Undo(keep_all=keep_all or verify == "none")
    try:
        for step in steps:
            _assign(undo, step.name, variables[step.name], values.take(step))
        for name, value in (resets or {}).items():
            _assign(undo, name, variables[name], value.numpy())
        if verify == "values":
            for step in steps:
                _compare(step.name, raw(variables[step.name]), values.take(step))
    except BaseException as error:
        undo.roll_back()
        if undo.complete or not isinstance(error, Exception):
            raise
        raise RestoreError(
            f"{plan.source}: the files changed or failed after they had been checked, when some "
            f"variables had their new values already, and not all could be put back: {error}",
            hint="restore again, from this or another checkpoint, before using the model",
        ) from error
    return undo


class _Values:
    """What the steps of a plan assign."""

    def __init__(
        self,
        source: str,
        stored: Mapping[str, StoredCheckpoint],
        variables: Mapping[str, Any],
        *,
        keep: bool,
    ) -> None:
        self._source = source
        self._stored = stored
        self._variables = variables
        self._keep = keep
        self._ready: dict[str, Any] = {}

    def verify(self, steps: Iterable[Step]) -> None:
        """Check what is stored, of each checkpoint at once."""
        keys: dict[str, list[str]] = {}
        for step in steps:
            keys.setdefault(step.origin or self._source, []).extend(e.key for e in step.reads)
        for source, wanted in keys.items():
            self._stored[source].values.verify(wanted)

    def check(self, step: Step) -> None:
        """Compute a value that may fail; one that would be another the next time is kept."""
        if step.status is Status.CAST or may_fail(step):
            value = _cast(step.name, self._variables[step.name], self._compute(step))
            if unrepeatable(step):
                self._ready[step.name] = value

    def take(self, step: Step) -> Any:
        """The value of a step, for the last time unless all of them are compared later."""
        if step.name not in self._ready:
            return self._compute(step)
        return self._ready[step.name] if self._keep else self._ready.pop(step.name)

    def _compute(self, step: Step) -> Any:
        stored = self._stored[step.origin or self._source].values
        values = [stored.read(entry.key) for entry in step.reads]
        return adapted(step, values, self._variables[step.name]) if step.changes else values[0]


def _restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    try:
        delayed.restore_objects(prefix, objects)
    except (AssertionError, ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        raise RestoreError(
            f"{prefix}: an object that is no variable (an iterator, a table) does not take what "
            f"is stored for it, and no variable was changed: {error}",
            hint="exclude it by its name in the policy to restore the rest",
        ) from error


def _cast(name: str, variable: Any, value: Any) -> Any:
    return cast(name, value, raw(variable).dtype.base_dtype.as_numpy_dtype)


def _assign(undo: Undo, name: str, variable: Any, value: Any) -> None:
    value = _cast(name, variable, value)
    try:
        undo.assign(variable, value)
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise RestoreError(f"{name}: the variable does not take the value: {error}") from error


def _compare(name: str, variable: Any, expected: Any) -> None:
    value = np.asarray(variable.numpy())
    if not _same_bytes(value, expected.astype(value.dtype, copy=False)):
        raise RestoreError(f"{name}: the variable does not hold the value that was read for it")
