"""An optimizer's values in Keras's files, which are known by their index alone.

Keras writes the iterations, the learning rate unless a schedule computes it, then the slots, in an
order that depends on the class, its settings, the release and on what was frozen. A live optimizer
of the same class has them in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.names import Node, NodeKind
from tfckpt.core.optimizer_names import LOSS_SCALE, optimizer_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset

_SCALE = ("iterations", "learning_rate", "step_counter", "dynamic_scale")


def fill(node: Node, values: Sequence[H5Dataset]) -> list[Node]:
    """Add an optimizer's values to its node; returns their nodes in the order of the file."""
    nodes = []
    for index, value in enumerate(values):
        name, role = f"vars/{index}", Role.SLOT
        if index == 0 and value.shape == () and "int" in value.dtype:
            name, role = optimizer_value("iterations")
        elif index == 1 and value.shape == () and values[2:3] and values[2].shape:
            name, role = optimizer_value("learning_rate")
        nodes.append(Node(NodeKind.VALUE, role=role, value=value))
        node.children.append((name, nodes[-1]))
    return nodes


def take_scale(node: Node, values: Sequence[H5Dataset]) -> Sequence[H5Dataset]:
    """Add a loss scale's own values to the node of its optimizer; returns those that follow."""
    own = values[: len(_SCALE)]
    if len(own) < len(_SCALE) or any(value.shape for value in own):
        return values
    group = Node(NodeKind.GROUP)
    for edge, value in zip(_SCALE, own, strict=True):
        name, role = optimizer_value(edge)
        group.children.append((name, Node(NodeKind.VALUE, role=role, value=value)))
    node.children.append((LOSS_SCALE, group))
    return values[len(_SCALE) :]
