"""A snapshot of everything that a save writes; training may continue once it is taken.

One walk gathers the tensors and their keys. Reading them on a CPU shares memory with the variables
until the next update, which copies a buffer that somebody else holds
(tensorflow/core/kernels/training_op_helpers.h). What TensorFlow cannot save, such as an iterator
over a generator, is left out or refused before anything is written.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.inventory import Entry, Role
from tfckpt.errors import DamagedCheckpointError, SaveError, TfckptError
from tfckpt.live.flavors import has_named_slots
from tfckpt.live.graph import Walk
from tfckpt.live.paths import also
from tfckpt.live.private.tensorflow import MultiDeviceSaver, SaveSpec
from tfckpt.live.variables import as_int, is_variable
from tfckpt.stored.bundles.write import all_finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.inventory import Gathered, Live
    from tfckpt.stored.bundles.index import BundleEntry

_COMPUTED = (Role.WEIGHT, Role.SLOT)


class Snapshot:
    """The values to write.

    Names and keys are made when they are first asked for; those of plain variables may be asked for
    by another thread, since they depend on nothing that training changes.
    """

    def __init__(self, objects: Gathered, walk: Walk) -> None:
        self._objects = objects
        self._walk = walk

    @cached_property
    def live(self) -> Live:
        """The objects that are saved, with the names of their values."""
        with gc_paused():
            return self._objects.live

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """Canonical name → checkpoint key."""
        return self._walk.keys(self.live.variables, _kept_as_slots(self.live))

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """Key → tensor of what is written without TensorFlow; whoever writes one takes it out."""
        _ = self.keys
        return self._walk.tensors()

    @cached_property
    def step(self) -> int | None:
        """The step of the optimizer, if it is only one."""
        counters = [name for name in self.live.variables if name.endswith("optimizer/iterations")]
        if len(counters) != 1:
            return None
        # The snapshot may hold the value already; reading it again takes longer.
        (name,) = counters
        return as_int(self.tensors.get(self.keys[name], self.live.variables[name]))

    @property
    def others(self) -> Any:
        """Trackable → key → tensor or spec, of what only TensorFlow can write."""
        return self._walk.others

    @property
    def savers(self) -> Any:
        """Registered savers, which write live objects themselves."""
        return self._walk.savers

    def write_others(self, prefix: str, options: Any) -> None:
        """Write data and index of what only TensorFlow can write; registered savers write too."""
        saver = MultiDeviceSaver(self.others, self.savers)
        saver.save(tf.constant(prefix), options)

    def computed(self) -> frozenset[str]:
        """The keys of weights, slots and arrays, which should be finite.

        Scalars of the program need not be: a best loss may start at infinity.
        """
        return frozenset(
            self.keys[name]
            for name, entry in self.live.inventory.entries.items()
            if entry.role in _COMPUTED or (entry.role is Role.STATE and entry.shape)
        )

    def nonfinite_others(self) -> list[str]:
        """The keys of those among ``others`` that hold NaN or infinity."""
        computed = self.computed()
        return [
            key
            for specs in self.others.values()
            for key, spec in specs.items()
            if key in computed and not _finite(spec)
        ]


def take(
    checkpoint_saver: Any,
    objects: Gathered,
    *,
    leave_out: bool,
    logged: set[str],
    by_tensorflow: bool = False,
) -> Snapshot:
    """Gather and read everything."""
    left_out: dict[str, str] = {}
    walk = partial(Walk, checkpoint_saver._graph_view, by_tensorflow=by_tensorflow)
    try:
        snapshot = _gathered(objects, walk())
    except Exception as error:
        left_out = _unsavable(objects.live)
        if not left_out:
            raise
        live, hidden = _without(objects.live, left_out)
        if not leave_out or not live.variables.keys() - {"save_counter"}:
            raise _refused(left_out, error) from error
        snapshot = _gathered(objects, walk(hidden), live)
    warnings = {name: f"is left out of the checkpoints: {why}" for name, why in left_out.items()}
    if objects.unbuilt or len(objects.values) < 2:
        warnings |= _without_values(snapshot.live)
    for name in warnings.keys() - logged:
        logging.warning("%s %s", name, warnings[name])
        logged.add(name)
    return snapshot


def _gathered(objects: Gathered, walk: Walk, live: Live | None = None) -> Snapshot:
    """Read everything; what needs the objects as they are now is made now."""
    snapshot = Snapshot(objects, walk)
    variables = None
    if live is None:
        variables = walk.only_variables(objects.values)
    else:
        snapshot.live = live
    if variables is None:
        _ = snapshot.keys
    walk.read(variables or ())
    if variables is None:
        _ = snapshot.step
    return snapshot


def _finite(spec: Any) -> bool:
    if isinstance(spec, dict):
        return all(map(_finite, spec.values()))
    tensor = spec.tensor if isinstance(spec, SaveSpec) else spec
    dtype = getattr(tensor, "dtype", tf.string)
    if not (dtype.is_floating or dtype.is_complex):
        return True
    return all_finite(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8), dtype.name)


def _without_values(live: Live) -> dict[str, str]:
    """Name → warning, for models without variables, or if there is no value at all."""
    begun = {name.partition("/")[0] for name in live.variables}
    empty = {path.partition("/")[0] for path in live.unbuilt} - begun
    if not empty and begun <= {"save_counter"}:
        return {
            "the checkpoint": "holds no values, because no object given has any; pass what to "
            "save, e.g. tfckpt.Checkpoint(model=model)"
        }
    message = (
        "has no variables yet, so nothing of it is saved: call it once on a batch before saving"
    )
    return dict.fromkeys(empty, message)


def _unsavable(live: Live) -> dict[str, str]:
    """Name → error text of each object that TensorFlow cannot save."""
    found = {}
    for name, value in live.variables.items():
        if not is_variable(value):
            try:
                value._serialize_to_tensors()
            except NotImplementedError:  # it is saved in another way, which is not the cause
                continue
            except Exception as error:
                found[name] = str(error).split("\n")[0]
    return found


def _without(live: Live, names: Mapping[str, str]) -> tuple[Live, list[Any]]:
    entries = {n: e for n, e in live.inventory.entries.items() if n not in names}
    inventory = dataclasses.replace(live.inventory, entries=entries, left_out=names)
    variables = {n: v for n, v in live.variables.items() if n not in names}
    hidden = [live.variables[name] for name in names]
    return dataclasses.replace(live, inventory=inventory, variables=variables), hidden


def _refused(left_out: Mapping[str, str], error: Exception) -> TfckptError:
    reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
    refused = SaveError(
        f"these objects cannot be saved: {reasons}",
        hint="nothing was written; do not pass them to the checkpoint, or set on_unsavable: warn "
        "to save the other objects",
    )
    return also(refused, error) if isinstance(error, tf.errors.OpError) else refused


def _kept_as_slots(live: Live) -> frozenset[str]:
    """The names of what TensorFlow saves with its variable: slots of legacy optimizers."""
    paths = tuple(f"{path}/" for path, each in live.optimizers.items() if has_named_slots(each))
    entries = live.inventory.entries.items() if paths else ()
    return frozenset(name for name, entry in entries if entry.of and name.startswith(paths))


def recorded(
    live: Live, keys: Mapping[str, str], stored: Mapping[str, BundleEntry], prefix: str
) -> dict[str, Entry]:
    """The record's entry for each value, from what the index has for its key."""
    entries = {}
    for name, entry in live.inventory.entries.items():
        key = keys[name]
        found = stored.get(key)
        as_it_was = found is not None and (found.dtype, found.shape) == (entry.dtype, entry.shape)
        if entry.shape is not None and key and not as_it_was:  # a registered saver has its own keys
            actual = "is missing" if found is None else f"is {found.dtype} {found.shape}"
            message = f"{actual} when read back after writing, not {entry.dtype} {entry.shape}"
            raise DamagedCheckpointError(message, path=prefix, name=name)
        nbytes, crc32c = (found.nbytes, found.crc32c) if found else (0, entry.crc32c)
        _, role, dtype, shape, _, _, slot, of, _ = entry
        entries[name] = Entry(name, role, dtype, shape, nbytes, key, slot, of, crc32c)
    return entries
