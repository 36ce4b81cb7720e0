"""State of a training that no object of the run holds, saved beside the objects.

A variable of a loss, a schedule, a regularizer, a callback or a closure is in no model. A number
that ``train_step`` or a callback's function counts is no variable. Variables are all saved; of
plain values those that are not what they were when training began, so that what the program sets
stays the program's. Attributes of callbacks themselves are left to :mod:`tfckpt.fitting.states`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.fitting import states
from tfckpt.fitting.trained import own_variables
from tfckpt.fitting.values import NoJSONError, decode, encode
from tfckpt.live.inventory import collect
from tfckpt.live.parts import pieces
from tfckpt.live.reachable import Reachable, names_in_keras
from tfckpt.live.variables import is_variable, on_host, raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

KEY = "values"
_ARRAYS = "extra/"
_LOST = "begins anew, since the checkpoint does not have it like this: training is not exact"
_COUNTERS = ("_train_counter", "_test_counter", "_predict_counter", "_steps_per_execution")


class ExtraState:
    """The same for one ``fit``.

    Args:
        model: that ``fit`` trains.
        objects: of the run.
        callbacks: the other ones.
        first: of the run, plain values as they were before its first step; filled in.
    """

    def __init__(
        self,
        model: Any,
        objects: Mapping[str, Any],
        callbacks: Iterable[Any],
        first: dict[str, Any],
    ) -> None:
        self._model = model
        self._objects = objects
        self._callbacks = states.named(callbacks)
        self._first = first
        self._held: list[Any] = []
        self._extra: list[Any] = []
        for name, value in _encoded(self._found()).items():
            first.setdefault(name, value)

    def variables(self, but: frozenset[int]) -> list[Any]:
        """Those that nobody else saves, without those whose handles are among some."""
        found = self._found().variables.values()
        return [each for each in found if id(getattr(each, "handle", None)) not in but]

    def collect(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """Plain values that have changed, as JSON values, and the variables."""
        found = self._found()
        values = {n: v for n, v in _encoded(found).items() if v != self._first.get(n, _NOTHING)}
        arrays = {_ARRAYS + n: on_host(v.read_value()).numpy() for n, v in found.variables.items()}
        return values, arrays

    def put_back(self) -> None:
        """Plain values are what they were before the first step."""
        self._write(self._found(), {})

    def restore(self, values: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
        """Give everything what was collected.

        Returns:
            What does not come back, in words.
        """
        found = self._found()
        saved = {n.removeprefix(_ARRAYS): v for n, v in arrays.items() if n.startswith(_ARRAYS)}
        lost = []
        for name, variable in found.variables.items():
            value = saved.pop(name, None)
            if value is None or not variable.shape.is_compatible_with(value.shape):
                lost.append(name)
                continue
            for part, piece in pieces(variable, value):
                part.assign(piece)
        lost += [*saved, *self._write(found, values if isinstance(values, dict) else {})]
        return [f"{name}: {_LOST}" for name in lost]

    def _found(self) -> Reachable:
        found = Reachable({"model": self._model, **self._callbacks}, self._callbacks)
        known = {*map(id, self._held), *map(id, self._extra)}
        if any(id(each) not in known for each in found.variables.values()):
            self._held = self._held_by_others()  # which takes as long as to name them all
        held = set(map(id, self._held))
        found.variables = {n: v for n, v in found.variables.items() if id(v) not in held}
        self._extra = [*found.variables.values()]
        return found

    def _held_by_others(self) -> list[Any]:
        held = [*collect(self._objects).variables.values()]
        held += own_variables(self._model, self._objects)
        held += [getattr(self._model, name, None) for name in _COUNTERS]
        return [raw(each) for each in held if is_variable(each)]

    def _write(self, found: Reachable, values: Mapping[str, Any]) -> list[str]:
        """Put plain values where they belong; the names of those that have no place."""
        now, lost = _encoded(found), []
        for name, place in found.places.items():
            value = values.get(name, self._first.get(name, _NOTHING))
            if value is not _NOTHING and value != now.get(name):
                try:
                    place.write(decode(value))
                except (TypeError, ValueError, KeyError, OverflowError):
                    lost.append(name)
        for name in values.keys() - found.places.keys():
            path, _, attribute = name.rpartition(".")
            obj: Any = found.objects.get(path)
            if obj is None or attribute in names_in_keras(obj.__class__):
                lost.append(name)
            else:
                setattr(obj, attribute, decode(values[name]))
        return lost


_NOTHING = object()


def _encoded(found: Reachable) -> dict[str, Any]:
    encoded = {name: _json(place.value) for name, place in found.places.items()}
    return {name: value for name, value in encoded.items() if value is not _NOTHING}


def _json(value: Any) -> Any:
    try:
        return encode(value)
    except NoJSONError:
        return _NOTHING
