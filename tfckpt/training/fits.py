"""The calls of ``fit`` of one run: their number, Keras's ``History`` of each, the one before.

A restarted program makes the same calls. Those that had finished train nothing and return the same
``History`` again. Objects in memory distinguish a restarted program from one that continues: after
a finished ``fit`` of the same model the next one follows, whoever made its callback. After an
interruption, a notebook cell was run again, unless the model was compiled again and other layers
are trainable now. Another model, after a finished ``fit``, may be one of several that were meant to
be trained separately.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.private.fit import own_train_function
from tfckpt.training.callback_state import States

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.live.data import Captured

KEY = "histories"
PASSES = "passes"
ENDS = "ends"
_MOST_PASSES = 1 << 20
_HISTORY = "History"
_ATTRIBUTE = "_tfckpt_earlier"  # of the model, so that both are freed together
_over: dict[str, weakref.ref[Any]] = {}  # directory → the model whose `fit` finished last


def passes_in(training: Mapping[str, Any]) -> list[int]:
    """The numbers of iterators in a record; [] if they are missing or invalid."""
    found = training.get(PASSES)
    valid = isinstance(found, list) and all(
        type(each) is int and 0 <= each <= _MOST_PASSES for each in found
    )
    return found if valid else []  # type: ignore[return-value]


class FitEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a ``fit`` has left behind besides weights; ``source`` of what makes the batches."""

    values: dict[str, Any]
    source: dict[str, Any]
    generators: dict[str, Any]
    arrays: dict[str, Any] = {}  # beside the record

    def prefixed(self, number: int) -> dict[str, Any]:
        """The arrays as those of a later ``fit`` keep them."""
        return {f"{ENDS} {number}/{name}": value for name, value in self.arrays.items()}


def ends_in(training: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[int, FitEnd]:
    """The ends of earlier ``fit`` in a record, with their arrays; damaged ones are left out."""
    found = training.get(ENDS)
    ends = {}
    for number, one in enumerate(found if isinstance(found, list) else ()):
        with contextlib.suppress(msgspec.ValidationError):
            end, before = msgspec.convert(one, FitEnd), f"{ENDS} {number}/"
            its = {n.removeprefix(before): v for n, v in arrays.items() if n.startswith(before)}
            ends[number] = msgspec.structs.replace(end, arrays=its)
    return ends


class Fits:
    """All calls of ``fit`` of one run; one that was refused does not count."""

    def __init__(self) -> None:
        self.begun = 0
        self.histories: list[Any] = []
        self.passes: dict[int, int] = {}
        self.unread: list[tuple[Any, Captured]] = []
        self.ends: dict[int, FitEnd] = {}
        self.iterators: dict[int, tuple[Any, int]] = {}  # made of other datasets
        self.interrupted = False
        self._again = False
        self._running: list[Any] = []
        self._next: list[Any] = []
        self._known: dict[str, Any] = {}

    def begin(self, callbacks: Iterable[Any]) -> int:
        """A call begins; returns the number of calls before it."""
        self._next = [each for each in callbacks if type(each).__name__ == _HISTORY]
        return self.begun

    def again(self) -> None:
        """The interrupted call begins again: count it once."""
        self.begun -= 1
        self.interrupted, self._again = False, True

    def count(self, saved: Any = None) -> None:
        """Count a call; ``saved`` has the histories of a record if it trains nothing."""
        if self.begun and not self._again:
            self.histories.append(States(self._running).collect()[0])
        self._again = False
        self._running, self._known = self._next, {}
        if isinstance(saved, list) and self.begun < len(saved):
            self._known = saved[self.begun] if isinstance(saved[self.begun], dict) else {}
        self.begun += 1
        self.interrupted = True

    def described(self, fit: int) -> dict[str, list[Any]]:
        """The entries of the commit record for the calls up to ``fit``."""
        passes = [self.passes.get(number, 0) for number in range(fit + 1)]
        ends = [
            msgspec.to_builtins(msgspec.structs.replace(self.ends[n], arrays={}))
            if n in self.ends
            else {}
            for n in range(fit)
        ]
        return {KEY: list(self.histories), PASSES: passes, ENDS: ends}

    def end(self) -> None:
        """The running call has finished: restore its ``History`` if it trained nothing."""
        self.interrupted = False
        States(self._running).restore(self._known, {})
        self._known = {}


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The last ``fit`` of a model in this process."""

    directory: str
    run: Any
    function: Any
    trainable: Mapping[int, bool]

    def is_followed_by_another(self, model: Any) -> bool:
        """Whether the ``fit`` that begins is a new one, not the interrupted one run again."""
        if not self.run.fits.interrupted:
            return True
        if self.function == own_train_function(model):  # a method is another object each time
            return False
        now = _trainable(model)
        return any(now.get(layer, flag) != flag for layer, flag in self.trainable.items())


def directory_of(run: Any) -> str:
    """Where a run saves, as no other path says it; "" for nowhere."""
    if run.config.manager is None:
        return ""
    path = str(run.config.manager.directory)
    return path if "://" in path else os.path.realpath(path)


def earlier(model: Any, directory: str) -> Earlier | None:
    """The last ``fit`` of a model, if it saved into the same directory."""
    last = vars(model).get(_ATTRIBUTE)
    return last if isinstance(last, Earlier) and last.directory == directory else None


def remember(model: Any, directory: str, run: Any) -> None:
    """Record that a ``fit`` of the model has begun."""
    _over.pop(directory, None)
    vars(model)[_ATTRIBUTE] = Earlier(directory, run, own_train_function(model), _trainable(model))


def is_over(model: Any, directory: str) -> None:
    """Record that a ``fit`` of the model has finished."""
    _over[directory] = weakref.ref(model)


def of_another_model(model: Any, directory: str) -> bool:
    """Whether the last ``fit`` that finished with this directory trained another model."""
    return directory in _over and _over[directory]() is not model


def _trainable(model: Any) -> dict[int, bool]:
    return {id(layer): layer.trainable for layer in with_layers_below(model)}
