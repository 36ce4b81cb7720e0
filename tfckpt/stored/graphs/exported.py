"""What ``model.export`` of Keras leaves: a SavedModel whose graph has lists instead of layers.

The root lists the model's variables layer by layer, and Keras 3 stores each a second time, in the
order in which its functions use them. What is told of the layers is in the variables' own names:
``dense/kernel``, and in a sequential or subclassed model of Keras 3 ``sequential/dense/kernel``. A
file of Keras 2 tells as much, and it is used likewise: layers by name, or where these were numbered
by Keras, by their places. Where the names are not those of all values, or two are the same, nothing
is told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.core import names
from tfckpt.core.automatic_names import weak_base
from tfckpt.core.inventory import Inventory, Ordered
from tfckpt.core.names import Node, NodeKind
from tfckpt.stored.keras_metadata.layers import attributes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tfckpt.core.inventory import Root
    from tfckpt.stored.bundles.encoding import graph_proto

_ALL, _TRAINABLE, _AGAIN = "variables", "trainable_variables", "_all_variables"
_LISTS = (_ALL, _TRAINABLE, "non_trainable_variables")
_MODELS = ("functional", "sequential")
_LAYER_AND_VALUE = 2
_SEED = "seed_generator_state"  # of no layer's scope, so its layer is not told


class Exported:
    """The values of an exported model, in the order of its layers.

    Args:
        graph: as stored.

    Attributes:
        values: key → the variable's own name; ``{}`` where the graph is none of an exported model.
        seeds: the keys of the states of random generators.
        keys: all keys, also of what is stored a second time.
    """

    def __init__(self, graph: graph_proto.ObjectGraph) -> None:
        self.values: dict[str, str] = {}
        self.seeds: set[str] = set()
        self.keys: set[str] = set()
        self._trainable: set[str] = set()
        roots = {child.local_name: child.node_id for child in graph.nodes[0].children}
        if roots.keys() >= set(_LISTS):
            self._read(graph, roots)

    def _read(self, graph: graph_proto.ObjectGraph, roots: Mapping[str, int]) -> None:
        listed = {
            name: {
                value.checkpoint_key: value.full_name
                for child in sorted(graph.nodes[roots[name]].children, key=_number)
                for value in graph.nodes[child.node_id].attributes
            }
            for name in (*_LISTS, _AGAIN)
            if name in roots
        }
        found = listed[_ALL]
        again = {key: name for key, name in listed.get(_AGAIN, {}).items() if key not in found}
        every = {value.checkpoint_key for node in graph.nodes for value in node.attributes}
        unique = len(set(found.values())) == len(found) and all(found.values())
        if (
            unique
            and found.keys() | again.keys() == every
            and {*again.values()} <= {*found.values()}
        ):
            self.seeds = {key for key, name in found.items() if name.endswith(f"/{_SEED}")}
            self.values = {key: name for key, name in found.items() if key not in self.seeds}
            self.keys = every
            self._trainable = set(listed[_TRAINABLE])

    def inventory(
        self, path: str, roots: Mapping[str, Root] | None, bases: Collection[str]
    ) -> tuple[names.Names, Inventory] | None:
        """The names, and an inventory without entries; None where names of layers are not told.

        Args:
            path: of the artefact.
            roots: what the live side was given, by keyword.
            bases: automatic layer names.
        """
        parts = {key: name.split("/") for key, name in self.values.items()}
        if _in_scope_of_model([found[0] for found in parts.values()], roots, bases):
            parts = {key: found[1:] for key, found in parts.items()}
        if not parts or any(len(found) < _LAYER_AND_VALUE for found in parts.values()):
            return None
        model = Node(NodeKind.SEQUENCE)
        layers: dict[str, Node] = {}
        orders: dict[str, list[Node]] = {}
        for key, (name, *rest) in parts.items():
            if name not in layers:
                layers[name] = Node(NodeKind.GROUP, label=name, base=weak_base(name, bases))
                model.layers.append(layers[name])
            value = Node(NodeKind.VALUE, value=key, label=self.values[key])
            edge = "/".join(attributes(layers[name].base, rest))
            layers[name].children.append((edge, value))
            orders.setdefault(name, []).append(value)
        named = names.assign({names.MODEL: model}, {names.MODEL})
        called = {id(value.node): value.name for value in named.values}
        deep = {
            named.paths[id(layers[name])]: tuple(
                Ordered(called[id(value)], value.label)
                for value in sorted(found, key=lambda each: each.value not in self._trainable)
            )
            for name, found in orders.items()
        }
        listed = frozenset({names.MODEL} & named.sequences.keys())
        return named, Inventory(
            path, {}, named.sequences, named.aliases, deep_orders=deep, listed=listed
        )


def _in_scope_of_model(
    first: Sequence[str], roots: Mapping[str, Root] | None, bases: Collection[str]
) -> bool:
    """Whether what all names begin with is the model, and not its only layer."""
    if len(set(first)) != 1 or weak_base(first[0], bases) not in {"", *_MODELS}:
        return False
    parts = {_unnumbered(part) for root in (roots or {}).values() for part in root.parts}
    return _unnumbered(first[0]) not in parts


def _number(child: graph_proto.Child) -> int:
    return int(child.local_name) if child.local_name.isdecimal() else -1


def _unnumbered(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
