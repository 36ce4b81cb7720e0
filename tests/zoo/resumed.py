"""The table of resumed trainings: programs × where they are killed × flavours of Keras.

``python -m zoo.resumed`` in ``tests`` measures and prints it, ``python -m zoo.resumed keras cache``
the rows of one flavour with a word in their names. What is expected stands in ``ROWS``;
``conformance/resume/test_table.py`` asserts it.

A cell says what came of a program that was killed there and started again, in a new process:

- ``equal``: weights, optimizer, History, and what else the program shows, are bit-equal to those of
  plain Keras without an interruption. No batch was trained twice or left out, but those since the
  last save, and nobody was told that it is not exact;
- ``said``: before the first step a line named the cause why it may not be equal;
- ``refused``: an error named the cause, and nothing had changed.

What is mended one day stands in capitals, and ``ROWS`` says what it is:

- ``OTHER``: something else came of it, and nothing was said;
- ``ALARM``: it is equal, but was told not to be exact;
- ``BARRED``: the same program is refused;
- ``DIES``: it ends by another error, or in the uninterrupted run.
"""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo import programs as of
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FLAVOURS = ("keras", "tf_keras")
PRELOAD = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.resumed")
TIMEOUT = 300.0
# Number of the `fit`, epoch, and the batch before which it ends, or the event.
KILLS: dict[str, of.Place | None] = {
    "start": (0, 0, 1),  # before the first save
    "batch": (0, 0, 3),
    "end": (0, 0, "end"),  # before the save of the epoch
    "next": (0, 1, "begin"),
    "second": (0, 1, 3),
    "valid": (0, 1, "validation"),
    "fit 2": (1, 0, 3),
    "over": None,  # it was finished
}
FIT = ("start", "batch", "end", "next", "second", "over")
VALIDATED = (*FIT[:-1], "valid", "over")
TWO = ("batch", "next", "second", "fit 2", "over")
OF_ONE_EPOCH = ("start", "batch", "end", "fit 2", "over")
LOOP = ("start", "batch", "second", "over")
TO_BE_MENDED = ("OTHER", "ALARM", "BARRED", "DIES")
# How it is said that a training is not exact.
CLAIMED = re.compile(r"\bnot exact|\bis reset|\bother numbers|nor a repeated", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """A program, and what comes of it.

    Attributes:
        cells: what is expected, by flavour and kill, flavour, or kill; the most exact one counts.
        word: a regular expression for what a line must name if it is said, or an error if refused.
        today: what is to be mended.
        places: of this program, where they are not those of ``KILLS``.
        plain: whether plain Keras says what is expected; if not, an uninterrupted run of tfckpt.
    """

    program: Callable[[of.Start], None]
    kills: tuple[str, ...] = FIT
    cells: Mapping[str, str] = field(default_factory=dict)
    word: str = ""
    today: str = ""
    flavours: tuple[str, ...] = FLAVOURS
    places: Mapping[str, of.Place] = field(default_factory=dict)
    plain: bool = True

    def expected(self, flavour: str, kill: str) -> str:
        keys = (f"{flavour} {kill}", flavour, kill, "all")
        return next((self.cells[key] for key in keys if key in self.cells), "equal")

    def place(self, kill: str) -> of.Place | None:
        return self.places.get(kill, KILLS[kill])


class Measured(NamedTuple):
    """What came of one program, killed in one place."""

    cell: str
    details: str


DRAWN = {"all": "said"}

ROWS: dict[str, Row] = {
    # kinds of data
    "arrays": Row(of.arrays),
    "sample weights": Row(of.sample_weights),
    "class weights": Row(of.class_weights),
    "validation data": Row(of.validated, VALIDATED),
    "validation split": Row(of.split, VALIDATED),
    "shuffled validation": Row(of.shuffled_validation, VALIDATED),
    "shuffle": Row(of.fed(of.shuffled)),
    "shuffle, not again": Row(of.fed(of.shuffled_once)),
    "shuffle, repeat": Row(of.fed(of.repeated, steps_per_epoch=of.STEPS)),
    "repeat(4), cut": Row(of.fed(of.repeated_four_times, steps_per_epoch=of.STEPS)),
    "filter": Row(of.fed(of.of_unknown_size)),
    "augmentation in map": Row(of.fed(of.augmented)),
    "generator in map": Row(of.fed(of.noisy)),
    "tf.random in map": Row(of.fed(of.drawn)),
    "cache, shuffle": Row(of.fed(of.cached_then_shuffled)),
    "from_generator": Row(of.fed(of.from_generator)),
    "PyDataset": Row(of.fed(of.sequence)),
    "PyDataset, own rng": Row(of.fed(of.noisy_sequence)),
    "Python generator": Row(of.fed(of.generator, steps_per_epoch=of.STEPS)),
    # parts of a training
    "dropout, batch norm": Row(of.with_layers, VALIDATED),
    "steps_per_execution": Row(of.several_steps_a_call),
    "EarlyStopping": Row(of.called(of.stops_at_the_worst), VALIDATED),
    "ReduceLROnPlateau": Row(of.called(of.plateau), VALIDATED),
    "LearningRateScheduler": Row(of.called(of.scheduler), VALIDATED),
    "ModelCheckpoint": Row(of.best_file, VALIDATED),
    "accumulation": Row(of.optimized(of.accumulating), flavours=("keras",)),
    "use_ema": Row(of.optimized(of.averaging)),
    "AdamW, schedule": Row(of.optimized(of.decaying)),
    "loss scale": Row(of.optimized(of.scaled, policy="mixed_float16")),
    # 1: a cache keeps the order of the first epoch
    "shuffle, cache": Row(of.fed(of.shuffled_then_cached)),
    "batches, cache": Row(of.fed(of.batches_cached)),
    "shuffle, cache, shuffle": Row(of.fed(of.cached_between_shuffles)),
    "shuffle, cache(file)": Row(
        of.fed(of.cached_in_a_file),
        word="cache",
        cells={"keras start": "DIES"},
        today="TensorFlow refuses to write beside the lock file that a killed process left",
    ),
    "images, cache": Row(of.images),
    # 2: TensorFlow's operations that draw, in a step
    "tf.random in a layer": Row(
        of.draws_in_a_layer, word=r"RandomStandardNormal in .*noise", cells=DRAWN
    ),
    "tf.random in a step": Row(
        of.own_step(of.adds_noise), word="RandomStandardNormal", cells=DRAWN
    ),
    "tf.nn.dropout in a step": Row(of.own_step(of.drops), word="RandomUniform", cells=DRAWN),
    "tf.random.shuffle": Row(of.own_step(of.mixes), word="RandomShuffle", cells=DRAWN),
    "seeds in a layer": Row(of.draws_by_seed),
    # 3: loops of one's own
    "loop, iterator": Row(of.loop(of.iterated), LOOP),
    "loop, np.random": Row(of.loop(of.numpys_draws), LOOP),
    "loop, own generator": Row(of.loop(of.generators_draws), LOOP),
    "loop, random": Row(of.loop(of.pythons_draws), LOOP),
    "loop, replay buffer": Row(of.loop(of.replayed), LOOP),
    "manager, np.random": Row(of.managed, LOOP),
    # 4: several `fit`, and what stands between them
    "unfrozen": Row(of.unfrozen, TWO),
    "evaluate between": Row(of.evaluated_between, TWO),
    "pseudo-labels": Row(of.labels_between, TWO),
    "weights between": Row(of.weights_between, TWO),
    # 5: a loop of `fit`
    "fits of an epoch": Row(of.fits(1), OF_ONE_EPOCH),
    "fits, verbose=0": Row(of.fits(0), OF_ONE_EPOCH),
    "fits, one callback": Row(of.fits_of_one_callback, OF_ONE_EPOCH),
    "fits, initial_epoch": Row(of.fits_by_epochs, OF_ONE_EPOCH, places={"fit 2": (1, 1, 3)}),
    # 6: what a step makes at its first call
    "variable in a step": Row(of.variable_in_a_step),
    "optimizers in a step": Row(of.optimizers_in_a_step),
    # 7: a train function made anew
    "frozen at an epoch": Row(of.frozen_from("epoch")),
    "frozen at a batch": Row(of.frozen_from("batch")),
    # 8: callbacks of one's own, and what is said in vain
    "get_state": Row(of.counts_with_get_state),
    "counter on a class": Row(of.counts_on_its_class),
    "counter in a method": Row(of.counts_in_a_method),
    "counter in a callback": Row(of.counts_in_itself),
    "constants in a callback": Row(of.knows_constants),
    "arrays in a callback": Row(of.averages_in_arrays),
    "rng in a callback": Row(of.draws_by_its_own),
    "set in a callback": Row(
        of.collects_in_a_set,
        word="Seen: seen changes",
        cells={"start": "equal", "all": "said"},
    ),
    "counter on the model": Row(of.counts_on_the_model),
    "np.random in a callback": Row(of.draws_in_itself),
    "teacher in a callback": Row(of.teaches),
    "teacher, not passed": Row(of.teaches_unsaved, word=r"teacher=teacher", cells={"all": "said"}),
    "fits of drawn data": Row(of.noisy_fits, TWO),
    "fits of one dataset": Row(of.same_data_in_two_fits, TWO),
    "LSTM": Row(of.lstm()),
    "LSTM, dropout": Row(
        of.lstm(dropout=0.3),
        word="lstm",
        cells={"tf_keras": "said"},
    ),
    # 9: the best weights
    "load best": Row(of.best_loaded(stopping=False), VALIDATED, plain=False),
    "load best, stopping": Row(
        of.best_loaded(stopping=True),
        VALIDATED,
        plain=False,
    ),
}


# In a child of the fork server


def begin(flavour: str, name: str, kills: Sequence[str], folder: str) -> dict[str, Any]:
    """The uninterrupted run of a program, and for each kill the run that ends there."""
    keras, row = importlib.import_module(flavour), ROWS[name]
    plain = of.Start(keras, Path(folder, "plain"), None, saves=not row.plain)
    found = {"plain": plain.run(row.program)}
    for kill in kills:
        start = of.Start(keras, Path(folder, kill), row.place(kill), saves=True)
        found[kill] = start.run(row.program)
    return found


def go_on(flavour: str, name: str, kills: Sequence[str], folder: str) -> dict[str, Any]:
    """The same programs, started again."""
    keras, row = importlib.import_module(flavour), ROWS[name]
    starts = {kill: of.Start(keras, Path(folder, kill), None, saves=True) for kill in kills}
    return {kill: start.run(row.program) for kill, start in starts.items()}


# What came of it


def measure(
    server: ForkServer, cases: Sequence[tuple[str, str, Sequence[str]]], folder: Path
) -> dict[tuple[str, str, str], Measured]:
    """The cells of the table, by flavour, row and kill.

    Args:
        server: which has imported ``PRELOAD``.
        cases: flavour, row, and kills.
        folder: an empty one.
    """
    folders = [str(folder / str(number)) for number in range(len(cases))]
    runs = []
    for function in ("begin", "go_on"):
        requests = [
            (f"zoo.resumed:{function}", *case, where)
            for case, where in zip(cases, folders, strict=True)
        ]
        runs.append([each.result() for each in server.run_many(requests, timeout=TIMEOUT)])
    return {
        (flavour, name, kill): _judged(ROWS[name], kill, first["plain"], first[kill], second[kill])
        for (flavour, name, kills), first, second in zip(cases, *runs, strict=True)
        for kill in kills
    }


def _judged(row: Row, kill: str, plain: Any, first: Any, second: Any) -> Measured:
    if plain["error"]:
        return Measured("DIES", f"without tfckpt: {plain['error']}")
    if first["error"]:
        return Measured("DIES", f"before it is killed: {first['error']}")
    if first["killed"] != (row.place(kill) is not None):
        return Measured("OTHER", "it ends before the place where it is to be killed")
    if error := second["error"]:
        return Measured(_of_error(row, second), f"started again: {error}")
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


def _of_error(row: Row, ended: Any) -> str:
    if not ended["error"].startswith("refused"):
        return "DIES"
    named = row.word and re.search(row.word, ended["error"])
    return "refused" if named and not ended["changed"] else "BARRED"


def _of_batches(whole: list[Any], before: list[Any], after: list[Any]) -> list[str]:
    """Which batches were trained: all, in order, none twice but those since the last save."""
    wrong = []
    if before != whole[: len(before)]:
        wrong.append("what was trained before it was killed")
    if after != whole[len(whole) - len(after) :]:
        wrong.append("what was trained after it was killed")
    twice = len(before) + len(after) - len(whole)
    if not 0 <= twice < of.SAVE_FREQ:
        wrong.append(f"the number of batches ({len(before)} + {len(after)} for {len(whole)})")
    return wrong


# Printed


def table(flavour: str, measured: Mapping[tuple[str, str, str], str]) -> str:
    """Rows × kills of a flavour, in 80 columns."""
    lines = [f"{flavour:24}" + "".join(f"{kill:7}" for kill in KILLS)]
    names = dict.fromkeys(name for each, name, _ in measured if each == flavour)
    for name in names:
        cells = (measured.get((flavour, name, kill), "-") for kill in KILLS)
        lines.append(f"{name:24}" + "".join(f"{cell:7}" for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


def main(*words: str) -> int:
    flavours = [each for each in FLAVOURS if each in words] or FLAVOURS
    parts = [word for word in words if word not in FLAVOURS]
    cases = [
        (flavour, name, row.kills)
        for flavour in flavours
        for name, row in ROWS.items()
        if flavour in row.flavours and (not parts or any(part in name for part in parts))
    ]
    with ForkServer(preload=PRELOAD) as server, tempfile.TemporaryDirectory() as folder:
        measured = measure(server, cases, Path(folder))
    cells = {key: found.cell for key, found in measured.items()}
    for flavour in flavours:
        print(table(flavour, cells), end="\n\n")
    for name in dict.fromkeys(name for _, name, _ in cases):
        if ROWS[name].today:
            print(textwrap.fill(f"{name}: {ROWS[name].today}", 80, subsequent_indent="  "))
    wrong = 0
    for (flavour, name, kill), found in measured.items():
        if found.cell != (expected := ROWS[name].expected(flavour, kill)):
            wrong += 1
            print(f"\n{flavour}, {name}, {kill}: {found.cell}, expected {expected}", found.details)
    print(f"\n{len(measured)} cells, {wrong} other than expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
