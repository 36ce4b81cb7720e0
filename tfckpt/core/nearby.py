"""Paths like one that leads nowhere: what was perhaps meant by it.

Looked for are a component spelt a little otherwise, one component less or more, and the same
relative path seen from another working directory. What differs in its digits alone is another run,
not a misspelt one. Very large directories are looked at in part.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SHOWN = 3
_CLOSE = 0.75
_ABOVE = 4
_NAMES = 2000
_PROBED = 20


def nearby(
    path: str, names_in: Callable[[str], Sequence[str]], accepted: Callable[[str], bool]
) -> list[str]:
    """The paths like a given one that are accepted, the likeliest first.

    Args:
        path: the one that leads nowhere.
        names_in: the names in a directory, none where there is no such directory.
        accepted: whether a path would have been right.

    >>> there = {"": ["runs"], "runs": ["digits", "notes"]}
    >>> nearby("run/digits", lambda path: there.get(path, []), "runs/digits".__eq__)
    ['runs/digits']
    """
    found: dict[str, str] = {}
    for one in _alike(path.rstrip("/"), names_in):
        place = os.path.realpath(one)  # links are no other place
        if place != os.path.realpath(path) and place not in found and accepted(one):
            found[place] = one
            if len(found) == _SHOWN:
                break
    return list(found.values())


def _alike(path: str, names_in: Callable[[str], Sequence[str]]) -> Iterator[str]:
    root, parts = _split(path)
    if not parts:
        return
    for place in reversed(range(max(len(parts) - _ABOVE, 0), len(parts))):
        above, name = root + "/".join(parts[:place]), parts[place]
        for close in _close(name, names_in(above)):
            yield root + "/".join([*parts[:place], close, *parts[place + 1 :]])
    if len(parts) > 1:
        yield os.path.split(path)[0]
    yield from (f"{path}/{name}" for name in sorted(names_in(path))[:_PROBED])
    if not root:
        yield from (f"{'../' * up}{path}" for up in range(1, _ABOVE))
        yield from (f"{name}/{path}" for name in sorted(names_in(""))[:_PROBED])


def _split(path: str) -> tuple[str, list[str]]:
    """What a path begins with that is no name, ``/`` or ``gs://bucket/``, and its names."""
    root = re.match(r"[^/]*://[^/]*/?|/*", path)
    start = root.end() if root else 0
    return path[:start], [part for part in path[start:].split("/") if part]


def _close(name: str, names: Sequence[str]) -> list[str]:
    import difflib  # only where something was not found

    stem = numberless(name)
    others = [one for one in names[:_NAMES] if numberless(one) != stem]
    return difflib.get_close_matches(name, others, _SHOWN, _CLOSE)


def numberless(name: str) -> str:
    """What the names of several runs have in common.

    >>> numberless("run_12"), numberless("run_")
    ('run_', 'run_')
    """
    return re.sub("[0-9]+", "", name)
