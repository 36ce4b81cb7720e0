"""What tfckpt wants to reach, as ratios of medians of one run."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.background import THREAD
from benchmarks.contestants import LITTLE_MEMORY, NO_FSYNC, TENSORFLOW, TFCKPT, TfckptManager
from benchmarks.first import RESTORE as FIRST_RESTORE
from benchmarks.first import SAVE as FIRST_SAVE
from benchmarks.going_on import BACKUP, BARE, BARE_RESTORE, IN_FIT, OURS, OVERHEAD, WIDTHS
from benchmarks.limits import FSYNC, WRITE_2
from benchmarks.planning import SIZES
from benchmarks.saving import BOUND
from benchmarks.startup import (
    HELP,
    INSPECT,
    LIST_NAME,
    LISTING,
    LITTLE,
    NUMPY,
    READ_NAME,
    VERIFY,
)

if TYPE_CHECKING:
    from benchmarks.measure import Result

AT_LEAST, AT_MOST = "≥", "≤"


@dataclasses.dataclass(frozen=True)
class Of:
    """One measured figure.

    Attributes:
        workload: its key.
        case: its size and place.
        contestant: whose.
        measure: which.
    """

    workload: str
    case: str
    contestant: str
    measure: str

    def among(self, results: Sequence[Result]) -> tuple[float, ...] | None:
        fields = dataclasses.astuple(self)
        for one in results:
            same = (one.workload, one.case, one.contestant, one.measure) == fields
            if same and one.values:
                return one.values
        return None


@dataclasses.dataclass(frozen=True)
class Goal:
    """A figure, or its ratio to another one, and the bound that it should keep.

    Attributes:
        about: what is wanted.
        where: of which workload.
        sense: on which side of the bound it should be.
        bound: the bound.
        of: the figure.
        by: what it is divided by.
        unit: of the outcome.
    """

    about: str
    where: str
    sense: str
    bound: float
    of: Of
    by: Of | None = None
    unit: str = "×"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a goal fared: by medians, and by minima."""

    goal: Goal
    median: float
    minimum: float

    @property
    def met(self) -> bool:
        bound = self.goal.bound
        return self.median >= bound if self.goal.sense == AT_LEAST else self.median <= bound


def outcomes(results: Sequence[Result]) -> list[Outcome]:
    """Of the goals whose figures were measured."""
    found = []
    for goal in GOALS:
        of = goal.of.among(results)
        by = goal.by.among(results) if goal.by else (1.0,)
        if of and by:
            median = _ratio(statistics.median(of), statistics.median(by))
            found.append(Outcome(goal, median, _ratio(min(of), min(by))))
    return found


def _ratio(of: float, by: float) -> float:
    """Infinite where a difference of two times is lost in noise: nothing is small beside it."""
    return of / by if by > 0 else math.inf


LARGE, LARGER = ("16x64", "16 × 64 MiB"), ("8x128", "8 × 128 MiB")
TRANSFORMER = ("transformer", "transformer, 109M + Adam")
RESNET = ("resnet50", "ResNet50 + Adam")
Cases = Sequence[tuple[str, str]]
SMALL = ("small10k", "10,000 × 1 KiB")
MODELS = (LARGE, LARGER, TRANSFORMER, RESNET)


def _faster(
    about: str,
    cases: Cases,
    place: str = "disk",
    *,
    what: str,
    who: str = TFCKPT,
    bound: float,
    workload: str = "",
) -> list[Goal]:
    """TensorFlow's time, of somebody else's, where a whole is saved and restored.

    Args:
        about: what is wanted.
        cases: subjects.
        place: where they are saved.
        what: the measure.
        who: the somebody else.
        bound: how many times faster it should be.
        workload: that has these subjects; by default each is a workload of its own.
    """
    return [
        Goal(
            f"{about}: times faster than TensorFlow's",
            f"{title}, {place}",
            AT_LEAST,
            bound,
            Of(workload or name, f"{title}, {place}", TENSORFLOW, what),
            Of(workload or name, f"{title}, {place}", who, what),
        )
        for name, title in cases
    ]


