"""An optimizer's state in an ``.h5`` file, whose variables' names contain slot and variable.

The same slot is ``adam/dense_kernel_momentum`` in Keras 3, ``Adam/m/dense/kernel`` in tf_keras and
``Adam/dense/kernel/m`` in tf_keras's legacy optimizers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role, snake_case
from tfckpt.core.names import Node, NodeKind, Slot
from tfckpt.core.optimizer_names import (
    LOSS_SCALE,
    by_slot_path,
    named_slot,
    optimizer_value,
    slot_name,
    split_slot,
)
from tfckpt.stored.keras_metadata.config import mapping

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset

_OWN = frozenset(
    {"iteration", "iter", "iterations", "learning_rate", "momentum_cache", "u_product"}
)
_WORDS = {"norm": "velocity"}  # Keras 3's Adamax: the attribute has another name
_SCALE = re.compile(r"loss_scale_optimizer(_\d+)?")
_INNER = "inner_optimizer"


def optimizer_node(
    listed: Sequence[tuple[str, H5Dataset]],
    config: Mapping[str, Any],
    variables: Sequence[tuple[Node, str]],
) -> tuple[Node, list[tuple[Node, str]]]:
    """The node of an optimizer, and its values in the order of the file.

    ``listed`` has its values, ``variables`` the model's, each with the variable's own name.
    """
    while isinstance(inner := mapping(config, "config").get(_INNER), dict):
        config = inner
    cls = config.get("class_name")
    cls = cls.rpartition(">")[2] if isinstance(cls, str) else ""  # tf_keras: `Custom>Adam`
    node = Node(NodeKind.OPTIMIZER, label=snake_case(cls))
    unique = _unique(variables)
    short = by_slot_path((path, value) for value, path in variables)
    scale = Node(NodeKind.GROUP)
    values = []
    for index, (path, dataset) in enumerate(listed):
        value = Node(NodeKind.VALUE, role=Role.SLOT, value=dataset)
        values.append((value, path))
        head, _, last = path.rpartition("/")
        slot, of = _slot(path, unique, short)
        if of is not None:
            node.slots.append(Slot(slot_name(_WORDS.get(slot, slot)), of, value))
        elif _SCALE.fullmatch(head):
            name, value.role = optimizer_value("iterations" if last == "iteration" else last)
            scale.children.append((name, value))
        elif last in _OWN and dataset.shape == ():
            name, value.role = optimizer_value("iterations" if last == "iteration" else last)
            node.children.append((name, value))
        elif node.label == "nadam" and path == "variable" and index == len(listed) - 1:
            node.children.append(("u_product", value))
        else:
            node.children.append((f"vars/{index}", value))
    if scale.children:
        node.children.append((LOSS_SCALE, scale))
    return node, values


def _slot(
    path: str, unique: Mapping[str, Node], short: Mapping[str, Node | None]
) -> tuple[str, Node | None]:
    """The slot and the variable in the name of an optimizer's value."""
    parts = path.split("/")
    _, slot, of = named_slot(path, unique)
    if of is not None:
        return slot, of
    for start in range(len(parts) - 1):
        if (of := unique.get("/".join(parts[start:-1]))) is not None:
            return parts[-1], of
    of, slot = split_slot(parts[-1], short)
    return slot, of


def _unique(variables: Sequence[tuple[Node, str]]) -> dict[str, Node]:
    by_path: dict[str, Node | None] = {}
    for value, path in variables:
        by_path[path] = None if path in by_path else value
    return {path: value for path, value in by_path.items() if value is not None}
