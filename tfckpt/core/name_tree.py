"""The values of an inventory as a tree by their names, with sums for each subtree.

Subtrees that are alike but for the indices in their name, as the blocks of a transformer are, are
shown once where that is asked for. A parent with one child and no value of its own shares its line.
Siblings whose names differ in a number stand in its order, whatever the file's is.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfckpt.core.text import collapse, natural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tfckpt.core.inventory import Entry

# What is deeper stays in one piece: names come from files, and a tree is walked by recursion.
_MAX_DEPTH = 100
_NUMBER = re.compile(r"[0-9]+")


@dataclasses.dataclass(slots=True)
class Branch:
    """A name, the value of that name if there is one, and what is below it.

    Attributes:
        name: the whole of it, ``model/encoder``; ``""`` for the root.
        entry: the value of that name.
        children: by their last component, in the order of the values.
        count: how many values it and what is below it hold.
        nbytes: their size.
    """

    name: str
    entry: Entry | None = None
    children: dict[str, Branch] = dataclasses.field(default_factory=dict)
    count: int = 0
    nbytes: int = 0


@dataclasses.dataclass(slots=True)  # frozen, one takes three times as long to make
class TreeRow:
    """A line of a tree.

    Attributes:
        depth: how far it is indented; 0 for the first components.
        label: what it adds to the name of the row that it is under: ``block_{0…11}``.
        name: the whole name, of the first of those that are alike.
        entry: its value, None for a subtree.
        count: how many values all of these hold.
        nbytes: the size of all of these.
    """

    depth: int
    label: str
    name: str
    entry: Entry | None
    count: int
    nbytes: int


def tree(entries: Iterable[Entry]) -> Branch:
    """The root of the tree of these values.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> root = tree(Entry(f"model/{n}/kernel", Role.WEIGHT, "float32", (2,), 8) for n in "ab")
    >>> list(root.children["model"].children), root.nbytes
    (['a', 'b'], 16)
    """
    root = Branch("")
    for entry in entries:
        branch, nbytes = root, entry.nbytes
        for part in entry.name.split("/", _MAX_DEPTH):
            branch.count += 1
            branch.nbytes += nbytes
            if (child := branch.children.get(part)) is None:
                name = f"{branch.name}/{part}" if branch is not root else part
                child = branch.children[part] = Branch(name)
            branch = child
        branch.entry = entry
        branch.count += 1
        branch.nbytes += nbytes
    _number(root)
    return root


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """The values in the order of their tree, for a list of whole names."""
    found, todo = [], [tree(entries)]
    while todo:
        branch = todo.pop()
        if branch.entry is not None:
            found.append(branch.entry)
        todo.extend(reversed(branch.children.values()))
    return found


def _number(root: Branch) -> None:
    """Put siblings whose names differ in their numbers alone into the order of these."""
    todo = [root]
    while todo:
        branch = todo.pop()
        todo.extend(branch.children.values())
        if len(branch.children) > 1:
            branch.children = {part: branch.children[part] for part in _numbered(branch.children)}


def _numbered(parts: Collection[str]) -> Iterator[str]:
    families: dict[str, list[str]] = {}
    for part in parts:
        families.setdefault(_NUMBER.sub("0", part), []).append(part)
    rest = {family: iter(sorted(found, key=natural)) for family, found in families.items()}
    return (next(rest[_NUMBER.sub("0", part)]) for part in parts)


def rows(root: Branch, *, fold: bool) -> Iterator[TreeRow]:
    """The lines of a tree, parents before what is below them.

    Args:
        root: what :func:`tree` returned.
        fold: whether subtrees that are alike are one row.
    """
    yield from _Rows(fold=fold).below(root, 0, 1)


class _Rows:
    def __init__(self, *, fold: bool) -> None:
        self._fold = fold
        self._kinds: dict[object, int] = {}

    def below(self, branch: Branch, depth: int, times: int) -> Iterator[TreeRow]:
        for label, child, alike in self._siblings(branch):
            many, one, text = times * alike, child, label
            while one.entry is None and len(one.children) == 1:
                ((part, one),) = one.children.items()
                text = f"{text}/{part}"
            if one.children:
                yield TreeRow(depth, text, one.name, None, one.count * many, one.nbytes * many)
                yield from self.below(one, depth + 1, many)
            if one.entry is not None:
                yield TreeRow(depth, text, one.name, one.entry, many, one.entry.nbytes * many)

    def _siblings(self, branch: Branch) -> Iterator[tuple[str, Branch, int]]:
        """Label, the first of those that are alike, and how many those are."""
        if not self._fold:
            yield from ((part, child, 1) for part, child in branch.children.items())
            return
        alike: dict[int, list[str]] = {}
        for part, child in branch.children.items():
            alike.setdefault(self._kind(child), []).append(part)
        blocks = {block.first: block for parts in alike.values() for block in collapse(parts)}
        for part, child in branch.children.items():
            if (block := blocks.get(part)) is not None:
                yield block.text, child, block.count

    def _kind(self, branch: Branch) -> int:
        """Equal for subtrees that differ in nothing but the name at their top."""
        entry = branch.entry
        own = entry and (entry.role, entry.dtype, entry.shape, entry.nbytes, entry.slot)
        below = tuple((part, self._kind(child)) for part, child in branch.children.items())
        return self._kinds.setdefault((own, below), len(self._kinds))
