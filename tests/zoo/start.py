"""One start of a program that trains: where it is killed, and what a person sees in the end.

A program is a function of a :class:`Start`: it builds model and data, trains, and tells its start
what a person would look at. A start that saves nothing is plain Keras, and says what is expected.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import logging
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tfckpt
import tfckpt.callbacks

Program = Callable[["Start"], None]
SAMPLES, BATCH, STEPS = 14, 4, 4  # the last batch of an epoch is shorter
EPOCHS = 3
SAVE_FREQ = 2  # batches, or calls of a step with `steps_per_execution`
X = np.random.default_rng(0).normal(size=(SAMPLES, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)
ARRAYS: dict[str, Any] = {"x": X, "y": Y, "batch_size": BATCH}
VALIDATION: dict[str, Any] = {"validation_data": (X[:8], Y[:8]), "validation_batch_size": BATCH}

Place = tuple[int, int, "int | str"]  # number of the `fit`, epoch, batch or event


class Killed(BaseException):
    """Ends a start where it is to be killed."""


_KILLED: list[Killed] = []


class Start:
    """One start of a program.

    Args:
        keras: the module of Keras.
        folder: what the program has on the disk, kept from start to start.
        kill: where it ends; None for nowhere.
        saves: whether tfckpt has a part in it.
        by_signal: whether the process kills itself there.

    Attributes:
        trained: of each step: the number of the `fit`, epoch, batch, loss.
    """

    def __init__(
        self, keras: Any, folder: Path, kill: Place | None, *, saves: bool, by_signal: bool = False
    ) -> None:
        self.keras, self.folder, self.saves = keras, folder, saves
        self.directory = str(folder / "run")
        self.trained: list[Any] = []
        self._kill, self._by_signal = kill, by_signal
        self._fits = -1
        self._histories: list[Any] = []
        self._seen: dict[str, Any] = {}
        self._out = io.StringIO()
        self._said: str | None = None
        self._model: Any = None

    def run(self, program: Program) -> dict[str, Any]:
        """Run the program; what came of it, as values of JSON."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ended: dict[str, Any] = {"killed": False, "error": ""}
        with self._in_a_process_of_its_own():
            try:
                program(self)
            except Killed as killed:
                # A killed process ends nothing in order: its iterators live on, in the frames.
                _KILLED.append(killed)
                ended["killed"] = True
            except Exception as error:
                ended["error"] = f"{type(error).__name__}: {error}"
        before = self._out.getvalue() if self._said is None else self._said
        ended |= {"said": before, "trained": self.trained, "output": self._out.getvalue()}
        if not ended["killed"] and not ended["error"]:
            ended["result"] = {"histories": self._histories, **self._seen}
            if self._model is not None:
                ended["result"]["weights"] = self._weights()
                ended["result"]["optimizer"] = digest(variables_of(self._model.optimizer))
        text = json.dumps(ended, default=float)
        return json.loads(text.replace(str(self.folder), "."))

    @contextlib.contextmanager
    def _in_a_process_of_its_own(self) -> Iterator[None]:
        """As far as names, seeds and what is printed go."""
        keras, log, handler = (
            self.keras,
            logging.getLogger("absl"),
            logging.StreamHandler(self._out),
        )
        gc.freeze()  # what is left of earlier starts is not walked again
        keras.backend.clear_session()
        if keras.__name__ == "tf_keras":
            keras.backend.experimental.enable_tf_random_generator()
        keras.utils.set_random_seed(7)
        log.addHandler(handler)
        try:
            with contextlib.redirect_stdout(self._out):
                yield
        finally:
            log.removeHandler(handler)
            keras.mixed_precision.set_global_policy("float32")
            tf.random.set_seed(None)
            if keras.__name__ == "tf_keras":
                keras.backend.experimental.disable_tf_random_generator()

    def _weights(self) -> str:
        """Of the model and of the seeds of its layers, not of its metrics."""
        metrics = {id(v) for v in getattr(self._model, "metrics_variables", ())}
        return digest(v for v in self._model.variables if id(v) not in metrics)

    # What programs call

    def network(self, *between: Any, kind: Any = None, built: bool = True) -> Any:
        layers = self.keras.layers
        made = [self.keras.Input((4,))] if built else []
        made += [layers.Dense(3, activation="tanh"), *between, layers.Dense(1, dtype="float32")]
        return (kind or self.keras.Sequential)(made)

    def compiled(self, *between: Any, kind: Any = None, built: bool = True, **more: Any) -> Any:
        model = self.network(*between, kind=kind, built=built)
        momentum = self.keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(**{"optimizer": momentum, "loss": "mse", "jit_compile": False, **more})
        return model

    def callback(self, name: str, **has: Any) -> Any:
        """A callback of a class of its own, with these methods and attributes."""
        return type(name, (self.keras.callbacks.Callback,), has)()

    def resume(self, model: Any, **more: Any) -> list[Any]:
        """The line that a person adds."""
        self.trains(model)
        if not self.saves:
            return []
        save = {"save_freq": SAVE_FREQ, **more}
        return [tfckpt.callbacks.resume(model, self.directory, **save)]

    def fit(self, model: Any, *callbacks: Any, resume: Any = None, **given: Any) -> Any:
        """``fit`` with that line, and a callback that kills."""
        resuming = self.resume(model) if resume is None else resume
        self._fits += 1
        called = [*resuming, *callbacks, _watch(self, self._fits)]
        found = model.fit(**{"epochs": EPOCHS, "verbose": 0, **given}, callbacks=called)
        self._histories.append([found.epoch, sorted(found.history.items())])
        return found

    def trains(self, model: Any) -> None:
        """This is the model that it trains."""
        self._model = model

    def comes_to(self, place: Place) -> None:
        kill = self._kill
        if kill is None or place[:2] != kill[:2]:
            return
        numbers = isinstance(place[2], int) and isinstance(kill[2], int)
        if place[2] >= kill[2] if numbers else place[2] == kill[2]:  # type: ignore[operator]
            if self._by_signal:
                os.write(1, self._out.getvalue().encode())
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed

    def steps(self, place: Place, loss: Any) -> None:
        """A step has been trained."""
        if self._said is None:
            self._said = self._out.getvalue()
        self.trained.append([*place, float(loss)])

    def sees(self, name: str, value: Any) -> None:
        """What a person would look at."""
        self._seen[name] = value


def _watch(start: Start, number: int) -> Any:
    """Tells a start where its training is; it holds it weakly, and is no state of the program."""
    told = weakref.ref(start)

    class Watch(start.keras.callbacks.Callback):
        epoch = -1

        def get_state(self) -> dict[str, Any]:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch
            told().comes_to((number, epoch, "begin"))

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            told().comes_to((number, self.epoch, batch))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            told().steps((number, self.epoch, batch), logs.get("loss", 0))

        def on_test_begin(self, logs: Any = None) -> None:
            told().comes_to((number, self.epoch, "validation"))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            told().comes_to((number, epoch, "end"))

        def on_train_end(self, logs: Any = None) -> None:
            told().comes_to((number, -1, "done"))

    return Watch()


def variables_of(optimizer: Any) -> Any:
    found = getattr(optimizer, "variables", ())
    return found() if callable(found) else found


def digest(values: Any) -> str:
    whole = hashlib.sha256()
    for value in values:
        array = np.asarray(value)
        whole.update(f"{array.dtype}{array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]
