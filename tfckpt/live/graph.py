"""One walk over what TensorFlow tracks: the object graph that is stored, the keys, the tensors.

The nodes, their numbers and their keys are those of TensorFlow's own saver
(tensorflow/python/checkpoint/save_util.py), so the stored graph is the same, byte for byte. It
traverses the objects once, makes no object for each value, and reads the plain variables of a
device with one operation. What is no plain variable and may hold tensors, TensorFlow's functions
save, that object alone: tables, iterators, variables of a strategy. What is known of a class is
kept for one save.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tfckpt.errors import CoverageError
from tfckpt.live.private import graph as private
from tfckpt.live.private.tensorflow import (
    SERIALIZE,
    ObjectIdentityDictionary,
    ResourceVariable,
    SaveSpec,
    Sharded,
    Trackable,
    any_saver,
    has_saver,
    saver_name,
)
from tfckpt.live.variables import is_variable, meant, raw
from tfckpt.stored.bundles.keys import ATTRIBUTES, EXTRA, OBJECT_GRAPH, escape
from tfckpt.stored.formats.graph_reader import VARIABLE_VALUE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


_NONE: Mapping[str, Any] = types.MappingProxyType({})


class _Class(NamedTuple):
    """What is known of all objects of a class."""

    tracked: bool  # their children are what they track
    serializes: bool  # TensorFlow may find tensors in them
    has_slots: bool
    registered: bool  # a registered saver may be for them


class Walk:
    """The objects below a root, in the order of their nodes.

    Attributes:
        plain: key → variable, of those that are one buffer on a device of this process.
        others: trackable → key → tensor or spec, as TensorFlow gathers them.
        savers: name of a registered saver → path → object.
    """

    def __init__(
        self, view: Any, hidden: Iterable[Any] = (), *, by_tensorflow: bool = False
    ) -> None:
        """Walk over a view of TensorFlow's, without the objects that are ``hidden``.

        ``by_tensorflow`` is whether no variable counts as plain.
        """
        self.plain: dict[str, Any] = {}
        self.others = ObjectIdentityDictionary()
        self.savers: dict[str, dict[str, Any]] = {}
        self._graph = private.TrackableObjectGraph()
        self._hidden = {id(obj) for obj in hidden}
        self._devices = frozenset() if by_tensorflow else private.devices()
        self._keras = getattr(sys.modules.get("keras"), "Variable", None)
        self._any_saver = any_saver()
        self._classes: dict[type, _Class] = {}
        self._keys: dict[int, str] = {}  # by id of an object, and of what it stands for
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._paths: list[str] = []
        self._parents: list[list[int]] = []
        self._holding: list[int] = []  # the nodes with values
        self._optimizers = False
        self._tensors: dict[int, Any] = {}  # by id of a plain variable
        self._taken: dict[str, Any] = {}  # by key, of those among others that can be
        self._number(view.root, "")
        self._extra = _Extra()
        self._attached = [*(view.attached_dependencies or ()), (EXTRA, self._extra)]
        self._go_on()

    def keys(self, values: Mapping[str, Any], slots: Collection[str]) -> dict[str, str]:
        """Name → key; what TensorFlow does not reach gets its name as a path.

        The extra child exists even when it is empty: a checkpoint that has it but no commit record
        has lost its record. ``slots`` are the names of what TensorFlow saves with its variable.
        """
        found = {name: self._key(value) for name, value in values.items()}
        at = self._numbers[id(self._extra)]
        for name, known in found.items():
            if known is None and name not in slots:
                self._edge(at, self._graph.nodes[at], name, values[name])
        self._go_on()
        if self._optimizers:
            self._add_slots()
        keys = {}
        for name, known in found.items():
            if (key := self._key(values[name]) if known is None else known) is None:
                raise CoverageError(
                    f"{name} would have been left out of the checkpoint", hint="nothing was written"
                )
            keys[name] = key
        return keys

    def only_variables(self, values: Iterable[Any]) -> list[Any] | None:
        """Plain variables of values that are nothing else, whose keys can be made later.

        None where one is something else, or may change its shape, or has a saver of its own.
        """
        if self.savers or self._optimizers:
            return None
        found = [self._plain(value) for value in values]
        whole = all(each is not None and each.shape.is_fully_defined() for each in found)
        return found if whole else None

    def read(self, more: Iterable[Any] = ()) -> None:
        """Read everything, and ``more`` variables; TensorFlow writes what stays in ``others``."""
        self._tensors = private.read_all({id(v): v for v in (*self.plain.values(), *more)})
        for trackable, specs in list(self.others.items()):
            _read_specs(specs)
            for key, spec in list(specs.items()):
                tensor = spec.tensor if _is_whole(spec) else spec
                if key not in self.plain and key not in self._taken and self._is_plain(tensor):
                    self._taken[key] = tensor
                    del specs[key]
            if not specs:
                del self.others[trackable]
        # TensorFlow's saver needs at least one tensor to choose its device.
        if not self._devices or (self.savers and not self.others):
            self.others[None] = {OBJECT_GRAPH: self._graph_tensor()}

    def tensors(self) -> dict[str, Any]:
        """Key → tensor of what was read, and the graph; called once, when all have keys."""
        read, self._tensors = self._tensors, {}
        own = {key: read[id(each)] for key, each in self.plain.items() if id(each) in read}
        graph = {} if None in self.others else {OBJECT_GRAPH: self._graph_tensor()}
        return own | self._taken | graph

    def _graph_tensor(self) -> Any:
        """The graph as a tensor, with the nodes that lead to values marked."""
        holding, left = {*self._holding}, [*self._holding]
        while left:
            new = [parent for parent in self._parents[left.pop()] if parent not in holding]
            holding.update(new)
            left += new
        for number, node in enumerate(self._graph.nodes):
            node.has_checkpoint_values.value = number in holding
        with tf.device("CPU:0"):
            return tf.constant(self._graph.SerializeToString())

    def _key(self, value: Any) -> str | None:
        found = self._keys.get(id(value))
        if found is None:
            found = self._keys.get(id(raw(value) if is_variable(value) else meant(value)))
        return found

    def _go_on(self) -> None:
        """Visit the objects that have no node yet, breadth first."""
        while (number := len(self._graph.nodes)) < len(self._objects):
            self._visit(number, self._graph.nodes.add(), self._objects[number])

    def _visit(self, number: int, node: Any, obj: Any) -> None:
        known = self._classes.get(type(obj)) or self._class(obj)
        own: Mapping[str, Any] = getattr(obj, "__dict__", _NONE)
        if known.tracked and private.CHILDREN not in own:
            children = own.get(private.TRACKED, ())
        else:
            children = tf.train.TrackableView.children(obj).items()
        for name, child in children:
            self._edge(number, node, name, child)
        if number == 0:
            for name, child in self._attached:
                self._edge(0, node, name, child)
        self._optimizers |= known.has_slots
        if known.registered and (saver := saver_name(obj)) is not None:
            path = node.registered_saver.object_name = self._paths[number]
            node.registered_saver.name = saver
            self.savers.setdefault(saver, {})[path] = obj
            self._holds(number, obj, "")
        elif (variable := self._plain(obj)) is not None:
            key = f"{self._paths[number]}{ATTRIBUTES}{VARIABLE_VALUE}"
            node.attributes.add(
                name=VARIABLE_VALUE, full_name=variable._shared_name, checkpoint_key=key
            )
            self.plain[key] = variable
            self._keys[id(variable)] = self._keys[id(obj)] = key
            self._holding.append(number)
        elif known.serializes or SERIALIZE in own or own.get(private.FACTORIES):
            trackable, self.others[trackable] = private.tensors_of(
                obj, number, self._paths[number], self._graph
            )
            if node.attributes:
                self._holds(number, obj, node.attributes[0].checkpoint_key)

    def _holds(self, number: int, obj: Any, key: str) -> None:
        self._keys[id(obj)] = self._keys[id(meant(obj))] = key
        self._holding.append(number)

    def _class(self, obj: Any) -> _Class:
        cls: type = type(obj)
        found = self._classes[cls] = _Class(
            private.only_tracks(cls),
            private.may_serialize(cls),
            private.has_slots(cls),
            not issubclass(cls, tf.train.experimental.PythonState)
            and (self._any_saver or has_saver(obj)),  # TensorFlow's own are for classes
        )
        return found

    def _plain(self, obj: Any) -> Any:
        """The variable that an object is, or is around, if it is one buffer on a device here."""
        cls = type(obj)
        if cls is ResourceVariable:
            inner = obj
            if obj._save_slice_info is not None:
                return None
        elif cls is self._keras:
            inner = obj._value
            if type(inner) is not ResourceVariable or SERIALIZE in obj.__dict__:
                return None
        else:
            return None
        return (
            inner
            if SERIALIZE not in inner.__dict__
            and inner._handle.device in self._devices
            and private.is_stored(inner._dtype)
            else None
        )

    def _is_plain(self, tensor: Any) -> bool:
        """Whether it is an eager tensor on a device here, of a dtype that a bundle can hold."""
        return (
            isinstance(tensor, tf.Tensor)
            and hasattr(tensor, "numpy")
            and private.is_stored(tensor.dtype)
            and tensor.device in self._devices
        )

    def _edge(self, parent: int, node: Any, name: str, child: Any) -> None:
        if id(child) in self._hidden:
            return
        if (number := self._numbers.get(id(child))) is None:
            path, edge = self._paths[parent], escape(name)
            number = self._number(child, f"{path}/{edge}" if path else edge)
        self._parents[number].append(parent)
        node.children.add(node_id=number, local_name=name)

    def _number(self, obj: Any, path: str) -> int:
        number = self._numbers[id(obj)] = len(self._objects)
        self._objects.append(obj)
        self._paths.append(path)
        self._parents.append([])
        return number

    def _add_slots(self) -> None:
        """The slot variables that legacy optimizers name, which are nobody's children."""
        count = len(self._objects)
        found, paths = private.slots_of(self._objects, self._paths)
        for optimizer, slots in found:
            number = self._numbers[id(optimizer)]
            self._graph.nodes[number].slot_variables.extend(slots)
            self._holding.append(number)
        slot_variables = self._objects[count:]
        del self._objects[count:]
        for variable, path in zip(slot_variables, paths, strict=True):
            self._number(variable, path)
        self._go_on()


class _Extra(Trackable):  # type: ignore[misc]
    """The child of the root for what TensorFlow does not reach."""


def _read_specs(specs: dict[str, Any]) -> None:
    """Replace specs that read when they are written by the current tensors."""
    for key, spec in list(specs.items()):
        if isinstance(spec, dict):  # the parts of a sliced variable
            _read_specs(spec)
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


def _is_whole(spec: Any) -> bool:
    """Whether a spec is for a whole tensor under a constant name."""
    return isinstance(spec, SaveSpec) and not spec.slice_spec and isinstance(spec.name, str)
