"""Finds which optimizer variable is which slot of which model variable, for every optimizer.

Keras addresses optimizer state by position, so a checkpoint may give one variable's momentum to
another. Here a slot is the pair (slot, variable), taken from the code of both flavors:

- Keras 3 (keras/src/optimizers/base_optimizer.py): a list attribute as long as
  ``_trainable_variables`` is a slot; in dicts and elsewhere the variable's name tells,
  ``<path of the model variable with _>_<slot>``.
- tf_keras (tf_keras/src/optimizers/optimizer.py): the same lists, indexed by ``_index_dict``.
- tf_keras legacy (optimizer_v2.py) and ``tf.compat.v1.train`` (tensorflow/python/training/
  optimizer.py): ``get_slot``, by variable and slot.
- A loss-scale optimizer holds another one, and its own variables. It shares the inner one's node,
  with its own values below ``loss_scale``: so a run in float32 and one in mixed precision have the
  same names, as they have the same keys in tf_keras's checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role, snake_case
from tfckpt.core.names import Node, NodeKind, Slot
from tfckpt.core.optimizer_names import (
    LOSS_SCALE,
    OPTIMIZERS,
    by_slot_path,
    optimizer_value,
    slot_among,
    slot_name,
    split_slot,
    v1_class,
)
from tfckpt.live.flavors import flavor_of, has_named_slots, is_optimizer, is_v1
from tfckpt.live.private import tf_keras
from tfckpt.live.private.tensorflow import OF_OPTIMIZERS, Sharded, Trackable
from tfckpt.live.variables import in_parts, is_variable, raw

if TYPE_CHECKING:
    from tfckpt.live.inventory import Live
    from tfckpt.live.tree import Tree


def describe(tree: Tree, optimizer: Any, node: Node) -> None:
    """Add an optimizer's own values to its node; :func:`finish` adds the slots."""
    node.label = _class(optimizer)
    if has_named_slots(optimizer):
        for edge, child in tf.train.TrackableView.children(optimizer).items():
            if is_variable(child):
                _scalar(tree, node, edge, child)
            elif is_optimizer(child):
                tree.attach(node, edge, child)
        if is_v1(optimizer) and isinstance(getattr(optimizer, "_loss_scale", None), Trackable):
            describe_scale(tree, optimizer, node)
        return
    for attribute, value in list(vars(optimizer).items()):
        if attribute in OF_OPTIMIZERS:
            continue
        if _optimizers_in(value):
            tree.attach(node, attribute, value)
        elif is_variable(value):
            _scalar(tree, node, attribute, value)


def _class(optimizer: Any) -> str:
    """Its class, or the known one that it is a subclass of: it has the same state."""
    named = v1_class if is_v1(optimizer) else snake_case
    for cls in type(optimizer).__mro__:
        if (label := named(cls.__name__)) in OPTIMIZERS:
            return label
    return named(type(optimizer).__name__)


def describe_scale(tree: Tree, outer: Any, node: Node) -> None:
    """Add a loss-scale optimizer's own values to the node of its inner optimizer."""
    scale = getattr(outer, "_loss_scale", None)  # tf_keras's; a number if it is constant
    own = tf.train.TrackableView.children(scale) if isinstance(scale, Trackable) else vars(outer)
    group = Node(NodeKind.GROUP)
    for edge, child in own.items():
        if is_variable(child):
            _scalar(tree, group, edge, child)
    node.children.append((LOSS_SCALE, group))


def finish(tree: Tree, optimizer: Any, node: Node) -> None:
    """Add the slots, once the tree holds all model variables."""
    optimizer = _innermost(optimizer)
    if has_named_slots(optimizer):
        _named_slots(tree, optimizer, node)
        if not is_v1(optimizer):
            _slots_of_others(tree, optimizer, node)
        return
    trained = _trained(tree, optimizer)
    found: set[int] = set()
    for attribute, value in list(vars(optimizer).items()):
        if attribute in OF_OPTIMIZERS or not isinstance(value, list) or len(value) != len(trained):
            continue
        for index, variable in enumerate(value):
            if is_variable(variable) and index in trained:
                child = tree.variable(variable, Role.SLOT)
                if id(child) in found:  # another part of the same variable
                    continue
                node.slots.append(Slot(slot_name(attribute), trained[index], child))
                found.add(id(child))
    _leftovers(tree, optimizer, node, list(trained.values()), found)


