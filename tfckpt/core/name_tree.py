"""The values of an inventory as a tree of their names, with totals for each subtree.

Optionally, subtrees that differ only in an index of their name, like the blocks of a transformer,
are shown once. A parent with one child and no value of its own shares its line. Siblings whose
names differ in a number are sorted by it, whatever their order in the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING

from tfckpt.core.text import collapse, natural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tfckpt.core.inventory import Entry

# Deeper names are not split further: names come from files, and the tree is walked recursively.
_MAX_DEPTH = 100
_NUMBER = re.compile(r"[0-9]+")
_MAX_DIGITS = 18


@dataclasses.dataclass(slots=True)
class Branch:
    """A full name (``""`` for the root), its value if there is one, and its children.

    ``count`` and ``nbytes`` are totals of the branch and everything below it.
    """

    name: str
    entry: Entry | None = None
    children: dict[str, Branch] = dataclasses.field(default_factory=dict)
    count: int = 0
    nbytes: int = 0


@dataclasses.dataclass(slots=True)  # creating a frozen one takes three times as long
class TreeRow:
    """A line of a tree: a value, or a subtree, whose ``entry`` is None.

    ``label`` is the part of the name below its parent row, ``block_{0…11}``; ``name`` is the full
    name, of the first if the row stands for several. ``count`` and ``nbytes`` are their totals.
    """

    depth: int
    label: str
    name: str
    entry: Entry | None
    count: int
    nbytes: int


def tree(entries: Iterable[Entry]) -> Branch:
    """The root of the tree of the values.

    >>> from tfckpt.core.inventory import Entry, Role
    >>> root = tree(Entry(f"model/{n}/kernel", Role.WEIGHT, "float32", (2,), 8) for n in "ab")
    >>> list(root.children["model"].children), root.nbytes
    (['a', 'b'], 16)
    """
    root = Branch("")
    parents = {"": root}  # by name with its slash; each after its own parent
    for entry in entries:
        head, slash, part = entry.name.rpartition("/")
        if (parent := parents.get(head + slash)) is None:
            *above, part = entry.name.split("/", _MAX_DEPTH)
            parent = _parent(parents, above)
        if (branch := parent.children.get(part)) is None:
            branch = parent.children[part] = Branch(entry.name)
        branch.entry = entry
        branch.count += 1
        branch.nbytes += entry.nbytes
    for parent in reversed(parents.values()):
        children = parent.children
        parent.count += sum([child.count for child in children.values()])
        parent.nbytes += sum([child.nbytes for child in children.values()])
        if len(children) > 1:
            parent.children = {part: children[part] for part in _numbered(children)}
    return root


def _parent(parents: dict[str, Branch], parts: Iterable[str]) -> Branch:
    """The branch that parts of a name lead to, with all that are new on the way to it."""
    path, branch = "", parents[""]
    for part in parts:
        name, path = path + part, f"{path}{part}/"
        if (child := branch.children.get(part)) is None:
            child = branch.children[part] = Branch(name)
        branch = parents.setdefault(path, child)
    return branch


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """The values in the order of their tree, for a list of full names."""
    values, todo = [], [tree(entries)]
    while todo:
        branch = todo.pop()
        if branch.entry is not None:
            values.append(branch.entry)
        todo.extend(reversed(branch.children.values()))
    return values


def _numbered(parts: Collection[str]) -> Iterable[str]:
    """The parts; those that differ only in numbers are sorted by these."""
    if _are_indices(parts):
        return sorted(sorted(parts), key=int)
    order = [_NUMBER.sub("0", part) for part in parts]
    families: dict[str, list[str]] = {}
    for family, part in zip(order, parts, strict=True):
        families.setdefault(family, []).append(part)
    rest = {family: iter(sorted(names, key=natural)) for family, names in families.items()}
    return (next(rest[family]) for family in order)


def _are_indices(parts: Collection[str]) -> bool:
    """Whether all are numbers, as in a long list."""
    numbers = all(map(str.isdecimal, parts)) and "".join(parts).isascii()
    return numbers and max(map(len, parts)) <= _MAX_DIGITS


def rows(root: Branch, *, fold: bool) -> Iterator[TreeRow]:
    """The lines of a tree, parents first; ``fold`` shows subtrees that are alike as one row."""
    yield from _Rows(fold=fold).below(root, 0, 1)


class _Rows:
    def __init__(self, *, fold: bool) -> None:
        self._fold = fold
        self._kinds: dict[object, int] = {}

    def below(self, branch: Branch, depth: int, times: int) -> Iterator[TreeRow]:
        for label, child, alike in self._siblings(branch):
            many, node, text = times * alike, child, label
            if not node.children:
                yield TreeRow(depth, text, node.name, node.entry, many, node.nbytes * many)
                continue
            while node.entry is None and len(node.children) == 1:
                ((part, node),) = node.children.items()
                text = f"{text}/{part}"
            if node.children:
                yield TreeRow(depth, text, node.name, None, node.count * many, node.nbytes * many)
                yield from self.below(node, depth + 1, many)
            if node.entry is not None:
                yield TreeRow(depth, text, node.name, node.entry, many, node.entry.nbytes * many)

    def _siblings(self, branch: Branch) -> Iterable[tuple[str, Branch, int]]:
        """Label, first subtree and number of subtrees of each group that is alike."""
        if not self._fold:
            return zip(branch.children, branch.children.values(), itertools.repeat(1))
        alike: dict[int, list[str]] = {}
        for part, child in branch.children.items():
            alike.setdefault(self._kind(child), []).append(part)
        blocks = {block.first: block for parts in alike.values() for block in collapse(parts)}
        named = ((blocks.get(part), child) for part, child in branch.children.items())
        return [(block.text, child, block.count) for block, child in named if block is not None]

    def _kind(self, branch: Branch) -> int:
        """A number that is equal for subtrees that differ only in the name of their root."""
        entry = branch.entry
        own = entry and (entry.role, entry.dtype, entry.shape, entry.nbytes, entry.slot)
        below = tuple((part, self._kind(child)) for part, child in branch.children.items())
        return self._kinds.setdefault((own, below), len(self._kinds))
