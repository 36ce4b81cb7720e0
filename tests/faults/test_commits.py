"""Every kill, every failing call, and other programs beside: nothing acknowledged is lost.

The code of saves, deletions and recoveries runs on files in memory, so that all cases take seconds;
each test prints its counts. The other modules of this folder run programs under some of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from absl import logging
from faults import protocol
from faults.beside import BESIDE, interleave
from faults.commits import (
    FOREIGN,
    NEXT,
    SCENARIOS,
    SEED,
    Judge,
    Moment,
    Place,
    faults,
    live_through,
    look,
    losses,
    moments,
    process,
    runs_at,
    steps_of,
    values_of,
)
from faults.memory import Kept, MemoryFiles, State


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Its files are in memory; the directory itself is locked, so that of a disk is there."""
    renames = request.param == "disk"
    return Place(renames, str(tmp_path.resolve()) if renames else "mem://bucket/run")


@pytest.fixture(autouse=True)
def _thousands_of_warnings_are_not_kept() -> Iterator[None]:
    before = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)
    yield
    logging.set_verbosity(before)


def assert_sound(cases: Iterator[tuple[str, list[str], dict[str, int]]]) -> None:
    """Of cases, each with its name, what is wrong, and what is counted."""
    bad, told = list[str](), Counter[str]({"lost": 0, "left over": 0})
    for case, problems, counts in cases:
        told.update({"cases": 1, **counts})
        told.update(kind for kind in ("lost", "left over") if kind in "".join(problems))
        bad += ["\n  ".join([case, *problems[:6]])] if problems else []
    print(", ".join(f"{number} {kind}" for kind, number in told.items()))
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad[:20])


def scenarios(place: Place) -> list[str]:
    return [name for name in SCENARIOS if runs_at(place, name)]


def killed(place: Place, judge: Judge, cases: Callable[[Place, str], list[Moment]]) -> Any:
    for moment in chain(*(cases(place, name) for name in scenarios(place))):
        problems = judge.problems(moment.state, moment.expected)
        yield moment.case, problems, {"recoveries": len(judge.recovered(moment.state)) - 1}


def test_no_kill_costs_a_checkpoint_or_leaves_a_file(place: Place) -> None:
    assert_sound(killed(place, Judge(place), moments))


def test_no_loss_of_power_costs_a_checkpoint_or_leaves_a_file(tmp_path: Path) -> None:
    place = Place(True, str(tmp_path.resolve()))
    assert_sound(killed(place, Judge(place, power=True), losses))
    left = losses(place, "keep one", syncs=False)
    judge = Judge(place, power=True)
    assert any(judge.wrong(each.state, each.expected) for each in left), "fsync is not needed"


def failing(place: Place) -> Any:
    judge = Judge(place)
    for scenario in scenarios(place):
        for fault in faults(steps_of(place, scenario)):
            number, problems = live_through(place, scenario, fault, judge)
            yield f"{place}/{scenario}/{fault}", problems, {"killed": number}


def test_no_failing_call_costs_a_checkpoint_or_leaves_a_file(place: Place) -> None:
    assert_sound(failing(place))


def beside(place: Place, seeds: range) -> Any:
    for name, case in BESIDE.items():
        judge = Judge(place, alone=False)
        for seed in seeds if case.runs_at(place) else ():
            yield f"{place}/{name}/{seed}", *interleave(place, case, seed, judge)


@pytest.mark.parametrize("orders", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_programs_beside_each_other_cost_no_checkpoint(place: Place, orders: int) -> None:
    print(f"orders by seeds up to {orders}")
    assert_sound(beside(place, range(orders)))


def made_by(place: Place, act: Callable[[MemoryFiles], object]) -> dict[str, bytes]:
    """The files that something makes of nothing."""
    kept = place.empty()
    act(place.files(kept))
    return dict(kept.state().files)


def after_next(
    place: Place, state: State, more: dict[str, bytes], name: str, version: int, keep: int | None
) -> list[str]:
    """What is lost of a checkpoint where other files are beside it, by a recovery and a save."""
    files = frozenset((dict(state.files) | more).items())
    above = {path.rpartition("/")[0] for path in more} if place.renames else set()
    kept, wrong = Kept(State(files, state.directories | above)), []
    with process(SEED + 1):
        protocol.recover(place.directory, place.files(kept))
        recorded = place.prefix(f"{name}.tfckpt.json") in kept.files
        found = dict(look(place, kept.state()).found).get(name)
        if found != version and (not recorded or version != FOREIGN):
            wrong.append(f"lost: {name} is {found}, not {version}")
        made = protocol.save_numbered(place.directory, values_of(NEXT), place.files(kept), keep)
    if made == place.prefix(name):
        wrong.append(f"lost: {made} is used again")
    return [*wrong, *(f"lost: {path}" for path in more if path not in kept.files and keep)]


def written_by_others(place: Place, shards: int) -> Any:
    for scenario in scenarios(place):
        steps = [step for step in SCENARIOS[scenario] if step.kind != "export"]
        for name in sorted({step.name or f"{protocol.NAME}-1" for step in steps}):
            prefix, values = place.prefix(name), values_of(FOREIGN)
            theirs = made_by(place, partial(protocol.write_plain, prefix, values, shards))
            for moment in moments(place, scenario):
                problems = after_next(place, moment.state, theirs, name, FOREIGN, 1)
                yield f"{moment.case}, {name}", problems, {}


def test_what_another_program_writes_under_the_name_survives(place: Place) -> None:
    assert_sound(written_by_others(place, 1 + place.renames))


def looking_left_behind(place: Place) -> Any:
    name = f"{protocol.NAME}-1"
    prefix = place.prefix(name)
    ours, others = (
        made_by(place, partial(protocol.save, prefix, values_of(version))) for version in (1, 2)
    )
    theirs = made_by(place, partial(protocol.write_plain, prefix, values_of(FOREIGN), 2))
    inside = {path.removeprefix(place.prefix("")): data for path, data in others.items()}
    for version, sound in ((1, ours), (FOREIGN, theirs)):
        state = State(frozenset(sound.items()), place.empty().state().directories)
        for number, planted in enumerate(protocol.planted(name, inside)):
            more = {place.prefix(path): data for path, data in planted.items()}
            problems = after_next(place, state, more, name, version, None)
            yield f"{version}/{number}: {[*planted]}", problems, {}


def test_what_only_looks_left_behind_costs_no_checkpoint(place: Place) -> None:
    assert_sound(looking_left_behind(place))
