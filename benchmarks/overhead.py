"""What a callback costs per batch while no save is due, as a ratio to ``fit`` without it.

By the clock and by the processor time of the process, which other work on the machine disturbs
less. The second epoch of a ``fit`` is measured, so that what is done once, as training begins, does
not count. ``fit`` against itself shows the noise, an empty callback what Keras takes for calling
any.
"""

from __future__ import annotations

import dataclasses
import importlib
import tempfile
import time
import warnings
from typing import TYPE_CHECKING, Any

import tfckpt
from benchmarks.measure import Result, Settings, in_turns, results_in_child
from benchmarks.resume import BATCH, FLAVOURS, compiled, examples

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
LONG = 500  # batches of an epoch
NOTHING = "nothing"


def run(settings: Settings) -> list[Result]:
    flavours = FLAVOURS[:1] if settings.quick else FLAVOURS
    return [r for flavour in flavours for r in results_in_child(_flavour, flavour, settings)]


def _flavour(flavour: str, settings: Settings) -> list[Result]:
    warnings.filterwarnings("ignore", message=".*shuffle=True.*")
    keras = importlib.import_module(flavour)
    model = compiled(keras)
    batches = 10 if settings.quick else LONG
    data = examples(batches).batch(BATCH).cache()

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.begin = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            now = time.perf_counter(), time.process_time()
            self.seconds = now[0] - self.begin[0], now[1] - self.begin[1]

    class Empty(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    with tempfile.TemporaryDirectory(dir=settings.disk) as path:

        def callback(save: dict[str, int]) -> Any:
            config = {"version": 1, "manager": {"directory": path, "save": save}}
            return tfckpt.from_config(config, model=model).callback(verbose=0)

        def turn(others: Callable[[], list[Any]]) -> dict[str, float]:
            clock = Clock()
            model.fit(data, epochs=2, verbose=0, callbacks=[clock, *others()])
            by_clock, of_processor = (1e6 * seconds / batches for seconds in clock.seconds)
            return {"µs a batch": by_clock, "µs of processor": of_processor}

        kinds: dict[str, Callable[[], list[Any]]] = {
            NOTHING: list,
            "nothing, again": list,
            "an empty callback": lambda: [Empty()],
            "tfckpt, epochs": lambda: [callback({"every_epochs": 1 << 40})],
            "tfckpt, minutes": lambda: [callback({"every_minutes": 1 << 20})],
            "tfckpt, steps": lambda: [callback({"every_steps": 1 << 40})],
        }
        turns = {name: lambda kind=kind: turn(kind) for name, kind in kinds.items()}
        rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
        found = in_turns("overhead", flavour, turns, rounds, settings)
    base = {one.measure: one.values for one in found if one.contestant == NOTHING}
    ratios = []
    for one in found:
        values = (a / b for a, b in zip(one.values, base[one.measure], strict=True))
        measure = one.measure.replace("µs", "ratio,", 1)
        ratios.append(dataclasses.replace(one, measure=measure, values=tuple(values)))
    return [*found, *ratios]
