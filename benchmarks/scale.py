"""What a directory of 100,000 checkpoints and a model of very many values cost, on paper.

Run it with ``python -m benchmarks.scale [CHECKPOINTS]``; it takes about a minute and needs neither
a disk nor a network. The directory is one that only says what is in it: each call to it is counted,
and a record's content is made when it is read. So what is measured is tfckpt's own time and memory,
and how often it asks the store; what a store takes for one call is for the reader to multiply.
"""

from __future__ import annotations

import collections
import resource
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.manager.directory import Directory
from tfckpt.planning import make_plan
from tfckpt.policy import Keep, Policy
from tfckpt.stored.commits.discovery import candidates, highest_number
from tfckpt.stored.commits.record import CommitRecord, parse, render
from tfckpt.stored.commits.record_file import SUFFIX
from tfckpt.stored.io.files import Handle
from tfckpt.stored.paths.state_file import CheckpointState
from tfckpt.stored.paths.state_file import render as render_state

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINTS = 100_000
SHARDS = 2
PLACE = "store://bucket/run"
BEGAN = 1_700_000_000
BETWEEN = 600  # seconds between two saves
VALUES = (3_000, 30_000)
RULES = {
    "none": (),
    "latest": (Keep(latest=3),),
    "latest, best": (Keep(latest=3), Keep(best=2, monitor="loss", mode="min")),
}


