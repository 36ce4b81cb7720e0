"""The orders in which Keras lists variables, for files that store values by position.

They follow Keras's own writers: ``save_own_variables`` of both flavors and the HDF5 format of
Keras 2 (keras/src/saving/saving_lib.py, tf_keras/src/saving/legacy/hdf5_format.py); for layers as
if none were frozen. A layer with its own way of writing has no order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Ordered
from tfckpt.live.flavors import flavor_of, is_v1
from tfckpt.live.private.either_keras import others_of, trainable_of
from tfckpt.live.variables import is_variable, path, raw

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from tfckpt.core.names import Names, Node
    from tfckpt.live.flavors import Flavor
    from tfckpt.live.tree import Tree

if TYPE_CHECKING:
    Orders = dict[str, tuple[Ordered, ...]]


_KERAS = ("keras.src.", "tf_keras.src.")
# LoRA's matrices are merged into the kernel when it is written.
_MERGED = "lora_"


def own_orders(tree: Tree, named: Names) -> Orders:
    """Path of each layer, and of each optimizer → its own values."""
    names = {id(value.node): value.name for value in named.values}
    found: Orders = {}
    for layer, node, flavor in tree.layers:
        at = named.paths.get(id(node))
        if at is not None and _writes_plainly(layer, flavor):
            _add(found, at, _own(layer), tree, names)
    for optimizer, node in tree.optimizers:
        at = named.paths.get(id(node))
        if at is not None and not is_v1(optimizer):
            state = _state(optimizer)
            unsure = () if _trains_surely(tree, node) else {id(raw(each)) for each in state}
            _add(found, at, state, tree, names, frozen=unsure)
    return found


def own_writing(tree: Tree, named: Names) -> frozenset[str]:
    """The names of values that a layer's own code writes."""
    names = {id(value.node): value.name for value in named.values}
    layers = (layer for layer, _, flavor in tree.layers if not _writes_plainly(layer, flavor))
    values = (v for each in layers for v in (*trainable_of(each), *others_of(each)))
    found = (names.get(id(tree.variable(v))) for v in values if is_variable(v))
    return frozenset(filter(None, found))


def deep_orders(tree: Tree, named: Names, models: Iterable[Any]) -> Orders:
    """Path of each layer that a model lists → its values and those of nested layers."""
    names = {id(value.node): value.name for value in named.values}
    found: Orders = {}
    for model in models:
        for layer in model.layers:
            node = tree.node(layer)
            at = named.paths.get(id(node)) if node is not None else None
            if at is not None:
                _add(found, at, deep(layer), tree, names, frozen=_frozen(layer))
    return found


def _add(
    found: Orders,
    at: str,
    variables: Sequence[Any],
    tree: Tree,
    names: Mapping[int, str],
    *,
    frozen: Container[int] = (),
) -> None:
    nodes = [id(tree.variable(variable)) for variable in variables]
    if variables and all(node in names for node in nodes):
        found[at] = tuple(
            Ordered(names[node], path(v), id(raw(v)) in frozen)
            for node, v in zip(nodes, variables, strict=True)
        )


def _own(layer: Any) -> list[Any]:
    """A layer's own values, as Keras 3's ``save_own_variables`` writes them."""
    if mode := getattr(layer, "quantization_mode", None):
        listed = getattr(layer, "variable_serialization_spec", {}).get(mode, ())
        held = (getattr(layer, f"_{name}", getattr(layer, name, None)) for name in listed)
        return [value for value in held if is_variable(value)]
    merged = {
        id(raw(value))
        for attribute, value in vars(layer).items()
        if attribute.lstrip("_").startswith(_MERGED) and is_variable(value)
    }
    both = (*trainable_of(layer), *others_of(layer))
    return [v for v in both if is_variable(v) and id(raw(v)) not in merged]


def deep(layer: Any) -> list[Any]:
    """The values of a layer and its nested layers, trainable ones first, as if none were frozen."""
    inside = list(_inside(layer))
    trainable = [v for each in inside for v in trainable_of(each)]
    others = [v for each in inside for v in others_of(each)]
    unique = {id(raw(v)): v for v in (*trainable, *others) if is_variable(v)}
    return list(unique.values())


def _frozen(layer: Any) -> set[int]:
    """The ids of the variables of a layer and its nested layers that it trains only unfrozen."""
    able = {id(raw(v)) for each in _inside(layer) for v in trainable_of(each) if is_variable(v)}
    return able - {id(raw(v)) for v in layer.trainable_weights}


def _inside(layer: Any) -> Iterator[Any]:
    """A layer and its nested layers, in the order in which Keras gathers their variables."""
    yield layer
    for inner in [*layer._flatten_layers(include_self=False, recursive=False)]:
        yield from _inside(inner)


def _writes_plainly(layer: Any, flavor: Flavor) -> bool:
    """Whether a layer's values are written by Keras's own ``save_own_variables``."""
    writer = getattr(type(layer), "save_own_variables", None)
    module = getattr(writer, "__module__", "")
    return isinstance(layer, flavor.layer) and module.startswith(_KERAS)


def _trains_surely(tree: Tree, node: Node) -> bool:
    """Whether an optimizer with these slots can only have been that of the same variables.

    A variable of another shape cannot have been trained in place of one of these.
    """
    mine = {id(slot.of) for slot in node.slots}
    every = [(id(tree.variable(v)), v) for layer, _, _ in tree.layers for v in trainable_of(layer)]
    trained = {tuple(v.shape) for at, v in every if at in mine}
    frozen = {tuple(v.shape) for at, v in every if at not in mine}
    return not trained & frozen


def _state(optimizer: Any) -> list[Any]:
    """The optimizer variables that Keras writes; for a loss-scale optimizer, the inner one's."""
    flavor = flavor_of(optimizer)
    while flavor is not None and isinstance(optimizer, flavor.loss_scale):
        optimizer = optimizer.inner_optimizer
    found = optimizer.variables
    return list(found() if callable(found) else found)
