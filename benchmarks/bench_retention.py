"""How long it takes to decide what to delete, over a year of saves every ten minutes.

Run it with ``python benchmarks/bench_retention.py``. The rules keep for good one checkpoint per
twelve hours, 730 in a year, and a handful besides. The time of a decision should grow with how many
are kept, and not with how many there were.
"""

from __future__ import annotations

import random
import time

from tfckpt.manager.retention import Saved, decide
from tfckpt.policy import Keep

SAVES = 50_000
SHOWN = 10_000
SECONDS = 365 * 24 * 3600 / SAVES
SEED = 1
RULES = (
    Keep(latest=3),
    Keep(best=2, monitor="val_loss", mode="min"),
    Keep(every_n_hours=12),
    Keep(pin=(17, 4_000, 31_000)),
)


def main() -> None:
    loss = random.Random(SEED)
    here: dict[str, Saved] = {}
    print(f"{'saves':>8}{'kept':>8}{'seconds':>10}{'ms each':>10}")
    spent = 0.0
    for number in range(1, SAVES + 1):
        prefix = f"ckpt-{number}"
        metrics = {"val_loss": loss.random() + 100 / number}
        here[prefix] = Saved(prefix, number, number * SECONDS, number, metrics, finite=True)
        start = time.perf_counter()
        decision = decide(here.values(), RULES, anchor=0.0, in_use=(prefix,))
        spent += time.perf_counter() - start
        for gone in decision.delete:
            del here[gone]
        if number % SHOWN == 0:
            print(f"{number:>8,}{len(here):>8,}{spent:>10.1f}{1000 * spent / SHOWN:>10.3f}")
            spent = 0.0


if __name__ == "__main__":
    main()
