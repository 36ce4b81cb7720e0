"""Optimizers of every kind → which variable is which slot of which model variable.

Keras addresses optimizer state by position, which is how a checkpoint comes to give one variable's
momentum to another. Here a slot is (slot, variable). Read off the code of both flavours:

- Keras 3 (keras/src/optimizers/base_optimizer.py): a list attribute as long as
  ``_trainable_variables`` is a slot; dicts and anything else are known by the variable's name,
  ``<path of the model variable with _>_<slot>``.
- tf_keras (tf_keras/src/optimizers/optimizer.py): the same lists, indexed by ``_index_dict``.
- tf_keras legacy (optimizer_v2.py): ``_slots``, by variable and slot.
- A loss-scale optimizer holds another one, and two variables of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.flavours import flavour_of
from tfckpt.live.variables import Trackable, is_variable
from tfckpt.names import (
    Kind,
    Node,
    Slot,
    by_slot_path,
    optimizer_value,
    slot_name,
    snake_case,
    split_slot,
)
from tfckpt.records import Role

if TYPE_CHECKING:
    from tfckpt.live.tree import Tree

_BOOKS = frozenset({"_variables", "_trainable_variables", "_weights"})


def describe(tree: Tree, optimizer: Any, node: Node) -> None:
    """Fill in an optimizer's node: children, and slots once all variables are known."""
    # tf_keras has two classes for one thing, LossScaleOptimizer and LossScaleOptimizerV3.
    node.label = snake_case(type(optimizer).__name__).removesuffix("_v3")
    if hasattr(optimizer, "_create_slots"):
        _legacy(tree, optimizer, node)
        return
    for attribute, value in list(vars(optimizer).items()):
        if attribute in _BOOKS or attribute.startswith("_self_") or attribute == "_trackable":
            continue
        if _is_optimizer(value):
            edge = "inner_optimizer" if attribute == "_optimizer" else attribute
            tree.attach(node, edge, value)
        elif isinstance(value, (list, tuple)) and any(map(_is_optimizer, value)):
            tree.attach(node, attribute, value)
        elif is_variable(value):
            _scalar(tree, node, attribute, value)
        elif attribute == "_loss_scale":
            for edge, child in value._trackable_children().items():
                _scalar(tree, node, edge, child)


def finish(tree: Tree, optimizer: Any, node: Node) -> None:
    """The slots, for the model variables that the tree holds by now."""
    if hasattr(optimizer, "_create_slots"):
        _legacy_slots(tree, optimizer, node)
        return
    trained = _trained(tree, optimizer)
    found: set[int] = set()
    for attribute, value in list(vars(optimizer).items()):
        if attribute in _BOOKS or not isinstance(value, list):
            continue
        for index, variable in enumerate(value):
            if is_variable(variable) and index in trained:
                child = tree.variable(variable, Role.SLOT)
                node.slots.append(Slot(slot_name(attribute), trained[index], child))
                found.add(id(child))
    _leftovers(tree, optimizer, node, list(trained.values()), found)


def _leftovers(
    tree: Tree, optimizer: Any, node: Node, trained: list[Node], found: set[int]
) -> None:
    """Variables that no attribute lists by position; their own names say what they are."""
    found |= {id(child) for _, child in node.children} | _inner(tree, optimizer)
    paths = by_slot_path((variable.label, variable) for variable in trained)
    for variable in getattr(optimizer, "_variables", ()):
        value = tree.variable(variable, Role.SLOT)
        if id(value) in found:
            continue
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
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if _is_optimizer(each):
                inner |= {id(tree.variable(v, Role.SLOT)) for v in each.variables}
    return inner


def _trained(tree: Tree, optimizer: Any) -> dict[int, Node]:
    """Position → the node of the model variable."""
    if hasattr(optimizer, "_trainable_variables"):
        return {i: tree.variable(v) for i, v in enumerate(optimizer._trainable_variables)}
    positions = getattr(optimizer, "_index_dict", None) or {}
    known = {optimizer._var_key(v): v for v in tree.variables if isinstance(v, tf.Variable)}
    # The key of a variable that was not given along begins with its name: `dense/kernel_12`.
    return {
        i: tree.variable(known[key])
        if key in known
        else Node(Kind.VALUE, label=key.rpartition("_")[0])
        for key, i in positions.items()
    }


def _legacy(tree: Tree, optimizer: Any, node: Node) -> None:
    if (inner := getattr(optimizer, "_optimizer", None)) is not None:  # a loss-scale optimizer
        tree.attach(node, "inner_optimizer", inner)
    own = optimizer if inner is None else optimizer._loss_scale
    children = own._trackable_children() if isinstance(own, Trackable) else {}
    for edge, child in children.items():
        if is_variable(child):
            _scalar(tree, node, edge, child)


def _legacy_slots(tree: Tree, optimizer: Any, node: Node) -> None:
    from tf_keras.src.optimizers.legacy.optimizer_v2 import _var_key

    if not getattr(optimizer, "_slots", None):
        return
    known = {_var_key(v): v for v in tree.variables if isinstance(v, tf.Variable)}
    for key, slots in optimizer._slots.items():
        if key in known:
            for name, value in slots.items():
                _slot(tree, node, slot_name(name), known[key], value)


def _scalar(tree: Tree, node: Node, attribute: str, variable: Any) -> None:
    name, role = optimizer_value(attribute)
    child = tree.variable(variable, role)
    if all(known is not child for _, known in node.children):
        node.children.append((name, child))


def _slot(tree: Tree, node: Node, slot: str, of: Any, value: Any) -> None:
    node.slots.append(Slot(slot, tree.variable(of), tree.variable(value, Role.SLOT)))


def _is_optimizer(value: Any) -> bool:
    flavour = flavour_of(value)
    return flavour is not None and isinstance(value, flavour.optimizers)
