"""What a month of saves every ten minutes costs beside the writing of the values.

First the decision what to delete alone, then everything that a manager does with the directory:
listing it, reading the records it does not know, deciding, writing the state file, deleting. The
rules keep for good one checkpoint per twelve hours, and a handful besides. A save should grow more
expensive with how many are kept, and not with how many there were. The first month is run.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Result, Settings
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.manager.directory import Directory
from tfckpt.manager.retention import SavedCheckpoint, decide
from tfckpt.policy import Keep
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record import CommitRecord, now
from tfckpt.stored.io.files import SCRATCH

if TYPE_CHECKING:
    from collections.abc import Callable

SAVES = 4_320
SECONDS = 600  # from one save to the next
PARTS = 4
SEED = 1
RULES = (
    Keep(latest=3),
    Keep(best=2, monitor="val_loss", mode="min"),
    Keep(every_n_hours=12),
    Keep(pin=(17, 4_000)),
)


def metrics(number: int, loss: random.Random) -> dict[str, float]:
    return {"val_loss": loss.random() + 100 / number}


def deciding() -> Callable[[int], tuple[float, int]]:
    """One decision: its seconds, and how many are kept."""
    loss = random.Random(SEED)
    here: dict[str, SavedCheckpoint] = {}

    def save(number: int) -> tuple[float, int]:
        prefix = f"ckpt-{number}"
        when = number * SECONDS
        here[prefix] = SavedCheckpoint(
            prefix, number, when, number, metrics(number, loss), finite=True
        )
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
    began = time.time() - SAVES * SECONDS

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
        record_file.write(prefix, record, SCRATCH)
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


def run(settings: Settings) -> list[Result]:
    saves = 40 if settings.quick else SAVES
    found = _measured("deciding what to delete", deciding(), saves)
    with tempfile.TemporaryDirectory(dir=settings.disk) as path:
        return found + _measured("with the files of a directory, disk", with_files(path), saves)


def _measured(case: str, save: Callable[[int], tuple[float, int]], saves: int) -> list[Result]:
    """The milliseconds of a save, in each part of the run."""
    found, spent = [], []
    for number in range(1, saves + 1):
        seconds, kept = save(number)
        spent.append(1000 * seconds)
        if number % (saves // PARTS) == 0:
            to = f"up to save {number:,}"
            found.append(Result("retention", case, to, "ms a save", tuple(spent)))
            found.append(Result("retention", case, to, "kept at its end", (kept,)))
            spent = []
    return found
