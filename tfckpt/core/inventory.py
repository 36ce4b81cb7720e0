"""A value, and an inventory of values: the data that planning and reports work on.

An :class:`Inventory` describes a checkpoint on disk and live objects in the same way, so that
planning, comparing and the coverage check of a save are functions of two inventories. They are pure
data: this module reads no file and does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping  # noqa: TC003 (msgspec reads the types)
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.tables import inventory_text
from tfckpt.core.text import preformatted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

Shape = tuple[int, ...]


class Role(str, Enum):
    """What a value is for. Policies treat optimizer state by role, reports sum by it."""

    WEIGHT = "weight"
    SLOT = "slot"
    ITERATIONS = "iterations"
    HYPERPARAMETER = "hyperparameter"
    SEED = "seed"
    METRIC = "metric"
    STATE = "state"
    VOCABULARY = "vocabulary"
    ITERATOR = "iterator"
    OBJECT = "object"

    __str__ = str.__str__
    __hash__ = str.__hash__  # an Enum's own is a function in Python


class Entry(NamedTuple):
    """One value.

    A tuple, not a dataclass: a plan has tens of thousands of them, and creating a frozen dataclass
    of nine fields takes longer than planning the value.

    Attributes:
        name: canonical name, ``model/encoder/dense/kernel``.
        role: what it is for.
        dtype: its name in TensorFlow, ``float32``, ``bfloat16``, ``string``; ``""`` for an object.
        shape: () for a scalar; None for an object that is not a tensor (an iterator, a table).
        nbytes: size in bytes as stored; 0 if unknown.
        key: checkpoint key of a value in a checkpoint; ``""`` for a variable of the model.
        slot: for a slot, which one: ``momentum``.
        of: for a slot, the canonical name of its variable.
        crc32c: masked checksum of the stored bytes from the checkpoint's index, or None. Of live
            objects, only a vocabulary has one.
    """

    name: str
    role: Role
    dtype: str
    shape: Shape | None
    nbytes: int = 0
    key: str = ""
    slot: str = ""
    of: str = ""
    crc32c: int | None = None


def digest(parts: Iterable[str]) -> str:
    """What stands for texts in a layer: for its connections, its settings."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


SEQUENCE, LIST, DICT, ATTRIBUTES = "sequence", "list", "dict", "attributes"
VARIABLE = "variable"  # in a list, in place of a layer's class


class Layer(NamedTuple):
    """A layer in a container, or a variable in a list; ``""`` for what is unknown.

    Attributes:
        place: its component in canonical names: a name, an index, a key, an attribute.
        own: its name in Keras.
        auto: whether that looks generated, ``dense_4``.
        given: whether a user chose it; None if the file does not say.
        cls: its class in snake case.
        created: the number in a name that looks generated, which follows the order of creation.
        fed: digest of what feeds it in a functional model.
        feeds: digest of what it feeds there.
        settings: digest of its configuration, e.g. activation and units.
        beside: of a live layer, whether one of its class and shapes is on another branch.
        path: its canonical path, where containers are aligned.
        shapes: of the weights below it, where containers are aligned.
        trainable: whether it is not frozen, if that is known.
    """

    place: str
    own: str = ""
    auto: bool = False
    given: bool | None = None
    cls: str = ""
    created: int = -1
    fed: str = ""
    feeds: str = ""
    settings: str = ""
    beside: bool = False
    path: str = ""
    shapes: tuple[Shape | None, ...] = ()
    trainable: bool | None = None


class Container(NamedTuple):
    """What holds layers: a functional or sequential model, a list, a dict, or attributes.

    Attributes:
        kind: ``SEQUENCE``, ``LIST``, ``DICT`` or ``ATTRIBUTES``.
        layers: those with weights, in order where it has one.
        order: what the order in a file says: ``all`` of the layers' names and positions; ``keras``
            also that Keras would assign them to a model's layers one by one; ``class`` the same,
            for the layers of each class alone; ``created`` the order of creation in each class.
        sizes: how many layers it has, with those without weights; of a live model, also with other
            operations.
    """

    kind: str
    layers: tuple[Layer, ...]
    order: str = "all"
    sizes: tuple[int, ...] = ()