def _innermost(optimizer: Any) -> Any:
    flavor = flavor_of(optimizer)
    while flavor is not None and isinstance(optimizer, flavor.loss_scale):
        optimizer = optimizer.inner_optimizer
    return optimizer


def _leftovers(
    tree: Tree, optimizer: Any, node: Node, trained: list[Node], found: set[int]
) -> None:
    """Add variables that no attribute lists by position, by their own names."""
    found |= {id(child) for _, child in node.children} | _inner(tree, optimizer)
    values = [(each, tree.variable(each, Role.SLOT)) for each in optimizer.variables]
    left = [(variable, value) for variable, value in values if id(value) not in found]
    paths = by_slot_path([(each.label, each) for each in trained] if left else [])
    for variable, value in left:
        name = str(variable.name).removesuffix(":0")
        of, slot = split_slot(name, paths)
        if of is not None:
            node.slots.append(Slot(slot_name(slot), of, value))
        else:
            node.children.append((name, value))


def _inner(tree: Tree, optimizer: Any) -> set[int]:
    """The nodes of an inner optimizer's variables, which the outer one lists as its own too."""
    inner: set[int] = set()
    for value in vars(optimizer).values():
        for each in _optimizers_in(value):
            inner |= {id(tree.variable(v, Role.SLOT)) for v in each.variables}
    return inner


def _optimizers_in(value: Any) -> list[Any]:
    """The value of an attribute, or what is in a list, where it is an optimizer."""
    held = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in held if not is_variable(each) and is_optimizer(each)]


def _trained(tree: Tree, optimizer: Any) -> dict[int, Node]:
    """Position → the node of the model variable."""
    if (flavor := flavor_of(optimizer)) is not None and flavor.name == "keras":
        return {i: tree.variable(v) for i, v in enumerate(optimizer._trainable_variables)}
    positions = tf_keras.positions_of(optimizer)
    of_tensorflow = [v for v in tree.variables if isinstance(v, (tf.Variable, Sharded))]
    known = {str(optimizer._var_key(p)): p for v in of_tensorflow for p in in_parts(v)}
    return {
        i: tree.variable(known[key]) if key in known else Node(NodeKind.VALUE, label=_own_name(key))
        for key, i in positions.items()
    }


def _named_slots(tree: Tree, optimizer: Any, node: Node) -> None:
    for variable in list(tree.variables):
        names = optimizer.get_slot_names()
        for name in names:
            try:
                value = optimizer.get_slot(raw(variable), name)
            except KeyError:  # tf_keras raises this if there is none
                continue
            if value is not None:
                of, child = tree.variable(variable), tree.variable(value, Role.SLOT)
                node.slots.append(Slot(slot_among(name, names), of, child))


def _slots_of_others(tree: Tree, optimizer: Any, node: Node) -> None:
    """Add slots of variables outside the tree as the optimizer's own values.

    TensorFlow saves such slots only together with their variables.
    """
    known = {id(slot.value) for slot in node.slots}
    for key, slots in optimizer._slots.items():
        for name, variable in slots.items():
            child = tree.variable(variable, Role.SLOT)
            if id(child) not in known:
                node.children.append((f"{slot_name(name)}/{_own_name(key)}", child))


def _own_name(key: str) -> str:
    """The name of a variable in tf_keras's key for it: `dense/kernel` in `dense/kernel_12`."""
    return key.rpartition("_")[0]


def _scalar(tree: Tree, node: Node, attribute: str, variable: Any) -> None:
    name, role = optimizer_value(attribute)
    child = tree.variable(variable, role)
    if all(known is not child for _, known in node.children):
        node.children.append((name, child))


def is_built(optimizer: Any, path: str, live: Live) -> bool:
    prefix = path + "/"
    entries = live.inventory.entries.items()
    return says_built(optimizer) or any(e.of and name.startswith(prefix) for name, e in entries)


def says_built(optimizer: Any) -> bool:
    # tf_keras's legacy optimizers have no such flag, and can be built any number of times.
    return bool(getattr(optimizer, "built", False)) or bool(getattr(optimizer, "_built", False))


def trained_in(at: str, live: Live) -> dict[str, Any]:
    """The variables that the optimizer has slots for by name, in the order of their slots."""
    entries = live.inventory.entries.items()
    seen = dict.fromkeys(e.of for name, e in entries if e.of and name.startswith(at + "/"))
    return {name: live.variables[name] for name in seen if name in live.variables}
