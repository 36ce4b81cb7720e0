"""SavedModels written by Keras's ``model.export``: their graph has lists of variables, no layers.

The root lists the model's variables layer by layer. Keras 3 stores each variable a second time, in
the order in which its functions use them. Layers are known only from the variables' own names:
``dense/kernel``, or ``sequential/dense/kernel`` in a sequential or subclassed model of Keras 3. So
layers are matched as in an ``.h5`` file: by name, or by position where Keras numbered them. If two
variables have the same name, or a value is not in the lists, the layers stay unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core import names
from tfckpt.core.inventory import unnumbered, weak_base
from tfckpt.core.names import Node, NodeKind
from tfckpt.stored.formats.keras_layers import attributes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Root
    from tfckpt.stored.io.messages import Message

_ALL, _TRAINABLE, _SECOND_COPIES = "variables", "trainable_variables", "_all_variables"
_LISTS = (_ALL, _TRAINABLE, "non_trainable_variables")
_MODELS = ("functional", "sequential")
_LAYER_AND_VALUE = 2
SEED_STATE = "seed_generator_state"  # without the scope of its layer, which stays unknown


class Exported:
    """The values of an exported model, in the order of its layers.

    Attributes:
        values: key → the variable's own name; empty if the graph is not an exported model's.
        seeds: keys of the states of random generators.
        keys: all keys, those of second copies included.
    """

    def __init__(self, graph: Message) -> None:
        self.values: dict[str, str] = {}
        self.seeds: set[str] = set()
        self.keys: set[str] = set()
        self._trainable: set[str] = set()
        roots = {child.local_name: child.node_id for child in graph.nodes[0].children}
        if roots.keys() >= set(_LISTS):
            self._read(graph, roots)

    def _read(self, graph: Message, roots: Mapping[str, int]) -> None:
        listed = {
            name: {
                value.checkpoint_key: value.full_name
                for child in sorted(graph.nodes[roots[name]].children, key=_number)
                for value in graph.nodes[child.node_id].attributes
            }
            for name in (*_LISTS, _SECOND_COPIES)
            if name in roots
        }
        variables = listed[_ALL]
        copies = {
            key: name
            for key, name in listed.get(_SECOND_COPIES, {}).items()
            if key not in variables
        }
        all_keys = {value.checkpoint_key for node in graph.nodes for value in node.attributes}
        unique = len(set(variables.values())) == len(variables) and all(variables.values())
        if (
            unique
            and variables.keys() | copies.keys() == all_keys
            and {*copies.values()} <= {*variables.values()}
        ):
            self.seeds = {key for key, name in variables.items() if name.endswith(f"/{SEED_STATE}")}
            self.values = {key: name for key, name in variables.items() if key not in self.seeds}
            self.keys = all_keys
            self._trainable = set(listed[_TRAINABLE])

    def named(
        self, roots: Mapping[str, Root] | None, bases: Collection[str]
    ) -> tuple[names.Names, Iterable[tuple[Node, Sequence[tuple[Node, str]]]]] | None:
        """Canonical names, and each layer with its values in order; None if these are unknown.

        ``roots`` are the live objects by keyword, ``bases`` automatic layer names.
        """
        parts = {key: name.split("/") for key, name in self.values.items()}
        if in_scope_of_model([path[0] for path in parts.values()], roots, bases):
            parts = {key: path[1:] for key, path in parts.items()}
        if not parts or any(len(path) < _LAYER_AND_VALUE for path in parts.values()):
            return None
        model = Node(NodeKind.SEQUENCE, order="keras")
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
        deep = []
        for name, values in orders.items():
            values.sort(key=lambda value: value.value not in self._trainable)
            deep.append((layers[name], [(value, value.label) for value in values]))
        return names.assign({names.MODEL: model}, {names.MODEL}), deep


def in_scope_of_model(
    heads: Sequence[str], roots: Mapping[str, Root] | None, bases: Collection[str]
) -> bool:
    """Whether the common first component is the model's scope, not that of its only layer."""
    if len(set(heads)) != 1 or weak_base(heads[0], bases) not in {"", *_MODELS}:
        return False
    parts = {unnumbered(part) for root in (roots or {}).values() for part in root.parts}
    return unnumbered(heads[0]) not in parts


def _number(child: Message) -> int:
    return int(child.local_name) if child.local_name.isdecimal() else -1
