"""Applies a plan, all of it or none of it: the only module that assigns restored values.

Every value is read, checked, and cast or adapted before the first one is assigned. Large values are
read into memory that their variables take over, so a restore holds the values once beside the
model's: the new ones until they are assigned, the old ones from then on. Any error, and Ctrl-C,
puts the old ones back. With ``verify: none`` values are read and assigned a few at a time, and no
old one is kept.

TensorFlow has no call that writes to a tensor, so a NumPy array over an empty one is filled; that
both share memory is tried once for each dtype. Assigning the tensor makes its buffer the
variable's. While somebody else holds the buffer, TensorFlow copies it before an in-place update
(tensorflow/core/kernels/training_op_helpers.h), so training is never visible through it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.dtypes import numpy_dtype
from tfckpt.errors import RestoreError
from tfckpt.live.adapt import adapted, cast_value
from tfckpt.live.by_tensorflow import not_taken, put_back_on_failure, restore_objects
from tfckpt.live.private.graph import read_all, tensor_of
from tfckpt.live.private.tensorflow import ResourceVariable
from tfckpt.live.turns import assigning
from tfckpt.live.variables import array_of, on_host, parts, pieces, raw
from tfckpt.live.workers import ALONE
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.live.workers import Together
    from tfckpt.planning import Plan, Step
    from tfckpt.stored.bundles.index import BundleEntry
    from tfckpt.stored.formats.open import StoredCheckpoint

COPIED = 256 << 10  # bytes; up to here a copy is cheaper than an empty tensor
AT_A_TIME = 32 << 20  # bytes that are read before they are assigned, with `verify: none`
_ASSIGN = ResourceVariable.assign
_REFUSALS = (ValueError, TypeError, tf.errors.OpError)


@dataclasses.dataclass(slots=True)
class _Kept:
    """A variable's old value, and its new one (None during the assignment)."""

    variable: Any
    old: tf.Tensor | None
    new: tf.Tensor | None = None


class Undo:
    """The old values of variables, by reference, and the new ones that replaced them."""

    def __init__(self, follow: Callable[[], None] = lambda: None, *, keeps: bool = True) -> None:
        """``follow`` is called when values were put back."""
        self._follow = follow
        self._keeps = keeps
        self._kept: list[_Kept] = []
        self.complete = True

    def assign(self, variables: Mapping[str, Any], new: dict[str, Any]) -> None:
        """Assign values by name, and keep the old ones; a tensor is taken over.

        Each value is taken out of ``new``.
        """
        inner = {name: raw(variables[name]) for name in new}
        tensors = {name: inner[name] for name, value in new.items() if isinstance(value, tf.Tensor)}
        here = {n: v for n, v in tensors.items() if v.handle.device.endswith("CPU:0")}
        old = read_all(here) if self._keeps else {}
        for name, variable in inner.items():
            value = new.pop(name)
            try:
                if name in tensors:
                    self._take_over(variable, value, old.pop(name, None))
                else:
                    for part, piece in pieces(variable, value):
                        self._assign(part, piece)
            except _REFUSALS as error:
                raise RestoreError(f"{name}: the variable rejected the value: {error}") from error

    def _take_over(self, variable: Any, value: tf.Tensor, old: tf.Tensor | None) -> None:
        kept = self._keep(variable, old)
        tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
        kept.new = value

    def _assign(self, variable: Any, value: Any) -> None:
        kept = self._keep(variable)
        variable.assign(value)
        kept.new = variable.read_value() if self._keeps else None

    def _keep(self, variable: Any, old: tf.Tensor | None = None) -> _Kept:
        if not self._keeps:
            self.complete = False
            return _Kept(variable, None)
        kept = _Kept(variable, _value_of(variable) if old is None else old)
        self._kept.append(kept)
        return kept

    def watch(self, variables: Iterable[Any]) -> None:
        """Keep the old values of variables that other code is about to assign."""
        inner = [part for variable in variables for part in parts(raw(variable))]
        self._kept += [_Kept(part, _value_of(part)) for part in inner]

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
        else:
            self.roll_back()
        return self.complete

    def roll_back(self) -> None:
        """Put every kept value back; Ctrl-C does not end it."""
        while self._kept:
            kept = self._kept[-1]
            try:
                if not _same(kept.variable.read_value(), kept.old):
                    kept.variable.assign(kept.old)
            except KeyboardInterrupt:
                continue
            except Exception:  # go on with the others
                self.complete = False
            self._kept.pop()
        self._follow()

    def forget(self) -> None:
        """Let go of the old values."""
        self._kept.clear()
        self.complete = False


