"""A snapshot of everything that a save writes; training may continue once it is taken.

TensorFlow's own saver gathers the tensors and their keys. Reading them on a CPU shares memory with
the variables until the next update, which copies a buffer that somebody else holds
(tensorflow/core/kernels/training_op_helpers.h). What TensorFlow cannot save, such as an iterator
over a generator, is left out or refused before anything is written.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import Entry, Role
from tfckpt.errors import CoverageError, DamagedCheckpointError, SaveError, TfckptError
from tfckpt.live.flavors import has_named_slots
from tfckpt.live.paths import also
from tfckpt.live.private.tensorflow import (
    SERIALIZE,
    GraphView,
    MultiDeviceSaver,
    ObjectIdentityDictionary,
    Reference,
    ResourceVariable,
    SaveSpec,
    Sharded,
    Trackable,
)
from tfckpt.live.variables import is_variable, meant, raw
from tfckpt.stored.bundles.keys import EXTRA, OBJECT_GRAPH
from tfckpt.stored.bundles.write import all_finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.live.inventory import Live
    from tfckpt.stored.bundles.bundle import Bundle

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
    view = checkpoint_saver._graph_view
    try:
        checkpoint_saver._graph_view = whole = whole_view(view, live)
        try:
            gathered = checkpoint_saver._gather_serialized_tensors()
        except Exception as error:
            left_out = _unsavable(live)
            if not left_out:
                raise
            live, hidden = _without(live, left_out)
            if not leave_out or not live.variables.keys() - {"save_counter"}:
                raise _refused(left_out, error) from error
            checkpoint_saver._graph_view = whole = whole_view(view, live, hidden)
            gathered = checkpoint_saver._gather_serialized_tensors()
    finally:
        checkpoint_saver._graph_view = view
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


def read(gathered: Any) -> tuple[dict[str, Any], Any]:
    """Current tensors by key, and the specs that only TensorFlow can write.

    ``gathered`` is what TensorFlow's saver has gathered: trackable → key → tensor or spec.
    """
    own: dict[str, Any] = {}
    others = ObjectIdentityDictionary()
    devices = _devices()
    for trackable, specs in gathered.items():
        if trackable is None:  # the object graph
            own.update(specs)
        elif len(specs) == 1 and _is_plain_variable(trackable, devices):
            (key,), inner = specs, raw(trackable)
            try:
                own[key] = tf.raw_ops.ReadVariableOp(resource=inner.handle, dtype=inner.dtype)
            except tf.errors.OpError:  # a variable without a value
                others[trackable] = specs
        else:
            others[trackable] = specs
    for specs in others.values():
        read_specs(specs)
    own.update(_taken_out(others, devices))
    return own, others


def _is_plain_variable(trackable: Any, devices: frozenset[str]) -> bool:
    """Whether it is just one buffer on a device of this process."""
    inner = trackable
    if type(trackable) is getattr(sys.modules.get("keras"), "Variable", None):
        inner = trackable._value
    return (
        type(inner) is ResourceVariable
        and not any(SERIALIZE in vars(each) for each in (trackable, inner))
        and hasattr(inner.handle, "numpy")
        and inner.handle.device in devices
        and _is_stored(inner.dtype)
    )


def read_specs(specs: dict[str, Any]) -> None:
    """Replace specs that read when they are written by the current tensors."""
    for key, spec in list(specs.items()):
        if isinstance(spec, dict):  # the parts of a sliced variable
            read_specs(spec)
        elif isinstance(spec, (tf.Variable, Sharded)):  # Keras 3 under a strategy
            specs[key] = raw(spec).read_value()
        elif isinstance(spec, SaveSpec):
            with tf.device(spec.device):
                tensor = spec.tensor
            if isinstance(tensor, tf.Variable):  # as for a value of the first replica only
                tensor = raw(tensor).read_value()
            if tensor is None:  # in the object graph, but without a value
                del specs[key]
            else:
                specs[key] = SaveSpec(tensor, spec.slice_spec, spec.name, spec.dtype, spec.device)


def _taken_out(tensors: Any, devices: frozenset[str]) -> dict[str, Any]:
    """Remove and return, by key, the tensors that can be written without TensorFlow."""
    own: dict[str, Any] = {}
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
    """Whether a spec is for a whole tensor under a constant name."""
    return isinstance(spec, SaveSpec) and not spec.slice_spec and isinstance(spec.name, str)


def _is_plain(tensor: Any, devices: frozenset[str]) -> bool:
    """Whether it is an eager tensor on one of these devices, of a dtype that a bundle can hold."""
    if not isinstance(tensor, tf.Tensor) or not hasattr(tensor, "numpy"):
        return False
    return _is_stored(tensor.dtype) and tensor.device in devices


def _is_stored(dtype: Any) -> bool:
    return dtype.name in ITEM_BYTES or dtype.name == "string"


def _devices() -> frozenset[str]:
    """The names of this process's devices, as tensors have them; no custom devices."""
    task = tf.constant(0).device.partition("/device:")[0]
    return frozenset(task + device.name for device in tf.config.list_logical_devices())


