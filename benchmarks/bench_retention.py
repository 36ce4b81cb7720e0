"""What a year of saves every ten minutes costs beside the writing of the values.

Run it with ``python benchmarks/bench_retention.py [SAVES]``. First the decision what to delete
alone, then everything that a manager does with the directory: listing it, reading the records it
does not know, deciding, writing the state file, deleting. The rules keep for good one checkpoint
per twelve hours, 730 in a year, and a handful besides. A save should grow more expensive with how
many are kept, and not with how many there were.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.manager.directory import Directory
from tfckpt.manager.retention import Saved, decide
from tfckpt.policy import Keep
from tfckpt.records import Entry, Inventory, Role
from tfckpt.stored.commits import commit
from tfckpt.stored.commits.record import CommitRecord, now
from tfckpt.stored.files import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable

SAVES = 50_000
SECONDS = 365 * 24 * 3600 / SAVES
SEED = 1
RULES = (
    Keep(latest=3),
    Keep(best=2, monitor="val_loss", mode="min"),
    Keep(every_n_hours=12),
    Keep(pin=(17, 4_000, 31_000)),
)


def metrics(number: int, loss: random.Random) -> dict[str, float]:
    return {"val_loss": loss.random() + 100 / number}


def deciding() -> Callable[[int], tuple[float, int]]:
    """One decision: its seconds, and how many are kept."""
    loss = random.Random(SEED)
    here: dict[str, Saved] = {}

    def save(number: int) -> tuple[float, int]:
        prefix = f"ckpt-{number}"
        when = number * SECONDS
        here[prefix] = Saved(prefix, number, when, number, metrics(number, loss), finite=True)
        start = time.perf_counter()
        decision = decide(here.values(), RULES, anchor=0.0, in_use=(prefix,))
        spent = time.perf_counter() - start
        for gone in decision.delete:
            del here[gone]
        return spent, len(here)

    return save


def with_files(path: str) -> Callable[[int], tuple[float, int]]:
    """All that a save does in its directory but for making the checkpoint."""
    loss = random.Random(SEED)
    directory = Directory(path, "ckpt", SCRATCH)
    value = Entry("model/dense/kernel", Role.WEIGHT, "float32", (2, 2), 16, "model/kernel")
    began = time.time() - 365 * 24 * 3600

    def save(number: int) -> tuple[float, int]:
        prefix = f"{path}/ckpt-{number}"
        Path(f"{prefix}.index").write_bytes(b"index")
        Path(f"{prefix}.data-00000-of-00001").write_bytes(b"data")
        when = time.gmtime(began + number * SECONDS)
        record = CommitRecord(
            number,
            Inventory(prefix, {value.name: value}),
            "",
            f"{time.strftime('%Y-%m-%dT%H:%M:%S', when)}{now()[-6:]}",
            metrics=metrics(number, loss),
            finite=True,
        )
        commit.write(prefix, record, SCRATCH)
        start = time.perf_counter()
        directory.claim()
        found = directory.checkpoints()
        decision = decide(directory.saved(found), RULES, anchor=began, in_use=(prefix,))
        going = set(decision.delete)
        staying = [one for one in found if one.prefix not in going]
        directory.write_state(staying, decision.last_preserved)
        for gone in decision.delete:
            directory.delete(gone)
        return time.perf_counter() - start, len(staying)

    return save


def measure(title: str, save: Callable[[int], tuple[float, int]], saves: int) -> None:
    print(f"\n{title}\n{'saves':>8}{'kept':>8}{'seconds':>10}{'ms each':>10}")
    spent, shown = 0.0, max(saves // 5, 1)
    for number in range(1, saves + 1):
        seconds, kept = save(number)
        spent += seconds
        if number % shown == 0:
            print(f"{number:>8,}{kept:>8,}{spent:>10.1f}{1000 * spent / shown:>10.3f}")
            spent = 0.0


def main() -> None:
    saves = int(sys.argv[1]) if len(sys.argv) > 1 else SAVES
    print(f"seed {SEED}")
    measure("deciding what to delete", deciding(), saves)
    with tempfile.TemporaryDirectory() as path:
        measure("with the files of a directory", with_files(path), saves)


if __name__ == "__main__":
    main()
