"""How long a plan and its report take, per number of values.

Run it with ``python benchmarks/bench_planning.py``. Both should grow in proportion to the number of
values, at a few microseconds each; a plan with rules costs a further match per value and rule.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from tfckpt.planning import make_plan, render_text
from tfckpt.policy import Policy
from tfckpt.records import Entry, Inventory, Layer, Role

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (2_000, 5_000, 10_000, 20_000)
REPEATS = 5


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
    print(f"{'values':>8}{'plan':>10}{'report':>10}{'with rules':>12}{'report':>10}   ms")
    for size in SIZES:
        live, same, other = inventory(size), inventory(size), inventory(size, "net")
        plan, ruled = make_plan(strict, same, live), make_plan(rules, other, live)
        columns = (
            milliseconds(lambda: make_plan(strict, same, live)),  # noqa: B023 (called at once)
            milliseconds(lambda: render_text(plan)),  # noqa: B023
            milliseconds(lambda: make_plan(rules, other, live)),  # noqa: B023
            milliseconds(lambda: render_text(ruled)),  # noqa: B023
        )
        shown = [f"{column:.1f}" for column in columns]
        print(f"{size:>8,}{shown[0]:>10}{shown[1]:>10}{shown[2]:>12}{shown[3]:>10}")


if __name__ == "__main__":
    main()