class _Extra(Trackable):  # type: ignore[misc]
    """The extra child: canonical name → variable, for one save."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def _trackable_children(self, save_type: str = "checkpoint", **_: Any) -> Mapping[str, Any]:
        return self._variables if save_type == "checkpoint" else {}


class _View(GraphView):  # type: ignore[misc]
    """TensorFlow's view of the objects without some of them, for one save.

    A save asks for the children of each object four times; each is asked once here.
    """

    def __init__(self, root: Any, attached: Any, hidden: Iterable[Any] = ()) -> None:
        super().__init__(root, attached_dependencies=attached)
        self._hidden = {id(obj) for obj in hidden}
        self._children: dict[int, list[Any]] = {}
        self._walked: tuple[list[Any], Any] | None = None

    def with_attached(self, attached: Any, hidden: Iterable[Any]) -> _View:
        """The same objects with other attached ones."""
        other = _View(self.root, attached, hidden)
        other._children = {key: of for key, of in self._children.items() if key != id(self.root)}
        return other

    def list_children(self, obj: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if args or kwargs:
            return self._shown(super().list_children(obj, *args, **kwargs))
        if id(obj) not in self._children:
            self._children[id(obj)] = super().list_children(obj)
        return self._shown(self._children[id(obj)])

    def _shown(self, children: list[Any]) -> list[Any]:
        return [child for child in children if id(child.ref) not in self._hidden]

    def breadth_first_traversal(self) -> tuple[list[Any], Any]:
        if self._walked is None:
            self._walked = super().breadth_first_traversal()
        objects, paths = self._walked
        return list(objects), paths


def whole_view(view: Any, live: Live, hidden: Iterable[Any] = ()) -> Any:
    """TensorFlow's view of the objects, without ``hidden``, plus the values that it misses.

    The extra child exists even when it is empty: a checkpoint that has it but no commit record has
    lost its record.
    """
    plain = _View(view.root, view.attached_dependencies)
    ids = {id(meant(obj)) for obj in plain.breadth_first_traversal()[0]}
    missed = {name: value for name, value in live.variables.items() if not ids & _identities(value)}
    slots = {name for name in missed if _kept_as_slot(name, live)}
    extra = {name: value for name, value in missed.items() if name not in slots}
    attached = [*(view.attached_dependencies or ()), Reference(EXTRA, _Extra(extra))]
    return plain.with_attached(attached, hidden)


def _kept_as_slot(name: str, live: Live) -> bool:
    """Whether TensorFlow saves it with its variable, as slots of legacy optimizers."""
    entry = live.inventory.entries[name]
    return bool(entry.of) and any(
        name.startswith(path + "/") and has_named_slots(optimizer)
        for path, optimizer in live.optimizers.items()
    )


def _identities(value: Any) -> set[int]:
    return {id(value), id(raw(value) if is_variable(value) else meant(value))}


def keys_of(live: Live, objects: list[Any], graph: Any) -> dict[str, str]:
    """Canonical name → checkpoint key, for every live value.

    ``objects`` are in TensorFlow's order, which is the order of the nodes of ``graph``, a
    ``TrackableObjectGraph``.
    """
    by_id: dict[int, str] = {}
    for obj, node in zip(objects, graph.nodes, strict=False):  # slot variables come after
        if node.attributes:
            by_id[id(obj)] = by_id[id(meant(obj))] = node.attributes[0].checkpoint_key
        elif node.HasField("registered_saver"):
            by_id[id(obj)] = ""
    by_id.update(_legacy_slots(objects, graph))
    keys: dict[str, str] = {}
    for name, value in live.variables.items():
        key = next((by_id[i] for i in _identities(value) if i in by_id), None)
        if key is None:
            raise CoverageError(
                f"{name} would have been left out of the checkpoint", hint="nothing was written"
            )
        keys[name] = key
    return keys


def recorded(live: Live, keys: Mapping[str, str], bundle: Bundle) -> dict[str, Entry]:
    """The record's entry for each value, from the index that was read back."""
    entries = {}
    for name, entry in live.inventory.entries.items():
        key = keys[name]
        found = bundle.entries.get(key)
        as_it_was = found is not None and (found.dtype, found.shape) == (entry.dtype, entry.shape)
        if entry.shape is not None and key and not as_it_was:  # a registered saver has its own keys
            actual = "is missing" if found is None else f"is {found.dtype} {found.shape}"
            message = f"{actual} when read back after writing, not {entry.dtype} {entry.shape}"
            raise DamagedCheckpointError(message, path=bundle.prefix, name=name)
        nbytes, crc32c = (found.nbytes, found.crc32c) if found else (0, entry.crc32c)
        _, role, dtype, shape, _, _, slot, of, _ = entry
        entries[name] = Entry(name, role, dtype, shape, nbytes, key, slot, of, crc32c)
    return entries


def _legacy_slots(objects: list[Any], graph: Any) -> Iterator[tuple[int, str]]:
    """The ids and keys of slots of tf_keras's legacy optimizers, which are nobody's children."""
    for obj, node in zip(objects, graph.nodes, strict=False):
        for slot in node.slot_variables:
            attributes = graph.nodes[slot.slot_variable_node_id].attributes
            variable = obj.get_slot(objects[slot.original_variable_node_id], slot.slot_name)
            if attributes and variable is not None:
                yield id(variable), attributes[0].checkpoint_key
