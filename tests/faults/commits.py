"""Runs saves, replacements, rotations and deletions in memory, and judges what any fault leaves.

A kill needs no process: a scenario runs once, and what is kept at each step is what a kill leaves
there. The recovery of each such state runs once as well, and is killed in the same way. The oracle
knows what was asked for, what returned, and names of files; not how a save commits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from faults import protocol
from faults.memory import Fault, How, Kept, MemoryFiles, State, nothing

from tfckpt.errors import SaveError
from tfckpt.stored.commits import record_file

SEED = 20250131
# The versions of what is not there, is saved after a recovery, and is another program's
ABSENT, NEXT, FOREIGN = 0, 9, 7
VERSIONS = range(1, 10)
_DATA = re.compile(r"(?P<base>.+)\.data-(?P<shard>\d{5})-of-(?P<shards>\d{5})", re.DOTALL)
_KNOWN = {"checkpoint", ".tfckpt.lock"}
_AWAY = "quarantine/"


@cache
def values_of(version: int) -> dict[str, np.ndarray]:
    """Two values, each in a data file of its own; no byte is the same in two versions."""
    return {
        "kernel": np.full((3, 2), version + 0.25, np.float32),
        "steps": np.array([version << 40 | version, version], np.int64),
    }


def version_of(values: Mapping[str, np.ndarray] | None) -> int:
    """Which version the values are, all of them and every bit; AssertionError of a mixture."""
    if values is None:
        return ABSENT
    bits = {key: (value.dtype, value.shape, value.tobytes()) for key, value in values.items()}
    for version in VERSIONS:
        found = values_of(version).items()
        if bits == {key: (value.dtype, value.shape, value.tobytes()) for key, value in found}:
            return version
    raise AssertionError(f"a mixture: { {key: value.tolist() for key, value in values.items()} }")


def exported(version: int) -> bytes:
    return b"".join(value.tobytes() for value in values_of(version).values())


class Place(NamedTuple):
    """Where a run saves: a directory of a disk, or of a store."""

    renames: bool
    directory: str

    def __str__(self) -> str:
        return "disk" if self.renames else "store"

    def empty(self) -> Kept:
        kept = Kept()
        if self.renames:
            path = self.directory
            while path.strip("/"):
                kept.directories.add(path)
                path = path.rpartition("/")[0]
        return kept

    def files(self, kept: Kept, **options: object) -> MemoryFiles:
        return MemoryFiles(kept, renames=self.renames, **options)  # type: ignore[arg-type]

    def prefix(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def names(self, state: State) -> dict[str, bytes]:
        """The files and their contents, by their paths in the directory."""
        inside = f"{self.directory}/"
        return {path.removeprefix(inside): data for path, data in state.files}


@dataclasses.dataclass(frozen=True)
class Step:
    """What a program does next; all but `number` and `recover` with a name."""

    kind: str
    version: int
    name: str = ""


def save(name: str, version: int) -> Step:
    return Step("save", version, name)


SCENARIOS: dict[str, tuple[Step, ...]] = {
    "first save": (save("ckpt-1", 1),),
    "two names": (save("ckpt-1", 1), save("ckpt-2", 2)),
    "keep one": (Step("number", 1), Step("number", 2), Step("number", 3)),
    "over": (save("ckpt-1", 1), save("ckpt-1", 2), save("ckpt-1", 3)),
    "again": (save("ckpt-1", 1), Step("delete", ABSENT, "ckpt-1"), save("ckpt-1", 2)),
    "of a saver": (
        save(protocol.WITH_SAVER, 1),
        Step("delete", ABSENT, protocol.WITH_SAVER),
    ),
    "move away": (save("ckpt-1", 1), save("ckpt-2", 2), Step("quarantine", 1, "ckpt-1")),
    "the newest away": (Step("number", 1), Step("number", 2), Step("quarantine", 2, "ckpt-2")),
    "export": (save("ckpt-1", 1), Step("export", 1, "all.npz")),
    "fixed name": (save("best", 1), save("best", 2), save("best", 3)),
}
KEEP = 1  # of the saves that choose their number


def runs_at(place: Place, scenario: str) -> bool:
    """Whether a scenario runs there: in a store, no name is written over, and no file exported."""
    return place.renames or scenario not in ("fixed name", "over", "export")


def moved(name: str) -> str:
    """Where a checkpoint is in quarantine."""
    return f"{_AWAY}{name}/{name}"


class Expected(NamedTuple):
    """The versions that may be found."""

    at: tuple[tuple[str, frozenset[int]], ...] = ()  # by name
    elsewhere: frozenset[int] = frozenset()  # under any other: of saves that chose their number
    newest: frozenset[int] | None = None  # of the numbered ones; None for any
    moving: frozenset[int] = frozenset()  # of what is moved away, there or where it was


class Ledger:
    """What was asked for and what was acknowledged, by all programs of one directory."""

    def __init__(self) -> None:
        self.at: dict[str, frozenset[int]] = {}
        self.elsewhere: frozenset[int] = frozenset()
        self.newest: frozenset[int] | None = None
        self.moving: frozenset[int] = frozenset()
        self.given: set[str] = set()  # names of saves that chose their number

    @property
    def expected(self) -> Expected:
        return Expected(tuple(sorted(self.at.items())), self.elsewhere, self.newest, self.moving)

    def allowed(self, name: str) -> frozenset[int]:
        return self.at.get(name, frozenset({ABSENT}) | self.elsewhere)

    def begin(self, step: Step, keep: int | None) -> None:
        new = frozenset({step.version})
        if step.kind == "quarantine":
            self.moving = self.allowed(step.name)
            self.at |= dict.fromkeys((step.name, moved(step.name)), self.moving | {ABSENT})
            self.newest = None  # the one before, or what is saved under its number
            return
        if step.kind != "number":
            self.at[step.name] = self.allowed(step.name) | new
            return
        self.elsewhere |= new
        if keep:
            self.newest = (self.newest or frozenset({ABSENT})) | new
            self.at = {name: versions | {ABSENT} for name, versions in self.at.items()}

    def end(self, step: Step, name: str, keep: int | None, *, struck: bool) -> None:
        new = frozenset({step.version})
        if step.kind == "number":
            assert name not in self.given, f"{name} is given twice"
            self.given.add(name)
            self.elsewhere -= new
            if keep:
                self.newest = new
                if not struck:  # else what no rule keeps goes with the next save
                    self.at = dict.fromkeys(self.at, frozenset({ABSENT}))
        self.at[name] = new
        if step.kind == "quarantine":
            self.at |= {name: frozenset({ABSENT}), moved(name): self.moving}


class Program:
    """Takes one step after another in one process, and notes in the ledger what it is told."""

    def __init__(
        self, place: Place, files: MemoryFiles, ledger: Ledger, keep: int | None = KEEP
    ) -> None:
        self._place, self._files, self._ledger, self._keep = place, files, ledger, keep
        self.told: Counter[str] = Counter()

    def go(self, steps: Iterable[Step]) -> None:
        """Take steps; what fails is over with, and the program goes on."""
        for step in steps:
            if step.kind == "read":
                self._read(step.name)
                continue
            index = f"{self._place.prefix(step.name)}.index"
            if step.kind == "quarantine" and not self._files.exists(index):
                continue
            if step.kind != "recover":
                self._ledger.begin(step, self._keep)
            try:
                name = self.do(step)
            except protocol.FAILED:
                self.told["failed"] += 1
                continue
            self.told["done"] += 1
            if step.kind != "recover":
                self._ledger.end(step, name, self._keep, struck=self._files.struck)

    def do(self, step: Step) -> str:
        """Take a step; the name that it saved to, or deleted."""
        prefix, directory = self._place.prefix(step.name), self._place.directory
        if step.kind == "number":
            values = values_of(step.version)
            made = protocol.save_numbered(directory, values, self._files, self._keep)
            return made.removeprefix(self._place.prefix(""))
        if step.kind == "recover":
            protocol.recover(directory, self._files)
        elif step.kind == "delete":
            protocol.delete(prefix, self._files)
        elif step.kind == "quarantine":
            protocol.quarantine(prefix, self._files)
        elif step.kind == "export":
            protocol.export(prefix, exported(step.version), self._files)
        else:
            protocol.save(prefix, values_of(step.version), self._files)
        return step.name

    def _read(self, name: str) -> None:
        before = self._ledger.allowed(name)
        try:
            version = version_of(protocol.read(self._place.prefix(name), self._files))
        except protocol.FAILED:
            self.told["unread"] += 1  # and may try again
            return
        self.told["read"] += 1
        allowed = before | self._ledger.allowed(name)
        assert version in allowed, f"{name} is read as {version}, not one of {sorted(allowed)}"


class Seen(NamedTuple):
    """What a reader finds."""

    found: tuple[tuple[str, int | str], ...]  # name → version, or the text of what is wrong
    left_over: tuple[str, ...]
    gone: tuple[str, ...]  # what the state file names and is not there


class Judge:
    """Reads, recovers and saves again, each different state once.

    ``power`` is whether the states are those after a loss of power: what is being deleted may have
    lost any of its files then, until the recovery. ``alone`` is whether only one manager saved: two
    in a store may write the state file in any order.
    """

    def __init__(self, place: Place, *, power: bool = False, alone: bool = True) -> None:
        self._place, self._power, self._alone = place, power, alone
        self._seen: dict[State, Seen] = {}
        self._recovered: dict[State, tuple[State, ...]] = {}
        self._saved: dict[tuple[State, str], tuple[State, str]] = {}

    def problems(self, state: State, expected: Expected, *, killed: bool = True) -> list[str]:
        """What is wrong with a state that a dead process has left; [] for nothing.

        A text begins with "lost" where a value is, and with "left over" where a file is. With
        ``killed``, the recovery is killed, too.
        """
        found = self.wrong(state, expected)
        *amid, settled = self.recovered(state)
        for number, each in enumerate(amid if killed else ()):
            found += self.wrong(each, expected, f"amid a recovery, at {number}: ")
            again = self.recovered(each)[-1]
            found += self._whole(again, expected, f"recovered once more after {number}: ")
        found += self._whole(settled, expected, "recovered: ")
        for before, when in ((settled, "saved after a recovery"), (state, "saved at once")):
            found += self._next(before, expected, when)
        return sorted({*found})

    def recovered(self, state: State) -> tuple[State, ...]:
        """What is kept at each step of a recovery, where it may be killed; the last, after it."""
        if state not in self._recovered:
            kept, passed = Kept(state), {state: None}
            files = self._place.files(kept, watch=lambda: passed.update({kept.state(): None}))
            with process(SEED + 1):
                protocol.recover(self._place.directory, files)
            passed.pop(kept.state(), None)
            self._recovered[state] = (*passed, kept.state())
        return self._recovered[state]

    def seen(self, state: State) -> Seen:
        if state not in self._seen:
            self._seen[state] = look(self._place, state)
        return self._seen[state]

    def wrong(
        self, state: State, expected: Expected, when: str = "", *, recovered: bool = False
    ) -> list[str]:
        found, at = dict(self.seen(state).found), dict(expected.at)
        gone = self.seen(state).gone if self._alone else ()
        wrong = [f"lost: {when}{name} is gone, and the state file names it" for name in gone]
        away = [name for name in at if name.startswith(_AWAY)]
        for name in {*found, *at}:
            version = found.get(name, ABSENT)
            allowed = at.get(name, frozenset({ABSENT}) | expected.elsewhere)
            torn = (self._power or away) and not recovered and isinstance(version, str)
            if version not in allowed and not (torn and ABSENT in allowed):
                wrong.append(f"lost: {when}{name} is {version}, not one of {sorted(allowed)}")
        for name in away if recovered and ABSENT not in expected.moving else ():
            here = name.rpartition("/")[2]
            both = {found.get(name, ABSENT), found.get(here, ABSENT)}
            if ABSENT in at[here] and not both & expected.moving:
                wrong.append(f"lost: {when}{name} is nowhere")
        numbered = [name for name in found if name.startswith(f"{protocol.NAME}-")]
        newest = max(numbered, key=lambda name: int(name.rpartition("-")[2]), default="")
        if expected.newest is not None and found.get(newest, ABSENT) not in expected.newest:
            wrong.append(f"lost: {when}the newest is {newest}, {found.get(newest)}")
        return wrong

    def _whole(self, state: State, expected: Expected, when: str) -> list[str]:
        left = self.seen(state).left_over
        over = [f"left over: {when}{', '.join(left)}"] if left else []
        return self.wrong(state, expected, when, recovered=True) + over

    def _next(self, state: State, expected: Expected, when: str) -> list[str]:
        """One more save, under the name that was saved to, or the next number."""
        if expected.newest is not None:
            after, name = self._saved_next(state, "")
            used = [name for name, _ in expected.at]
            if not self._place.renames:  # there, what was tried may still arrive
                used += [name for name, _ in self.seen(state).found]
            if name in used or number_of(name) < max(map(number_of, used), default=0):
                return [f"lost: {when}: {name} is used again"]
            only = Expected(((name, frozenset({NEXT})),), frozenset(), frozenset({NEXT}))
            return self._whole(after, only, f"{when}: ")
        found = []
        for name in (name for name, _ in expected.at if "/" not in name):
            after, made = self._saved_next(state, name)
            if not made:  # refused: all is as it was, and there is one of the name
                found += self.wrong(after, expected, f"{when} as {name}, refused: ")
                if dict(self.seen(after).found).get(name, ABSENT) == ABSENT:
                    found.append(f"lost: {when}: {name} is free, and refused")
                continue
            at = {**dict(expected.at), name: frozenset({NEXT})}
            then = expected._replace(at=tuple(at.items()), elsewhere=frozenset(), newest=None)
            # another name is recovered by its own next save
            check = self.wrong if when.endswith("at once") else self._whole
            found += check(after, then, f"{when} as {name}: ")
        return found

    def _saved_next(self, state: State, name: str) -> tuple[State, str]:
        if (state, name) not in self._saved:
            kept, made, is_file = Kept(state), "", name.endswith(".npz")
            kind = "export" if is_file else "save" if name else "number"
            refused = (SaveError,) if name and (is_file or not self._place.renames) else ()
            with process(SEED + 3), contextlib.suppress(*refused):
                program = Program(self._place, self._place.files(kept), Ledger())
                made = program.do(Step(kind, NEXT, name))
            self._saved[state, name] = kept.state(), made
        return self._saved[state, name]


def number_of(name: str) -> int:
    """The number in a name; 0 where there is none."""
    end = name.rpartition("-")[2]
    return int(end) if end.isdecimal() else 0


def look(place: Place, state: State) -> Seen:
    """Read every checkpoint that is listed, and every index; list what belongs to none of them."""
    files = place.files(Kept(state))
    names = place.names(state)
    inside = place.prefix("")
    listed = [prefix.removeprefix(inside) for prefix in protocol.listing(place.directory, files)]
    indexed = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    found: dict[str, int | str] = {}
    here = (name for name in indexed if "/" not in name or name.startswith(_AWAY))
    for name in sorted({*listed, *here}):
        try:
            found[name] = version = version_of(protocol.read(place.prefix(name), files))
            ours = version != FOREIGN and f"{name}.tfckpt.json" in names
            assert not ours or record_file.read(place.prefix(name), files), "of another record"
        except (AssertionError, *protocol.FAILED) as error:  # noqa: PERF203 (each may fail)
            found[name] = f"unreadable: {type(error).__name__}: {error}"
    belongs = {*_KNOWN}
    for name in indexed:
        if f"{name}.tfckpt.json" in names or name in found:
            belongs |= {f"{name}.index", f"{name}.tfckpt.json", *data_of(name, names)}
            belongs |= {name + protocol.OWN} if name == protocol.WITH_SAVER else set()
    for name in (name for name in names if name.endswith(".npz")):
        versions = [version for version in VERSIONS if names[name] == exported(version)]
        found[name] = versions[0] if versions else "half of it"
        belongs.add(name)
    belongs |= {above for name in belongs for above in _above(name)}
    root = place.directory
    directories = [each for each in state.directories if each.startswith(f"{root}/")]
    left = {*names, *(each.removeprefix(f"{root}/") for each in directories)} - belongs
    named = re.findall(rb'paths?: "([^"]+)"', names.get("checkpoint", b""))
    gone = sorted({os.path.split(each.decode())[1] for each in named} - {*found})
    return Seen(tuple(found.items()), tuple(sorted(left)), tuple(gone))


def _above(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def data_of(name: str, names: Iterable[str]) -> set[str]:
    """The data files of a checkpoint, if they are those of one save, and all of them."""
    found = [m for other in names if (m := _DATA.fullmatch(other)) and m["base"] == name]
    shards = {match["shards"] for match in found}
    whole = len(shards) == 1 and len(found) == int(*shards)
    return {match[0] for match in found} if whole else set()


@contextlib.contextmanager
def process(seed: int = SEED, lock: Callable[[], object] = threading.Lock) -> Iterator[None]:
    """A new process, which remembers nothing."""
    with protocol.Process(seed, lock).running():
        yield


class Moment(NamedTuple):
    """A place of a scenario where a process can be killed."""

    case: str
    state: State
    expected: Expected


def moments(place: Place, scenario: str) -> list[Moment]:
    """Every different place where it can be killed, and the end."""
    return _watched(place, scenario, lambda kept: [kept.state()])


def losses(place: Place, scenario: str, *, syncs: bool = True) -> list[Moment]:
    """What a loss of power may leave at each of these places."""
    return _watched(place, scenario, Kept.losses, syncs=syncs)


def _watched(
    place: Place,
    scenario: str,
    left: Callable[[Kept], Iterable[State]],
    *,
    syncs: bool = True,
) -> list[Moment]:
    kept, found, ledger = place.empty(), dict[tuple[State, Expected], str](), Ledger()
    files = place.files(kept)
    files.syncs = syncs

    def watch() -> None:
        for state in left(kept):
            found.setdefault((state, ledger.expected), f"{place}/{scenario}/{len(files.steps)}")

    files.watch = watch
    program = Program(place, files, ledger)
    with process():
        program.go(SCENARIOS[scenario])
        watch()
    assert not program.told["failed"], scenario
    return [Moment(case, *key) for key, case in found.items()]


def steps_of(place: Place, scenario: str) -> int:
    """How many steps it has."""
    files = place.files(place.empty())
    with process():
        Program(place, files, Ledger()).go(SCENARIOS[scenario])
    return len(files.steps)


def faults(steps: int) -> Iterator[Fault]:
    """Each step fails in every way."""
    for n in range(steps):
        for how in How:
            yield Fault(n, how)
            if how is not How.FULL:
                yield Fault(n, how, effect=True)


def live_through(place: Place, scenario: str, fault: Fault, judge: Judge) -> tuple[int, list[str]]:
    """How often it was killed in the call that is struck, and what is wrong after each call."""
    kept, amid, ledger = place.empty(), dict[Moment, None](), Ledger()
    files = place.files(kept, fault=fault)

    def watch() -> None:
        if files.struck:
            amid[Moment(f"killed at {len(files.steps)}", kept.state(), ledger.expected)] = None

    files.watch = watch
    program = Program(place, files, ledger)
    found = []
    with process():
        for number, step in enumerate(SCENARIOS[scenario]):
            program.go([step])
            if files.struck:
                files.watch = nothing
            found += [
                f"call {number}: {text}" for text in judge.wrong(kept.state(), ledger.expected)
            ]
    if not place.renames:  # there, what was given up may still arrive
        puts = Counter(step for step in files.steps if step.startswith("put ") and ".data-" in step)
        reused = [step for step, count in puts.items() if count > 1 and files.struck]
        found += [f"lost: {step} again" for step in reused if scenario == "keep one"]
    ends = [*amid, Moment("at the end", kept.state(), ledger.expected)]
    for moment in ends:
        problems = judge.problems(moment.state, moment.expected)
        found += [f"{moment.case}: {text}" for text in problems]
    return len(amid), found
