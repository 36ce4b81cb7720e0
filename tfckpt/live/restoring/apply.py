"""Applies a plan, all of it or none of it: the only module that assigns restored values.

Every needed value is read and checked before the first assignment. The memory for that is bounded:
values are kept up to ``kept_bytes``, the small ones first; the others are checked in small pieces
and read again, a few at a time, before they are assigned. Between the check and the first
assignment TensorFlow restores what is not a variable.

The old value of a variable is kept by reference, which costs memory only once the variable has a
new one. The first ``UNDO_BYTES`` are always kept, the rest only if the caller may still need it for
an assertion; then all new values are kept too, which costs the same, and nothing is read twice.
Without them a rollback can be incomplete only if a device fails between two reads of the same
bytes, or if Ctrl-C is pressed twice; the error then says so.

Values that need no change are read straight into a buffer that the variable takes over
(:mod:`tfckpt.live.restoring.buffers`). Adapted and cast values, strings, slices, other formats and
variables with their own ``assign`` are assigned through ``assign``.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.errors import RestoreError
from tfckpt.live.distribution.agreement import ALONE
from tfckpt.live.io import tf_restore
from tfckpt.live.objects.thread_lock import assigning, interrupt_waits
from tfckpt.live.restoring import buffers
from tfckpt.live.restoring.incoming import Incoming, cast_for, kept_bytes
from tfckpt.live.variables.distributed import parts, pieces
from tfckpt.live.variables.variables import array_of, raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfckpt.live.distribution.agreement import Restoring
    from tfckpt.live.restoring.incoming import Direct
    from tfckpt.planning import Plan, Step
    from tfckpt.stored.open import StoredCheckpoint

UNDO_BYTES = 64 << 20
TRIM_BYTES = 32 << 20
_REFUSALS = (ValueError, TypeError, tf.errors.OpError)


@dataclasses.dataclass(slots=True)
class _Kept:
    """A variable's old value, and its new one (None during the assignment)."""

    variable: Any
    old: tf.Tensor
    new: tf.Tensor | None = None


