"""Carrying out a plan, all of it or none of it: the only place that assigns a restored value.

Every needed value is checked on disk first, in small pieces and without being kept; then one after
the other is read and assigned, so that a restore needs little more memory than its largest value.
A variable's old value is kept by reference, which costs memory only once the variable has a new
one: always for the first ``UNDO_BYTES``, and beyond that only where the caller says that an
assertion may still ask for it. Past the check, only a device that fails between two reads of the
same bytes could need more, and that is reported as what it is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.errors import DamagedCheckpointError, RestoreError
from tfckpt.live.variables import raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.planning import Plan
    from tfckpt.stored.checkpoint import StoredCheckpoint

UNDO_BYTES = 256 << 20


@dataclasses.dataclass
class Undo:
    """Old values, and what they were replaced with."""

    keep_all: bool = False
    _kept: list[tuple[Any, tf.Tensor, tf.Tensor]] = dataclasses.field(default_factory=list)
    _bytes: int = 0
    complete: bool = True

    def assign(self, variable: Any, value: Any) -> None:
        """Give a variable a new value, and remember the old one."""
        inner = raw(variable)
        old = inner.read_value()
        inner.assign(value)
        self._bytes += old.dtype.size * int(np.prod(old.shape.as_list(), dtype=np.int64))
        if self.keep_all or self._bytes <= UNDO_BYTES:
            self._kept.append((inner, old, inner.read_value()))
        else:
            self.complete = False

    def watch(self, variables: Iterable[Any]) -> None:
        """Remember variables that something else is about to assign."""
        inner = map(raw, variables)
        self._kept += [(each, old := each.read_value(), old) for each in inner]

    def settle(self) -> None:
        """What is watched has been assigned."""
        self._kept = [(each, old, each.read_value()) for each, old, _ in self._kept]

    def roll_back(self) -> None:
        """Put every kept value back, unless something else has changed the variable since."""
        for variable, old, new in reversed(self._kept):
            if _same(variable.read_value(), new):
                variable.assign(old)
        self.forget()

    def forget(self) -> None:
        self._kept.clear()


def _same(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Whether two tensors hold the same bytes; the same buffer, on a CPU that is all it takes."""
    left, right = one.numpy(), other.numpy()
    if not isinstance(left, np.ndarray):  # a string scalar
        return bool(left == right)
    if left.ctypes.data == right.ctypes.data:
        return True
    if left.dtype == object:
        return bool(left.tolist() == right.tolist())
    return bool(left.tobytes() == right.tobytes())


def apply(
    plan: Plan,
    stored: StoredCheckpoint,
    variables: Mapping[str, Any],
    *,
    verify: str = "checksums",
    keep_all: bool = False,
    resets: Mapping[str, Any] | None = None,
    then: Callable[[], None] | None = None,
) -> Undo:
    """Assign what the plan says.

    Args:
        plan: one without errors.
        stored: the checkpoint it was made from, still open.
        variables: canonical name → variable.
        verify: ``checksums`` checks all values on disk before the first is assigned; ``values``
            also compares every variable with the file afterwards; ``none`` leaves the checking to
            the reads.
        keep_all: whether the old values are kept whatever their size.
        resets: canonical name → the value that a reset gives back.
        then: called last, inside the transaction.

    Raises:
        DamagedCheckpointError: a value is not what its checksum says; nothing was changed.
        RestoreError: a variable would not take its value; nothing was changed.
    """
    steps = [
        (step.name, step.stored.key)
        for step in plan.assignments
        if step.stored is not None and step.stored.shape is not None
    ]
    if verify != "none":
        stored.bundle.verify(key for _, key in steps)
    undo = Undo(keep_all=keep_all or verify == "none")
    try:
        for name, key in steps:
            _assign(undo, name, variables[name], stored.bundle.read(key))
        for name, value in (resets or {}).items():
            undo.assign(variables[name], value)
        if then is not None:
            then()
        if verify == "values":
            for name, key in steps:
                _compare(name, raw(variables[name]), stored.bundle.read(key), stored.prefix)
    except BaseException as error:
        undo.roll_back()
        if not undo.complete:
            raise RestoreError(
                f"{stored.prefix}: the files changed or failed after they had been checked, and "
                f"the variables before the fault keep their restored values: {error}",
                hint="restore again, from this or another checkpoint, before using the model",
            ) from error
        raise
    return undo


def _assign(undo: Undo, name: str, variable: Any, value: Any) -> None:
    dtype = raw(variable).dtype.base_dtype.as_numpy_dtype
    if value.dtype not in (dtype, object):
        value = value.astype(dtype)
    try:
        undo.assign(variable, value)
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise RestoreError(f"{name}: the variable does not take the value: {error}") from error


def _compare(name: str, variable: Any, expected: Any, prefix: str) -> None:
    value = np.asarray(variable.numpy())
    expected = expected if value.dtype == object else expected.astype(value.dtype)
    same = (
        value.tolist() == expected.tolist()
        if value.dtype == object
        else value.tobytes() == expected.tobytes()
    )
    if not same:
        raise DamagedCheckpointError(
            "the variable does not hold the value that was read for it", path=prefix, name=name
        )
