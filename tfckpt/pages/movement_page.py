"""The page of several checkpoints: how far each layer has moved, from step to step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfckpt.core.text import size
from tfckpt.pages.heat import Heat, parents
from tfckpt.pages.shell import Page, counted, facts, passed_over, title_of
from tfckpt.pages.value_table import Column, ValueRow, ValueTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfckpt.tools.movement import MovedValue, Movement

    Distances = Callable[[MovedValue], Sequence[float | None]]


def movement_page(found: Movement) -> Page:
    """The page for the movement over several checkpoints."""
    first, last = found.checkpoints[0][0], found.checkpoints[-1][0]
    return Page("Movement", f"{title_of(first)} … {title_of(last)}", list(_body(found)))


def _body(found: Movement) -> Iterator[str]:
    names = [title_of(path) for path, _ in found.checkpoints]
    steps = [step for _, step in found.checkpoints]
    by_step = None not in steps and len(set(steps)) == len(steps)
    labels = [f"{step:,}" if by_step else name for step, name in zip(steps, names, strict=True)]
    yield facts(
        [
            ("checkpoints", f"{len(names):,}"),
            ("weights", counted(len(found.values), "value")),
            ("first", found.checkpoints[0][0]),
            ("last", found.checkpoints[-1][0]),
        ]
    )
    yield from passed_over(found.rejected.values())
    what = "step" if by_step else "checkpoint"
    yield (
        f'<p class="quiet">A row is a layer, a column a {what}. A cell says how far the weights '
        "have moved, as a share of their norm. Open a layer to see its "
        "values; click a column to sort by it.</p>"
    )
    yield "<h2>Since the checkpoint before</h2>"
    yield from _Grid(found, labels, what, lambda one: one.from_previous, first=False).render()
    yield "<h2>Since the first</h2>"
    yield from _Grid(found, labels, what, lambda one: one.from_first, first=True).render()


class _Grid:
    """One heat map: layers by checkpoints."""

    def __init__(
        self,
        found: Movement,
        labels: Sequence[str],
        what: str,
        distances: Distances,
        *,
        first: bool,
    ) -> None:
        self._values = {value.name: value for value in found.values}
        self._labels, self._what = labels[1:], what
        self._distances, self._from_first = distances, first
        self._prefix = "first:" if first else ""
        layers: dict[str, list[MovedValue]] = {}
        for value in found.values:
            layers.setdefault(parents(value.name), []).append(value)
        changes = [self._changes(layer) for layer in layers.values()]
        self._heat = Heat(change for row in changes for change in row if change is not None)

    def _changes(self, values: Sequence[MovedValue]) -> list[float | None]:
        """How far several values have moved as if they were one, in each checkpoint."""
        result: list[float | None] = []
        for column in range(1, len(self._labels) + 1):
            moved = norm = 0.0
            known = False
            for value in values:
                distance = self._distances(value)[column]
                base = value.norms[0 if self._from_first else column - 1]
                if distance is not None and base is not None:
                    moved, norm, known = moved + distance**2, norm + base**2, True
            result.append(math.sqrt(moved / norm) if known and norm else None)
        return result

    def _cells(self, values: Sequence[MovedValue]) -> list[str]:
        total = sum(value.nbytes for value in values)
        return [*(self._heat.cell(change) for change in self._changes(values)), size(total)]

    def render(self) -> Iterator[str]:
        yield self._heat.legend("the norm in the first" if self._from_first else "the norm before")
        columns = [*(Column(label, "number") for label in self._labels), Column("size", "bytes")]
        rows = [
            ValueRow(value.name, self._cells([value]), value.nbytes, (), "blue")
            for value in self._values.values()
        ]

        def summary(group: Sequence[ValueRow]) -> list[str]:
            return self._cells([self._values[row.name] for row in group])

        head = f"layer ↓ {self._what} →"
        table = ValueTable(columns, rows, (), summary, head=head, prefix=self._prefix, is_wide=True)
        yield from table.render()
