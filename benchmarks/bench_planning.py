"""How long the inventory of live objects, a plan and its report take, per number of values.

Run it with ``python benchmarks/bench_planning.py``. All should grow in proportion to the number of
values: a plan and its report at a few microseconds each, the live inventory at some tens, since it
asks Keras for each variable. A plan with rules costs a further match per value and rule.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import tfckpt
from tfckpt.planning import make_plan, render_text
from tfckpt.policy import Policy
from tfckpt.records import Entry, Inventory, Layer, Role

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2_000, 5_000, 10_000, 20_000)
REPEATS = 5
WIDTHS = (10, 10, 10, 12, 10)


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


def milliseconds(task: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    strict = Policy()
    rules = Policy(
        rename=({"checkpoint": "net/**", "model": "model/**"},),
        exclude=("model/block_7/**", "**/block_9/bias"),
        expect_missing=("model/block_8/**",),
        exclude_checkpoint=("net/block_8/**", "optimizer/*/net/block_8/**"),
        assert_="none",
    )
    print(
        f"{'values':>8}{'live':>10}{'plan':>10}{'report':>10}{'with rules':>12}{'report':>10}   ms"
    )
    for size in SIZES:
        live, same, other = inventory(size), inventory(size), inventory(size, "net")
        plan, ruled = make_plan(strict, same, live), make_plan(rules, other, live)
        model = Blocks(size)
        columns = (
            milliseconds(lambda: tfckpt.inventory(model=model)),  # noqa: B023 (called at once)
            milliseconds(lambda: make_plan(strict, same, live)),  # noqa: B023
            milliseconds(lambda: render_text(plan)),  # noqa: B023
            milliseconds(lambda: make_plan(rules, other, live)),  # noqa: B023
            milliseconds(lambda: render_text(ruled)),  # noqa: B023
        )
        shown = [f"{column:.1f}" for column in columns]
        print(f"{size:>8,}" + "".join(f"{s:>{w}}" for s, w in zip(shown, WIDTHS, strict=True)))


if __name__ == "__main__":
    main()
