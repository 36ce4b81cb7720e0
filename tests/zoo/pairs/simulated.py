"""The search by random pairs of models without Keras: thousands of pairs in the time of one fit.

What tfckpt knows of either model is simulated (``objects``, ``object_graph``); the plans are
tfckpt's own. From the folder of the tests::

    python -m zoo.pairs.simulated 20000 1 tfckpt

tries so many pairs from a start, for one writer of the file or for both, and prints the shares, the
smallest pairs that were wrong, and programs that were refused although they are the same.

What it cannot judge: settings, shared layers, files of Keras, and two layers of a class without
names that only their connections tell apart, which no edit of ``zoo.pairs.edits`` exchanges.

``simulated.json`` has how many pairs of a range were restored when it was written, and the pairs
that are restored wrongly: those that nothing in either model or in the file tells apart, and those
that something does, which are still to mend.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.planning import Status, make_plan
from tfckpt.planning.suggestion.search import suggest
from tfckpt.policy import Policy
from zoo.pairs.build import NotAModelError
from zoo.pairs.cases import Case, case, only_recorded
from zoo.pairs.describe import intended, leaves, program, walk
from zoo.pairs.object_graph import Written, written
from zoo.pairs.objects import Objects, recorded
from zoo.pairs.verdicts import (
    FALSE,
    LEFT,
    MISPLACED,
    PART,
    REFUSED,
    RIGHT,
    SUSPECT,
    retyped,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfckpt.planning import Plan
    from zoo.pairs.objects import Value

WRITERS = ("tfckpt", "tensorflow")
POLICIES = {"strict": Policy(), "partial": Policy(expect_partial=True)}
_SHOWN = 5


class Verdict(NamedTuple):
    """Of one pair, writer and policy: a word of ``zoo.pairs.verdicts``, and what it is about."""

    word: str
    why: str = ""


class Found(NamedTuple):
    """A pair to look at: its number, itself, and by policy what is wrong with it."""

    at: int
    case: Case
    verdicts: dict[str, Verdict]

    def __str__(self) -> str:
        said = "; ".join(f"{name}: {word}, {why}" for name, (word, why) in self.verdicts.items())
        return f"{self.at}: {said}\n    {self.case}"


def numbered(at: int) -> Case:
    """The pair of a number: the even ones are of Keras 3."""
    return case(("keras", "tf_keras")[at % 2], at)


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
        self._exempt = retyped(pair)

    @property
    def same(self) -> bool:
        """Whether both are written with the same words."""
        return program(self.case.first) == program(self.case.second)

    def _file(self, writer: str) -> tuple[Written, Mapping[int, int]] | None:
        """What was saved and where it is meant to go; None if no file shows the edit."""
        if writer == "tfckpt":
            file = Written(recorded(self._first.collected), self._first.whose, set())
            unknown: set[str] = set()
        elif only_recorded(self.case.flavour, self.case.second, self.case.edits):
            return None
        else:
            file = written(self._first, self._second.collected)
            unknown = {each.name for each in walk(self.case.first) if each.name} - file.words
        return file, intended(self.case.first, self.case.second, unknown, anew=self.case.anew)

    def pasted(self, writer: str) -> Verdict:
        """What comes of the policy that a refusal suggests; REFUSED if it suggests none."""
        if (saved := self._file(writer)) is None:
            return Verdict(REFUSED)
        (file, meant), live = saved, self._second.collected
        found = suggest(POLICIES["strict"], file.inventory, live)
        if found is None or found.plan is None:
            return Verdict(REFUSED)
        return self._verdict(found.plan, file.whose, meant)

    def judge(self, writer: str) -> dict[str, Verdict]:
        """What each policy makes of a file of the first model; {} if no file shows the edit."""
        if (saved := self._file(writer)) is None:
            return {}
        (file, meant), live = saved, self._second.collected
        plans = {name: make_plan(each, file.inventory, live) for name, each in POLICIES.items()}
        found = {name: self._verdict(plan, file.whose, meant) for name, plan in plans.items()}
        if found["strict"].word == PART:  # no error, although values are left as they were
            found["strict"] = found["strict"]._replace(word=LEFT)
        if self.same and writer == "tfckpt" and leaves(self.case.first):
            refused = {n: v for n, v in found.items() if v.word in (SUSPECT, REFUSED)}
            found |= {name: verdict._replace(word=FALSE) for name, verdict in refused.items()}
        return found

    def _verdict(self, plan: Plan, whose: Mapping[str, Value], meant: Mapping[int, int]) -> Verdict:
        if not plan.ok:
            suspect = [step for step in plan.errors if step.status is Status.SUSPECT]
            reasons = [step.reason for step in suspect or plan.errors] or map(str, plan.problems)
            return Verdict(SUSPECT if suspect else REFUSED, next(iter(reasons)))
        got = {
            self._second.whose[step.name]: whose.get(step.source)
            for step in plan.assignments
            if step.name in self._second.whose
        }
        misplaced = [
            f"{value.uid}/{value.name} has {source and f'{source.uid}/{source.name}'}"
            for value, source in got.items()
            if value.uid not in self._exempt
            and (source is None or source != value._replace(uid=meant.get(value.uid, -1)))
        ]
        if misplaced:
            return Verdict(MISPLACED, ", ".join(misplaced))
        held = {*whose.values()}
        left = [
            f"{value.uid}/{value.name}"
            for value in self._second.whose.values()
            if value not in got and value._replace(uid=meant.get(value.uid, -1)) in held
        ]
        return Verdict(PART, ", ".join(left)) if left else Verdict(RIGHT)


@dataclasses.dataclass
class Search:
    """What was found with files of one writer.

    Attributes:
        writer: ``tfckpt`` or ``tensorflow``.
        number: how many pairs were tried.
        words: how often each policy came to what.
        wrong: the pairs that were restored wrongly by some policy.
        refused: programs that were refused by some policy although they are the same.
    """

    writer: str
    number: int = 0
    words: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    wrong: list[Found] = dataclasses.field(default_factory=list)
    refused: list[Found] = dataclasses.field(default_factory=list)

    def take(self, at: int, pair: Pair) -> None:
        if not (verdicts := pair.judge(self.writer)):
            return
        self.number += 1
        self.words.update((policy, verdict.word) for policy, verdict in verdicts.items())
        for found, words in ((self.wrong, (MISPLACED, LEFT)), (self.refused, (FALSE,))):
            if some := {name: v for name, v in verdicts.items() if v.word in words}:
                found.append(Found(at, pair.case, some))

    def restored(self, policy: str) -> int:
        return self.words[policy, RIGHT] + self.words[policy, PART]

    def shares(self) -> str:
        """One line for each policy."""
        lines = []
        for policy in POLICIES:
            found = sorted((word, n) for (name, word), n in self.words.items() if name == policy)
            shown = ", ".join(f"{word} {n} ({n / self.number:.1%})" for word, n in found)
            lines.append(f"  {policy}: {shown}")
        return "\n".join([f"{self.number} pairs, saved by {self.writer}", *lines])


def pairs(start: int) -> Iterator[tuple[int, Pair]]:
    """Every pair that Keras makes models of, from a number on, with its number."""
    for at in itertools.count(start):
        with contextlib.suppress(NotAModelError):
            yield at, Pair(numbered(at))


def search(
    found: Iterable[tuple[int, Pair]], writers: Sequence[str] = WRITERS
) -> dict[str, Search]:
    """Writer → what became of the pairs."""
    searches = {writer: Search(writer) for writer in writers}
    for at, pair in found:
        for each in searches.values():
            each.take(at, pair)
    return searches


def _main(number: str, start: str, *writers: str) -> None:
    found = search(itertools.islice(pairs(int(start)), int(number)), writers or WRITERS)
    for each in found.values():
        print(each.shares())
        for title, listed in (("wrong", each.wrong), ("refused, though the same", each.refused)):
            print(f"{len(listed)} {title}: {', '.join(str(one.at) for one in listed)}")
            for one in sorted(listed, key=lambda one: one.case.size)[:_SHOWN]:
                print(one)


if __name__ == "__main__":
    _main(*sys.argv[1:])
