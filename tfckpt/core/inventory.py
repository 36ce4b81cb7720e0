"""A value, and an inventory of values: the data that planning and reports work on.

An :class:`Inventory` describes a checkpoint on disk and live objects in the same way, so that
planning, comparing and the coverage check of a save are functions of two inventories. They are pure
data: this module reads no file and does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.tables import inventory_text
from tfckpt.core.text import preformatted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfckpt.core.topology import LayerGraph

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


class Traits(NamedTuple):
    """Digests that distinguish automatically named layers of a class; ``""`` for unknown.

    Attributes:
        fed: what feeds it in a functional model.
        feeds: what it feeds there.
        settings: its configuration, e.g. activation and units.
        given: whether its name looks automatic, but was chosen by the user.
    """

    fed: str = ""
    feeds: str = ""
    settings: str = ""
    given: bool = False


def digest(parts: Iterable[str]) -> str:
    """What stands for texts in the traits of a layer."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a functional or sequential model, or of a list or dict of layers.

    A variable in a list counts as a layer of kind ``variable``.

    Attributes:
        name: its component in canonical names, ``dense_1``; in a list its index.
        base: ``dense`` if the name is automatic (weak), ``""`` if the user chose it.
        label: the user's name for a layer whose component is an index or key.
        named: whether the name is known; a file of plain TensorFlow may not contain it, and then
            ``name`` is TensorFlow's ``layer_with_weights-2``.
        kind: its class in snake case, ``dense``, ``""`` if unknown. Some Keras files number the
            layers of each class separately, and have no other order.
        number: the number in an automatic name before renumbering, which follows the order of
            creation; -1 if unknown.
        traits: what else distinguishes the layer.
    """

    name: str
    base: str = ""
    label: str = ""
    named: bool = True
    kind: str = dataclasses.field(default="", compare=False)
    number: int = dataclasses.field(default=-1, compare=False)
    traits: Traits = dataclasses.field(default=Traits(), compare=False)

    @property
    def own_name(self) -> str:
        """The original name, with its original number.

        >>> Layer("dense_1", "dense", number=4).own_name
        'dense_4'
        """
        if self.number < 0:
            return self.name
        return f"{self.base}_{self.number}" if self.number else self.base


class Ordered(NamedTuple):
    """A value of a layer, in the order in which Keras lists them.

    ``path`` is the variable's own path, ``bidirectional/forward_lstm/lstm_cell/kernel``, ``""`` if
    unknown.
    """

    name: str
    path: str = ""


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
        sequences: canonical path of each functional or sequential model, and of each list or dict
            of layers → its layers that have weights.
        aliases: another canonical path that leads to an object → its canonical path.
        optimizers: canonical path of each optimizer → its class in snake case (``adam``), ``""`` if
            unknown.
        complete: whether the writer saved everything (a commit record of tfckpt says so); if not,
            seeds and metrics may be missing without an error.
        roots: keyword (``""`` for the root object) → the object passed under it, if known.
        left_out: canonical name of a value that is not among the entries → the reason.
        own_orders: canonical path of a layer or optimizer → its own values, in the order in which
            Keras 3 writes them. Some files identify a value only by this order; of live objects it
            is found only for these.
        deep_orders: canonical path of a layer → its values and those of all layers in it, in the
            order in which Keras 2 writes them.
        members: canonical path of a model that is not functional or sequential → its layers as
            Keras lists them, by path.
        listed: of a checkpoint's ``sequences``, those that Keras lists as the layers of a model.
        unordered: the sequences whose order the file does not have; their automatic names may
            still have the order within a class.
        lists: of a live model's ``sequences``, the lists, whose layers only have an index.
        sizes: canonical path of a checkpoint's functional or sequential model → how many layers it
            has, with those without weights.
        graphs: canonical path of a live functional model → how its layers are connected.
        labels: canonical path of a layer that is named by an attribute → its own name.
        automatic: of live objects, canonical path of a layer → its own name, if it looks automatic.
        private: canonical path → attribute, for attributes that begin with an underscore, which
            paths omit; None if unknown.
        varying: canonical name of a live variable created with an unknown shape → that shape, with
            None for an unknown size; None alone for an unknown rank.
        datasets: canonical name of an iterator → its data set, if known.
    """

    source: str
    entries: Mapping[str, Entry]
    sequences: Mapping[str, tuple[Layer, ...]] = dataclasses.field(default_factory=dict)
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
    members: Mapping[str, tuple[Layer, ...]] = dataclasses.field(
        default_factory=dict, compare=False
    )
    listed: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    unordered: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    lists: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict, compare=False)
    graphs: Mapping[str, LayerGraph] = dataclasses.field(default_factory=dict, compare=False)
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    automatic: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    private: Mapping[str, str] | None = None
    varying: Mapping[str, tuple[int | None, ...] | None] = dataclasses.field(
        default_factory=dict, compare=False
    )
    datasets: Mapping[str, Dataset] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def by_position(self) -> bool:
        """Whether some values are identified only by the order of a layer or an optimizer."""
        return any((*self.own_orders.values(), *self.deep_orders.values()))

    @property
    def structured(self) -> bool:
        """Whether the source stores which objects hold the values, and not only their names."""
        return self.complete or self.private is not None or bool(self.own_orders)

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
class Share:
    """One checkpoint of an average; the weights of all sum to 1.

    ``path`` is as written in the config; ``sha256`` identifies the content, in hexadecimal.
    """

    path: str
    sha256: str
    weight: float


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """A checkpoint that values were restored from, and the policy.

    ``path`` is as written in the config; ``sha256`` identifies the content, in hexadecimal.
    ``average`` has the checkpoints of an average, () for a single checkpoint.
    """

    path: str
    sha256: str
    policy: str
    policy_sha256: str
    average: tuple[Share, ...] = ()


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
    end = len(name)
    while end > 0:
        if (head := heads.get(name[:end])) is not None:
            return head + name[end:]
        end = name.rfind("/", 0, end)
    return None


# Keras 3 names a functional model `functional` by default, tf_keras `model`.
_SAME_BASE = {"model": "functional"}


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


def weak_base(label: str, bases: Collection[str]) -> str:
    """An automatic layer name without its number, ``""`` for a name that the user chose.

    >>> weak_base("dense_3", {"dense"}), weak_base("head_3", {"dense"})
    ('dense', '')
    """
    base = re.sub(r"_\d+(_preprocessor)?$", r"\1", label)  # FeatureSpace adds _preprocessor
    return _SAME_BASE.get(base, base) if base in bases else ""


def given_name(variable: str) -> str:
    """A variable's name with its scopes, ``""`` if it is automatic or a scope is numbered.

    >>> given_name("encoder/scale"), given_name("dense_1/kernel"), given_name("Variable")
    ('encoder/scale', '', '')
    """
    *scopes, last = variable.split("/")
    numbered = any(unnumbered(scope) != scope for scope in scopes)
    return "" if numbered or re.fullmatch(r"[Vv]ariable(_\d+)?", last) else variable
