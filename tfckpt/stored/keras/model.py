"""The inventory of a file with a group per object: see :mod:`tfckpt.stored.keras.objects`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core import names
from tfckpt.core.inventory import Entry, Inventory, Ordered, Role, snake_case
from tfckpt.core.names import Node, NodeKind
from tfckpt.core.optimizer_names import optimizer_class
from tfckpt.stored.keras import optimizers
from tfckpt.stored.keras.objects import METRICS, OPTIMIZER, VARS, ObjectReader, natural
from tfckpt.stored.keras_metadata.config import mapping, text, wire

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset, H5Group, Hdf5

_INNER = "inner_optimizer"


def read(
    files: Sequence[Hdf5],
    root: H5Group,
    path: str,
    config: Mapping[str, Any],
    bases: Collection[str],
) -> Inventory:
    """The inventory of a model's file, or of all its shards.

    ``config`` is the model's configuration, empty if there is none.
    """
    reader = ObjectReader(files, bases)
    model = reader.model(root, config)
    wire(reader.configs)
    roots = {names.MODEL: model}
    if (state := root.groups.get(OPTIMIZER)) is not None:
        settings = _optimizer_config(config)
        roots[OPTIMIZER] = _optimizer(reader, state, settings)
    named = names.assign(roots, {names.MODEL})
    entries = {value.name: entry(value) for value in named.values}
    for name, dataset in _metrics(root):
        entries[name] = Entry(
            name, Role.METRIC, dataset.dtype, dataset.shape, dataset.nbytes, dataset.path
        )
    canonical = {id(value.node): value.name for value in named.values}
    orders = {
        named.paths[id(node)]: tuple(Ordered(canonical[id(value)]) for value in values)
        for node, values in reader.orders.values()
    }
    return Inventory(
        path,
        entries,
        named.containers,
        named.aliases,
        named.optimizers,
        own_orders=orders,
    )


def entry(value: names.Name) -> Entry:
    """The entry of a named array."""
    dataset = value.node.value
    return Entry(
        value.name,
        value.role,
        dataset.dtype,
        dataset.shape,
        dataset.nbytes,
        dataset.path,
        value.slot,
        value.of,
    )


def _optimizer(reader: ObjectReader, group: H5Group, config: Mapping[str, Any]) -> Node:
    node = Node(NodeKind.OPTIMIZER)
    if (inner := group.groups.get(_INNER)) is not None:
        optimizers.take_scale(node, _values(group))
        config, group = mapping(mapping(config, "config"), _INNER), inner
    node.label = snake_case(text(config, "class_name")) or optimizer_class(reader.label(group))
    reader.orders[id(node)] = node, optimizers.fill(node, _values(group))
    for name, child in group.groups.items():  # a list of optimizers
        if name != VARS:
            inner_node = Node(NodeKind.GROUP)
            node.children.append((name, inner_node))
            for dataset in child.walk():
                edge = dataset.path.removeprefix(f"{child.path}/")
                inner_node.children.append(
                    (edge, Node(NodeKind.VALUE, role=Role.SLOT, value=dataset))
                )
    return node


def _values(group: H5Group) -> list[H5Dataset]:
    stored = group.groups.get(VARS)
    if stored is None:
        return []
    return [stored.datasets[key] for key in sorted(stored.datasets, key=natural)]


def _metrics(root: H5Group) -> Iterator[tuple[str, H5Dataset]]:
    """The metrics that tf_keras stores, by its own edges: it does not store their names."""
    for name in METRICS:
        if (group := root.groups.get(name)) is not None:
            for dataset in group.walk():
                yield f"{names.METRICS}/{dataset.path.removeprefix(name + '/')}", dataset


def _optimizer_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    optimizer = mapping(config, "compile_config").get("optimizer")
    if isinstance(optimizer, str):
        return {"class_name": optimizer}
    return optimizer if isinstance(optimizer, dict) else {}
