"""What grows with the number of values: the names of a live model, and a plan."""

from __future__ import annotations

from functools import partial

import keras

import tfckpt
from benchmarks.measure import Row, Settings, clock, medians, rows_in_child
from tfckpt.core.inventory import SEQUENCE, Container, Entry, Inventory, Layer, Role
from tfckpt.planning.planner import make_plan
from tfckpt.policy import Policy

NAMED = 10_000
PLANNED = (2_000, 30_000)
ROUNDS = 5
RULES = Policy(
    rename=({"checkpoint": "net/**", "model": "model/**"},),
    exclude=("model/block_7/**", "**/block_9/bias"),
    expect_missing=("model/block_8/**",),
    exclude_checkpoint=("net/block_8/**", "optimizer/*/net/block_8/**"),
    assert_="none",
)


def run(settings: Settings) -> list[Row]:
    plans = [row for size in PLANNED for row in rows_in_child(_planned, size, settings)]
    return rows_in_child(_named, settings) + plans


class Blocks(keras.Model):  # type: ignore[misc]
    """As many small layers in a list, with Adam's slots: a third of the values are weights."""

    def __init__(self, values: int) -> None:
        super().__init__()
        self.blocks = [keras.layers.Dense(1, name=f"block_{n}") for n in range(values // 6)]
        for block in self.blocks:
            block.build((None, 1))
        self.built = True
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(self.trainable_variables)


def _named(settings: Settings) -> list[Row]:
    size = NAMED // 100 if settings.quick else NAMED
    model = Blocks(size)
    turns = {"": lambda: {"ms": clock(partial(tfckpt.inventory, model=model))}}
    spent = medians(turns, ROUNDS, settings)[""]["ms"]
    what = f"names of a live model, {NAMED:,} values, µs a value"
    return [Row(what, 1000 * spent / size, goal="≤ 60")]


def inventory(values: int, model: str = "model") -> Inventory:
    """A stack of named blocks with Adam's slots: a third of the values are weights."""
    entries = {}
    layers = []
    for index in range(values // 6):
        layers.append(Layer(f"block_{index}", own=f"block_{index}", given=True, cls="dense"))
        for variable, shape in (("kernel", (64, 64)), ("bias", (64,))):
            name = f"{model}/block_{index}/{variable}"
            weight = Entry(name, Role.WEIGHT, "float32", shape, 4 * 64 * len(shape))
            entries[weight.name] = weight
            for slot in ("momentum", "velocity"):
                name = f"optimizer/{slot}/{weight.name.removeprefix('model/')}"
                entries[name] = Entry(
                    name, Role.SLOT, "float32", shape, weight.nbytes, slot=slot, of=weight.name
                )
    containers = {model: Container(SEQUENCE, tuple(layers))}
    return Inventory("bench", entries, containers, optimizers={"optimizer": "adam"})


def _planned(number: int, settings: Settings) -> list[Row]:
    size = number // 100 if settings.quick else number
    live, same, other = inventory(size), inventory(size), inventory(size, "net")
    turns = {
        "a plan": lambda: {"ms": clock(partial(make_plan, Policy(), same, live))},
        "a plan with five rules": lambda: {"ms": clock(partial(make_plan, RULES, other, live))},
    }
    found = medians(turns, ROUNDS, settings)
    return [
        Row(f"{what}, {number:,} values, µs a value", 1000 * found[what]["ms"] / size, goal=goal)
        for what, goal in (("a plan", "≤ 5"), ("a plan with five rules", "≤ 25"))
    ]
