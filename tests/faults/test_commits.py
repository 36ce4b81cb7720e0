"""Every kill, every failing call, and other programs beside: nothing acknowledged is lost.

What it runs is the code of saves, deletions and recoveries on files in memory, so that all cases
take seconds: ``pytest tests/faults/test_commits.py``. The other modules of this folder run programs
with TensorFlow under some of these faults.

Below each test stand its counts: places where a process was killed, recoveries that were killed and
run again, calls that failed, orders of programs, and how many of all these lost a checkpoint or
left a file that belongs to none.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from absl import logging
from faults import protocol
from faults.commits import (
    FOREIGN,
    NEXT,
    SCENARIOS,
    SEED,
    Judge,
    Place,
    faults,
    live_through,
    look,
    moments,
    process,
    runs_at,
    steps_of,
    values_of,
    version_of,
)
from faults.interleavings import BESIDE, interleave
from faults.memory import Kept, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ORDERS = 40
MANY_ORDERS = 1000


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


class Tally:
    """Counts cases by rows, and keeps what is wrong."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self._rows: dict[str, Counter[str]] = {}

    def add(self, row: str, case: str, problems: Iterable[str], **counts: int) -> None:
        texts = [*problems]
        told = Counter({"cases": 1, **counts})
        for kind in ("lost", "left over"):
            told[kind] = int(any(kind in text for text in texts))
        for each in (row, "all"):
            self._rows.setdefault(each, Counter()).update(told)
        if texts:
            self.bad.append("\n  ".join([case, *texts[:6]]))

    def show(self) -> None:
        """Print the rows, that of all last."""
        self._rows["all"] = self._rows.pop("all")
        columns = [*dict.fromkeys(column for row in self._rows.values() for column in row)]
        columns = sorted(columns, key=("lost", "left over").__contains__)
        print(f"{'(counts)':<46}" + "".join(f"{column:>11}" for column in columns))
        for name, row in self._rows.items():
            print(f"{name:<46}" + "".join(f"{row[column]:>11}" for column in columns))

    def assert_sound(self) -> None:
        self.show()
        assert not self.bad, f"{len(self.bad)}:\n" + "\n".join(self.bad[:20])


def scenarios(place: Place) -> list[str]:
    return [name for name in SCENARIOS if runs_at(place, name)]


def test_no_kill_costs_a_checkpoint_or_leaves_a_file(place: Place) -> None:
    tally, judge = Tally(), Judge(place)
    for scenario in scenarios(place):
        for moment in moments(place, scenario):
            problems = judge.problems(moment.state, moment.expected)
            deaths = judge.deaths(moment.state)
            tally.add(f"{place}, {scenario}", moment.case, problems, recoveries=deaths)
    tally.assert_sound()


def test_no_failing_call_costs_a_checkpoint_or_leaves_a_file(place: Place) -> None:
    tally, judge = Tally(), Judge(place)
    for scenario in scenarios(place):
        for fault in faults(steps_of(place, scenario)):
            killed, problems = live_through(place, scenario, fault, judge)
            case = f"{place}/{scenario}/{fault}"
            tally.add(f"{place}, {scenario}", case, problems, killed=killed)
    tally.assert_sound()


def test_programs_beside_each_other_cost_no_checkpoint(place: Place) -> None:
    run_beside(place, range(ORDERS))


@pytest.mark.long
def test_programs_beside_each_other_in_many_orders(place: Place) -> None:
    run_beside(place, range(ORDERS, MANY_ORDERS))


def run_beside(place: Place, seeds: range) -> None:
    tally = Tally()
    print(f"\norders by seeds {seeds.start} to {seeds.stop - 1}")
    for name, case in BESIDE.items():
        if not case.runs_at(place):
            continue
        judge = Judge(place)
        for seed in seeds:
            problems, told = interleave(place, case, seed, judge)
            tally.add(f"{place}, {name}", f"{place}/{name}/{seed}", problems, **told)
    tally.assert_sound()