class Ordered(NamedTuple):
    """A value of a layer, in the order in which Keras lists them.

    ``path`` is the variable's own path, ``bidirectional/forward_lstm/lstm_cell/kernel``, ``""`` if
    unknown; ``frozen``, whether a live layer would train it if it were not frozen, and of an
    optimizer's, whether it could be of another variable if others had been frozen.
    """

    name: str
    path: str = ""
    frozen: bool = False


class Dataset(NamedTuple):
    """The data set of an iterator.

    Attributes:
        elements: dtypes and shapes of the elements, as text to compare.
        size: number of elements; -1 for infinite, -2 for unknown, as in TensorFlow.
        fingerprint: digest of its definition, ``""`` if unknown.
    """

    elements: str
    size: int
    fingerprint: str


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """An object that was passed to a checkpoint.

    Attributes:
        component: the first component of its names: its keyword, or ``model`` for a single model.
        kind: ``model`` or ``optimizer`` for a Keras object, ``""`` for anything else.
        parts: for a live object, its layers or attributes: the second components of its names.
    """

    component: str
    kind: str = ""
    parts: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Canonical name → value, and structure that the names alone do not have.

    Attributes:
        source: where the values come from, for messages: a prefix, or ``the live objects``.
        entries: by canonical name, in the order of the objects.
        containers: canonical path of whatever holds layers → these.
        aliases: another canonical path that leads to an object → its canonical path.
        optimizers: canonical path of each optimizer → its class in snake case (``adam``), ``""`` if
            unknown.
        accumulation: canonical path of an optimizer → how many batches make an update, if several
            do.
        complete: whether the writer saved everything (a commit record of tfckpt says so); if not,
            seeds and metrics may be missing without an error.
        roots: keyword (``""`` for the root object) → the object passed under it, if known.
        left_out: canonical name of a value that is not among the entries → the reason.
        own_orders: canonical path of a layer or optimizer → its own values, in the order in which
            Keras 3 writes them. Some files identify a value only by this order; of live objects it
            is found only for these.
        deep_orders: canonical path of a layer → its values and those of all layers in it, in the
            order in which Keras 2 writes them.
        own_writing: canonical names of live values that a layer's own code writes to such files.
        listings: canonical path of a live subclassed model → the paths of its layers with values,
            as Keras lists them.
        private: canonical path → attribute, for attributes that begin with an underscore, which
            paths omit; None if unknown.
        varying: canonical name of a live variable created with an unknown shape → that shape, with
            None for an unknown size; None alone for an unknown rank.
        datasets: canonical name of an iterator → its data set, if known.
    """

    source: str
    entries: Mapping[str, Entry]
    containers: Mapping[str, Container] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optimizers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    complete: bool = False
    roots: Mapping[str, Root] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)
    own_orders: Mapping[str, tuple[Ordered, ...]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    deep_orders: Mapping[str, tuple[Ordered, ...]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    own_writing: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    listings: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict, compare=False)
    private: Mapping[str, str] | None = None
    varying: Mapping[str, tuple[int | None, ...] | None] = dataclasses.field(
        default_factory=dict, compare=False
    )
    datasets: Mapping[str, Dataset] = dataclasses.field(default_factory=dict, compare=False)
    accumulation: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def by_position(self) -> bool:
        """Whether some values are identified only by the order of a layer or an optimizer."""
        return any((*self.own_orders.values(), *self.deep_orders.values()))

    def takes(self, name: str, shape: Shape | None) -> bool:
        """Whether a variable created with an unknown shape can hold a value of this shape.

        >>> summary = Entry("summary", Role.WEIGHT, "float32", (2, 0))
        >>> inventory = Inventory("model", {"summary": summary}, varying={"summary": (2, None)})
        >>> inventory.takes("summary", (2, 100)), inventory.takes("summary", (3, 100))
        (True, False)
        """
        if shape is None or name not in self.varying:
            return False
        sides = self.varying[name]
        return sides is None or (
            len(sides) == len(shape)
            and all(side in {None, length} for side, length in zip(sides, shape, strict=True))
        )

    def __str__(self) -> str:
        return inventory_text(self)

    def __repr__(self) -> str:
        many = len(self.entries)
        return f"<Inventory: {many:,} value{'s' * (many != 1)} of {self.source!r}>"

    def _repr_html_(self) -> str:
        return preformatted(str(self))

    def find(self, name: str) -> Entry | None:
        """The value with that name, also by another path to it; None if there is none.

        >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
        >>> inventory = Inventory("model", {kernel.name: kernel}, aliases={"model/tied": "model/a"})
        >>> inventory.find("model/tied/kernel").name
        'model/a/kernel'
        """
        if not self.aliases:
            return self.entries.get(name)
        for _ in range(name.count("/") + 2):
            if (entry := self.entries.get(name)) is not None:
                return entry
            resolved = rebased(name, self.aliases)
            if resolved is None:
                return None
            name = resolved
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint that values were restored from, and the policy.

    ``path`` is as written in the config; ``sha256`` identifies the content, in hexadecimal.
    """

    path: str
    sha256: str
    policy: str
    policy_sha256: str


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """One restore: its sources, and status → number of values of the plan."""

    sources: tuple[Origin, ...]
    counts: Mapping[str, int]


