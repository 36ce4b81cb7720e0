"""Values as lines of text, in one line where the same is said of all values of a layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from tfckpt import Entry, Inventory

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SHUFFLED = "_all_variables/"  # Keras 3 exports a set of all variables, in no order


def described(entry: Entry) -> str:
    """``weight float32 4×2``."""
    slot = f" {entry.slot} of {entry.of}" if entry.of else ""
    return f"{entry.role}{slot} {typed(entry.dtype, entry.shape)}"


def typed(dtype: str, shape: Iterable[int] | None) -> str:
    if shape is None:
        return "object"
    return f"{dtype} {'×'.join(map(str, shape)) or 'scalar'}"


def live_lines(inventory: Inventory) -> list[str]:
    """Every live value in a line, and the classes of optimizers."""
    entries = inventory.entries
    lines = [f"{name} {described(entries[name])}" for name in ordered(entries)]
    return lines + [f"{path} is {kind}" for path, kind in sorted(inventory.optimizers.items())]


def stored_lines(inventory: Inventory, live: Inventory) -> list[str]:
    """The names of a checkpoint's values, and what they are called in it.

    A value that is as the live one, and is called so, is not shown; ``+`` and ``~`` stand before
    those that no live one is, or another one, ``-`` before those that it has not.
    """
    entries, lives, lines = inventory.entries, live.entries, list[tuple[str, str, str]]()
    entries = {n: e for n, e in entries.items() if not e.key.startswith(_SHUFFLED)}
    for name, entry in entries.items():
        key, kind = entry.key.removesuffix(_VALUE), described(entry)
        if name not in lives:
            lines.append((f"+ {name}", key, kind))
        elif kind != described(lives[name]):
            lines.append((f"~ {name}", key, kind))
        elif key != name:
            lines.append((name, key, ""))
    lines += [(f"- {name}", "", "") for name in lives.keys() - entries]
    both = inventory.optimizers.items() ^ live.optimizers.items()
    kinds = {path: inventory.optimizers.get(path, "not told") for path, _ in both}
    told = [f"{path} is {kind or 'not told'}" for path, kind in sorted(kinds.items())]
    return [*joined(lines), *told] or ["as live"]


def joined(lines: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """``a/{x,y} <- b/{1,2}`` for names below one path, with their sources, and what they are."""
    known = {name: (source, kind) for name, source, kind in lines}
    for _, group in groupby(ordered(known), lambda name: name.rpartition("/")[0]):
        names = list(group)
        ours, theirs = _braced(names), _braced([known[name][0] for name in names])
        kinds = [known[name][1] for name in names]
        kind = kinds[0] if len({*kinds}) == 1 else "; ".join(kinds)
        yield ours + (f" <- {theirs}" if theirs else "") + (f": {kind}" if kind else "")


def ordered(names: Iterable[str]) -> list[str]:
    """By name, numbers by their size."""
    return sorted(
        names, key=lambda name: [int(p) if p.isdigit() else p for p in re.split("([0-9]+)", name)]
    )


def sections(bodies: Mapping[str, list[str]]) -> list[str]:
    """Each list of lines once, below the titles of all that have it; or in what it is another.

    The first word of a title is a flavour; those of a flavour share a line.
    """
    titles: dict[tuple[str, ...], list[str]] = {}
    for title, body in bodies.items():
        titles.setdefault(tuple(body), []).append(title)
    lines, whole = list[str](), dict[str, tuple[str, ...]]()
    for body, same in titles.items():
        shown = min((_but(title, of, body) for title, of in whole.items()), key=len, default=[])
        if not shown or len(shown) > len(body) // 2:
            shown = whole[same[0]] = body
        heads = groupby((title.split(" ", 1) for title in same), lambda words: words[0])
        lines += ["", *(f"[{head} {' | '.join(rest for _, rest in of)}]" for head, of in heads)]
        lines += shown
    return lines[1:]


def _but(title: str, of: tuple[str, ...], body: tuple[str, ...]) -> list[str]:
    less = [f"without {line}" for line in of if line not in body]
    more = [f"with {line}" for line in body if line not in of]
    return [f"as [{title}], but", *less, *more]


def _braced(names: list[str]) -> str:
    if len({*names}) == 1:
        return names[0]
    paths = {name[: name.rfind("/") + 1] for name in names}
    path = paths.pop() if len(paths) == 1 else ""
    return f"{path}{{{','.join(name.removeprefix(path) for name in names)}}}"
