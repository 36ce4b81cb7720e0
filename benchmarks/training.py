"""A transformer trains, and is saved in front of five steps.

Measured are how long the call that saves holds training up (the stall), how much longer the five
steps take with it than without (the time lost; a save that is not finished by then is waited for
outside of the clock), and how much more memory is in use at the most.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from benchmarks import subjects
from benchmarks.background import WAYS, Async, InBackground, Sync
from benchmarks.measure import MIB, Result, Settings, clock, high_water, in_turns, results_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.subjects import Subject

CASE = "transformer, 109M + Adam, disk"
NOTHING = "no save"
STEPS, ROUNDS = 5, 4


def run(settings: Settings) -> list[Result]:
    found = results_in_child(_timed, settings)
    for way in WAYS[-1:] if settings.quick else WAYS:
        if not issubclass(way, Sync):
            found += results_in_child(_peak, way, settings)
    return found


def _step(subject: Subject) -> Callable[[], Any]:
    """A training step of 16 words; it ends when it is done."""
    model, optimizer = subject.model, subject.model.optimizer
    words, places = tf.range(16)[None], tf.range(16)[None]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model([words, places], training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return lambda: step().numpy()


def _steps(step: Callable[[], Any], count: int = STEPS) -> None:
    for _ in range(count):
        step()


def _timed(settings: Settings) -> list[Result]:
    subject = subjects.transformer(small=settings.quick)
    step = _step(subject)
    _steps(step)

    def turn(way: InBackground) -> dict[str, float]:
        try:
            way.ready()
            stall = clock(way.save)
            spent = stall + clock(partial(_steps, step))
            way.wait()
        finally:
            way.clear()
        return {"stall ms": stall, "5 steps ms": spent}

    ways = [kind(subject, settings.disk) for kind in WAYS]
    turns: dict[str, Callable[[], dict[str, float]]] = {
        NOTHING: lambda: {"5 steps ms": clock(partial(_steps, step))}
    }
    turns |= {way.name: partial(turn, way) for way in ways}
    rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
    found = in_turns("training", CASE, turns, rounds, settings)
    (nothing,) = (one for one in found if one.contestant == NOTHING)
    values = len(subject.variables)
    for one in tuple(found):
        if one.measure == "stall ms":
            each = tuple(1000 * stall / values for stall in one.values)
            found.append(dataclasses.replace(one, measure="stall µs a value", values=each))
        elif one.measure == "5 steps ms" and one is not nothing and one.values:
            lost = tuple(a - b for a, b in zip(one.values, nothing.values, strict=False))
            found.append(dataclasses.replace(one, measure="time lost ms", values=lost))
    return found


def _peak(kind: type[InBackground], settings: Settings) -> list[Result]:
    small = kind(subjects.transformer(small=True), settings.disk)
    small.ready()
    small.save()
    small.wait()
    if kind is not Async:  # its second save may raise
        small.clear()
    subject = subjects.transformer(small=settings.quick)
    step = _step(subject)
    _steps(step, 2)
    without = high_water(partial(_steps, step))
    way = kind(subject, settings.disk)
    way.ready()

    def train() -> None:
        way.save()
        _steps(step)
        way.wait()

    more = high_water(train) - without
    way.clear()
    copy = subject.nbytes / MIB
    where = "training", CASE, way.name
    return [Result(*where, "peak MiB", (more,)), Result(*where, "of a second copy", (more / copy,))]
