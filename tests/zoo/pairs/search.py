"""A search by random pairs of models: how each way to restore fared, and what was wrong."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from zoo.pairs.build import NotAModelError
from zoo.pairs.cases import Case, case
from zoo.pairs.verdicts import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 12


@dataclasses.dataclass
class Search:
    """What was found.

    Attributes:
        flavours: the modules, by what a case calls them.
        number: how many pairs were tried.
        words: for each way to restore, how often it came to what.
        wrong: way, what became of it and the first edit → the smallest pair of which that is so.
    """

    flavours: Mapping[str, Any]
    number: int = 0
    words: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    wrong: dict[tuple[str, str, str], tuple[Case, Verdict]] = dataclasses.field(
        default_factory=dict
    )
    counts: Counter[tuple[str, str, str]] = dataclasses.field(default_factory=Counter)

    def run(self, number: int, start: int) -> Search:
        """Try so many pairs, the same ones for the same start."""
        names = itertools.cycle(self.flavours)
        for at in itertools.count(start):
            if self.number == number:
                return self
            self.take(case(next(names), at))
        raise AssertionError

    def take(self, pair: Case) -> None:
        try:
            verdicts = judge(pair, self.flavours[pair.flavour])
        except NotAModelError:
            return
        self.number += 1
        for verdict in verdicts:
            self.words[verdict.route, verdict.word] += 1
            if verdict.wrong:
                key = verdict.route, verdict.word, (*pair.edits, "none")[0]
                self.counts[key] += 1
                if key not in self.wrong or pair.size < self.wrong[key][0].size:
                    self.wrong[key] = pair, verdict

    def shares(self) -> str:
        """One line for each way to restore."""
        lines = []
        for route in dict.fromkeys(route for route, _ in self.words):
            found = {word: n for (other, word), n in self.words.items() if other == route}
            shown = ", ".join(f"{word} {n / self.number:.1%}" for word, n in sorted(found.items()))
            lines.append(f"  {route}: {shown}")
        return "\n".join([f"{self.number} pairs of models", *lines])

    def faults(self) -> str:
        """What was wrong without a word, each sort once, by the smallest pair; "" for nothing."""
        found = sorted(self.wrong.items(), key=lambda item: item[1][0].size)
        return "\n".join(
            f"{self.counts[key]} × {' / '.join(key)}: {verdict.why}\n    {pair}"
            for key, (pair, verdict) in found[:_SHOWN]
        )