def _value_of(variable: Any) -> tf.Tensor:
    """The value of a variable: on a CPU its memory, else a copy in the memory of the host."""
    if type(variable) is ResourceVariable:
        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    else:
        value = variable.read_value()
    return value if value.device.endswith("CPU:0") else on_host(value)


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
    resets: Mapping[str, Any] | None = None,
    objects: Mapping[str, Mapping[str, Any]] | None = None,
    follow: Callable[[], None] = lambda: None,
    workers: Together = ALONE,
) -> Undo:
    """Assign the values of a plan without errors."""
    _check_copies(plan, stored)
    steps = _read(plan)
    undo = Undo(follow, keeps=verify != "none")
    batches = [steps]
    if verify == "none":  # what may be refused comes first
        changed = [bool(step.changes) or step.status is Status.CAST for step in steps]
        plain = itertools.compress(steps, map(operator.not_, changed))
        batches = [[*itertools.compress(steps, changed)], *_in_batches(plain)]
    values = (_values(batch, plan.source, stored, variables) for batch in batches)
    first = next(values, {})
    workers.exchange("check")  # from here on, no value is refused
    others = [obj for of in (objects or {}).values() for obj in of.values()]
    with (
        assigning(),
        put_back_on_failure(others),
        _rolled_back_on_error(undo, plan.source),
    ):
        _restore_objects(objects or {})
        for new in itertools.chain([first], values):
            undo.assign(variables, {**new} if verify == "values" else new)
            if verify == "none":
                _return_memory()
        begun = (resets or {}).items()
        undo.assign(variables, {n: cast_for(n, variables[n], v.numpy()) for n, v in begun})
        follow()
        for name, value in first.items():  # with `verify: values`; else none is left
            _compare(name, raw(variables[name]), value)
        workers.exchange("assignment", last=objects is not None)
    return undo


def _return_memory() -> None:
    """Return freed memory to the system.

    glibc keeps it in holes too small for new values. Other C libraries have no malloc_trim(3).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def check_values(
    plan: Plan,
    stored: Mapping[str, StoredCheckpoint],
    variables: Mapping[str, Any],
    workers: Together = ALONE,
) -> None:
    """The checks of :func:`apply`; changes nothing."""
    _check_copies(plan, stored)
    for batch in _in_batches(_read(plan)):
        _values(batch, plan.source, stored, variables)
    workers.exchange("check")
    workers.exchange("assignment", last=True)


def _check_copies(plan: Plan, stored: Mapping[str, StoredCheckpoint]) -> None:
    """Refuse what a file has twice, but not with one content: it was tied since."""
    for step in plan.steps:
        if step.copy_of is not None and step.stored is not None:
            values, both = stored[step.origin or plan.source].values, (step.copy_of, step.stored)
            one, other = (values.read(entry.key).tobytes() for entry in both)
            if one != other:
                names = " and ".join(entry.name for entry in both)
                layer = step.source.rpartition("/")[0]
                raise RestoreError(
                    f"{names} have different values in {plan.source}, and are one variable in the "
                    "model",
                    hint=f'exclude_checkpoint: ["{layer}/**"] restores the first of them',
                )


def _read(plan: Plan) -> list[Step]:
    """The assignments of variables; TensorFlow reads everything else."""
    return [step for step in plan.assignments if all(e.shape is not None for e in step.reads)]


def _in_batches(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Batches of at most ``AT_A_TIME`` bytes, with at least one value each."""
    batch: list[Step] = []
    nbytes = 0
    for step in steps:
        nbytes += step.entry.nbytes
        if batch and nbytes > AT_A_TIME:
            yield batch
            batch, nbytes = [], step.entry.nbytes
        batch.append(step)
    if batch:
        yield batch