def _near(about: str, cases: Cases, *, what: str, who: str, limit: str, bound: float) -> list[Goal]:
    """Somebody's time, of what the system's calls alone take on disk."""
    return [
        Goal(
            f"{about}: time, of {limit}",
            f"{title}, disk",
            AT_MOST,
            bound,
            Of(workload, f"{title}, disk", who, what),
            Of(workload, f"{title}, disk", limit, what),
        )
        for workload, title in cases
    ]


def _manager(workload: str, title: str) -> Goal:
    case = f"{title}, disk"
    ours, alone = (Of(workload, case, who, SAVE) for who in (TfckptManager.name, TFCKPT))
    about = "save by the manager: time, of Checkpoint.save"
    return Goal(about, case, AT_MOST, 1.1, ours, alone)


def _going_on(case: str) -> list[Goal]:
    """How much longer a program takes to its first new step than Keras alone."""
    ours, without, theirs, bare = (
        Of("going_on", f"{case}, disk", who, measure)
        for who, measure in (
            (OURS, OVERHEAD),
            (OURS, IN_FIT),
            (BACKUP, OVERHEAD),
            (BARE, BARE_RESTORE),
        )
    )
    about = "until training goes on: overhead"
    return [
        Goal(f"{about}, of BackupAndRestore's", case, AT_MOST, 0.5, ours, theirs),
        Goal(f"{about} without import, of a restore alone", case, AT_MOST, 1.5, without, bare),
    ]


def _tenth(about: str, case: str, measure: str, sense: str, bound: float) -> Goal:
    ours, theirs = (Of("tenth", f"{case}, disk", who, measure) for who in (TFCKPT, TENSORFLOW))
    pair = (theirs, ours) if sense == AT_LEAST else (ours,)
    return Goal(f"restore of a tenth: {about}", case, sense, bound, *pair)


def _training(about: str, measure: str, bound: float, *, ratio: bool, unit: str = "×") -> Goal:
    """Of a background save; a ratio is to a save by TensorFlow that training waits for."""
    case = f"{TRANSFORMER[1]}, disk"
    ours = Of("training", case, f"{TFCKPT}, async", measure)
    theirs = Of("training", case, TENSORFLOW, measure)
    by = theirs if ratio else None
    return Goal(f"background save: {about}", "training", AT_MOST, bound, ours, by, unit)


def _busy(case: str) -> Goal:
    about = "background save beside busy Python: time, of SaveV2 in a thread"
    names = (f"{TFCKPT}, async", THREAD)
    ours, theirs = (Of("busy", f"{case}, disk", who, "background save ms") for who in names)
    return Goal(about, case, AT_MOST, 2, ours, theirs)


def _each(what: str, bound: float) -> list[Goal]:
    sizes = [f"{size:,} values" for size in SIZES]
    of = {size: Of("planning", size, what, "µs a value") for size in sizes}
    about = f"{what}: for each value"
    return [Goal(about, size, AT_MOST, bound, of[size], unit="µs") for size in sizes]


def _linear(what: str) -> Goal:
    about = f"{what}: for each value at 30,000, of that at 2,000"
    sizes = ("30,000 values", "2,000 values")
    many, few = (Of("planning", size, what, "µs a value") for size in sizes)
    return Goal(about, "linear growth", AT_MOST, 1.5, many, few)


def _startup(about: str, case: str, *, ours: str, theirs: str, bound: float) -> Goal:
    of, by = (Of("startup", f"{case}, disk", who, "ms") for who in (theirs, ours))
    return Goal(f"{about}: times faster than through TensorFlow", case, AT_LEAST, bound, of, by)


def _start(command: str) -> Goal:
    ours, numpy = (Of("startup", f"{LITTLE}, disk", who, "ms") for who in (command, NUMPY))
    return Goal(f"`{command}`: time, of `{NUMPY}`", LITTLE, AT_MOST, 2, ours, numpy)


