"""Selectors for values that nothing fits: as few as can be, and none that selects another value."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from tfckpt.core.selectors import exactly

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def selectors(names: Collection[str], others: Collection[str]) -> list[str]:
    """Selectors that match all of some names, and none of the others.

    >>> selectors({"model/head/kernel", "model/head/bias", "step"}, {"model/body/kernel"})
    ['model/head/**', 'step']
    """
    ordered, rest = sorted(others), sorted(names)
    found: list[str] = []
    covered = ""
    for name in rest:
        if covered and name.startswith(covered):
            continue
        covered = _scope(name, ordered)
        found.append(f"{exactly(covered)}**" if covered else exactly(name))
    return found


def _scope(name: str, others: Sequence[str]) -> str:
    """The shortest scope of a name that none of the others is in, with its slash."""
    end = name.find("/")
    while end != -1:
        scope = name[: end + 1]
        index = bisect_left(others, scope)
        if index == len(others) or not others[index].startswith(scope):
            return scope
        end = name.find("/", end + 1)
    return ""
