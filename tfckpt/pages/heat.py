"""Colors for how far something has moved: seven steps of a logarithmic scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tfckpt.pages.shell import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS = 7
_DECADES = 4.0  # below the greatest; what moved less has the first color


class Heat:
    """The scale of a page: its colors go from the least change of a layer to the greatest.

    A single value may be beyond both, a bias that began at zero far beyond, and has the last color.

    >>> heat = Heat([0.001, 0.1])
    >>> heat.hue(0.1), heat.hue(0.01), heat.hue(0.001), heat.hue(0.0), heat.hue(None)
    ('heat6', 'heat3', 'heat0', 'heat0', 'grey')
    """

    def __init__(self, changes: Iterable[float]) -> None:
        known = [change for change in changes if change > 0 and math.isfinite(change)]
        self.greatest = max(known, default=1.0)
        self.least = max(min(known, default=1.0), self.greatest / 10**_DECADES)

    def hue(self, change: float | None) -> str:
        """The CSS class of its color."""
        if change is None:
            return "grey"
        if change < self.least:
            return "heat0"
        if change >= self.greatest:
            return f"heat{_STEPS - 1}"
        share = math.log(change / self.least) / math.log(self.greatest / self.least)
        return f"heat{min(round(share * (_STEPS - 1)), _STEPS - 1)}"

    def cell(self, change: float | None) -> str:
        """A cell of a table, on its color."""
        if change is None:
            return ""
        return f'<span class="heat-cell {self.hue(change)}">{percent(change)}</span>'

    def legend(self, before: str) -> str:
        """What the colors mean; ``before`` is what the norm of a difference is divided by."""
        if self.least == self.greatest:
            return ""
        least, greatest = (
            percent(float(f"{change:.2g}")) for change in (self.least, self.greatest)
        )
        shown = "".join(f'<i class="heat{step}"></i>' for step in range(_STEPS))
        return (
            f'<p class="legend"><span>{least} or less</span>{shown}<span>{greatest} or more</span>'
            f"change: norm of the difference over {before}</p>"
        )


def parents(name: str) -> str:
    """The layer that a value belongs to; itself at the top.

    >>> parents("model/encoder/dense/kernel"), parents("step")
    ('model/encoder/dense', 'step')
    """
    return name.rpartition("/")[0] or name