def _values(
    steps: Sequence[Step],
    source: str,
    stored: Mapping[str, StoredCheckpoint],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """The checked values that steps assign, by name: tensors to take over, and arrays."""
    found: dict[str, Any] = dict.fromkeys(step.name for step in steps)
    wanted: dict[str, list[tuple[str, np.ndarray]]] = {}
    small: list[tuple[str, Any]] = []
    try:
        for step in steps:
            name, origin = step.name, step.origin or source
            entry = None if step.changes else stored[origin].values.plain(step.reads[0].key)
            if entry is None:
                continue
            variable = raw(variables[name])
            plain = is_plain(variable, entry.dtype)
            if plain or variable.dtype.base_dtype.name == entry.dtype:
                found[name], content = memory(entry, plain=plain)
                if plain and entry.nbytes <= COPIED:
                    small.append((name, variable.dtype))
                wanted.setdefault(origin, []).append((step.reads[0].key, content))
        for origin, keys in wanted.items():
            stored[origin].values.fetch(keys)
        for name, dtype in small:
            found[name] = tensor_of(found[name], dtype)
        for step in steps:
            if found[step.name] is None:
                variable, values = variables[step.name], stored[step.origin or source].values
                read = [values.read(entry.key) for entry in step.reads]
                found[step.name] = cast_for(step.name, variable, adapted(step, read, variable))
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise RestoreError(
            f"{source}: there is not enough memory for the new values beside the old ones",
            hint="`verify: none` in a policy holds a few values at a time, and puts none back if "
            "reading fails",
        ) from error
    return found


def is_plain(variable: Any, dtype: str) -> bool:
    """Whether one TensorFlow operation assigns a value of that dtype to a tf.Variable."""
    return (
        type(variable) is ResourceVariable
        and ResourceVariable.assign is _ASSIGN  # not patched
        and tf.executing_eagerly()
        and variable.dtype is _dtype(dtype)
        and variable.shape.is_fully_defined()
        and _shares_memory(dtype)
    )


def memory(entry: BundleEntry, *, plain: bool) -> tuple[Any, np.ndarray]:
    """A tensor for a large value that a plain variable takes over, else an array; and its bytes."""
    # The operation takes dimensions as int32.
    if plain and entry.nbytes > COPIED and 0 < max(entry.shape, default=0) < 1 << 31:
        return _empty_tensor(entry.shape, entry.dtype)
    content = np.empty(entry.nbytes, np.uint8)
    return np.ndarray(entry.shape, _numpy_dtype(entry.dtype), content), content


_dtype = lru_cache(64)(tf.as_dtype)
_numpy_dtype = lru_cache(64)(numpy_dtype)


def _empty_tensor(shape: Sequence[int], dtype: str) -> tuple[tf.Tensor, np.ndarray]:
    with tf.device("CPU:0"):
        tensor = tf.raw_ops.Empty(shape=tf.constant(shape, tf.int32), dtype=_dtype(dtype))
    return tensor, tensor.__array__().reshape(-1).view(np.uint8)


@lru_cache(64)
def _shares_memory(dtype: str) -> bool:
    """Whether bytes written through the array appear in an empty tensor of that dtype."""
    try:
        tensor, content = _empty_tensor((3, 2), dtype)
        content[:] = np.arange(content.size) % 2  # valid bytes for bool, too
        return bool(tensor.numpy().tobytes() == content.tobytes())
    except (tf.errors.OpError, AttributeError, TypeError, ValueError):
        return False


def cast_for(name: str, variable: Any, value: Any) -> Any:
    """A value in the dtype of a variable."""
    return cast_value(name, value, raw(variable).dtype.base_dtype.as_numpy_dtype)


@contextlib.contextmanager
def _rolled_back_on_error(undo: Undo, source: str) -> Iterator[None]:
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
        raise RestoreError(f"{source}: {state}: {error}", hint=hint) from error


def _restore_objects(objects: Mapping[str, Mapping[str, Any]]) -> None:
    prefix = ""
    try:
        for prefix, found in objects.items():
            restore_objects(prefix, found)
    except (AssertionError, ValueError, TypeError, NotImplementedError, tf.errors.OpError) as error:
        raise not_taken(prefix, error) from error


def _compare(name: str, variable: Any, expected: Any) -> None:
    for part, piece in pieces(variable, expected):
        value = array_of(part.read_value())
        if not _same_bytes(value, np.asarray(piece).astype(value.dtype, copy=False)):
            raise RestoreError(f"{name}: the variable does not hold the value that was assigned")
