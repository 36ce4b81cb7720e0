"""Finds optimizer slots among the keys of a file without an object graph.

TF1's optimizers save a slot beside its variable: ``dense/kernel/Adam`` and ``dense/kernel/Adam_1``
(tensorflow/python/training/slot_creator.py); these are in order of creation, which is that of each
optimizer's ``_create_slots``. Keras's optimizers in graph mode put their own name before the
variable and the slot's name after it, ``training/Adam/dense/kernel/m``; BERT writes
``dense/kernel/adam_m``, Mesh TensorFlow ``dense/kernel_slot_vr``. Each may begin with the scope of
the training step.

A key is a slot only if its variable is in the file, too, with a shape that fits. All others are
ordinary values.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import snake_case
from tfckpt.core.optimizer_names import OPTIMIZERS, slot_name
from tfckpt.stored.formats.tf1_layers import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Shape

MOVING_AVERAGE = "moving_average"


_OF_PART = re.compile(r"/t_[0-9]{1,4}\Z")  # of a partitioned variable: dense/kernel/t_0/Adagrad
_NUMBERED = re.compile(r"(?P<word>.*?)(?:_(?P<number>[0-9]{1,4}))?", re.DOTALL)
_OPTIMIZER = re.compile(r"_?optimizer$", re.IGNORECASE)
_MESH = re.compile(r"(?P<of>.+)_slot_(?P<slot>vr|vc|v|m)", re.DOTALL)
_PREFIXED = re.compile(r"(?P<cls>adam|lamb)_(?P<slot>[mv])")

# The optimizer's name in lower case → its class in Keras.
_CLASSES = {name.replace("_", ""): name for name, known in OPTIMIZERS.items() if known.in_tf1}
_CENTERED = ("velocity", "average_gradient", "momentum")
_AVERAGES = frozenset(
    {"exponentialmovingaverage", "ema", "movingaverage", "moving_average", "average"}
)
# Part of the name of a user's own optimizer, `LazyAdam` → the optimizer whose slots it has.
_CONTAINED = (
    ("adam", "adam"),
    ("momentum", "momentum"),
    ("rms", "rm_sprop"),
    ("adagrad", "adagrad"),
)
# Keras's own names of slots; in graph mode the last component of the key.
_WORDS = frozenset(
    {"m", "v", "u", "vhat", "rms", "mg", "momentum", "velocity"}
    | {"accumulator", "linear", "accum_grad", "accum_var"}
)


class Solver(NamedTuple):
    """One optimizer, as far as keys distinguish several.

    Attributes:
        scope: precedes the variable in the keys of its slots.
        label: its class in snake case, ``""`` if unknown.
        number: above 0 if several of one class have slots of the same variable.
    """

    scope: str
    label: str
    number: int = 0


class SlotKey(NamedTuple):
    """The slot of a variable; ``solver`` is None for a moving average."""

    of: str
    slot: str
    solver: Solver | None


class _NumberedSlots(NamedTuple):
    """Slots of a variable that are identified only by their order."""

    of: str
    scope: str
    word: str


def class_of(word: str) -> str | None:
    """The optimizer class that a scope is named after, None if it is not such a name.

    >>> class_of("AdamW_1"), class_of("RMSPropOptimizer"), class_of("encoder")
    ('adam_w', 'rm_sprop', None)
    """
    return _CLASSES.get(_plain(word))


def find_slots(shapes: Mapping[str, Shape]) -> dict[str, SlotKey]:
    """Name → slot, from the shapes of all names in the file.

    >>> shapes = {"a/kernel": (2,), "a/kernel/Adam": (2,), "a/kernel/Adam_1": (2,)}
    >>> for name, slot in find_slots(shapes).items():
    ...     print(name, slot.slot, slot.of)
    a/kernel/Adam momentum a/kernel
    a/kernel/Adam_1 velocity a/kernel
    """
    slots: dict[str, SlotKey] = {}
    numbered: dict[_NumberedSlots, dict[int, str]] = defaultdict(dict)
    counted = any("beta1_power" in name for name in shapes)
    for name in shapes:
        if (slot := _named_slot(name, shapes)) is not None:
            slots[name] = slot
            continue
        head, _, last = name.rpartition("/")
        head = head if head in shapes else _OF_PART.sub("", head)
        owner = _owner(head, shapes)
        if owner is None:
            continue
        match = _NUMBERED.fullmatch(last)
        assert match is not None, "every text matches"  # noqa: S101 (narrows the type)
        group = _NumberedSlots(owner, head[: -len(owner)].rstrip("/"), match["word"])
        if _plain(group.word) in _AVERAGES:
            if shapes[name] == shapes[owner]:
                slots.setdefault(name, SlotKey(owner, MOVING_AVERAGE, None))
        elif _is_optimizer(group.word, counted=counted):
            numbered[group][int(match["number"] or 0)] = name
    for group, names in numbered.items():
        slots.update(_in_order(group, [names[n] for n in sorted(names)], shapes))
    return {name: slot for name, slot in slots.items() if slot.of not in slots}


def _named_slot(name: str, shapes: Mapping[str, Shape]) -> SlotKey | None:
    """A slot whose key contains the slot's name."""
    shape = shapes[name]
    if (match := _MESH.fullmatch(name)) and (owner := _owner(match["of"], shapes)) is not None:
        slot = {"vr": "r", "vc": "c"}.get(match["slot"]) or slot_name(match["slot"])
        scope = match["of"][: -len(owner)].rstrip("/")
        fits = _fits(slot, shape, shapes[owner])
        return SlotKey(owner, slot, Solver(scope, "adafactor")) if fits else None
    head, _, last = name.rpartition("/")
    owner = _owner(head, shapes)
    if owner is not None and shape == shapes[owner]:
        scope = head[: -len(owner)].rstrip("/")
        label = class_of(scope.rpartition("/")[2]) or ""
        if match := _PREFIXED.fullmatch(last):
            label = "lamb" if match["cls"] == "lamb" else "adam_weight_decay"
            return SlotKey(owner, slot_name(match["slot"]), Solver(scope, label))
        if last in _WORDS and scope and (label or shape):
            return SlotKey(owner, slot_name(last), Solver(scope, label))
    # tf_keras since 2.11 puts the slot before the variable: Adam/m/dense/kernel.
    parts = name.split("/")
    for cut in range(2, len(parts) if len(parts) <= DEEPEST else 0):
        label = class_of(parts[cut - 2]) or ""
        owner = "/".join(parts[cut:])
        if label and parts[cut - 1] in _WORDS and shapes.get(owner) == shape:
            scope = "/".join(parts[: cut - 1])
            return SlotKey(owner, slot_name(parts[cut - 1]), Solver(scope, label))
    return None


