"""Suggests existing paths similar to one that does not exist.

It looks for a component spelled slightly differently, one component less or more, and the same
relative path from another working directory. Names that differ only in digits are other runs, not
misspellings. Only the first entries of a very large directory are compared.
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
    """Paths similar to ``path`` that ``accepted`` is true for, the most similar first.

    ``names_in`` lists the names in a directory, and is empty for one that does not exist.

    >>> there = {"": ["runs"], "runs": ["digits", "notes"]}
    >>> nearby("run/digits", lambda path: there.get(path, []), "runs/digits".__eq__)
    ['runs/digits']
    """
    similar: dict[str, str] = {}
    for candidate in _candidates(path.rstrip("/"), names_in):
        real = os.path.realpath(candidate)  # a link to the same path is not another one
        if real != os.path.realpath(path) and real not in similar and accepted(candidate):
            similar[real] = candidate
            if len(similar) == _SHOWN:
                break
    return list(similar.values())


def _candidates(path: str, names_in: Callable[[str], Sequence[str]]) -> Iterator[str]:
    root, parts = _split(path)
    if not parts:
        return
    for index in reversed(range(max(len(parts) - _ABOVE, 0), len(parts))):
        above, name = root + "/".join(parts[:index]), parts[index]
        for close in _close(name, names_in(above)):
            yield root + "/".join([*parts[:index], close, *parts[index + 1 :]])
    if len(parts) > 1:
        yield os.path.split(path)[0]
    yield from (f"{path}/{name}" for name in sorted(names_in(path))[:_PROBED])
    if not root:
        yield from (f"{'../' * up}{path}" for up in range(1, _ABOVE))
        yield from (f"{name}/{path}" for name in sorted(names_in(""))[:_PROBED])


def _split(path: str) -> tuple[str, list[str]]:
    """The root of a path, ``/`` or ``gs://bucket/`` or ``""``, and its components."""
    root = re.match(r"[^/]*://[^/]*/?|/*", path)
    start = root.end() if root else 0
    return path[:start], [part for part in path[start:].split("/") if part]


def _close(name: str, names: Sequence[str]) -> list[str]:
    import difflib  # imported only when something was not found

    stem = numberless(name)
    others = [each for each in names[:_NAMES] if numberless(each) != stem]
    return difflib.get_close_matches(name, others, _SHOWN, _CLOSE)


def numberless(name: str) -> str:
    """The name without its digits, which is the same for several runs.

    >>> numberless("run_12"), numberless("run_")
    ('run_', 'run_')
    """
    return re.sub("[0-9]+", "", name)
