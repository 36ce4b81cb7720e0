"""What a person has who makes a mistake: a run of a small model, and eyes for what is shown."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLASSES, EPOCHS, BATCH = 3, 3, 4
X = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
Y = np.arange(24) % CLASSES
STEPS = len(X) // BATCH  # of an epoch


def digits(
    keras: Any,
    body: str = "body",
    head: str = "head",
    classes: int = CLASSES,
    optimizer: Any = "adam",
) -> Any:
    """A model for the data; with None as optimizer it is not compiled."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="relu", name=body),
            keras.layers.Dense(classes, name=head),
        ]
    )
    return compiled(keras, model, optimizer)


def compiled(keras: Any, model: Any, optimizer: Any = "adam") -> Any:
    if optimizer is not None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, run_eagerly=True)
    return model


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS, **more: Any) -> Any:
    """The ``History``; another keyword takes the place of what is given here."""
    given = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **more}
    return model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **given)


def written(text: str, name: str = "t.yaml") -> str:
    """A file of the working directory with that text."""
    Path(name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return name


def values(*things: Any) -> list[np.ndarray]:
    """All variables of models and optimizers; a variable counts as itself."""
    found: list[Any] = []
    for thing in things:
        if not getattr(thing, "built", True):
            continue  # tf_keras has no list of what is not built
        own = getattr(thing, "variables", thing)
        found += (own() if callable(own) else own) if own is not thing else [thing]
        if (optimizer := getattr(thing, "optimizer", None)) is not None:
            found += values(optimizer)
    return [np.asarray(value) for value in found]


class Seen:
    """What a person sees: the error or none, what is printed, logged and warned of."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.printed = ""
        self.untouched: bool | None = None

    @property
    def text(self) -> str:
        if self.error is None:
            return self.printed
        return f"{self.printed}{type(self.error).__name__}: {self.error}"

    def says(self, *patterns: str) -> None:
        """Each is in the text, however its lines are broken."""
        flat = " ".join(self.text.split())
        missing = [pattern for pattern in patterns if not re.search(pattern, flat)]
        assert not missing, f"{missing} is not in what is seen:\n{self.text}"

    def never_says(self, *patterns: str) -> None:
        flat = " ".join(self.text.split())
        found = [pattern for pattern in patterns if re.search(pattern, flat)]
        assert not found, f"{found} is in what is seen:\n{self.text}"

    def ends_with(self, *patterns: str, lines: int = 12) -> None:
        """Each is in the last lines, which are what a terminal still shows."""
        last = Seen()
        last.printed = "\n".join(self.text.rstrip().splitlines()[-lines:])
        last.says(*patterns)

    def shows(self, ended: Any) -> None:
        """What a command of ``zoo.command_line`` printed."""
        self.printed += ended.out + ended.err


@contextlib.contextmanager
def eyes(*things: Any) -> Iterator[Seen]:
    """What is seen from here on, and whether these models and variables stay as they are."""
    seen, out, lines = Seen(), io.StringIO(), Lines()
    before = values(*things)
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    for logger in loggers:
        logger.addHandler(lines)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(out):
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", DeprecationWarning)  # as Python does by default
            warnings.showwarning = _shown_on(out)
            lines.out = out
            yield seen
    except (Exception, SystemExit) as error:
        seen.error = error
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
        seen.printed += out.getvalue()
    if things:
        after = values(*things)
        seen.untouched = len(before) <= len(after) and all(
            old.tobytes() == new.tobytes() for old, new in zip(before, after, strict=False)
        )


class Lines(logging.Handler):
    """Log lines between the printed ones; only what is shown without being asked for."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.out = io.StringIO()

    def emit(self, record: logging.LogRecord) -> None:
        self.out.write(f"{record.levelname}: {record.getMessage()}\n")


def _shown_on(out: io.StringIO) -> Callable[..., None]:
    def show(message: Warning, category: type[Warning], *_: Any) -> None:
        out.write(f"{category.__name__}: {message}\n")

    return show


class Interrupt:
    """``fit(model, callback, Interrupt(keras).at(1, 2))`` ends as if it were killed there."""

    def __init__(self, keras: Any) -> None:
        self._base = keras.callbacks.Callback

    def at(self, epoch: int, batch: int) -> Any:
        class Stop(self._base):  # type: ignore[name-defined]
            epoch = -1

            def on_epoch_begin(self, number: int, logs: Any = None) -> None:
                Stop.epoch = number

            def on_train_batch_begin(self, number: int, logs: Any = None) -> None:
                if (Stop.epoch, number) == (epoch, batch):
                    raise KeyboardInterrupt

        return Stop()
