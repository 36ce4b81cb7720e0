"""What grows with the number of values or layers, of inventories alone: a plan, a refusal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measure import Row, Settings, median, rows_in_child
from tfckpt.core.inventory import SEQUENCE, Container, Entry, Inventory, Layer, Role
from tfckpt.planning.planner import make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import STRICT, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

PLANNED, REFUSED = 30_000, 10_000
ROUNDS = 5
RULES = Policy(
    rename=({"checkpoint": "net/**", "model": "model/**"},),
    exclude=("model/block_7/**", "**/block_9/bias"),
    expect_missing=("model/block_8/**",),
    exclude_checkpoint=("net/block_8/**", "optimizer/*/net/block_8/**"),
    assert_="none",
)


def run(settings: Settings) -> list[Row]:
    return [*rows_in_child(_planned, settings), *rows_in_child(_refused, settings)]


def inventory(
    layers: int, model: str = "model", block: str = "block", slots: tuple[str, ...] = ()
) -> Inventory:
    """A stack of named blocks of two values each, and their slots."""
    entries, stack = {}, []
    for name in (f"{block}_{index}" for index in range(layers)):
        stack.append(Layer(name, own=name, given=True, cls="dense"))
        for variable, shape in (("kernel", (64, 64)), ("bias", (64,))):
            of, size = f"{model}/{name}/{variable}", 4 * 64 * len(shape)
            entries[of] = Entry(of, Role.WEIGHT, "float32", shape, size)
            for slot in slots:
                path = f"optimizer/{slot}/{name}/{variable}"
                entries[path] = Entry(path, Role.SLOT, "float32", shape, size, slot=slot, of=of)
    containers = {model: Container(SEQUENCE, tuple(stack))}
    return Inventory("bench", entries, containers, optimizers={"optimizer": "adam"})


def _planned(settings: Settings) -> list[Row]:
    layers, slots = (300 if settings.quick else PLANNED) // 6, ("momentum", "velocity")
    live, same = (inventory(layers, slots=slots) for _ in range(2))
    other = inventory(layers, "net", slots=slots)
    plans: dict[str, tuple[Callable[[], object], str]] = {
        "a plan": (partial(make_plan, Policy(), same, live), "≤ 5"),
        "a plan with five rules": (partial(make_plan, RULES, other, live), "≤ 25"),
    }
    rows = []
    for what, (plan, goal) in plans.items():
        spent = median(plan, ROUNDS, settings).by(len(live.entries))
        rows.append(Row(f"{what}, {PLANNED:,} values, µs a value", spent, goal=goal))
    return rows


def _refused(settings: Settings) -> list[Row]:
    """All layers have other names; what is suggested is printed, as a refusal does."""
    layers = REFUSED // 100 if settings.quick else REFUSED
    stored, live = inventory(layers, block="old"), inventory(layers, block="new")
    spent = median(lambda: str(suggest(STRICT, stored, live)), 1, settings)
    return [Row(f"a refusal with its suggestion, {REFUSED:,} layers, ms", spent, goal="≤ 10,000")]
