"""What a person has who makes a mistake: a run of a small model, and eyes for what is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import re
import shutil
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.fits import stop

CLASSES, EPOCHS, BATCH = 3, 3, 4
X = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
Y = np.arange(16) % CLASSES
STEPS = len(X) // BATCH  # of an epoch


def digits(
    keras: Any,
    body: str = "body",
    head: str = "head",
    classes: int = CLASSES,
    optimizer: Any = "adam",
    units: int = 8,
) -> Any:
    """A model for the data; with None as optimizer it is not compiled."""
    layers = [
        keras.layers.Dense(units, activation="relu", name=body),
        keras.layers.Dense(classes, name=head),
    ]
    return compiled(keras, keras.Sequential([keras.Input((6,)), *layers]), optimizer)


def compiled(keras: Any, model: Any, optimizer: Any = "adam", **more: Any) -> Any:
    if optimizer is not None:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, **{"run_eagerly": True, **more})
    return model


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS, **more: Any) -> Any:
    """The ``History``; another keyword takes the place of what is given here."""
    given = {"x": X, "y": Y, "batch_size": BATCH, "shuffle": False, "verbose": 0, **more}
    return model.fit(epochs=epochs, callbacks=list(callbacks), **given)


def written(text: str, name: str = "t.yaml") -> str:
    """A file of the working directory with that text."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return name


def saved(directory: str = "runs/a") -> list[str]:
    return sorted(path.stem for path in Path(directory).glob("*.index"))


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


@dataclasses.dataclass
class Case:
    """A mistake: what is done, what must be seen, and of which error.

    Attributes:
        do: what is done in a :class:`Scene`; what it watches stays as it is if it is refused.
        says: regular expressions, joined by `` & ``, each in what is seen, however it is broken.
        error: the class of the error; None if it goes on, and is said.
        never: a regular expression that is not in it.
        last: how many lines a terminal still shows, in which all is said.
        both: whether tf_keras is tried, too.
    """

    do: Callable[[Scene], Any]
    says: str
    error: type[BaseException] | None = None
    never: str = "deprecated"  # by TensorFlow, of what tfckpt calls
    last: int = 1000
    both: bool = False

    def check(self, scene: Scene) -> None:
        with scene.looking():
            shown = self.do(scene)
            if shown is not None:
                print(shown)
        text, error = scene.text, scene.error
        if error is not None and (self.error is None or isinstance(error, AssertionError)):
            raise error
        if self.error is not None:
            assert isinstance(error, self.error), f"not refused, or by another error:\n{text}"
            assert scene.untouched(), f"refused, and overwritten:\n{text}"
        seen = " ".join(" ".join(text.rstrip().splitlines()[-self.last :]).split())
        missing = [pattern for pattern in self.says.split(" & ") if not re.search(pattern, seen)]
        assert not missing, f"{missing} is not in what is seen:\n{text}"
        assert not re.search(self.never, seen), f"{self.never!r} is in what is seen:\n{text}"


def cases(error: type[BaseException] | None, table: dict[str, Any], **more: Any) -> dict[str, Case]:
    """Mistakes of one error: name → what is done, and what is said."""
    return {name: Case(do, says, error, **more) for name, (do, says) in table.items()}


def each(all_cases: dict[str, Case]) -> Any:
    """``@each(CASES)``: of each the name and the flavors of Keras."""
    both = {True: ("keras", "tf_keras"), False: ("keras",)}
    found = [(name, flavor) for name, case in all_cases.items() for flavor in both[case.both]]
    return pytest.mark.parametrize(("name", "flavor"), found)


class Scene:
    """Where a mistake is made, and what a person sees: errors, printed lines, log, warnings."""

    def __init__(self, keras: Any, finished: Callable[[], Path]) -> None:
        self.keras, self._finished = keras, finished
        self.error: BaseException | None = None
        self._out, self._watched, self._before = io.StringIO(), (), []

    # What there is

    @property
    def run(self) -> str:
        """The directory ``runs/digits`` with ``ckpt-1`` to ``ckpt-3``, at its first use."""
        if not Path("runs/digits").exists():
            shutil.copytree(self._finished() / "digits", "runs/digits")
        return "runs/digits"

    def model(self, *, watched: bool = True, **more: Any) -> Any:
        self.keras.utils.set_random_seed(3)
        made = digits(self.keras, **more)
        return self.watch(made) if watched else made

    def watch(self, *things: Any) -> Any:
        """The mistake begins here: these stay as they are; what was printed before is no matter."""
        self._watched, self._before = things, values(*things)
        self._out.seek(0)
        self._out.truncate()
        return things[0] if things else None

    def interrupted(self, model: Any, callback: Any, at: tuple[int, int], **more: Any) -> None:
        """A ``fit`` that ends before that batch."""
        with contextlib.suppress(KeyboardInterrupt):
            fit(model, callback, stop(self.keras, *at), **more)

    # What is seen

    @property
    def text(self) -> str:
        error = "" if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return self._out.getvalue() + error

    def untouched(self) -> bool:
        after = values(*self._watched)
        return len(self._before) <= len(after) and all(
            old.tobytes() == new.tobytes() for old, new in zip(self._before, after, strict=False)
        )

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """What is shown from here on, without being asked for."""
        out = self._out

        def show(message: Any, category: type[Warning], *_: Any) -> None:
            out.write(f"{category.__name__}: {message}\n")

        handler = logging.StreamHandler(out)
        handler.setLevel(logging.WARNING)
        loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
        for logger in loggers:
            logger.addHandler(handler)
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(out):
                warnings.simplefilter("always")
                warnings.simplefilter("ignore", DeprecationWarning)  # as Python does by default
                warnings.showwarning = show
                yield
        except (Exception, SystemExit) as error:
            self.error = error
        finally:
            for logger in loggers:
                logger.removeHandler(handler)