def files_of(place: Place, name: str, shards: int) -> dict[str, bytes]:
    """What another program writes under a name."""
    kept = place.empty()
    protocol.write_plain(place.prefix(name), values_of(FOREIGN), place.files(kept), shards)
    return kept.files


@pytest.mark.parametrize("shards", [1, 2])
def test_what_another_program_writes_under_the_name_survives(place: Place, shards: int) -> None:
    tally = Tally()
    for scenario in scenarios(place):
        names = {step.name or f"{protocol.NAME}-1" for step in SCENARIOS[scenario]}
        for moment in moments(place, scenario):
            for name in sorted(names):
                theirs = files_of(place, name, shards)
                state = State(
                    frozenset((dict(moment.state.files) | theirs).items()), moment.state[1]
                )
                problems = theirs_lost(place, state, name, theirs)
                tally.add(f"{place}, {scenario}", f"{moment.case}, {name}", problems)
    tally.assert_sound()


def theirs_lost(place: Place, state: State, name: str, theirs: dict[str, bytes]) -> list[str]:
    """What is wrong with their checkpoint after a recovery, and after a save that keeps one."""
    kept, wrong = Kept(state), []
    with process(SEED + 1):
        protocol.recover(place.directory, place.files(kept))
        recorded = place.prefix(f"{name}.tfckpt.json") in kept.files
        found = dict(look(place, kept.state()).found)
        if not recorded and found[name] != FOREIGN:
            wrong.append(f"lost: {name} is {found[name]}")
        made = protocol.save_numbered(place.directory, values_of(NEXT), place.files(kept), 1)
    if made == place.prefix(name):
        wrong.append(f"lost: {made} is used again")
    lost = [path for path, data in theirs.items() if kept.files.get(path) != data]
    return [*wrong, *(f"lost: {path}" for path in lost)]


def test_what_only_looks_left_behind_costs_no_checkpoint(place: Place) -> None:
    tally, name = Tally(), f"{protocol.NAME}-1"
    other = place.empty()
    inside = place.prefix("")
    ours = place.empty()
    protocol.save(place.prefix(name), values_of(1), place.files(ours))
    protocol.save(place.prefix(name), values_of(2), place.files(other))
    theirs = place.empty()
    theirs.files |= files_of(place, name, 2)
    others = {path.removeprefix(inside): data for path, data in other.files.items()}
    for version, sound in ((1, ours), (FOREIGN, theirs)):
        for number, planted in enumerate(protocol.planted(name, others)):
            kept = Kept(sound.state())
            kept.files |= {place.prefix(path): data for path, data in planted.items()}
            if place.renames:
                kept.directories |= {path.rpartition("/")[0] for path in kept.files}
            problems = []
            with process(SEED + 1):
                protocol.recover(place.directory, place.files(kept))
                protocol.save_numbered(place.directory, values_of(NEXT), place.files(kept))
            if (found := dict(look(place, kept.state()).found)[name]) != version:
                problems.append(f"lost: {name} is {found}, not {version}")
            tally.add(f"{place}, beside version {version}", f"{number}: {[*planted]}", problems)
    tally.assert_sound()


def test_tensorflow_reads_what_a_kill_leaves(place: Place, tmp_path: Path) -> None:
    """By its own reader; a handful, since the enumeration compares by tfckpt's."""
    import tensorflow as tf

    drawn, read = random.Random(SEED), 0
    for scenario in scenarios(place):
        for number, moment in enumerate(drawn.sample(moments(place, scenario)[8:], 2)):
            settled = Judge(place).settled(moment.state)
            directory = tmp_path / f"{scenario}-{number}"
            directory.mkdir()
            for name, data in place.names(settled).items():
                (directory / name).write_bytes(data)
            for name, version in look(place, settled).found:
                reader = tf.train.load_checkpoint(str(directory / name))
                values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
                assert version_of(values) == version, moment.case
                np.testing.assert_array_equal(values["kernel"], values_of(int(version))["kernel"])
                read += 1
    print(f"\n{read} checkpoints, seed {SEED}")
    assert read >= 5