class Bytes(Handle):
    """The content of one object."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def readinto(self, offset: int, buffer: memoryview) -> int:
        part = self._content[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        pass


class Store:
    """A directory that only says what is in it: as many checkpoints as it is told.

    Attributes:
        calls: how often each call was made.
        nbytes: how many bytes were read and written.
    """

    def __init__(self, checkpoints: int, *, renames: bool, values: int = 4) -> None:
        self.renames = renames
        self.calls: collections.Counter[str] = collections.Counter()
        self.nbytes = 0
        self._inventory = inventory(values)
        self._objects: dict[str, bytes | None] = {}
        for number in range(1, checkpoints + 1):
            self._objects[f"ckpt-{number}.index"] = None
            self._objects[f"ckpt-{number}{SUFFIX}"] = None
            for shard in range(SHARDS):
                self._objects[f"ckpt-{number}.data-{shard:05d}-of-{SHARDS:05d}"] = None

    def listdir(self, path: str) -> list[str]:
        self.calls["listdir"] += 1
        return list(self._objects) if path == PLACE else []

    def exists(self, path: str) -> bool:
        self.calls["exists"] += 1
        return path.removeprefix(f"{PLACE}/") in self._objects

    def open_read(self, path: str) -> Handle:
        self.calls["open_read"] += 1
        name = path.removeprefix(f"{PLACE}/")
        if name not in self._objects:
            raise FileNotFoundError(path)
        content = self._objects[name] or self._record(int(name[5:].removesuffix(SUFFIX)))
        self.nbytes += len(content)
        return Bytes(content)

    def write_atomic(self, path: str, data: bytes) -> None:
        self.calls["write_atomic"] += 1
        self.nbytes += len(data)
        self._objects[path.removeprefix(f"{PLACE}/")] = data

    def rename(self, source: str, target: str) -> None:
        self.calls["rename"] += 1
        self._objects[target.removeprefix(f"{PLACE}/")] = self._objects.pop(
            source.removeprefix(f"{PLACE}/")
        )

    def remove(self, path: str) -> None:
        self.calls["remove"] += 1
        if self._objects.pop(path.removeprefix(f"{PLACE}/"), b"") == b"":
            raise FileNotFoundError(path)

    remove_tree = remove

    def makedirs(self, path: str) -> None:
        self.calls["makedirs"] += 1

    def fsync_dir(self, path: str) -> None:
        self.calls["fsync"] += 1

    def _record(self, number: int) -> bytes:
        when = time.gmtime(BEGAN + number * BETWEEN)
        record = CommitRecord(
            number,
            self._inventory,
            "0" * 64,
            time.strftime("%Y-%m-%dT%H:%M:%S+00:00", when),
            step=100 * number,
            metrics={"loss": 1.0 + (number * 7919) % 1000},
            finite=True,
            run_began=float(BEGAN),
        )
        return render(record)


def inventory(values: int) -> Inventory:
    """Weights with Adam's two slots, as a transformer has them."""
    entries = {}
    for index in range(max(values // 3, 1)):
        of = f"block_{index // 12}/part_{index % 12}/kernel"
        weight = Entry(f"model/{of}", Role.WEIGHT, "float32", (4096, 1024), 1 << 24, f"m/{of}")
        entries[weight.name] = weight
        for slot in ("momentum", "velocity"):
            entry = weight._replace(
                name=f"optimizer/{slot}/{of}",
                role=Role.SLOT,
                key=f"o/{slot}/{of}",
                slot=slot,
                of=weight.name,
            )
            entries[entry.name] = entry
    return Inventory("scale", entries, optimizers={"optimizer": "adam"})


def line(title: str, work: Callable[[], object], store: Store | None = None) -> None:
    """Do it once, and print its processor time and what it asked of the store."""
    before = collections.Counter(store.calls) if store else collections.Counter[str]()
    read = store.nbytes if store else 0
    start = time.process_time()
    work()
    seconds = time.process_time() - start
    asked = ""
    if store:
        calls = store.calls - before
        asked = ", ".join(f"{count:,} {call}" for call, count in sorted(calls.items()))
        asked += f"; {(store.nbytes - read) / 1e6:,.1f} MB"
    print(f"{title:<44}{1000 * seconds:>11,.1f} ms   {asked}", flush=True)


def of_a_directory(store: Store) -> None:
    """Listing, starting, deciding and saving where there are so many."""
    line("the highest number", lambda: highest_number(PLACE, files=store), store)
    line("the names, sorted", lambda: candidates(PLACE, files=store), store)
    line("the newest, to restore", lambda: next(opened(store).restorable()), store)
    line("a manager begins", lambda: opened(store).history(), store)
    for name, rules in RULES.items() if store.renames else [("latest", RULES["latest"])]:
        decide = partial(decided, opened(store), rules)
        line(f"rules: {name}: the first decision", decide, store)
        line(f"rules: {name}: the next", decide, store)
    if store.renames:
        line("what TensorFlow is told, all read anew", partial(told, opened(store)), store)
    else:  # as an earlier save has left it
        store.write_atomic(f"{PLACE}/checkpoint", state_file(store))
    line("what TensorFlow is told by the next save", partial(told, opened(store)), store)


def state_file(store: Store) -> bytes:
    names = [one.prefix[len(PLACE) + 1 :] for one in candidates(PLACE, files=store)][::-1]
    times = tuple(float(BEGAN + BETWEEN * number) for number in range(1, len(names) + 1))
    return render_state(CheckpointState(names[-1], tuple(names), times)).encode()


def opened(store: Store) -> Directory:
    return Directory(PLACE, "ckpt", store)


def decided(directory: Directory, rules: tuple[Keep, ...]) -> object:
    found = directory.checkpoints()
    return directory.decide(found, rules, anchor=float(BEGAN), preserved=(), in_use=())


def told(directory: Directory) -> None:
    directory.write_state(directory.checkpoints(), 0.0)


def of_a_model(values: int) -> None:
    """What grows with the number of values."""
    print(f"\n{values:,} values")
    stored = inventory(values)
    line("a plan", lambda: make_plan(Policy(name="scale"), stored, inventory(values)))
    store = Store(0, renames=True, values=values)
    record = store._record(1)
    line(f"a record of {len(record) / 1e6:,.1f} MB written", lambda: store._record(1))
    line("a record read", lambda: parse(record, "record", "ckpt-1"))
    line("its head alone", lambda: parse(record, "record", "ckpt-1", head=True))


def main() -> None:
    checkpoints = int(sys.argv[1]) if len(sys.argv) > 1 else CHECKPOINTS
    for renames, kind in ((True, "a file system"), (False, "an object store")):
        print(f"\n{checkpoints:,} checkpoints in {kind}")
        of_a_directory(Store(checkpoints, renames=renames))
    for values in VALUES:
        of_a_model(values)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"\npeak memory of the process: {peak:,} MiB")


if __name__ == "__main__":
    main()
