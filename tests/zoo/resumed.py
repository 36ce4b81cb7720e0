"""The table of resumed trainings: programs × where they are killed × flavors of Keras.

``python -m zoo.resumed`` in ``tests`` measures and prints it, ``python -m zoo.resumed keras cache``
the rows of one flavor with a word in their names. What is expected stands in ``ROWS``;
``conformance/resume/test_table.py`` asserts it.

A cell says what came of a program that was killed there and started again, in a new process:

- ``equal``: weights, optimizer, History, and what else the program shows, are bit-equal to those of
  plain Keras without an interruption. No batch was trained twice or left out, but those since the
  last save, and nobody was told that it is not exact;
- ``said``: before the first step a line named the cause why it may not be equal;
- ``OTHER``: something else came of it, and nothing was said;
- ``ALARM``: it is equal, but was told not to be exact;
- ``DIES``: it ends by an error.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tfckpt.core.versions import release
from zoo import programs as of
from zoo import programs_around as around
from zoo import programs_held as held
from zoo.forkserver import ForkServer
from zoo.start import SAVE_FREQ, STEPS, Place, Program, Start

FLAVOURS = ("keras", "tf_keras")
PRELOAD = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.resumed")
# Number of the `fit`, epoch, and the batch before which it ends, or the event.
KILLS: dict[str, Place | None] = {
    "start": (0, 0, 1),  # before the first save
    "batch": (0, 0, 3),
    "end": (0, 0, "end"),  # before the save of the epoch
    "next": (0, 1, "begin"),
    "later": (0, 1, 3),
    "valid": (0, 1, "validation"),
    "fit 2": (1, 0, 3),
    "again": (0, 0, 3),  # and the process that goes on, before it calls a model
    "over": None,  # it was finished
}
RESTORED: Place = (0, -1, "restored")
FIT = ("start", "batch", "end", "next", "later", "over")
VALIDATED = ("later", "valid", "end", "over", "batch")
TWO = ("fit 2", "next", "later", "over")
OF_ONE_EPOCH = ("fit 2", "end", "batch", "over")
LOOP = ("later", "batch", "start", "over")
RESTORED_FIRST = ("again", *LOOP)
PLACES = ("later", "next", "batch")
# How it is said that a training is not exact.
CLAIMED = re.compile(r"\bnot exact|\b(is|are) reset|\bother numbers|nor a repeated", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """A program, and what comes of it.

    Attributes:
        word: a regular expression for what a line must name if it is said.
        cells: what is expected, by flavor and kill, flavor, or kill; the most exact one counts.
        flavors: both only where the two differ in it.
        places: of this program, where they are not those of ``KILLS``.
        plain: whether plain Keras says what is expected; if not, an uninterrupted run of tfckpt.
        all: whether all kills are tried by default; if not, one of them.
    """

    program: Program
    kills: tuple[str, ...] = FIT
    word: str = ""
    cells: Mapping[str, str] = field(default_factory=dict)
    flavors: tuple[str, ...] = FLAVOURS[:1]
    places: Mapping[str, Place] = field(default_factory=dict)
    plain: bool = True
    all: bool = False

    def expected(self, flavor: str, kill: str) -> str:
        keys = (f"{flavor} {kill}", flavor, kill, "all")
        return next((self.cells[key] for key in keys if key in self.cells), "equal")

    def place(self, kill: str) -> Place | None:
        return self.places.get(kill, KILLS[kill])


class Measured(NamedTuple):
    """What came of one program, killed in one place."""

    cell: str
    details: str


DRAWN, BOTH = {"all": "said"}, FLAVOURS
OLD = release(version("keras")) < (3, 7)
BY_STEPS = {"keras": "said"} if OLD else {}
ONCE = ("fit 2", "next", "over") if OLD else TWO  # it trains no epoch after the end of the data
AT_ONCE: dict[str, Place] = {"fit 2": (1, 0, 1)}  # before it has saved anything
DONE: dict[str, Place] = {"over": (0, -1, "done")}  # before it is told that it is


def batched(make: Callable[[], Any], **more: Any) -> Program:
    return of.fed(lambda run: make().batch(4), **more)


shuffled = of.shuffled
ROWS: dict[str, Row] = {
    # kinds of data
    "arrays": Row(of.arrays, flavors=BOTH, all=True),
    "validation split": Row(of.split, VALIDATED, flavors=BOTH),
    "shuffled validation": Row(of.shuffled_validation, VALIDATED),
    "endless validation": Row(
        of.endless_validation(of.shuffled), VALIDATED, "begins it", BY_STEPS, flavors=BOTH
    ),
    "endless, two shuffles": Row(
        of.endless_validation(lambda: of.shuffled().take(6).shuffle(6)),
        ("later", "valid"),
        "of two shuffles",
        DRAWN,
    ),
    "shuffle": Row(batched(shuffled), flavors=BOTH),
    "shuffle, repeat": Row(
        batched(lambda: shuffled().repeat(), steps_per_epoch=STEPS), flavors=BOTH
    ),
    "filter": Row(batched(lambda: shuffled().filter(lambda x, y: y[0] > -100)), flavors=BOTH),
    "augmentation in map": Row(of.fed(of.augmented)),
    "generator in map": Row(of.fed(of.noisy)),
    "tf.random in map": Row(of.fed(of.drawn)),
    "from_generator": Row(of.fed(of.from_generator), flavors=BOTH),
    "PyDataset": Row(of.fed(of.sequence), flavors=BOTH),
    "Python generator": Row(of.fed(of.generator, steps_per_epoch=STEPS), flavors=BOTH),
    # a cache keeps the order of the first epoch
    "shuffle, cache": Row(batched(lambda: shuffled().cache())),
    "shuffle, cache, shuffle": Row(batched(lambda: shuffled().cache().shuffle(4))),
    "shuffle, cache(file)": Row(
        of.fed(lambda run: shuffled().cache(str(run.folder / "cache")).batch(4)),
        # TensorFlow refuses to write beside the lock file that a killed process left.
        cells={"start": "DIES"},
    ),
    # layers, optimizers, steps
    "dropout, batch norm": Row(of.with_layers, VALIDATED, flavors=BOTH),
    "LSTM": Row(of.lstm(dropout=0.3), FIT, "lstm", {"tf_keras": "said"}, BOTH),
    "steps_per_execution": Row(of.several_steps_a_call, flavors=BOTH),
    "accumulation": Row(of.adam(gradient_accumulation_steps=3)),
    "use_ema": Row(of.adam(use_ema=True, ema_momentum=0.8), flavors=BOTH),
    "loss scale": Row(of.optimized(of.scaled, policy="mixed_float16"), flavors=BOTH),
    "tf.random in a layer": Row(
        of.draws_in_a_layer, FIT, "RandomStandardNormal in .*noise", DRAWN, BOTH
    ),
    "tf.nn.dropout in a step": Row(of.drops_in_a_step, FIT, "RandomUniform", DRAWN),
    "seeds in a layer": Row(of.draws_by_seed, flavors=BOTH),
    "variable in a step": Row(of.variable_in_a_step, flavors=BOTH),
    "frozen at an epoch": Row(of.frozen_at_an_epoch, flavors=BOTH),
    # the first step makes the variables
    "not built": Row(of.unbuilt, flavors=BOTH),
    "GAN": Row(of.gan, flavors=BOTH),
    "accumulates by itself": Row(of.accumulates_by_itself),
    # loops of one's own
    "loop, iterator": Row(around.loop(around.iterated), LOOP, flavors=BOTH),
    "loop, np.random": Row(around.loop(around.numpys_draws), LOOP),
    "manager, np.random": Row(around.managed, LOOP),
    # restored before a model is called
    "guide": Row(around.restored_first("MLP"), RESTORED_FIRST, flavors=BOTH, all=True),
    "SAC": Row(around.restored_first("SAC", by_run=True), RESTORED_FIRST, flavors=BOTH),
    "module": Row(  # where it was finished, nothing makes its variables
        around.restored_first("lazy module"),
        ("again", "later", "batch", "start", "next"),
        flavors=BOTH,
        places={"next": (0, 1, 0)},
    ),
    # several `fit`, and what stands between them
    "unfrozen": Row(around.fits(around.unfreezes), TWO, flavors=BOTH),
    "frozen, same optimizer": Row(around.fits(around.freezes_with_the_same_optimizer), TWO),
    "another optimizer": Row(around.fits(around.takes_another_optimizer), TWO),
    "averages between": Row(around.fits(around.averages), TWO),
    "labels between": Row(around.labels_between, TWO, flavors=BOTH),
    "fits of drawn data": Row(around.fits(data=of.noisy, shared=False), TWO),
    "fits of one dataset": Row(around.fits(data=around.batches), TWO, flavors=BOTH, all=True),
    "fits of one, by steps": Row(around.fits(data=around.batches, steps_per_epoch=STEPS), ONCE),
    "fits of one drawn": Row(
        around.fits(data=of.noisy), TWO, "its own dataset", {"fit 2": "said"}, places=AT_ONCE
    ),
    "fits of a PyDataset": Row(around.fits(data=of.sequence), TWO, flavors=BOTH),
    "fits, one callback": Row(around.fits_of_an_epoch(callbacks="one"), OF_ONE_EPOCH),
    "fits, initial_epoch": Row(
        around.fits_of_an_epoch(callbacks="by epochs"), OF_ONE_EPOCH, places={"fit 2": (1, 1, 3)}
    ),
    # callbacks of Keras, and of one's own
    "EarlyStopping": Row(
        around.called(around.stops_at_the_worst), VALIDATED, flavors=BOTH, places=DONE
    ),
    "ReduceLROnPlateau": Row(around.called(around.plateau), VALIDATED),
    "SwapEMAWeights": Row(around.called(around.swaps, ema=True), VALIDATED),
    "ModelCheckpoint": Row(around.best_file, VALIDATED),
    "load best": Row(around.best_loaded(stopping=False), VALIDATED, plain=False),
    "load best, stopping": Row(around.best_loaded(stopping=True), VALIDATED, plain=False),
    "get_state": Row(around.counts_with_get_state),
    "arrays in a callback": Row(around.averages_in_arrays),
    "trains a batch itself": Row(around.replays),
    "teacher": Row(around.teaches),
    "teacher, not passed": Row(around.teaches_unsaved),
    # state in other places
    **{f"in: {name}": Row(one, PLACES, flavors=BOTH) for name, one in held.HELD.items()},
    **{
        f"in: {name}": Row(one, PLACES, "changes in training and cannot be saved", DRAWN, BOTH)
        for name, one in held.NAMED.items()
    },
    **{f"reads {name}": Row(one, PLACES, flavors=BOTH) for name, one in held.READS_OF_FIT.items()},
    "reads endless data": Row(held.reads_data_of_fit(held.endless, steps_per_epoch=STEPS), PLACES),
    "reads two shuffles": Row(
        held.reads_data_of_fit(lambda: shuffled().shuffle(4).batch(4)),
        PLACES[:2],
        "the data of `fit` itself",
        DRAWN,
        BOTH,
    ),
    "in: layer, before and after": Row(
        held.number_on_a_layer(), PLACES, "step was traced", {"all": "said", "batch": "equal"}, BOTH
    ),
    "draws between": Row(held.draws_between, TWO, flavors=BOTH),
    "model drawn between": Row(held.another_model_between, TWO, flavors=BOTH),
    "shuffle, in a strategy": Row(of.replicated, ("next", "later"), flavors=BOTH),
}


def by_default(flavor: str, name: str) -> tuple[str, ...]:
    """The kills that are always tried, in one flavor of a row: all of them, or one, in turn."""
    row, number = ROWS[name], [*ROWS].index(name)
    if flavor != row.flavors[number % len(row.flavors)]:
        return ()
    return row.kills if row.all else (row.kills[number // 2 % len(row.kills)],)


# In a child of the fork server


def run_all(
    flavor: str, cases: Sequence[tuple[str, Sequence[str]]], folder: str, process: str
) -> list[dict[str, Any]]:
    """Of each row the uninterrupted run and those that are killed; or these, started again.

    Between the two is a process that is killed as soon as it has restored.
    """
    keras = importlib.import_module(flavor)
    found = []
    for name, kills in cases:
        row = ROWS[name]
        where = Path(folder, name)
        ends = {
            kill: {"first": row.place(kill), "again": RESTORED, "last": None}[process]
            for kill in kills
            if process != "again" or kill == "again"
        }
        starts = {k: Start(keras, where / k, end, saves=True) for k, end in ends.items()}
        if process == "first":
            starts["plain"] = Start(keras, where / "plain", None, saves=not row.plain)
        found.append({kill: start.run(row.program) for kill, start in starts.items()})
    return found


# What came of it


def measure(
    server: ForkServer, flavor: str, cases: Sequence[tuple[str, Sequence[str]]], folder: Path
) -> dict[tuple[str, str], Measured]:
    """The cells of the table, by row and kill; one process begins all, another one goes on.

    Args:
        server: which has imported ``PRELOAD``.
        cases: row, and kills.
        folder: an empty one.
    """
    ran = (
        server.run("zoo.resumed:run_all", flavor, cases, str(folder), process, timeout=600).result()
        for process in ("first", "again", "last")
    )
    return {
        (name, kill): _judged(ROWS[name], kill, first["plain"], first[kill], last[kill], again)
        for (name, kills), first, again, last in zip(cases, *ran, strict=True)
        for kill in kills
    }


def _judged(
    row: Row, kill: str, plain: Any, first: Any, second: Any, between: Mapping[str, Any]
) -> Measured:
    if plain["error"]:
        return Measured("DIES", f"without tfckpt: {plain['error']}")
    if first["error"]:
        return Measured("DIES", f"before it is killed: {first['error']}")
    if first["killed"] != (row.place(kill) is not None):
        return Measured("OTHER", "it ends before the place where it is to be killed")
    if not all(each["killed"] for each in between.values()):
        return Measured("OTHER", f"it is not killed again: {between}")
    if error := second["error"]:
        return Measured("DIES", f"started again: {error}")
    said = first["said"] + second["said"]
    differs = [name for name in plain["result"] if plain["result"][name] != second["result"][name]]
    differs += _of_batches(plain["trained"], first["trained"], second["trained"])
    if not first["killed"] and first["result"] != plain["result"]:
        differs.append("the uninterrupted run")
    details = f"{', '.join(differs) or 'nothing'} differs; said:\n{said}"
    if row.word and re.search(row.word, said):
        return Measured("said", details)
    if differs:
        return Measured("OTHER", details)
    return Measured("ALARM" if CLAIMED.search(said) else "equal", details)


def _of_batches(whole: list[Any], before: list[Any], after: list[Any]) -> list[str]:
    """Which batches were trained: all, in order, none twice but those since the last save."""
    wrong = []
    if before != whole[: len(before)]:
        wrong.append("what was trained before it was killed")
    if after != whole[len(whole) - len(after) :]:
        wrong.append("what was trained after it was killed")
    twice = len(before) + len(after) - len(whole)
    if not 0 <= twice < SAVE_FREQ:
        wrong.append(f"the number of batches ({len(before)} + {len(after)} for {len(whole)})")
    return wrong


# Printed


def table(flavor: str, measured: Mapping[tuple[str, str], str]) -> str:
    """Rows × kills of a flavor, in 80 columns."""
    lines = [f"{flavor:24}" + "".join(f"{kill:6}" for kill in KILLS)]
    for name in dict.fromkeys(name for name, _ in measured):
        cells = (measured.get((name, kill), "-") for kill in KILLS)
        lines.append(f"{name:24}" + "".join(f"{cell:6}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


def main(*words: str) -> int:
    parts = [word for word in words if word not in FLAVOURS]
    wrong = 0
    for flavor in [each for each in FLAVOURS if each in words] or FLAVOURS:
        cases = [
            (name, row.kills)
            for name, row in ROWS.items()
            if flavor in row.flavors and (not parts or any(part in name for part in parts))
        ]
        with ForkServer(preload=PRELOAD) as server, tempfile.TemporaryDirectory() as folder:
            measured = measure(server, flavor, cases, Path(folder))
        print(table(flavor, {key: found.cell for key, found in measured.items()}), end="\n\n")
        for (name, kill), found in measured.items():
            if found.cell != (expected := ROWS[name].expected(flavor, kill)):
                wrong += 1
                print(f"{name}, {kill}: {found.cell}, expected {expected}", found.details)
    print(f"{wrong} cells other than expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
