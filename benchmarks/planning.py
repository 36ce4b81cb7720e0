"""Inventories, plans, reports and differences, per value, as the number of values grows.

All should grow in proportion to it. The live inventory asks Keras for each variable; a plan with
rules costs a match per value and rule. A checkpoint is opened by its index, its commit record and
their comparison; a save writes the record, and reads the index back. A save after a save keeps the
names of the values, except on versions of TensorFlow and Keras that were not tested.
"""

from __future__ import annotations

import dataclasses
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

import tfckpt
from benchmarks.measure import Result, Settings, clock, in_turns, results_in_child
from tfckpt.core.inventory import Entry, Inventory, Layer, Role
from tfckpt.planning import make_plan, render_text
from tfckpt.planning.diff import ValueChecksum, diff
from tfckpt.policy import Policy
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.writing.write import BundleWriter
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.record import CommitRecord, now, render
from tfckpt.stored.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2_000, 10_000, 30_000)
LIVE = 10_000  # to build a model of more takes longer than all the rest
ROUNDS = 5
STRICT = Policy()
EXCLUDING = Policy(exclude=("model/block_7/**", "**/block_9/bias"))
SELECTING = Policy(exclude=("re:.*/block_[0-9]*7/(kernel|bias)",))
RULES = Policy(
    rename=({"checkpoint": "net/**", "model": "model/**"},),
    exclude=("model/block_7/**", "**/block_9/bias"),
    expect_missing=("model/block_8/**",),
    exclude_checkpoint=("net/block_8/**", "optimizer/*/net/block_8/**"),
    assert_="none",
)


def run(settings: Settings) -> list[Result]:
    return [r for size in SIZES for r in results_in_child(_case, size, settings)]


def inventory(values: int, model: str = "model") -> Inventory:
    """A stack of named blocks with Adam's slots: a third of the values are weights."""
    entries = {}
    layers = []
    for index in range(values // 6):
        layers.append(Layer(f"block_{index}"))
        for variable, shape in (("kernel", (64, 64)), ("bias", (64,))):
            short = f"block_{index}/{variable}"
            weight = Entry(f"{model}/{short}", Role.WEIGHT, "float32", shape, 4 * 64 * len(shape))
            entries[weight.name] = weight
            for slot in ("momentum", "velocity"):
                of = weight.name.removeprefix("model/")
                name = f"optimizer/{slot}/{of}"
                entries[name] = Entry(
                    name, Role.SLOT, "float32", shape, weight.nbytes, slot=slot, of=weight.name
                )
    return Inventory("bench", entries, {model: tuple(layers)}, optimizers={"optimizer": "adam"})


class Blocks(keras.Model):
    """As many small layers in a list, with Adam's slots: a third of the values are weights."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.blocks = [keras.layers.Dense(1, name=f"block_{n}") for n in range(values // 6)]
        for block in self.blocks:
            block.build((None, 1))
        self.built = True
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.trainable_variables)


def _marks(side: Inventory, altered: int) -> dict[str, ValueChecksum]:
    """A checksum for each value; those of each ``altered``-th are as no other's."""
    return {
        name: ValueChecksum(number if number % altered else -number - altered, distinctive=True)
        for number, name in enumerate(side.entries)
    }


def _stored(prefix: str, values: Inventory) -> CommitRecord:
    """A checkpoint of tfckpt's with these names and small values, and its record."""
    entries = {}
    with BundleWriter(prefix) as writer:
        for number, entry in enumerate(values.entries.values()):
            key = f"model/blocks/{number}/.ATTRIBUTES/VARIABLE_VALUE"
            writer.add(key, np.zeros((4, 4), np.float32))
            entries[entry.name] = entry._replace(shape=(4, 4), nbytes=64, key=key, crc32c=number)
        writer.finish()
    found = dataclasses.replace(values, entries=entries, complete=True)
    record = CommitRecord(1, found, record_file.index_digest(prefix), now())
    record_file.write(prefix, record)
    return record


def _per_value(milliseconds: Callable[[], float], size: int) -> dict[str, float]:
    return {"µs a value": 1000 * milliseconds() / size}


def _repeated_save(checkpoint: Any, prefix: str) -> float:
    """Milliseconds of a save after a save."""
    checkpoint.write(prefix)
    return clock(partial(checkpoint.write, prefix))


def _case(number: int, settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(dir=settings.disk) as directory:
        return _measured(number, f"{directory}/ckpt-1", settings)


def _measured(number: int, prefix: str, settings: Settings) -> list[Result]:
    size = number // 100 if settings.quick else number
    live, same, other = inventory(size), inventory(size), inventory(size, "net")
    plan, record = make_plan(STRICT, same, live), _stored(prefix, live)
    marks = _marks(same, size + 1), _marks(live, 100)

    def each(task: Any, *arguments: Any) -> dict[str, float]:
        return _per_value(partial(clock, partial(task, *arguments)), size)

    turns = {
        "plan": partial(each, make_plan, STRICT, same, live),
        "plan with exclusions": partial(each, make_plan, EXCLUDING, same, live),
        "plan with a regular expression": partial(each, make_plan, SELECTING, same, live),
        "plan with five rules": partial(each, make_plan, RULES, other, live),
        "report of a plan": partial(each, render_text, plan),
        "diff": partial(each, diff, same, live, *marks),
        "open a checkpoint": partial(each, lambda: open_checkpoint(prefix).close()),
        "read an index": partial(each, lambda: Bundle.open(prefix).close()),
        "render a record": partial(each, render, record),
    }
    if number <= LIVE:
        model = Blocks(size)
        turns["live inventory"] = partial(each, partial(tfckpt.inventory, model=model))
        checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
        save = partial(_repeated_save, checkpoint, f"{prefix}-again")
        turns["repeated save"] = partial(_per_value, save, size)
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
    return in_turns("planning", f"{number:,} values", turns, rounds, settings)
