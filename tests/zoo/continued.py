"""Optimizers saved and restored: each of either flavour into each, in every state, by every file.

A model of one optimizer is saved; the file is restored into a model of another one, which has not
begun, is built, or has trained. What comes of it is a word:

============  =====================================================================
``goes on``   the slots and the number of updates are those that were saved; of one optimizer, ten
              more steps are bit-equal to those of the training that was not interrupted
``begins``    all of it is as in a new optimizer, and that is said
``in part``   some slots are new beside restored ones, and each of them is said
``stays``     the file has nothing of an optimizer: the model's goes on as it was, and that is said
``by index``  slots of another optimizer, which tf_keras's ``.weights.h5`` does not name: they go by
              their number and shapes, as by Keras
``asked``     refused, nothing changed or built, and ``optimizer: reset`` begins it
============  =====================================================================

All else is wrong, and in capitals. After every restore one step at a rate of 1e-9 leaves
the loss, and so does what an average overwrites at the end of a ``fit``, unless it goes on.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tfckpt
from tfckpt.live.inventory import collect
from zoo.models import dense, stack
from zoo.optimizers import IN_FLAVOUR, OPTIMIZERS, step
from zoo.values import read
from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Iterator

KERAS = {"keras3": keras, "tf_keras": tf_keras}
STATES = ("unbuilt", "built", "trained")
KINDS = ("tensorflow", "tfckpt", ".weights.h5", ".keras", ".h5")
STEPS = 10
GOES_ON, BEGINS, IN_PART, STAYS = "goes on", "begins", "in part", "stays"
BY_INDEX, ASKED = "by index", "asked"
USUAL = {GOES_ON, BEGINS, IN_PART, STAYS, BY_INDEX, ASKED}
_DRAW = np.random.default_rng(5)
BATCHES = [_DRAW.normal(size=(4, 3)).astype("float32") for _ in range(3)]
# These move the weights by their slots, at any rate; FTRL computes the weights from nothing else.
_FTRL = {"ftrl", "legacy_ftrl"}
_BY_SLOTS = {*_FTRL, "multi", "rmsprop_centered", "legacy_rmsprop", "legacy_sgd", "sgd"}
_BY_SLOTS |= {"sgd_momentum", "sgd_nesterov", "sgd_everything", "sgd_ema", "scaled_sgd"}
# Edits of an optimizer's options, there and back: two optimizers of Keras 3.
EDITED = {
    "updates_of_4": lambda k: k.optimizers.Adam(gradient_accumulation_steps=4),
    "muon_without_head": lambda k: k.optimizers.Muon(exclude_layers=["head"]),
    "decayed": lambda k: k.optimizers.Adam(weight_decay=0.01),
    "clipped": lambda k: k.optimizers.Adam(global_clipnorm=0.5),
    "only_centered": lambda k: k.optimizers.RMSprop(centered=True),
    "scaled_sgd": lambda k: k.optimizers.LossScaleOptimizer(k.optimizers.SGD(momentum=0.9)),
    "sgd_ema": lambda k: k.optimizers.SGD(use_ema=True),
}
EDITS = [
    ("adam", "adam_accumulating"),
    ("adam_accumulating", "updates_of_4"),
    ("muon", "muon_without_head"),
    ("adam", "adam_amsgrad"),
    ("rmsprop", "only_centered"),
    ("adam", "decayed"),
    ("adam", "clipped"),
    ("adam", "adam_schedule"),
    ("adam", "scaled_adam"),
    ("adam", "adam_ema"),
    ("sgd_momentum", "scaled_sgd"),
    ("sgd", "sgd_momentum"),
    ("sgd", "sgd_ema"),
]
_MADE = OPTIMIZERS | EDITED
# Slots that begin as copies of the weights.
_ANY = {"moving_average"}
_COPIES = {"schedule_free_adam_w": {*_ANY, "momentum"}}


class Case(NamedTuple):
    """What is saved, in which state, into what, and by which file."""

    old: tuple[str, str]
    was: str
    kind: str
    new: tuple[str, str]
    now: str

    def __str__(self) -> str:
        return f"{'/'.join(self.old)} {self.was} {self.kind} > {'/'.join(self.new)} {self.now}"

    @property
    def same(self) -> bool:
        return self.old == self.new


def cases() -> Iterator[Case]:
    """All of them: of one optimizer every state; of two, what was trained."""
    for old in IN_FLAVOUR:
        for kind in KINDS:
            for was in STATES:
                for new in IN_FLAVOUR:
                    if new == old or was == "trained":
                        for now in STATES:
                            if new == old or now != "built":
                                yield Case(old, was, kind, new, now)


def edits() -> Iterator[Case]:
    """Each of the edits, and the way back."""
    for pair in EDITS:
        for old, new in (pair, pair[::-1]):
            for kind in KINDS:
                for now in STATES[::2]:
                    yield Case(("keras3", old), "trained", kind, ("keras3", new), now)


# --- Models ---


def _model(flavour: str) -> Any:
    k = KERAS[flavour]
    return stack(k, *dense(k, None, "head"))


def _compiled(model: Any, name: tuple[str, str], state: str, seed: int) -> Any:
    """The model with weights of the seed, and a new optimizer in this state."""
    k = KERAS[name[0]]
    draw = np.random.default_rng(seed)
    model.set_weights([draw.normal(size=each.shape) for each in model.get_weights()])
    model.compile(_MADE[name[1]](k), "mse")
    if state != "unbuilt":
        _build(model)
    if state == "trained":
        _steps(model, 2 + seed, seed)
    return model


def _build(model: Any) -> None:
    optimizer = model.optimizer
    if hasattr(optimizer, "_create_all_weights"):
        _ = optimizer.iterations
        optimizer._create_all_weights(model.trainable_variables)
    else:
        optimizer.build(model.trainable_variables)


def _steps(model: Any, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        x = BATCHES[number % len(BATCHES)]
        step(model.optimizer, model.trainable_variables, partial(_loss, model, x))


def _loss(model: Any, x: Any) -> Any:
    first, second, *others = (inner(each) for each in model.trainable_variables)
    y = tf.matmul(x, first) + second
    return tf.reduce_mean((tf.matmul(tf.tanh(y), others[0]) + others[1] - x) ** 2)


def _slow(optimizer: Any) -> None:
    """At a rate of 1e-9, whatever says the rate."""
    inside = getattr(optimizer, "inner_optimizer", optimizer)
    for each in getattr(inside, "_inner_optimizers", (inside,)):
        for name in ("_learning_rate", "learning_rate"):
            rate = vars(each).get(name, getattr(each, "_hyper", {}).get("learning_rate"))
            if hasattr(rate, "initial_learning_rate"):
                rate.initial_learning_rate = 1e-9
            elif rate is not None:
                each.learning_rate = 1e-9
            if rate is not None:
                break


def _state(model: Any) -> dict[str, np.ndarray]:
    """Name → value of each slot and of the number of updates.

    A loss scale is another optimizer, around the one that is looked at.
    """
    live = collect({"model": model})
    return {
        name: inner(live.variables[name]).numpy()
        for name, entry in live.inventory.entries.items()
        if entry.role in ("slot", "iterations") and "/loss_scale/" not in name
    }


def _copies(model: Any) -> dict[str, np.ndarray]:
    """Name → the weight, of each slot that begins as one."""
    live = collect({"model": model})
    slots = _COPIES.get(live.inventory.optimizers["optimizer"], _ANY)
    return {
        name: inner(live.variables[entry.of]).numpy()
        for name, entry in live.inventory.entries.items()
        if entry.slot in slots
    }


# --- Files ---


class _Written(NamedTuple):
    """A file, what was saved, and the weights after more steps."""

    path: str
    weights: list[np.ndarray]
    state: dict[str, np.ndarray]
    later: list[np.ndarray]


@lru_cache(len(KINDS))
def _saved(old: tuple[str, str], was: str, kind: str, place: Path) -> _Written:
    model = _compiled(_model(old[0]), old, was, 1)
    path = str(place / ("ckpt" if kind[0] != "." else f"model{kind}"))
    if kind == "tensorflow":
        path = tf.train.Checkpoint(model=model).save(path)
    elif kind == "tfckpt":
        path = tfckpt.Checkpoint(model=model).save(path)
    elif kind == ".weights.h5":
        model.save_weights(path)
    else:
        model.save(path)
    weights, state = model.get_weights(), _state(model)
    _steps(model, STEPS)
    return _Written(path, weights, state, model.get_weights())


@cache
def _live(flavour: str) -> Any:
    return _model(flavour)


def judge(case: Case, place: Path) -> str:
    """What comes of it, in a word."""
    folder = place / "-".join((*case.old, case.was, case.kind))
    folder.mkdir(exist_ok=True)
    try:
        written = _saved(case.old, case.was, case.kind, folder)
    except (NotImplementedError, ValueError, TypeError) as error:
        return f"- {type(error).__name__}"
    model = _compiled(_live(case.new[0]), case.new, case.now, 2)
    before, held = _state(model), read(model.optimizer)
    try:
        report = tfckpt.restore(written.path, model)
    except tfckpt.TfckptError as error:
        if not isinstance(error, tfckpt.RefusedError):
            return f"{type(error).__name__}: {error}".upper()
        if not _equal(read(model.optimizer), held):
            return "REFUSED, AND CHANGED OR BUILT"
        if why := _keras_loads(case, written):
            return f"REFUSED, {why}"
        report = tfckpt.restore(written.path, model, optimizer="reset")
        word = _compared(case, model, written, before, report)
        return ASKED if word == BEGINS else f"ASKED, THEN {word}"
    return _compared(case, model, written, before, report)


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return [each.tobytes() for each in one] == [each.tobytes() for each in other]


def _keras_loads(case: Case, written: _Written) -> str:
    """Whether it need not have been asked: the same optimizer, in a file that Keras loads."""
    if not case.same:
        return ""
    if case.kind[0] != ".":
        return "THE SAME"
    try:
        _compiled(_model(case.new[0]), case.new, case.now, 3).load_weights(written.path)
    except Exception:  # whatever Keras raises
        return ""
    return "KERAS LOADS IT"


def _compared(
    case: Case, model: Any, written: _Written, before: dict[str, np.ndarray], report: Any
) -> str:
    if not _equal(model.get_weights(), written.weights):
        return "OTHER WEIGHTS"
    counted = getattr(model.optimizer, "_u_product_counter", None)
    if counted is not None:
        # What tf_keras's Nadam counts in Python, and no checkpoint holds.
        model.optimizer._u_product_counter = int(model.optimizer.iterations.numpy()) + 1
    now = _state(model)
    if case.now == "unbuilt" and len(now) == len(before):
        _build(model)  # as the first step does
        now = _state(model)
    other = _compiled_on(case, written.weights)
    built, copies = _state(other), _copies(other)
    fresh = built | copies
    counts: Counter[str] = Counter()
    of_optimizer = ("slot", "iterations", "hyperparameter")
    in_file = any(s.stored and s.stored.role in of_optimizer for s in report.plan.steps)
    said = {s.name or s.target for s in report.plan.steps if s.reason}
    for name, value in now.items():
        saved, new = (_same(value, each.get(name)) for each in (written.state, fresh))
        new = new or (name not in before and _same(value, built.get(name)))
        if not saved and not new:
            left = name in before and (before[name] == value).all()
            counts["left" if left else "other"] += 1
        elif not (saved and new):
            counts["saved" if saved else "new"] += 1
            of_all = f"{name.partition('/inner_optimizers/')[0]}/iterations"
            unsaid = name in written.state and said.isdisjoint({name, of_all})
            if new and in_file and unsaid:
                return f"NOT SAID: {name} IS NEW"
    if counts["other"] and case.kind == ".weights.h5" and case.old[0] == "tf_keras":
        return BY_INDEX
    if counts["left"] and all(n in copies or _same(v, before.get(n)) for n, v in now.items()):
        counts["new"] = 0  # averages begin at the restored weights
    if counts["other"] or (counts["left"] and (counts["saved"] or counts["new"])):
        return f"MIXED: {dict(counts)}"
    spoken = any(s.entry.role in ("slot", "iterations") and s.reason for s in report.plan.steps)
    iterations = [name for name in now if name.endswith("/iterations")]
    new_slots = all(_same(now[n], fresh.get(n)) for n in now if n not in iterations)
    counted = any(not _same(now[name], fresh.get(name)) for name in iterations)
    slots = [name for name in now if name not in iterations]
    if counts["left"]:
        word = STAYS
    elif counts["saved"] and counts["new"]:
        word = IN_PART
    else:
        word = BEGINS if counts["new"] or not counts["saved"] else GOES_ON
        if case.was != "trained":
            word = GOES_ON  # as a new one
    if slots and new_slots and counted and len(written.state) > len(iterations):
        return "ITERATIONS BESIDE NEW SLOTS"
    changed = counts["left"] or (case.now == "trained" and counts["new"])
    had_none = len(written.state) == len(iterations) and case.now == "unbuilt"  # nor has it now
    begun = in_file and word in (BEGINS, IN_PART) and not had_none
    if not spoken and (changed or begun) and counts:
        return f"{word}, NOT SAID".upper()
    if case.same and word == GOES_ON:
        _steps(model, STEPS)
        if not _equal(model.get_weights(), written.later):
            return "OTHER STEPS"
        return word
    first, x = float(_loss(model, BATCHES[0])), BATCHES[0]
    _slow(model.optimizer)
    _steps(model, 1)
    if word != GOES_ON and hasattr(model.optimizer, "finalize_variable_values"):
        model.optimizer.finalize_variable_values(model.trainable_variables)
    moved = abs(float(_loss(model, x)) - first) > 1e-5 * max(1.0, first)
    if moved and case.new[1] not in (_FTRL if word == BEGINS else _BY_SLOTS):
        return f"{word}: LOSS {first} BECOMES {float(_loss(model, x))}".upper()
    return word


def _same(one: np.ndarray, other: np.ndarray | None) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())


@lru_cache(2)
def _other(flavour: str) -> Any:
    return _model(flavour)


def _compiled_on(case: Case, weights: list[np.ndarray]) -> Any:
    """A new optimizer of a model with these weights."""
    model = _compiled(_other(case.new[0]), case.new, "unbuilt", 4)
    model.set_weights(weights)
    _build(model)
    return model
