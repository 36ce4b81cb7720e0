"""What every room talks about: a value, and an inventory of values.

An :class:`Inventory` is the same thing for a checkpoint on disk and for live objects, so that
planning, comparing and the coverage check of a save are functions of two of them. They are values:
nothing here reads a file or knows TensorFlow.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    A tuple and not a dataclass: there are tens of thousands on either side, and to make a frozen
    dataclass of nine fields takes longer than all that a plan has to ask about it.

    Attributes:
        name: canonical name, ``model/encoder/dense/kernel``.
        role: what it is for.
        dtype: TensorFlow's name of it, ``float32``, ``bfloat16``, ``string``; ``""`` for an object.
        shape: () for a scalar; None for an object that is not a tensor (an iterator, a table).
        nbytes: size in bytes as stored; 0 where it is not known.
        key: checkpoint key, for a stored value; ``""`` for a live one.
        slot: for a slot, which one: ``momentum``.
        of: for a slot, the canonical name of the variable it belongs to.
        crc32c: masked checksum of the stored bytes as the index has it, or None. Of live values
            only a vocabulary has one.
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
    """What tells a layer of an automatic name from others of its class; ``""`` for not known.

    Digests: they are only ever compared.

    Attributes:
        fed: what feeds it in a functional model.
        feeds: what it feeds there.
        settings: what it was made with: its activation, its units.
        given: whether its name looks automatic, and is known not to be.
    """

    fed: str = ""
    feeds: str = ""
    settings: str = ""
    given: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a functional or sequential model, or of a list or dict of layers, in order.

    A variable in a list is one too, of kind ``variable``.

    Attributes:
        name: its component in canonical names, ``dense_1``; in a list its index.
        base: ``dense`` where the name is automatic (weak), ``""`` where the user chose it.
        label: the name the user chose for a layer that its index or key names.
        told: whether the name is known; a file of plain TensorFlow may not tell it, and then
            ``name`` is TensorFlow's own word, ``layer_with_weights-2``.
        kind: its class in snake case, ``dense``, where that is known: some files of Keras's number
            the layers of each class by themselves, and tell no other order.
        number: of an automatic name, as it was before it was counted anew: layers are numbered as
            they are made. -1 where that is not known.
        traits: what else tells which one it is.
    """

    name: str
    base: str = ""
    label: str = ""
    told: bool = True
    kind: str = dataclasses.field(default="", compare=False)
    number: int = dataclasses.field(default=-1, compare=False)
    traits: Traits = dataclasses.field(default=Traits(), compare=False)


class Ordered(NamedTuple):
    """A value in the order in which Keras lists those of a layer.

    Attributes:
        name: its canonical name.
        path: what the variable itself is called, ``bidirectional/forward_lstm/lstm_cell/kernel``;
            ``""`` where that is not known.
    """

    name: str
    path: str = ""


class Dataset(NamedTuple):
    """What an iterator takes its elements from.

    Attributes:
        elements: their types and shapes, as text to compare.
        size: how many; -1 without an end, -2 where that is not known, as TensorFlow has it.
        fingerprint: of what it is made of, ``""`` where that is not known.
    """

    elements: str
    size: int
    fingerprint: str


@dataclasses.dataclass(frozen=True, slots=True)
class Root:
    """An object that was given to a checkpoint, by what its names begin with.

    Attributes:
        component: the first component of its names: its keyword, or ``model`` for a lone model.
        kind: ``model`` or ``optimizer`` for one of Keras's, ``""`` for anything else.
        parts: the next components, of a live object: its layers or attributes.
    """

    component: str
    kind: str = ""
    parts: frozenset[str] = dataclasses.field(default=frozenset(), compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Canonical name → value, and the structure that names alone do not tell.

    Attributes:
        source: where it comes from, for messages: a prefix, or ``the live objects``.
        entries: by canonical name, in the order of the objects.
        stacks: canonical path of each functional or sequential model, and of each list or dict of
            layers → its layers that hold weights.
        aliases: canonical path by which an object is also reached → its canonical path.
        optimizers: canonical path of each optimizer → its class in snake case (``adam``), ``""``
            where it is not known.
        complete: whether the writer saved everything (a commit record of tfckpt's says so); in
            others, seeds and metrics may be absent without anyone's fault.
        roots: keyword (``""`` for the root object) → what was given under it, where that is known.
        left_out: canonical name of what there was and is not among the entries → why.
        own_orders: canonical path of a layer → its own values, in the order in which Keras 3 writes
            them; for an optimizer likewise. Some files tell no more of a value than its place.
        deep_orders: canonical path of a layer → its values and those of all layers in it, in the
            order in which Keras 2 writes them.
        members: canonical path of a model that is no stack → its layers as Keras lists them, each
            by its path.
        listed: of the stored ``stacks``, those that are what Keras lists of a model, be it a stack
            or not.
        unordered: the stacks whose layers' order the file does not tell; that of the layers of one
            class among themselves may be told all the same, by their automatic names.
        lists: of the live ``stacks``, the lists: nothing but an index tells what is in those.
        labels: canonical path of a layer that an attribute names → the name that it was given.
        private: canonical path → the attribute, for those that begin with an underscore, which the
            path leaves out; None where that is not known.
        varying: canonical name of a live variable that was made with an unknown shape → that shape,
            None for an unknown size, None in all where the rank is unknown.
        datasets: canonical name of an iterator → its data set, where that is known.
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
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    private: Mapping[str, str] | None = None
    varying: Mapping[str, tuple[int | None, ...] | None] = dataclasses.field(
        default_factory=dict, compare=False
    )
    datasets: Mapping[str, Dataset] = dataclasses.field(default_factory=dict, compare=False)

    def takes(self, name: str, shape: Shape | None) -> bool:
        """Whether a live variable can hold a value of a shape other than that of its own value.

        >>> summary = Entry("summary", Role.WEIGHT, "float32", (2, 0))
        >>> inventory = Inventory("here", {"summary": summary}, varying={"summary": (2, None)})
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

    def __repr__(self) -> str:
        many = len(self.entries)
        return f"<Inventory: {many:,} value{'s' * (many != 1)} of {self.source!r}>"

    def find(self, name: str) -> Entry | None:
        """The value of that name, or that is also reached by that name.

        >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
        >>> inventory = Inventory("here", {kernel.name: kernel}, aliases={"model/tied": "model/a"})
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
    """One checkpoint of an average.

    Attributes:
        path: as it was written.
        sha256: what identifies its content, in hexadecimal.
        weight: what it counts; those of all members are 1 together.
    """

    path: str
    sha256: str
    weight: float


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where values come from, and by which policy.

    Attributes:
        path: as it was written.
        sha256: what identifies its content, in hexadecimal.
        policy: its name.
        policy_sha256: digest of what it says.
        average: of what it is the average, () for a checkpoint that is restored as it is.
    """

    path: str
    sha256: str
    policy: str
    policy_sha256: str
    average: tuple[Share, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Restored:
    """One restore that values come from.

    Attributes:
        sources: each with what identifies it, and the policy.
        counts: status → how many values of the plan had it.
    """

    sources: tuple[Origin, ...]
    counts: Mapping[str, int]


def rebased(name: str, heads: Mapping[str, str]) -> str | None:
    """The name with the longest of its beginnings that ``heads`` has replaced, None if it has none.

    >>> rebased("model/a/kernel", {"model": "student", "model/a": "teacher/b"})
    'teacher/b/kernel'
    """
    end = len(name)
    while end > 0:
        if (head := heads.get(name[:end])) is not None:
            return head + name[end:]
        end = name.rfind("/", 0, end)
    return None
