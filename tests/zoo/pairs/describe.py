"""A model as a value: what a person writes down, and which layer is whose after an edit.

Each layer has a number that no Keras object knows of, and which it keeps through every edit. So the
layer of the second model that has a number of the first is the same one, whatever it is called and
wherever it stands.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterator

WEIGHTY = ("dense", "conv", "batch_norm", "layer_norm", "separable", "prelu")
WEIGHTLESS = ("relu", "dropout")
MERGES = ("add", "subtract")
NESTS = ("sequential", "functional", "block", "net")
ATTRIBUTED = ("net", "block")
# What Keras calls a layer of each kind that has no name.
AUTOMATIC = {op: op for op in (*WEIGHTY, *WEIGHTLESS, *MERGES, *NESTS, "embedding")} | {
    "conv": "conv1d",
    "batch_norm": "batch_normalization",
    "layer_norm": "layer_normalization",
    "separable": "separable_conv1d",
    "prelu": "p_re_lu",
    "relu": "re_lu",
}
_NUMBERED = re.compile(rf"(?:{'|'.join(AUTOMATIC.values())})(?:_[0-9]+)?")


@dataclasses.dataclass
class Item:
    """A layer, or a model with layers inside."""

    op: str  # what it is, a key of AUTOMATIC
    uid: int
    name: str | None = None  # if one was given to it
    inputs: tuple[int, ...] = ()  # what feeds it in a functional model; () for the model's input
    attribute: str = ""  # where a subclassed model or layer keeps it
    form: str = "one"  # or it is in a `list` or a `dict` there
    key: str = ""  # in the dict
    # in the order in which they are made and, unless the model is functional, called
    inside: list[Item] = dataclasses.field(default_factory=list)
    outputs: tuple[int, ...] = ()  # of a functional model

    def __repr__(self) -> str:
        """As short as can be: these are printed where a test fails."""
        plain = Item(self.op, self.uid)
        told = {name: value for name, value in vars(self).items() if value != vars(plain)[name]}
        return f"{self.op}#{self.uid}({', '.join(f'{n}={value!r}' for n, value in told.items())})"


def walk(item: Item) -> Iterator[Item]:
    yield item
    for each in item.inside:
        yield from walk(each)


def leaves(item: Item) -> list[Item]:
    """The layers with weights of their own, in the order of the description."""
    return [each for each in walk(item) if each.op in (*WEIGHTY, "embedding")]


def copied(item: Item) -> Item:
    return dataclasses.replace(item, inside=[copied(each) for each in item.inside])


def next_uid(item: Item) -> int:
    return max(each.uid for each in walk(item)) + 1


def program(item: Item, unknown: Collection[str] | None = ()) -> Item:
    """What the person wrote: the description with numbers that tell no more than the order.

    Without the ``unknown`` names, all of them for None.
    """
    order = {each.uid: at for at, each in enumerate(walk(item))}
    plain = copied(item)
    for each in walk(plain):
        each.uid = order[each.uid]
        each.inputs = tuple(order[uid] for uid in each.inputs)
        each.outputs = tuple(order[uid] for uid in each.outputs)
        if unknown is None or each.name in unknown:
            each.name = None
    return plain


def _named_by_keras(item: Item, counts: Counter[str]) -> Item:
    """The description with the names that its layers get, in no order that Keras does not keep.

    ``counts`` go on.
    """
    done = copied(item)
    _name(done, counts)
    for each in walk(done):
        if each.op == "functional":
            each.inside.sort(key=lambda layer: str(layer.name))
        elif each.op in ATTRIBUTED:
            each.inside.sort(key=lambda layer: (layer.attribute, layer.form, layer.key))
    return done


def _name(item: Item, counts: Counter[str]) -> None:
    before = () if item.op in ATTRIBUTED else item.inside  # their layers are made before them
    for each in before:
        _name(each, counts)
    if item.name is None:
        item.name = generated(AUTOMATIC[item.op], counts)
    for each in item.inside if item.op in ATTRIBUTED else ():
        _name(each, counts)


def generated(base: str, counts: Counter[str]) -> str:
    """The next name of Keras's, which counts on."""
    counts[base] += 1
    return f"{base}_{counts[base] - 1}" if counts[base] > 1 else base


def _seen(item: Item) -> Item:
    """The description without names that Keras may have chosen, as far as its objects show.

    Those look automatic, at attributes or keys of their own, and so do all names beside them: if
    Keras has counted none of them in this process, its counts may have been reset since.
    """
    plain = copied(item)
    for parent in walk(plain):
        if parent.op in ATTRIBUTED:
            names = [parent.name, *(each.name for each in parent.inside)]
            judged = [name for name in names if name is None or _NUMBERED.fullmatch(name)]
            for each in parent.inside:
                if None not in judged and each.name in judged and each.form != "list":
                    each.name = None
    return plain


def _shared(item: Item, made: Item) -> set[str]:
    """The names that a person gave and that Keras generated for another layer."""
    given = Counter(each.name for each in walk(item) if each.name)
    names = Counter(each.name for each in walk(made))
    return {name for name, count in given.items() if names[name] > count}


def intended(
    old: Item, new: Item, unknown: Collection[str] | None, *, anew: bool
) -> dict[int, int]:
    """Layer of the second model → the layer of the first that it is.

    Where both were written with the same words, nobody could tell an edit from none; nor could a
    file without the ``unknown`` names (None for all) where the words differ in these alone. Nor
    could who sees the layers that Keras makes of the words, if the first ones would be the same
    again: it does not keep which names were given. Nor of two layers with one name, that Keras
    generated for the one and a person gave to the other, which is which.
    """
    counts: Counter[str] = Counter()
    if not anew:
        _named_by_keras(old, counts)
    made = [_named_by_keras(each, counts.copy()) for each in (old, new)]
    shared = _shared(old, made[0]) | _shared(new, made[1])
    if program(made[0]) == program(made[1]):
        old, new = made
    forgotten = None if unknown is None else {*unknown, *shared}
    as_seen = [program(_seen(each), forgotten) for each in (old, new)]
    if program(old, unknown) == program(new, unknown) or as_seen[0] == as_seen[1]:
        return {n.uid: o.uid for o, n in zip(leaves(old), leaves(new), strict=True)}
    known = {each.uid: each.op for each in leaves(old)}
    return {each.uid: each.uid for each in leaves(new) if known.get(each.uid) == each.op}
