"""Everything a save writes, taken at one moment: afterwards training may go on.

TensorFlow's own saver gathers the tensors and their keys; here they are read, which on a CPU shares
memory with the variables until the next update (tensorflow/core/kernels/training_op_helpers.h:
updates copy a buffer that somebody else holds). What TensorFlow cannot save, such as an iterator
over a generator, is left out or refused before anything is written.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.training.saving.saveable_object import SaveSpec

from tfckpt.errors import SaveError, TfckptError
from tfckpt.live.coverage import keys_of, whole_view
from tfckpt.live.errors import also
from tfckpt.live.variables import is_variable
from tfckpt.records import Role
from tfckpt.stored.bundle_names import OBJECT_GRAPH
from tfckpt.stored.bundles import proto
from tfckpt.stored.bundles.index import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.inventory import Live

_COMPUTED = (Role.WEIGHT, Role.SLOT)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """What is to be written.

    Attributes:
        live: the values by name.
        keys: canonical name → checkpoint key.
        tensors: key → eager tensor, on the device of its variable, of what is stored whole and in
            a dtype that a bundle has; the object graph is among them.
        others: trackable → key → what holds the tensor, as TensorFlow's saver takes it: what only
            that can write.
        savers: registered savers and their objects, which write by themselves.
    """

    live: Live
    keys: Mapping[str, str]
    tensors: dict[str, Any]
    others: Any
    savers: Any

    def write_others(self, prefix: str, options: Any) -> None:
        """Write what TensorFlow alone can, data and index; registered savers write now, too."""
        saver = functional_saver.MultiDeviceSaver(self.others, self.savers)
        saver.save(tf.constant(prefix), options)

    def computed(self) -> frozenset[str]:
        """The keys of the weights, slots and other arrays: numbers that should be finite.

        Not so numbers of the program's own, such as a best loss that begins at infinity.
        """
        return frozenset(
            self.keys[name]
            for name, entry in self.live.inventory.entries.items()
            if entry.role in _COMPUTED or (entry.role is Role.STATE and entry.shape)
        )

    def nonfinite_others(self) -> list[str]:
        """The keys of those among ``others`` that hold an infinity or a NaN."""
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
    told: set[str],
    by_tensorflow: bool = False,
) -> Snapshot:
    """Gather and read everything.

    Args:
        checkpoint_saver: TensorFlow's ``TrackableSaver`` of the checkpoint.
        live: its values.
        leave_out: go on without what cannot be saved.
        told: names of what was left out and said to be; added to.
        by_tensorflow: TensorFlow is to write everything.

    Raises:
        SaveError: something cannot be saved.
        CoverageError: a live value is out of TensorFlow's reach.
    """
    left_out: dict[str, str] = {}
    view = checkpoint_saver._graph_view
    try:
        whole = checkpoint_saver._graph_view = whole_view(view, live)
        try:
            gathered = checkpoint_saver._gather_serialized_tensors()
        except Exception as error:
            left_out = _unsavable(live)
            if not left_out:
                raise
            live, hidden = _without(live, left_out)
            if not leave_out or not live.variables.keys() - {"save_counter"}:
                raise _refused(left_out, error) from error
            whole = checkpoint_saver._graph_view = whole_view(view, live, hidden)
            gathered = checkpoint_saver._gather_serialized_tensors()
    finally:
        checkpoint_saver._graph_view = view
    for name in left_out.keys() - told:
        logging.warning("%s is left out of the checkpoints: %s", name, left_out[name])
        told.add(name)
    tensors, _, savers, graph = gathered
    serialized = proto.parse_object_graph(graph.SerializeToString(), path="", name="")
    keys = keys_of(live, whole.breadth_first_traversal()[0], serialized)
    for specs in tensors.values():
        _read(specs)
    own = {} if by_tensorflow else _taken_out(tensors)
    if savers and own and not tensors:  # TensorFlow's saver needs a tensor that says where it runs
        tensors[None] = {OBJECT_GRAPH: own.pop(OBJECT_GRAPH)}
    return Snapshot(live, keys, own, tensors, savers)


def _read(specs: dict[str, Any]) -> None:
    """Put the tensors of now in the place of what reads them when they are written."""
    for key, spec in list(specs.items()):
        if isinstance(spec, dict):  # the parts of a sliced variable
            _read(spec)
        elif isinstance(spec, SaveSpec):
            with tf.device(spec.device):
                tensor = spec.tensor
            if tensor is None:  # it is in the graph, and has no value
                del specs[key]
            else:
                specs[key] = SaveSpec(tensor, spec.slice_spec, spec.name, spec.dtype, spec.device)


def _taken_out(tensors: Any) -> dict[str, Any]:
    """Takes out the tensors that can be written without TensorFlow; by key."""
    own: dict[str, Any] = {}
    devices = _devices()
    for trackable, specs in list(tensors.items()):
        for key, spec in list(specs.items()):
            tensor = spec.tensor if _is_whole(spec) else spec
            if _is_plain(tensor, devices) and key not in own:
                own[key] = tensor
                del specs[key]
        if not specs:
            del tensors[trackable]
    return own


def _is_whole(spec: Any) -> bool:
    """Whether it says no more of a tensor than its key does."""
    return isinstance(spec, SaveSpec) and not spec.slice_spec and isinstance(spec.name, str)


def _is_plain(tensor: Any, devices: frozenset[str]) -> bool:
    """Whether it has a value, on one of these devices, of a dtype that a bundle has."""
    if not isinstance(tensor, tf.Tensor) or not hasattr(tensor, "numpy"):
        return False
    name = tensor.dtype.name
    return (name in ITEM_BYTES or name == "string") and tensor.device in devices


def _devices() -> frozenset[str]:
    """The devices of this process, as a tensor calls them; not those that others have made up."""
    task = tf.constant(0).device.partition("/device:")[0]
    return frozenset(task + device.name for device in tf.config.list_logical_devices())


def _finite(spec: Any) -> bool:
    if isinstance(spec, dict):
        return all(map(_finite, spec.values()))
    tensor = spec.tensor if isinstance(spec, SaveSpec) else spec
    dtype = getattr(tensor, "dtype", tf.string)
    if not (dtype.is_floating or dtype.is_complex):
        return True
    if dtype in (tf.float32, tf.float64):
        # One pass without a copy: a sum is finite only if all it adds up is.
        with np.errstate(all="ignore"):
            if np.isfinite(np.sum(np.asarray(tensor))):
                return True
    parts = (tf.math.real(tensor), tf.math.imag(tensor)) if dtype.is_complex else (tensor,)
    return all(bool(tf.reduce_all(tf.math.is_finite(tf.cast(p, tf.float64)))) for p in parts)


def _unsavable(live: Live) -> dict[str, str]:
    """The objects that TensorFlow raises for when it is asked for their state, and what it says."""
    found = {}
    for name, value in live.variables.items():
        if not is_variable(value):
            try:
                value._serialize_to_tensors()
            except NotImplementedError:  # it has another way, which is not to blame
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
        f"cannot be saved: {reasons}",
        hint="nothing was written; do not give it to the checkpoint, or, where it is not all that "
        "you give, set on_unsavable: warn",
    )
    return also(refused, error) if isinstance(error, tf.errors.OpError) else refused
