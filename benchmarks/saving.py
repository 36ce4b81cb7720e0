"""Saves and restores of whole subjects: seconds, and peaks of memory."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import subjects
from benchmarks.contestants import (
    CORE,
    FRAMEWORK,
    Contestant,
    KerasArchive,
    LittleMemory,
    TensorFlow,
    Tfckpt,
    TfckptManager,
)
from benchmarks.limits import LIMITS, TwoThreads
from benchmarks.measure import (
    FAILS,
    MIB,
    Result,
    Settings,
    clock,
    high_water,
    in_turns,
    resident,
    results_in_child,
)
from benchmarks.others import OTHERS, Safetensors, Torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.subjects import Subject

KIB = 1 << 10
LESS = 2  # rounds of those with whom nothing is to be proved


@dataclasses.dataclass(frozen=True)
class Case:
    """A subject, and who saves it.

    Attributes:
        title: in tables.
        build: the subject.
        tiny: one of its kind for tests, and to warm up with where memory is measured.
        everyone: on disk.
        rounds: of those of whom there are goals.
        measured: whose peaks of memory are measured.
        in_memory: who saves into tmpfs too, where there is no disk to wait for.
    """

    title: str
    build: Callable[[], Subject]
    tiny: Callable[[], Subject]
    everyone: Sequence[type[Contestant]]
    rounds: int = 5
    measured: Sequence[type[Contestant]] = ()
    in_memory: Sequence[type[Contestant]] = (TensorFlow, Tfckpt)


BOUND = "two largest + a tenth MiB"
ALL = (*CORE, *FRAMEWORK, *OTHERS)
WHOLE = (*CORE, *LIMITS)
OFTEN = (*WHOLE, TfckptManager)
FEW = (*CORE, Safetensors, Torch)
IN_MEMORY = (TensorFlow, Tfckpt, TwoThreads, Safetensors)
SMALL = partial(subjects.values, 20, KIB)
CASES = {
    "16x64": Case(
        "16 × 64 MiB",
        partial(subjects.values, 16, 64 * MIB),
        partial(subjects.values, 4, MIB),
        (*ALL, *LIMITS),
        measured=(LittleMemory, Tfckpt, TensorFlow, *OTHERS),
        in_memory=IN_MEMORY,
    ),
    "8x128": Case(
        "8 × 128 MiB",
        partial(subjects.values, 8, 128 * MIB),
        partial(subjects.values, 2, MIB),
        WHOLE,
        in_memory=IN_MEMORY,
    ),
    "transformer": Case(
        "transformer, 109M + Adam",
        subjects.transformer,
        partial(subjects.transformer, small=True),
        (*ALL, *LIMITS),
        measured=(LittleMemory, Tfckpt, TensorFlow, KerasArchive),
        in_memory=IN_MEMORY,
    ),
    "resnet50": Case(
        "ResNet50 + Adam",
        subjects.resnet50,
        partial(subjects.resnet50, small=True),
        (*ALL, *LIMITS),
        in_memory=IN_MEMORY,
    ),
    "small2k": Case("2,000 × 1 KiB", partial(subjects.values, 2_000, KIB), SMALL, ALL),
    "small10k": Case("10,000 × 1 KiB", partial(subjects.values, 10_000, KIB), SMALL, FEW),
    "small30k": Case(
        "30,000 × 1 KiB", partial(subjects.values, 30_000, KIB), SMALL, CORE, 2, in_memory=()
    ),
}


def run(name: str, settings: Settings) -> list[Result]:
    case = CASES[name]
    found = results_in_child(_timed, name, settings)
    for contestant in case.measured[:1] if settings.quick else case.measured:
        if contestant.absent():
            continue
        try:
            found += results_in_child(_peaks, name, contestant, settings)
        except RuntimeError as error:
            where = name, f"{case.title}, disk", contestant.name
            found.append(Result(*where, FAILS, (), str(error)))
    return found


def _timed(name: str, settings: Settings) -> list[Result]:
    case = CASES[name]
    subject = (case.tiny if settings.quick else case.build)()
    found = []
    for place, directory in settings.places.items():
        kinds = case.everyone if place == "disk" else case.in_memory
        if not kinds:
            continue
        present = [
            kind(subject, directory)
            for kind in kinds
            if not kind.absent() and (subject.model is not None or not kind.of_models)
        ]
        turns = {one.name: partial(_turn, one) for one in present}
        rounds = {
            one.name: settings.rounds(case.rounds if type(one) in OFTEN else LESS)
            for one in present
        }
        found += in_turns(name, f"{case.title}, {place}", turns, rounds, settings, first=True)
    return found


def _turn(contestant: Contestant) -> dict[str, float]:
    try:
        contestant.ready()
        return {"save ms": clock(contestant.save), "restore ms": clock(contestant.restore)}
    finally:
        contestant.clear()


def _peaks(name: str, kind: type[Contestant], settings: Settings) -> list[Result]:
    case = CASES[name]
    _turn(kind(case.tiny(), settings.disk))
    contestant = kind((case.tiny if settings.quick else case.build)(), settings.disk)
    contestant.ready()
    found = {}
    for what, task in {"save": contestant.save, "restore": contestant.restore}.items():
        before = resident()
        found[what] = high_water(task) - before
    contestant.clear()
    sizes = contestant.subject.sizes
    bound = (sum(sizes[:2]) + sum(sizes) / 10) / MIB
    where = name, f"{case.title}, disk", contestant.name
    return [
        *(Result(*where, f"{what} peak MiB", (rise,)) for what, rise in found.items()),
        Result(*where, BOUND, (bound,)),
    ]
