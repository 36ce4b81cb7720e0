"""Assigns an optimizer's numbered values in a file of Keras to slots of variables.

Keras writes an optimizer's variables by index only: the iterations, the learning rate unless a
schedule computes it, then the slots, in an order that depends on the class. The slot and variable
of each follow from the class, its settings and the order of the model's variables. If that is
ambiguous (several orders fit the shapes, the class is unknown, layers may have been frozen), values
keep their index, by which a live optimizer of the same class can still be restored.

Source of the orders: ``build`` of each class in Keras 3 and tf_keras; it differs between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.names import Node, NodeKind, Slot
from tfckpt.core.optimizer_names import LOSS_SCALE, OPTIMIZERS, optimizer_value, slot_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset

_SCALE = ("iterations", "learning_rate", "step_counter", "dynamic_scale")
_BY_INDEX = "vars"


class _Layout(NamedTuple):
    """Order of slots: ``paired`` are interleaved per variable, the others are list after list."""

    before: tuple[str, ...]
    paired: tuple[str, ...]
    after: tuple[str, ...]
    last: tuple[str, ...] = ()


def fill(
    node: Node, values: Sequence[H5Dataset], config: Mapping[str, Any], trained: list[Node] | None
) -> list[Node]:
    """Add an optimizer's values to its node; returns their nodes in the order of the file.

    ``trained`` are the model's values that it may train, in its order; None if unknown.
    """
    nodes = [Node(NodeKind.VALUE, role=Role.SLOT, value=value) for value in values]
    resolved = _resolve(node.label, nodes, config, trained) if trained is not None else None
    for index, value in enumerate(nodes):
        name = resolved.own.get(index) if resolved else _own(nodes, index)
        if name:
            role = Role.SLOT if name.startswith(LOSS_SCALE) else optimizer_value(name)[1]
            value.role = role
            node.children.append((name, value))
        elif resolved is not None:
            slot, of = resolved.slots[index]
            node.slots.append(Slot(slot_name(slot), of, value))
        else:
            node.children.append((f"{_BY_INDEX}/{index}", value))
    return nodes


def scale(values: Sequence[H5Dataset]) -> Node:
    """A loss-scale optimizer's own values; those of the inner one, which follow, are left out."""
    group = Node(NodeKind.GROUP)
    for edge, value in zip(_SCALE, values, strict=False):
        name, role = optimizer_value(edge)
        group.children.append((name, Node(NodeKind.VALUE, role=role, value=value)))
    return group


def begins_with_scale(values: Sequence[H5Dataset]) -> bool:
    """Whether values begin with those of Keras 3's loss-scale optimizer."""
    return len(values) >= len(_SCALE) and all(value.shape == () for value in values[: len(_SCALE)])


class _ResolvedValues(NamedTuple):
    own: dict[int, str]
    slots: dict[int, tuple[str, Node]]


def _own(nodes: Sequence[Node], index: int) -> str:
    """The name of the optimizer's own value at an index, ``""`` if dtypes do not show it."""
    value = nodes[index].value
    return "iterations" if index == 0 and value.shape == () and "int" in value.dtype else ""


def _resolve(
    cls: str, nodes: Sequence[Node], config: Mapping[str, Any], trained: list[Node]
) -> _ResolvedValues | None:
    """The meaning of each value, if exactly one layout fits."""
    readings: list[_ResolvedValues] = []
    for layout in _layouts(cls, config):
        for head in (("iterations", "learning_rate"), ("iterations",)):
            rest = nodes[len(head) : len(nodes) - len(layout.last)]
            if not _fits_head(nodes, head) or len(nodes) < len(head) + len(layout.last):
                continue
            slots = _assigned(layout, rest, trained)
            if slots is None:
                continue
            own = dict(enumerate(head))
            own |= {len(nodes) - 1 - i: name for i, name in enumerate(reversed(layout.last))}
            reading = _ResolvedValues(own, {len(head) + i: slot for i, slot in enumerate(slots)})
            if all(_differ(reading, other) for other in readings):
                readings.append(reading)
    return readings[0] if len(readings) == 1 else None


def _differ(reading: _ResolvedValues, other: _ResolvedValues) -> bool:
    return reading.own != other.own or {i: (s, id(of)) for i, (s, of) in reading.slots.items()} != {
        i: (s, id(of)) for i, (s, of) in other.slots.items()
    }


def _fits_head(nodes: Sequence[Node], head: Sequence[str]) -> bool:
    values = [node.value for node in nodes[: len(head)]]
    return (
        len(values) == len(head)
        and all(value.shape == () for value in values)
        and "int" in values[0].dtype
        and all("float" in value.dtype for value in values[1:])
    )


def _layouts(cls: str, config: Mapping[str, Any]) -> Iterator[_Layout]:
    """The layouts that releases of Keras use for a class with these settings."""
    known_class = OPTIMIZERS.get(cls)
    if known_class is None or not known_class.in_keras:
        return
    paired = known_class.slots
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ("average",) if config.get("use_ema") else ()
    if config.get("gradient_accumulation_steps"):
        before += ("gradient_accumulator",)
    if config.get("amsgrad"):
        after = ("velocity_hat",)
    if cls == "rm_sprop":
        after += ("momentum",) if config.get("momentum") else ()
        after += ("average_gradient",) if config.get("centered") else ()
    if cls == "sgd":
        yield _Layout(before, (), ())
        yield _Layout(before, ("momentum",), ())
        return
    yield _Layout(before, paired, after)
    if after:
        yield _Layout(before, paired + after, ())
    if cls == "nadam":
        yield _Layout(before, paired, after, ("u_product",))


def _assigned(
    layout: _Layout, rest: Sequence[Node], trained: list[Node]
) -> list[tuple[str, Node]] | None:
    """Slot and variable of each value, if the shapes fit in exactly one way."""
    each = len(layout.before) + len(layout.paired) + len(layout.after)
    if not each:
        return [] if not rest else None
    count = len(rest) // each
    if len(rest) != count * each:
        return None
    step = 1 if layout.before else len(layout.paired) or 1
    variables = _chosen([node.value.shape for node in rest[::step][:count]], trained)
    if variables is None:
        return None
    slots = [(slot, of) for slot in layout.before for of in variables]
    slots += [(slot, of) for of in variables for slot in layout.paired]
    slots += [(slot, of) for slot in layout.after for of in variables]
    fits = all(
        of.value.shape == node.value.shape for (_, of), node in zip(slots, rest, strict=True)
    )
    return slots if fits else None


def _chosen(shapes: list[Any], trained: list[Node]) -> list[Node] | None:
    """The subsequence of the variables with these shapes; None unless it is unique.

    An optimizer trains only what was not frozen when it was built, which no file records.
    """
    ways = [1] + [0] * len(shapes)  # number of ways, capped at 2, to match the first n shapes
    for node in trained:
        for end in range(len(shapes), 0, -1):
            if shapes[end - 1] == node.value.shape:
                ways[end] = min(ways[end] + ways[end - 1], 2)
    if ways[-1] != 1:
        return None
    chosen: list[Node] = []
    for node in reversed(trained):  # the way is unique, so the last fit is the only one
        if len(chosen) < len(shapes) and shapes[len(shapes) - 1 - len(chosen)] == node.value.shape:
            chosen.append(node)
    return chosen[::-1]
