"""The search by random pairs of models without Keras: thousands of pairs in the time of one fit.

What tfckpt knows of either model is simulated (``objects``, ``object_graph``); the plans are
tfckpt's own. From the folder of the tests::

    python -m zoo.pairs.simulated 20000 1 tfckpt

tries so many pairs from a start, for one writer of the file or for both, and prints the shares, the
smallest pairs that were wrong, and programs that were refused although they are the same.

What it cannot judge: settings, shared layers, files of Keras, and two layers of a class without
names that only their connections tell apart, which no edit of ``zoo.pairs.edits`` exchanges.

``simulated.yaml`` has how many pairs of a range were restored when it was written, and the pairs
that are restored wrongly although something tells the layers apart. Of pairs that nobody has looked
at, one in thousands is wrong; of most of these, nothing in either model or in the file tells what a
user meant: a name given that is the one that Keras generated for another layer, say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfckpt.planning import Plan, make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy
from zoo.pairs.build import NotAModelError
from zoo.pairs.cases import Case, case
from zoo.pairs.describe import intended, leaves, program, walk
from zoo.pairs.object_graph import Written, written
from zoo.pairs.objects import Objects, Value, recorded

WRITERS = ("tfckpt", "tensorflow")
POLICIES = {"strict": Policy(), "partial": Policy(expect_partial=True)}
RIGHT, PART, REFUSED, MISPLACED = "right", "part", "refused", "misplaced"
_SHOWN = 5


class Verdict(NamedTuple):
    """Of one pair, writer and policy: a word, and what it is about."""

    word: str
    why: str = ""


class Pair:
    """Both models of a case, as tfckpt sees them.

    Raises:
        NotAModelError: Keras makes no model of a description.
    """

    def __init__(self, pair: Case) -> None:
        self.case = pair
        counts: Counter[str] = Counter()
        self._first = Objects(pair.first, counts, pair.flavour)
        self._second = Objects(pair.second, Counter() if pair.anew else counts, pair.flavour)
        # a layer of another class under a name that a layer had: it is open whose values it takes
        old = {each.uid for each in leaves(pair.first)}
        names = {each.name for each in walk(pair.first) if each.name}
        new = [each for each in leaves(pair.second) if each.uid not in old]
        self._open = {each.uid for each in new if each.name in names or each.attribute}

    def _file(self, writer: str) -> tuple[Written, Mapping[int, int]]:
        """What was saved, and where it is meant to go."""
        if writer == "tfckpt":
            file = Written(recorded(self._first.collected), self._first.whose, set())
            unknown: set[str] = set()
        else:
            file = written(self._first, self._second.collected)
            unknown = {each.name for each in walk(self.case.first) if each.name} - file.words
        return file, intended(self.case.first, self.case.second, unknown, anew=self.case.anew)

    def pasted(self, writer: str) -> Verdict:
        """What comes of the policy that a refusal suggests; REFUSED if it suggests none."""
        file, meant = self._file(writer)
        found = suggest(POLICIES["strict"], file.inventory, self._second.collected)
        if found is None or found.plan is None:
            return Verdict(REFUSED)
        return self._verdict(found.plan, file.whose, meant)

    def judge(self, writer: str) -> dict[str, Verdict]:
        """What each policy makes of a file of the first model."""
        (file, meant), live = self._file(writer), self._second.collected
        plans = {name: make_plan(each, file.inventory, live) for name, each in POLICIES.items()}
        return {name: self._verdict(plan, file.whose, meant) for name, plan in plans.items()}

    def _verdict(self, plan: Plan, whose: Mapping[str, Value], meant: Mapping[int, int]) -> Verdict:
        if not plan.ok:
            reasons = [*(step.reason for step in plan.errors), *map(str, plan.problems)]
            return Verdict(REFUSED, next(iter(reasons)))
        values = self._second.whose
        wanted = {v: v._replace(uid=meant.get(v.uid, -1)) for v in values.values()}
        got = {
            values[step.name]: whose.get(step.source)
            for step in plan.assignments
            if step.name in values
        }
        misplaced = [
            f"{value.uid}/{value.name} has {source and f'{source.uid}/{source.name}'}"
            for value, source in got.items()
            if value.uid not in self._open and source != wanted[value]
        ]
        if misplaced:
            return Verdict(MISPLACED, ", ".join(misplaced))
        held = {*whose.values()}
        left = [f"{v.uid}/{v.name}" for v in wanted if v not in got and wanted[v] in held]
        return Verdict(PART, ", ".join(left)) if left else Verdict(RIGHT)


@dataclasses.dataclass
class Search:
    """What was found with files of one writer."""

    writer: str
    number: int = 0  # of pairs tried
    restored: Counter[str] = dataclasses.field(default_factory=Counter)  # by policy
    wrong: dict[int, str] = dataclasses.field(default_factory=dict)  # number of a pair → how
    refused: dict[int, str] = dataclasses.field(default_factory=dict)  # although it is the same

    def take(self, at: int, pair: Pair) -> None:
        self.number += 1
        first, second = pair.case.first, pair.case.second
        same = program(first) == program(second) and self.writer == "tfckpt" and leaves(first)
        for policy, (word, why) in pair.judge(self.writer).items():
            told = f"{at}: {policy}: {word}, {why}\n    {pair.case}"
            self.restored[policy] += word in (RIGHT, PART)
            # with no error, no value may be left as it was, unless it is asked for
            if word == MISPLACED or (word == PART and policy == "strict"):
                self.wrong[at] = told
            if same and word == REFUSED:
                self.refused[at] = told

    def __str__(self) -> str:
        return f"{self.number} pairs, saved by {self.writer}; restored: {dict(self.restored)}"


def pairs(start: int, number: int) -> Iterator[tuple[int, Pair]]:
    """So many pairs that Keras makes models of, from a number on, each with its number."""
    for at in itertools.count(start):
        if number == 0:
            return
        with contextlib.suppress(NotAModelError):
            yield at, Pair(case(at))
            number -= 1


def search(
    found: Iterable[tuple[int, Pair]], writers: Sequence[str] = WRITERS
) -> dict[str, Search]:
    """Writer → what became of the pairs."""
    searches = {writer: Search(writer) for writer in writers}
    for at, pair in found:
        for writer, each in searches.items():
            if writer == "tfckpt" or pair.case.shown:
                each.take(at, pair)
    return searches


def _main(number: str, start: str, *writers: str) -> None:
    for each in search(pairs(int(start), int(number)), writers or WRITERS).values():
        print(each)
        for title, found in (("wrong", each.wrong), ("refused, though the same", each.refused)):
            print(f"{len(found)} {title}: {', '.join(map(str, found))}")
            print("\n".join(sorted(found.values(), key=len)[:_SHOWN]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