def _owner(head: str, shapes: Mapping[str, Shape]) -> str | None:
    """The longest suffix of a path that is the name of a variable."""
    if head in shapes:
        return head
    if head.count("/") > DEEPEST:
        return None
    while "/" in head:
        head = head.partition("/")[2]
        if head in shapes:
            return head
    return None


@functools.lru_cache(maxsize=4096)
def _plain(word: str) -> str:
    match = _NUMBERED.fullmatch(word)
    return _OPTIMIZER.sub("", match["word"] if match else word).lower()


def _is_optimizer(word: str, *, counted: bool) -> bool:
    plain = _plain(word)
    alike = any(part in plain for part, _ in _CONTAINED)
    return plain in _CLASSES or alike or (counted and bool(_OPTIMIZER.search(word)))


def _in_order(
    group: _NumberedSlots, names: Sequence[str], shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, SlotKey]]:
    """The slots of one optimizer and one variable, given in order of creation."""
    plain, shape = _plain(group.word), shapes[group.of]
    contained = next((cls for part, cls in _CONTAINED if part in plain), "")
    label = _CLASSES.get(plain) or snake_case(group.word)
    known_class = OPTIMIZERS.get(_CLASSES.get(plain) or contained)
    slots = known_class.slots + known_class.more if known_class else ()
    if plain == "adafactor":
        slots = _factored([shapes[name] for name in names], shape)
    elif plain == "rmsprop" and len(names) % 3 == 0:
        slots = _CENTERED
    for index, name in enumerate(names):
        number, at = divmod(index, len(slots)) if slots else (0, 0)
        slot = slots[at] if slots else f"{label}_{index}" if index else label
        if _fits(slot, shapes[name], shape):
            yield name, SlotKey(group.of, slot, Solver(group.scope, label, number))


def _factored(shapes: Sequence[Shape], variable_shape: Shape) -> tuple[str, ...]:
    """Adafactor's slots: rows and columns or the velocity, preceded by a momentum if it has one.

    Source: tensor2tensor/utils/adafactor.py.
    """
    full = sum(shape == variable_shape for shape in shapes)
    factored = len(shapes) - full >= 2
    momentum = full > (0 if factored else 1)
    return (("momentum",) if momentum else ()) + (("r", "c") if factored else ("velocity",))


def _fits(slot: str, shape: Shape, variable_shape: Shape) -> bool:
    if slot == "r":
        return shape in (variable_shape[:-1], variable_shape[1:])
    if slot == "c":
        return shape in (variable_shape[:-2] + variable_shape[-1:], variable_shape[:1])
    return shape == variable_shape
