"""A snapshot of everything that a save writes; training may continue once it is taken.

TensorFlow's own saver gathers the tensors and their keys. Reading them on a CPU shares memory with
the variables until the next update, which copies a buffer that somebody else holds
(tensorflow/core/kernels/training_op_helpers.h). What TensorFlow cannot save, such as an iterator
over a generator, is left out or refused before anything is written.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import SaveError, TfckptError
from tfckpt.live.io.tf_errors import also
from tfckpt.live.private.tensorflow import (
    MultiDeviceSaver,
    SaveSpec,
    gather,
    serialize,
    set_view,
    view_of,
)
from tfckpt.live.saving.coverage import keys_of, whole_view
from tfckpt.live.saving.tensor_sources import read, read_specs
from tfckpt.live.variables.variables import is_variable
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.bundles.write import all_finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.objects.collect import Live

_COMPUTED = (Role.WEIGHT, Role.SLOT)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The values to write."""

    live: Live
    keys: Mapping[str, str]
    tensors: dict[str, Any]
    others: Any
    savers: Any

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
    live: Live,
    *,
    leave_out: bool,
    logged: set[str],
    by_tensorflow: bool = False,
) -> Snapshot:
    """Gather and read everything."""
    left_out: dict[str, str] = {}
    view = view_of(checkpoint_saver)
    try:
        set_view(checkpoint_saver, whole := whole_view(view, live))
        try:
            gathered = gather(checkpoint_saver)
        except Exception as error:
            left_out = _unsavable(live)
            if not left_out:
                raise
            live, hidden = _without(live, left_out)
            if not leave_out or not live.variables.keys() - {"save_counter"}:
                raise _refused(left_out, error) from error
            set_view(checkpoint_saver, whole := whole_view(view, live, hidden))
            gathered = gather(checkpoint_saver)
    finally:
        set_view(checkpoint_saver, view)
    warnings = {name: f"is left out of the checkpoints: {why}" for name, why in left_out.items()}
    warnings |= _without_values(live)
    for name in warnings.keys() - logged:
        logging.warning("%s %s", name, warnings[name])
        logged.add(name)
    tensors, _, savers, graph = gathered
    keys = keys_of(live, whole.breadth_first_traversal()[0], graph)
    if by_tensorflow:
        for specs in tensors.values():
            read_specs(specs)
        return Snapshot(live, keys, {}, tensors, savers)
    own, others = read(tensors)
    if savers and own and not others:
        # TensorFlow's saver needs at least one tensor to choose its device.
        others[None] = {OBJECT_GRAPH: own.pop(OBJECT_GRAPH)}
    return Snapshot(live, keys, own, others, savers)


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
                serialize(value)
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
