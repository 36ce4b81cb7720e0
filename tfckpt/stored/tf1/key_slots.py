"""Which keys of a file without an object graph are optimizer state, and what of it they are.

TF1's optimizers keep a slot beside its variable: ``dense/kernel/Adam`` and ``dense/kernel/Adam_1``
(tensorflow/python/training/slot_creator.py); which is the momentum only the order of their creation
tells, which is that of each optimizer's ``_create_slots``. Keras's optimizers in graph mode put
their own name before the variable and the slot's behind it, ``training/Adam/dense/kernel/m``; BERT
writes ``dense/kernel/adam_m``, Mesh TensorFlow ``dense/kernel_slot_vr``. Any of them may have the
scope of the training step in front.

A key is taken for a slot only where the variable it belongs to is in the file too, with a shape
that fits. All others stay what they are, values.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.automatic_names import snake_case
from tfckpt.core.optimizer_names import slot_name
from tfckpt.stored.tf1.key_layers import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Shape

MOVING_AVERAGE = "moving_average"


_NUMBERED = re.compile(r"(?P<word>.*?)(?:_(?P<number>[0-9]{1,4}))?", re.DOTALL)
_OPTIMIZER = re.compile(r"_?optimizer$", re.IGNORECASE)
_MESH = re.compile(r"(?P<of>.+)_slot_(?P<slot>vr|vc|v|m)", re.DOTALL)
_PREFIXED = re.compile(r"(?P<cls>adam|lamb)_(?P<slot>[mv])")

# The optimizer's word, in small letters → its class as Keras calls it, and its slots in the order
# in which tf.compat.v1.train, tf.contrib.opt and Keras create them.
_CLASSES: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "adam": ("adam", ("momentum", "velocity")),
        "adamw": ("adam_w", ("momentum", "velocity")),
        "adamweightdecay": ("adam_weight_decay", ("momentum", "velocity")),
        "adamax": ("adamax", ("momentum", "velocity")),
        "nadam": ("nadam", ("momentum", "velocity")),
        "lamb": ("lamb", ("momentum", "velocity")),
        "momentum": ("momentum", ("momentum",)),
        "momentumw": ("momentum_w", ("momentum",)),
        "lars": ("lars", ("momentum",)),
        "sgd": ("sgd", ("momentum",)),
        "rmsprop": ("rm_sprop", ("velocity", "momentum")),
        "adagrad": ("adagrad", ("accumulator",)),
        "adagradda": ("adagrad_da", ("accumulated_gradient", "gradient_squared_accumulator")),
        "proximaladagrad": ("proximal_adagrad", ("accumulator",)),
        "adadelta": ("adadelta", ("accumulated_grad", "accumulated_delta_var")),
        "ftrl": ("ftrl", ("accumulator", "linear")),
        "adafactor": ("adafactor", ("r", "c", "velocity", "momentum")),
    }
)
_CENTERED = ("velocity", "average_gradient", "momentum")
_AVERAGES = frozenset(
    {"exponentialmovingaverage", "ema", "movingaverage", "moving_average", "average"}
)
# What a part of a word tells where the whole of it is a name of somebody's own: `LazyAdam`.
_ALIKE = (("adam", "adam"), ("momentum", "momentum"), ("rms", "rmsprop"), ("adagrad", "adagrad"))
# What Keras's optimizers call slots, in graph mode the last component of the key.
_WORDS = frozenset(
    {"m", "v", "u", "vhat", "rms", "mg", "momentum", "velocity"}
    | {"accumulator", "linear", "accum_grad", "accum_var"}
)


class Solver(NamedTuple):
    """One optimizer, as far as keys tell them apart.

    Attributes:
        scope: what stands before the variable in its slots' keys.
        label: its class in snake case, ``""`` where it is not known.
        number: 0, or more where several of one class keep slots of the same variable.
    """

    scope: str
    label: str
    number: int = 0


class SlotKey(NamedTuple):
    """What a key is: the slot of a variable; ``solver`` is None for a moving average."""

    of: str
    slot: str
    solver: Solver | None


class _Numbered(NamedTuple):
    """A slot that is told only by the order of those beside it."""

    of: str
    scope: str
    word: str


def class_of(word: str) -> str | None:
    """The class of the optimizer that a scope is named after, None where it is no such name.

    >>> class_of("AdamW_1"), class_of("RMSPropOptimizer"), class_of("encoder")
    ('adam_w', 'rm_sprop', None)
    """
    found = _CLASSES.get(_plain(word))
    return found[0] if found else None


def find_slots(shapes: Mapping[str, Shape]) -> dict[str, SlotKey]:
    """The names that are slots, and what each is.

    Args:
        shapes: every name of the file and its shape.

    >>> shapes = {"a/kernel": (2,), "a/kernel/Adam": (2,), "a/kernel/Adam_1": (2,)}
    >>> for name, slot in find_slots(shapes).items():
    ...     print(name, slot.slot, slot.of)
    a/kernel/Adam momentum a/kernel
    a/kernel/Adam_1 velocity a/kernel
    """
    found: dict[str, SlotKey] = {}
    numbered: dict[_Numbered, dict[int, str]] = defaultdict(dict)
    counted = any("beta1_power" in name for name in shapes)
    for name in shapes:
        if (slot := _told(name, shapes)) is not None:
            found[name] = slot
            continue
        head, _, last = name.rpartition("/")
        owner = _owner(head, shapes)
        if owner is None:
            continue
        match = _NUMBERED.fullmatch(last)
        assert match is not None, "every text matches"  # noqa: S101 (narrows the type)
        one = _Numbered(owner, head[: -len(owner)].rstrip("/"), match["word"])
        if _plain(one.word) in _AVERAGES:
            if shapes[name] == shapes[owner]:
                found.setdefault(name, SlotKey(owner, MOVING_AVERAGE, None))
        elif _is_optimizer(one.word, counted=counted):
            numbered[one][int(match["number"] or 0)] = name
    for one, names in numbered.items():
        found.update(_in_order(one, [names[n] for n in sorted(names)], shapes))
    return {name: slot for name, slot in found.items() if slot.of not in found}


def _told(name: str, shapes: Mapping[str, Shape]) -> SlotKey | None:
    """A slot whose key says which it is."""
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
    """The longest end of a path that is the name of a variable."""
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
    alike = any(part in plain for part, _ in _ALIKE)
    return plain in _CLASSES or alike or (counted and bool(_OPTIMIZER.search(word)))


def _in_order(
    one: _Numbered, names: Sequence[str], shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, SlotKey]]:
    """The slots of one optimizer word and one variable, which are in the order of creation."""
    plain, whole = _plain(one.word), shapes[one.of]
    known = _CLASSES.get(plain)
    alike = next((cls for part, cls in _ALIKE if part in plain), None)
    label = known[0] if known else snake_case(one.word)
    slots = known[1] if known else _CLASSES[alike][1] if alike else ()
    if plain == "adafactor":
        slots = _factored([shapes[name] for name in names], whole)
    elif plain == "rmsprop" and len(names) % 3 == 0:
        slots = _CENTERED
    for place, name in enumerate(names):
        number, at = divmod(place, len(slots)) if slots else (0, 0)
        slot = slots[at] if slots else f"{label}_{place}" if place else label
        if _fits(slot, shapes[name], whole):
            yield name, SlotKey(one.of, slot, Solver(one.scope, label, number))


def _factored(shapes: Sequence[Shape], whole: Shape) -> tuple[str, ...]:
    """Adafactor's slots: rows and columns, or all of it, with a momentum before where it has one.

    (tensor2tensor/utils/adafactor.py)
    """
    kept = sum(shape == whole for shape in shapes)
    factored = len(shapes) - kept >= 2
    momentum = kept > (0 if factored else 1)
    return (("momentum",) if momentum else ()) + (("r", "c") if factored else ("velocity",))


def _fits(slot: str, shape: Shape, whole: Shape) -> bool:
    if slot == "r":
        return shape in (whole[:-1], whole[1:])
    if slot == "c":
        return shape in (whole[:-2] + whole[-1:], whole[:1])
    return shape == whole