def rebased(name: str, heads: Mapping[str, str]) -> str | None:
    """The name with its longest prefix in ``heads`` replaced, None if no prefix is in it.

    >>> rebased("model/a/kernel", {"model": "student", "model/a": "teacher/b"})
    'teacher/b/kernel'
    """
    end = len(name) if heads else 0
    while end > 0:
        if (head := heads.get(name[:end])) is not None:
            return head + name[end:]
        end = name.rfind("/", 0, end)
    return None


# Keras 3 names a functional model `functional` by default, tf_keras `model`.
_SAME_BASE = {"model": "functional"}


@lru_cache(1024)
def snake_case(name: str) -> str:
    """A class name as Keras turns it into a layer name (keras/src/utils/naming.py).

    >>> snake_case("Conv2DTranspose"), snake_case("LSTM"), snake_case("ReLU")
    ('conv2d_transpose', 'lstm', 're_lu')
    """
    words = re.sub(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\W", "", name))
    return words.lower()


def unnumbered(name: str) -> str:
    """A name without the number that makes it unique.

    >>> unnumbered("dense_12"), unnumbered("conv2d")
    ('dense', 'conv2d')
    """
    return re.sub(r"_\d+$", "", name)


def name_number(label: str) -> int:
    """The number at the end of a name, 0 if there is none.

    >>> name_number("dense_12"), name_number("dense")
    (12, 0)
    """
    match = re.search(r"_(\d{1,18})(_preprocessor)?$", label)
    return int(match[1]) if match else 0


def weak_base(label: str, bases: Collection[str], cls: str = "") -> str:
    """An automatic layer name without its number, ``""`` for a name that the user chose.

    A layer whose class is known has an automatic name of that class alone.

    >>> weak_base("dense_3", {"dense"}), weak_base("head_3", {"dense"})
    ('dense', '')
    >>> weak_base("dense", {"dense"}, "layer_normalization")
    ''
    """
    base = re.sub(r"_\d+(_preprocessor)?$", r"\1", label)  # FeatureSpace adds _preprocessor
    if base not in bases:
        return ""
    base = _SAME_BASE.get(base, base)
    own = _SAME_BASE.get(cls, cls)
    of_class = base in {own, "functional" if own == "sequential" else own}
    return base if not cls or of_class or base.endswith("_preprocessor") else ""


def given_name(variable: str) -> str:
    """A variable's name with its scopes, ``""`` if it is automatic or a scope is numbered.

    >>> given_name("encoder/scale"), given_name("dense_1/kernel"), given_name("Variable")
    ('encoder/scale', '', '')
    """
    *scopes, last = variable.split("/")
    numbered = any(unnumbered(scope) != scope for scope in scopes)
    return "" if numbered or re.fullmatch(r"[Vv]ariable(_\d+)?", last) else variable
