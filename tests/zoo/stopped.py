"""Small trainings with state in all kinds of places, stopped and begun again.

A training is made of words, one of each group (``zoo/stateful``); nothing of it survives but its
directory. Stopped means that a callback raises before a batch, with all that was made being made
anew afterwards, or that it kills its process there, and another process begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import itertools
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import tfckpt.callbacks
from zoo import stateful as words_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from zoo.forkserver import ForkServer

    Words = tuple[str, ...]
    Place = tuple[int, int, int]  # number of the `fit`, epoch, batch

SAID = (
    "not exact",
    "is reset",
    "reads its epoch again",
    "is not saved",
    "draws other numbers in later epochs",
    "nor a repeated",
)
# What the program calls: the arguments of each `fit`.
FITS: dict[str, tuple[dict[str, int], ...]] = {
    "once": ({"epochs": 3},),
    "twice": ({"epochs": 2}, {"epochs": 2}),
    "continued": ({"epochs": 1}, {"initial_epoch": 1, "epochs": 3}),
    "unfrozen": ({"epochs": 2}, {"epochs": 2}),
}
GROUPS: tuple[Any, ...] = (
    words_of.DATA,
    words_of.STATE,
    words_of.MODELS,
    words_of.OPTIMIZERS,
    words_of.CALLBACKS,
    words_of.VALIDATION,
    FITS,
)


def drawn_training(draw: random.Random) -> Words:
    """One word of each group, of those that go together; few with state that nobody saves."""
    words = [draw.choice(list(group)) for group in GROUPS]
    if draw.random() < 0.8:
        words[1] = draw.choice(words_of.SAVED)
    if words[1] == "in_schedule":
        words[4] = "alone"  # it leaves no rate to change
    if words[1] in {"in_schedule", "teacher", "counted"} and words[6] == "unfrozen":
        words[6] = "twice"  # they know which layers are trained
    if words[5] == "unvalidated" and words[4] == "stopping_early":
        words[4] = "stopping"
    return tuple(words)


def train(
    flavour: str,
    words: Words,
    directory: str = "",
    stop: Place | None = None,
    *,
    kill: bool = False,
) -> tuple[list[str] | None, str]:
    """Train to the end, or up to a place.

    Returns:
        Digests of weights and states, and ``History``, None where it was stopped; what was said.
    """
    keras = importlib.import_module(flavour)
    data, state, kind, optimizer, callbacks, validation, fits = (
        *words,
        *("unvalidated", "once")[len(words) - 5 :],
    )
    keras.utils.set_random_seed(5)
    compiled, others = words_of.STATE[state](keras)
    own = {name: compiled.pop(name, None) for name in ("regularizer", "constraint", "counts")}
    given = {name: value for name, value in own.items() if value is not None}
    model = words_of.network(keras, kind, given)

    class Stop(keras.callbacks.Callback):
        fit = epoch = -1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if stop is not None and (self.fit, self.epoch, batch) == tuple(stop):
                if kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyboardInterrupt

    stopper = Stop()
    others += [*words_of.CALLBACKS[callbacks](keras), stopper]
    if directory:
        others.append(tfckpt.callbacks.resume(model, directory, save_freq=1))
    fed = _data(keras, data, kind)
    histories = []
    said = io.StringIO()
    with contextlib.nullcontext() if kill else contextlib.redirect_stdout(said):
        for number, arguments in enumerate(FITS[fits]):
            if number == 0 or fits == "unfrozen":
                if fits == "unfrozen":
                    model.layers[1].trainable = number == 1
                made = words_of.OPTIMIZERS[optimizer](keras)
                model.compile(**{"optimizer": made, "metrics": ["mae"], **compiled})
            stopper.fit = number
            more = {**fed, **words_of.VALIDATION[validation](), **arguments}
            try:
                history = model.fit(**more, verbose=0, callbacks=others)
            except KeyboardInterrupt:
                return None, said.getvalue()
            histories.append([history.epoch, sorted(history.history.items())])
    return [*_digests(model), json.dumps(histories, default=float)], said.getvalue()


def _data(keras: Any, data: str, kind: str) -> dict[str, Any]:
    """A layer that keeps a state for each sample of a batch takes whole batches alone."""
    whole, size = kind in words_of.RECURRENT, words_of.BATCH
    samples = words_of.SAMPLES // size * size if whole else words_of.SAMPLES
    return words_of.DATA[data](keras, samples, lambda found: found.batch(size, whole))


def _digests(model: Any) -> Iterator[str]:
    slots = model.optimizer.variables
    states = [state for layer in model.layers for state in getattr(layer, "states", None) or ()]
    for value in (*model.weights, *(slots() if callable(slots) else slots), *states):
        yield hashlib.sha256(np.asarray(value).tobytes()).hexdigest()


def _places(words: Words, draw: random.Random) -> list[Place]:
    """Two of the batches of which each may be the last one before it stops."""
    found = [
        (number, epoch, batch)
        for number, each in enumerate(FITS[words[6] if len(words) > 6 else "once"])
        for epoch, batch in itertools.product(
            range(each.get("initial_epoch", 0), each["epochs"]), range(4)
        )
    ]
    return sorted(draw.sample(found[1:], 2))


def _verdict(whole: Any, ended: Any, said: str) -> tuple[str, str]:
    assert whole is not None
    assert ended is not None
    if whole == ended:
        return "exact", said
    return "said" if any(each in said for each in SAID) else "wrong", said


def stopped_twice(keras: Any, words: Words, directory: str, draw: random.Random) -> tuple[str, str]:
    """``exact``, ``said`` or ``wrong``, and what was said at any start.

    What another start would not give again, one says that trains: the last may have none to train.
    """
    whole, _ = train(keras.__name__, words)
    said = [train(keras.__name__, words, directory, place)[1] for place in _places(words, draw)]
    ended, last = train(keras.__name__, words, directory)
    return _verdict(whole, ended, "".join([*said, last]))


def killed_twice(
    server: ForkServer, flavour: str, words: Words, directory: str, draw: random.Random
) -> tuple[str, str]:
    """The same, each in a process of its own, two of which kill themselves."""
    whole, _ = server.run("zoo.stopped:train", flavour, words, timeout=300.0).result()
    said = []
    for place in _places(words, draw):
        found = server.run("zoo.stopped:killed", flavour, words, directory, place, timeout=300.0)
        assert found.signal == signal.SIGKILL or found.result(), (words, place)
        said.append(found.output)
    again = server.run("zoo.stopped:train", flavour, words, directory, timeout=300.0)
    ended, last = again.result()
    return _verdict(whole, ended, "".join([*said, last]))


def killed(flavour: str, words: Words, directory: str, place: Place) -> bool:
    """Train up to a place and be killed there; True if training ended before it."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return train(flavour, words, directory, place, kill=True)[0] is not None