@dataclasses.dataclass
class Undo:
    """Old values of variables, and the new ones that replaced them."""

    keep_all: bool = False
    complete: bool = True
    read_twice: int = 0
    follow: Callable[[], None] = lambda: None
    _kept: list[_Kept] = dataclasses.field(default_factory=list)
    _bytes: int = 0
    _freed: int = 0

    def assign(self, variable: Any, value: Any) -> None:
        """Assign a value through the variable's own method, and keep the old one."""
        for part, piece in pieces(raw(variable), value):
            self._assign(part, piece)

    def _assign(self, inner: Any, value: Any) -> None:
        nbytes = inner.dtype.size * (inner.shape.num_elements() or 0)
        if self._keeps(nbytes):
            kept = _Kept(inner, inner.read_value())
            self._kept.append(kept)
            inner.assign(value)
            kept.new = inner.read_value()
        else:
            inner.assign(value)
            self.freed(nbytes)

    def assign_plain(self, inner: Any, value: Any, nbytes: int, *, copied: bool) -> None:
        """Let a plain variable take over a buffer, or copy it; and keep the old value."""
        assign = buffers.copy_plain if copied else buffers.assign_plain
        if self._keeps(nbytes):
            kept = _Kept(inner, buffers.read_plain(inner))
            self._kept.append(kept)
            kept.new = assign(inner, value)
        else:
            assign(inner, value)
            self.freed(0 if copied else nbytes)

    def _keeps(self, nbytes: int) -> bool:
        self._bytes += nbytes
        if self.keep_all or self._bytes <= UNDO_BYTES:
            return True
        self.complete = False
        return False

    def freed(self, nbytes: int) -> None:
        """Return freed memory to the system from time to time.

        glibc keeps it in holes too small for new values: 600 MiB of them, measured on 768 MiB in
        values of 16 MiB. Other C libraries have no malloc_trim(3).
        """
        self._freed += nbytes
        if self._freed >= TRIM_BYTES:
            self._freed = 0
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)

    def watch(self, variables: Iterable[Any]) -> None:
        """Keep the old values of variables that other code is about to assign."""
        inner = [part for variable in variables for part in parts(raw(variable))]
        self._kept += [_Kept(part, part.read_value()) for part in inner]

    def resolve(self) -> None:
        """Note the new values of watched variables, once they are assigned."""
        for kept in self._kept:
            if kept.new is None:
                kept.new = kept.variable.read_value()

    def take_back(self) -> bool:
        """Put all values back; none if one has changed since, which would mix two models.

        Returns whether all were put back.
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
            except Exception:  # go on with the others
                self.complete = False
        self.follow()
        self.forget()

    def forget(self) -> None:
        self._kept.clear()


def _same(item: tf.Tensor, other: tf.Tensor) -> bool:
    """Whether two tensors hold the same bytes; on a CPU, usually the same buffer."""
    return _same_bytes(array_of(item), array_of(other))


def _same_bytes(item: Any, other: Any) -> bool:
    if item.dtype.kind in "OS":  # strings
        return bool(item.tolist() == other.tolist())
    if item.ctypes.data == other.ctypes.data:
        return True
    return np.array_equal(item.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))


def apply(
    plan: Plan,
    stored: Mapping[str, StoredCheckpoint],
    variables: Mapping[str, Any],
    *,
    verify: str = "checksums",
    keep_all: bool = False,
    max_memory: int | None = None,
    resets: Mapping[str, Any] | None = None,
    objects: Mapping[str, Mapping[str, Any]] | None = None,
    follow: Callable[[], None] = lambda: None,
    workers: Restoring = ALONE,
) -> Undo:
    """Assign the values of a plan without errors."""
    steps = _read(plan)
    undo = Undo(keep_all=keep_all or verify == "none", follow=follow)
    values = Incoming(plan.source, stored, variables, keep=verify == "values")
    direct = values.direct(steps)
    others = [step for step in steps if step.name not in direct]
    sizes = [item.entry.nbytes for item in direct.values()]
    values.keep(direct.values(), None if undo.keep_all else kept_bytes(sizes, max_memory))
    undo.read_twice = sum(item.entry.nbytes for item in direct.values() if item.buffer is None)
    values.read(steps if verify != "none" else [item.step for item in direct.values()], direct)
    values.check(others)
    workers.ready()
    if objects:
        _restore_objects(objects)
    with assigning(), interrupt_waits(), _roll_back_on_error(undo, plan.source):
        for item, buffer in values.in_turn(direct.values()):
            _assign_direct(undo, item, buffer)
        for step in others:
            _assign(undo, step.name, variables[step.name], values.take(step))
        for name, value in (resets or {}).items():
            _assign(undo, name, variables[name], value.numpy())
        undo.follow()
        if verify == "values":
            for item, buffer in values.in_turn(direct.values()):
                _compare(item.step.name, item.variable, array_of(buffer.value))
                undo.freed(item.entry.nbytes)
            for step in others:
                _compare(step.name, raw(variables[step.name]), values.take(step))
        workers.done()
    return undo


def check_values(
    plan: Plan,
    stored: Mapping[str, StoredCheckpoint],
    variables: Mapping[str, Any],
    workers: Restoring = ALONE,
) -> None:
    """The checks of :func:`apply`; changes nothing."""
    steps = _read(plan)
    values = Incoming(plan.source, stored, variables, keep=False)
    direct = values.direct(steps)
    values.read(steps, {})
    values.check([step for step in steps if step.name not in direct])
    workers.ready()
    workers.done()


def _read(plan: Plan) -> list[Step]:
    """The assignments of variables; TensorFlow reads everything else."""
    return [step for step in plan.assignments if all(e.shape is not None for e in step.reads)]


@contextlib.contextmanager
def _roll_back_on_error(undo: Undo, source: str) -> Iterator[None]:
    """Put old values back if the body raises."""
    try:
        yield
    except BaseException as error:
        undo.roll_back()
        if undo.complete:
            raise
        state = "some variables had new values already, and not all could be put back"
        hint = "restore again, from this or another checkpoint, before using the model"
        if not isinstance(error, Exception):
            logging.error("%s: the restore was interrupted; %s\n  %s", source, state, hint)
            raise
        message = f"the files changed or failed after they were checked; {state}: {error}"
        raise RestoreError(f"{source}: {message}", hint=hint) from error


def _restore_objects(objects: Mapping[str, Mapping[str, Any]]) -> None:
    prefix = ""
    try:
        with tf_restore.put_back_on_failure(obj for of in objects.values() for obj in of.values()):
            for prefix, found in objects.items():
                tf_restore.restore_objects(prefix, found)
    except (AssertionError, ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        raise tf_restore.not_taken(prefix, error) from error


def _assign(undo: Undo, name: str, variable: Any, value: Any) -> None:
    value = cast_for(name, variable, value)
    try:
        undo.assign(variable, value)
    except _REFUSALS as error:
        raise _refused(name, error) from error


def _assign_direct(undo: Undo, item: Direct, buffer: buffers.Buffer) -> None:
    try:
        if item.plain:
            undo.assign_plain(item.variable, buffer.value, item.entry.nbytes, copied=item.copied)
        else:
            undo.assign(item.variable, buffer.value)
    except _REFUSALS as error:
        raise _refused(item.step.name, error) from error


def _refused(name: str, error: Exception) -> RestoreError:
    return RestoreError(f"{name}: the variable rejected the value: {error}")


def _compare(name: str, variable: Any, expected: Any) -> None:
    for part, piece in pieces(variable, expected):
        value = array_of(part.read_value())
        if not _same_bytes(value, np.asarray(piece).astype(value.dtype, copy=False)):
            raise RestoreError(f"{name}: the variable does not hold the value that was assigned")
