"""``adapt`` rules for weights that another library keeps in another shape.

A dense kernel is (out, in) in PyTorch, that of a convolution (out, in, rows, columns). Keras's
attention keeps an axis of heads, which others have merged with that of features.
"""

from __future__ import annotations

import itertools
import operator
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.selectors import REGEX
from tfckpt.planning.suggestion.fewest_rules import selectors
from tfckpt.planning.suggestion.words import last_word, template

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tfckpt.core.inventory import Entry, Inventory, Shape

    Axes = tuple[int, ...]

# By the variable and its rank, as PyTorch's layers differ from Keras's.
_AXES = {
    ("kernel", 2): (1, 0),
    ("kernel", 3): (2, 1, 0),
    ("kernel", 4): (2, 3, 1, 0),
    ("kernel", 5): (2, 3, 4, 1, 0),
    ("depthwise_kernel", 3): (2, 0, 1),
    ("depthwise_kernel", 4): (2, 3, 0, 1),
}
# What libraries of either order call a kernel; those that say `kernel` have Keras's.
_EITHER_WAY = "weight"
_DIGITS = re.compile("[0-9]+")


class Adapting(NamedTuple):
    """What is to be adapted.

    Attributes:
        rules: as in a policy.
        either_way: live names of kernels that fit transposed too, and no other shows the order.
    """

    rules: list[dict[str, Any]]
    either_way: list[str]


def merges(old: Shape, new: Shape) -> bool:
    """Whether one has two neighboring axes of the other as one, or is a row of it.

    >>> merges((8, 8), (8, 2, 4)), merges((6, 8), (2, 3, 8)), merges((8, 8), (4, 8, 2))
    (True, True, False)
    >>> merges((1, 8), (8,))
    True
    """
    short, long = sorted((old, new), key=len)
    if len(short) == 1 and long == (1, *short):
        return True
    if len(long) - len(short) != 1 or min(long, default=0) < 2:
        return False
    ends = [set(itertools.accumulate(shape, operator.mul)) for shape in (short, long)]
    return max(ends[0], default=0) == max(ends[1]) and ends[0] < ends[1]


def is_table_of_words(old: Entry, new: Entry) -> bool:
    """Whether both are embeddings that differ in their rows alone."""
    shapes = [entry.shape or () for entry in (old, new)]
    same = len(shapes[0]) == 2 and shapes[0] != shapes[1] and shapes[0][1:] == shapes[1][1:]
    return same and last_word(new.name) == "embeddings"


def adapting(
    pairs: Mapping[str, str], stored: Inventory, live: Inventory, *, transposed: bool = False
) -> Adapting:
    """What makes the stored values of the pairs fit the live ones; no rules if nothing does."""
    shapes = {
        new: (stored.entries[old].shape or (), live.entries[new].shape or ())
        for old, new in pairs.items()
        if new in live.entries  # not if it is an index
    }
    groups: dict[tuple[str, Axes], dict[str, Shape]] = {}
    for old, new in pairs.items():
        shape = shapes[new][0] if new in shapes else ()
        if axes := _AXES.get((last_word(new), len(shape))):
            turned = groups.setdefault((last_word(old), axes), {})
            turned[new] = tuple(shape[axis] for axis in axes)
    found = Adapting([], [])
    for (word, axes), turned in groups.items():
        if not all(_becomes(shape, shapes[name][1]) for name, shape in turned.items()):
            continue
        either_way = all(_becomes(*shapes[name]) for name in turned)
        if either_way and word == _EITHER_WAY:
            found.either_way.extend(turned)
        if transposed if either_way and word == _EITHER_WAY else not either_way:
            rule = {"how": "transpose"} | ({"axes": list(axes)} if len(axes) > 2 else {})
            found.rules.extend(rules_for(turned, live, rule))
            shapes |= {name: (shape, shapes[name][1]) for name, shape in turned.items()}
    merged = {name for name, (old, new) in shapes.items() if merges(old, new)}
    found.rules.extend(rules_for(merged, live, {"how": "reshape"}))
    return found


def _becomes(old: Shape, new: Shape) -> bool:
    return old == new or merges(old, new)


def rules_for(
    names: Collection[str], live: Inventory, rule: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The rule for some live values, with as few selectors as can be."""
    others = live.entries.keys() - names
    words = {name.rpartition("/")[2] for name in names}
    if any(other.rpartition("/")[2] in words for other in others):
        texts = _numbered(selectors(names, others), others)
    else:  # nothing else has these names
        texts = [f"**/{word}" for word in sorted(words)]
    return [{"model": text, **rule} for text in texts]


def _numbered(texts: Iterable[str], others: Collection[str]) -> list[str]:
    """One selector for scopes that differ in their numbers alone."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(template(text), []).append(text)
    found = []
    for each in groups.values():
        pattern = _DIGITS.sub(r"\\d+", re.escape(each[0].removesuffix("**")))
        pattern += ".*" * each[0].endswith("/**")
        if len(each) == 1 or any(re.fullmatch(pattern, other) for other in others):
            found += each
        else:
            found.append(REGEX + pattern)
    return found
