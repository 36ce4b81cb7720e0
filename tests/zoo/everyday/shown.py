"""The table as text, in 80 columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from zoo.everyday.judge import FIRST, FLAVOURS, PASTED, REFUSED, WRONG

if TYPE_CHECKING:
    from collections.abc import Mapping

    Cells = Mapping[tuple[str, str], str]


def table(cells: Cells) -> str:
    lines = [f"{'':34}" + "".join(f"{flavour:12}" for flavour in FLAVOURS)]
    for name in dict.fromkeys(name for name, _ in cells):
        row = (cells.get((name, flavour), "-") for flavour in FLAVOURS)
        lines.append(f"{name:34}" + "".join(f"{cell:12}" for cell in row))
    return "\n".join(line.rstrip() for line in lines)


def shares(cells: Cells) -> str:
    counts = Counter(cells.values())
    each = (f"{counts[word]} {word}" for word in (FIRST, PASTED, REFUSED, WRONG))
    first, either = counts[FIRST], counts[FIRST] + counts[PASTED]
    total = max(len(cells), 1)
    return (
        f"{len(cells)} restores: {', '.join(each)}; first try {first / total:.0%}, "
        f"first try or pasted {either / total:.0%}"
    )