def _peaks(workload: str, title: str) -> list[Goal]:
    case = f"{title}, disk"
    restore, save, two = (
        Of(workload, case, LITTLE_MEMORY, measure)
        for measure in ("restore peak MiB", "save peak MiB", BOUND)
    )
    of_two = "restore in little memory: peak, of the two largest values and a tenth of all"
    return [
        Goal(of_two, title, AT_MOST, 1, restore, two),
        Goal("save: peak of memory", title, AT_MOST, 32, save, unit="MiB"),
    ]


SAVE, RESTORE = "save ms", "restore ms"
UP_TO_64_MIB = (LARGE, TRANSFORMER, RESNET)
FEW, REAL = (LARGE, LARGER, TRANSFORMER), (TRANSFORMER, RESNET)
SOME, SOME_SMALL = "16 of 160 × 4 MiB", "1,000 of 10,000 × 1 KiB"
GOALS: tuple[Goal, ...] = (
    *_faster("save without fsync", MODELS, "disk", what=SAVE, who=NO_FSYNC, bound=4),
    *_faster("save", MODELS, "tmpfs", what=SAVE, bound=1.8),
    *_near("save without fsync", FEW, what=SAVE, who=NO_FSYNC, limit=WRITE_2, bound=1.25),
    *_near("save without fsync", [RESNET], what=SAVE, who=NO_FSYNC, limit=WRITE_2, bound=1.5),
    *_faster("durable save", MODELS, what=SAVE, bound=1),
    *_near("durable save", MODELS, what=SAVE, who=TFCKPT, limit=FSYNC, bound=1.1),
    *(_manager(*case) for case in UP_TO_64_MIB),
    *_faster("save of small values", [SMALL], "tmpfs", what=SAVE, bound=10),
    *_faster("restore of small values", [SMALL], "tmpfs", what=RESTORE, bound=6),
    *_faster("restore", UP_TO_64_MIB, what=RESTORE, bound=3),
    *_faster("restore", [LARGER], what=RESTORE, bound=2),
    *_near("restore", FEW, what=RESTORE, who=TFCKPT, limit=WRITE_2, bound=1.3),
    *_near("restore", [RESNET], what=RESTORE, who=TFCKPT, limit=WRITE_2, bound=1.8),
    *_faster(
        "restore beside two busy processes", MODELS, what=RESTORE, bound=1.5, workload="crowded"
    ),
    *_faster("first save", [SMALL], what=FIRST_SAVE, bound=3, workload="first"),
    *_faster("first save", REAL, what=FIRST_SAVE, bound=2, workload="first"),
    *_faster("first restore", [SMALL], what=FIRST_RESTORE, bound=5, workload="first"),
    *_faster("first restore", REAL, what=FIRST_RESTORE, bound=3, workload="first"),
    *(goal for case in WIDTHS for goal in _going_on(case)),
    _tenth("times faster than TensorFlow's", SOME, RESTORE, AT_LEAST, 1.8),
    _tenth("times faster than TensorFlow's", SOME_SMALL, RESTORE, AT_LEAST, 1.8),
    _tenth("bytes read, of those needed", SOME, "bytes read ÷ needed", AT_MOST, 1.02),
    _training("stall, of a save by TensorFlow", "stall ms", 0.01, ratio=True),
    _training("stall for each value", "stall µs a value", 8, ratio=False, unit="µs"),
    _training("time lost, of a save by TensorFlow", "time lost ms", 0.25, ratio=True),
    _training("peak of memory, of a second copy", "of a second copy", 0.5, ratio=False),
    _busy("16 × 64 MiB"),
    _busy("5,000 × 1 KiB"),
    *_each("plan", 5),
    *_each("plan with five rules", 10),
    *_each("diff", 5),
    *(_linear(what) for what in ("plan", "plan with five rules", "diff")),
    _startup("`inspect`", TRANSFORMER[1], ours=INSPECT, theirs=LIST_NAME, bound=40),
    _startup("`inspect`", "30,000 × 1 KiB", ours=INSPECT, theirs=LIST_NAME, bound=25),
    _startup("`verify`", TRANSFORMER[1], ours=VERIFY, theirs=READ_NAME, bound=15),
    *(_start(command) for command in (HELP, LISTING, INSPECT)),
    *_peaks(*LARGE),
    *_peaks(*TRANSFORMER),
)
