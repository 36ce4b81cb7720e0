"""A search by random pairs of models: how each way to restore fared, and what was wrong."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, reject, seed, settings

from zoo.pairs.build import NotAModelError
from zoo.pairs.cases import Case, cases
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

        @seed(start)
        @settings(
            max_examples=number,
            database=None,
            phases=[Phase.generate],  # all that is wrong is collected; one of each is shown
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases())
        def each(case: Case) -> None:
            self.take(case)

        each()
        return self

    def take(self, case: Case) -> None:
        try:
            verdicts = judge(case, self.flavours[case.flavour])
        except NotAModelError:
            reject()
        self.number += 1
        for verdict in verdicts:
            self.words[verdict.route, verdict.word] += 1
            if verdict.wrong:
                key = verdict.route, verdict.word, (*case.edits, "none")[0]
                self.counts[key] += 1
                if key not in self.wrong or case.size < self.wrong[key][0].size:
                    self.wrong[key] = case, verdict

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
            f"{self.counts[key]} × {' / '.join(key)}: {verdict.why}\n    {case}"
            for key, (case, verdict) in found[:_SHOWN]
        )
