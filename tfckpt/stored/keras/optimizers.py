"""The state of an optimizer in a file that numbers it → slots of variables.

Keras writes an optimizer's variables by number alone: the iterations, the learning rate unless a
schedule computes it, then the slots, in an order that each class has. Which is whose follows from
the class, its settings and the order of the model's variables. What those leave open (another
order with the same shapes, a class that is not here, a layer that may have been frozen) stays
untold: a value by its number, which a live optimizer of the same class can still place.

Source of the orders: the ``build`` of each class in Keras 3 and tf_keras, of which releases differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.names import Node, NodeKind, Slot
from tfckpt.core.optimizer_names import LOSS_SCALE, optimizer_value, slot_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.stored.keras.hdf5 import H5Dataset

_PAIR = ("momentum", "velocity")
_SLOTS: Mapping[str, tuple[str, ...]] = {
    "adam": _PAIR,
    "adam_w": _PAIR,
    "adamax": _PAIR,
    "nadam": _PAIR,
    "lamb": _PAIR,
    "schedule_free_adam_w": _PAIR,
    "adagrad": ("accumulator",),
    "adadelta": ("accumulated_grad", "accumulated_delta_var"),
    "ftrl": ("accumulator", "linear"),
    "lion": ("momentum",),
    "rm_sprop": ("velocity",),
    "sgd": (),
}
_SCALE = ("iterations", "learning_rate", "step_counter", "dynamic_scale")
_SHOWN_BY_NUMBER = "vars"


class _Layout(NamedTuple):
    """Slots that stand variable by variable after one another, and lists of slots around them."""

    before: tuple[str, ...]
    paired: tuple[str, ...]
    after: tuple[str, ...]
    last: tuple[str, ...] = ()


def fill(
    node: Node, values: Sequence[H5Dataset], config: Mapping[str, Any], trained: list[Node] | None
) -> list[Node]:
    """Hang an optimizer's values below its node; the nodes in the order of the file.

    Args:
        node: of the optimizer, its class known or not.
        values: in the order of the file.
        config: of the optimizer.
        trained: the values of the model that it may train, in its order, if that is known.
    """
    made = [Node(NodeKind.VALUE, role=Role.SLOT, value=value) for value in values]
    placed = _place(node.label, made, config, trained) if trained is not None else None
    for index, value in enumerate(made):
        name = placed.own.get(index) if placed else _own(made, index)
        if name:
            role = Role.SLOT if name.startswith(LOSS_SCALE) else optimizer_value(name)[1]
            value.role = role
            node.children.append((name, value))
        elif placed is not None:
            slot, of = placed.slots[index]
            node.slots.append(Slot(slot_name(slot), of, value))
        else:
            node.children.append((f"{_SHOWN_BY_NUMBER}/{index}", value))
    return made


def scale(values: Sequence[H5Dataset]) -> Node:
    """A loss-scale optimizer's own values; those of the one inside follow them and are left out."""
    group = Node(NodeKind.GROUP)
    for edge, value in zip(_SCALE, values, strict=False):
        name, role = optimizer_value(edge)
        group.children.append((name, Node(NodeKind.VALUE, role=role, value=value)))
    return group


def own_count(values: Sequence[H5Dataset]) -> bool:
    """Whether values begin as those of Keras 3's loss-scale optimizer do."""
    return len(values) >= len(_SCALE) and all(value.shape == () for value in values[: len(_SCALE)])


class _PlacedSlot(NamedTuple):
    own: dict[int, str]
    slots: dict[int, tuple[str, Node]]


def _own(made: Sequence[Node], index: int) -> str:
    """The optimizer's own value at a place, as far as types tell."""
    value = made[index].value
    return "iterations" if index == 0 and value.shape == () and "int" in value.dtype else ""


def _place(
    cls: str, made: Sequence[Node], config: Mapping[str, Any], trained: list[Node]
) -> _PlacedSlot | None:
    """What each value is, where just one way to read them fits."""
    found: list[_PlacedSlot] = []
    for layout in _layouts(cls, config):
        for head in (("iterations", "learning_rate"), ("iterations",)):
            rest = made[len(head) : len(made) - len(layout.last)]
            if not _fits_head(made, head) or len(made) < len(head) + len(layout.last):
                continue
            slots = _assigned(layout, rest, trained)
            if slots is None:
                continue
            own = dict(enumerate(head))
            own |= {len(made) - 1 - i: name for i, name in enumerate(reversed(layout.last))}
            one = _PlacedSlot(own, {len(head) + i: slot for i, slot in enumerate(slots)})
            if all(_differ(one, other) for other in found):
                found.append(one)
    return found[0] if len(found) == 1 else None


def _differ(one: _PlacedSlot, other: _PlacedSlot) -> bool:
    return one.own != other.own or {i: (s, id(of)) for i, (s, of) in one.slots.items()} != {
        i: (s, id(of)) for i, (s, of) in other.slots.items()
    }


def _fits_head(made: Sequence[Node], head: Sequence[str]) -> bool:
    values = [node.value for node in made[: len(head)]]
    return (
        len(values) == len(head)
        and all(value.shape == () for value in values)
        and "int" in values[0].dtype
        and all("float" in value.dtype for value in values[1:])
    )


def _layouts(cls: str, config: Mapping[str, Any]) -> Iterator[_Layout]:
    """The ways in which releases of Keras write the slots of a class with these settings."""
    if cls not in _SLOTS:
        return
    paired = _SLOTS[cls]
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
    """Slot and variable of each value, where the shapes fit and leave no choice."""
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
    """Those of the variables that have these shapes in this order; None where several ways fit.

    An optimizer trains what was not frozen when it was built, which no file tells.
    """
    ways = [1] + [0] * len(shapes)  # how many ways there are to the first n shapes
    for node in trained:
        for at in range(len(shapes), 0, -1):
            if shapes[at - 1] == node.value.shape:
                ways[at] = min(ways[at] + ways[at - 1], 2)
    if ways[-1] != 1:
        return None
    found: list[Node] = []
    for node in reversed(trained):  # the last that fits is the only one that does
        if len(found) < len(shapes) and shapes[len(shapes) - 1 - len(found)] == node.value.shape:
            found.append(node)
    return found[::-1]
