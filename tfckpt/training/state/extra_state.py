"""Training state outside the objects of the run, saved beside them.

A variable of a loss, a schedule, a regularizer, a callback or a closure belongs to no model. A
number that ``train_step`` or a callback's function counts is not a variable. Plain values and large
variables are saved only if they have changed since before the first epoch, so that the program's
own settings win; of unchanged large variables a checksum is saved. What changes but cannot be
saved, or was replaced by another object, is reported. Attributes of callbacks are the task of
:mod:`tfckpt.training.state.callback_state`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.live.objects.collect import collect
from tfckpt.live.private.fit import COUNTERS
from tfckpt.live.program_state.plain_values import checksum
from tfckpt.live.program_state.reachable import MOST_OBJECTS, Reachable
from tfckpt.live.variables.distributed import pieces
from tfckpt.live.variables.variables import is_variable, on_host, raw
from tfckpt.training.state import callback_state
from tfckpt.training.state.json_values import NoJSONError, decode, encode
from tfckpt.training.state.trained import own_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np

KEY = "values"
_ARRAYS = "extra/"
_NOT_SAVED, _UNCHANGED = "not saved", "unchanged"  # never equal to a path
_LARGE = 1 << 16  # size of a variable in bytes
_LOST = "is reset, since the checkpoint has no matching value: training is not exact"
_OTHER = (
    "differs from the saved training, and the checkpoint does not have its value: training is not "
    "exact"
)
_REPLACED = "has been replaced by another object since before the first epoch"
_CHANGES = "changes during training and cannot be saved"
_RESET = "is reset when training resumes, which is not exact"
_TOO_MANY = (
    f"the program's code holds more than {MOST_OBJECTS:,} objects or values: changes of the others "
    "are not saved, so a resumed training is not exact"
)


@dataclasses.dataclass
class Beginning:
    """The state before the first epoch of a run, over all its calls of ``fit``."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)
    marks: dict[str, Any] = dataclasses.field(default_factory=dict)
    checksums: dict[str, int] = dataclasses.field(default_factory=dict)
    replaced: set[str] = dataclasses.field(default_factory=set)


class ExtraState:
    """Finds, collects and restores such state in one ``fit``; fills in ``beginning``."""

    def __init__(
        self,
        model: Any,
        objects: Mapping[str, Any],
        callbacks: Iterable[Any],
        beginning: Beginning,
    ) -> None:
        self._model = model
        self._objects = objects
        self._callbacks = callback_state.named(callbacks)
        self._beginning = beginning
        self._first: Reachable | None = None
        self._held: list[Any] = []
        self._extra: list[Any] = []
        self._said: set[str] = set()

    def begins(self) -> None:
        """Before the first epoch: record what the program has set."""
        if self._first is not None:
            return
        self._first = found = self._found()
        values, marks = _encoded(found)
        for name, array in self._arrays(found):
            if array.nbytes > _LARGE:
                self._beginning.checksums.setdefault(name, checksum(array))
        self._beginning.values = values | self._beginning.values
        self._beginning.marks = {**marks, **self._unnamed(found), **self._beginning.marks}

    def variables(self, but: frozenset[int]) -> list[Any]:
        """The extra variables, except those whose handles have an id in ``but``."""
        found = self._found().variables.values()
        return [each for each in found if id(getattr(each, "handle", None)) not in but]

    def values(self) -> dict[str, Any]:
        """The current plain values, for :meth:`put_back`."""
        return _encoded(self._found())[0]

    def put_back(self, values: Mapping[str, Any]) -> None:
        """Restore plain values."""
        self._write(self._found(), values)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore the plain values after the body."""
        values = self.values()
        try:
            yield
        finally:
            self.put_back(values)

    def collect(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]], list[str]]:
        """Changed plain values as JSON; the variables; messages about what is not saved."""
        self.begins()
        beginning, found = self._beginning, self._found()
        now, marks = _encoded(found)
        values = {n: v for n, v in now.items() if v != beginning.values.get(n, _NOTHING)}
        if same := {n: keys for n in values if (keys := self._unchanged(n, values[n]))}:
            values[_UNCHANGED] = same
        arrays = {}
        for name, array in self._arrays(found):
            known = beginning.checksums.get(name)
            if known is not None and known == checksum(array):
                values[_ARRAYS + name] = known
            else:
                arrays[_ARRAYS + name] = array
        marks |= self._unnamed(found)
        changed = {n for n, mark in marks.items() if mark != beginning.marks.get(n, _NOTHING)}
        if lost := sorted(changed | beginning.replaced):
            values[_NOT_SAVED] = lost
        messages = [f"{name} {_REPLACED}: it {_RESET}" for name in self._new(beginning.replaced)]
        messages += [f"{name} {_CHANGES}: it {_RESET}" for name in self._new(changed)]
        return values, arrays, messages + [_TOO_MANY] * found.too_many

    def restore(self, values: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
        """Restore what was collected; returns messages about what could not be restored."""
        self.begins()
        found = self._found()
        values = dict(values) if isinstance(values, dict) else {}
        names, same = values.pop(_NOT_SAVED, None), values.pop(_UNCHANGED, None)
        lost = [n for n in names if isinstance(n, str)] if isinstance(names, list) else []
        saved = {n.removeprefix(_ARRAYS): v for n, v in arrays.items() if n.startswith(_ARRAYS)}
        sums = {n: values.pop(n) for n in [*values] if n.startswith(_ARRAYS)}
        other = []
        for name, variable in found.variables.items():
            value = saved.pop(name, None)
            known = sums.pop(_ARRAYS + name, None)
            if value is None and known is not None:
                if known != checksum(on_host(variable.read_value()).numpy()):
                    other.append(name)
            elif value is None or not variable.shape.is_compatible_with(value.shape):
                lost.append(name)
            else:
                for part, piece in pieces(variable, value):
                    part.assign(piece)
        lost += [*saved, *(name.removeprefix(_ARRAYS) for name in sums)]
        for name, keys in same.items() if isinstance(same, dict) else ():
            if name in values:
                values[name] = self._as_at_first(name, values[name], keys)
        lost += self._write(found, {**self._beginning.values, **values}, values.keys())
        return [f"{name}: {_LOST}" for name in lost] + [f"{name}: {_OTHER}" for name in other]

    def _found(self) -> Reachable:
        roots = {"model": self._model, **self._callbacks}
        found = Reachable(roots, self._callbacks, self._first, self._beginning.replaced)
        of_all = [*found.variables.values(), *(v for all_ in found.unnamed.values() for v in all_)]
        known = {*map(id, self._held), *map(id, self._extra)}
        if any(id(each) not in known for each in of_all):
            self._held = self._held_by_others()  # slow: it names all variables
        held = set(map(id, self._held))
        found.variables = {n: v for n, v in found.variables.items() if id(v) not in held}
        found.unnamed = {
            name: [each for each in variables if id(each) not in held]
            for name, variables in found.unnamed.items()
        }
        self._extra = of_all
        return found

    def _held_by_others(self) -> list[Any]:
        held = [*collect(self._objects).variables.values()]
        held += own_variables(self._model, self._objects)
        held += [getattr(self._model, name, None) for name in COUNTERS]
        return [raw(each) for each in held if is_variable(each)]

    def _arrays(self, found: Reachable) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        for name, variable in found.variables.items():
            yield name, on_host(variable.read_value()).numpy()

    def _unnamed(self, found: Reachable) -> dict[str, Any]:
        """Checksums of variables that have no path."""
        return {
            f"variables in {name}": [checksum(on_host(v.read_value()).numpy()) for v in variables]
            for name, variables in found.unnamed.items()
            if variables
        }

    def _unchanged(self, name: str, value: Any) -> list[Any]:
        """The keys of a changed mapping whose values have not changed."""
        first, now = decode(self._beginning.values.get(name)), decode(value)
        if not isinstance(first, dict) or not isinstance(now, dict):
            return []
        same = [key for key in now if key in first and encode(now[key]) == encode(first[key])]
        return [encode(key) for key in same]

    def _as_at_first(self, name: str, value: Any, keys: Any) -> Any:
        """A saved mapping, with the program's current values for keys that had not changed."""
        with contextlib.suppress(TypeError, ValueError, KeyError, OverflowError):
            first, new = decode(self._beginning.values[name]), decode(value)
            if isinstance(first, dict) and isinstance(new, dict):
                new.update({key: first[key] for key in map(decode, keys) if key in first})
                return encode(new)
        return value

    def _new(self, names: Iterable[str]) -> list[str]:
        new = sorted(set(names) - self._said)
        self._said.update(new)
        return new

    def _write(
        self, found: Reachable, values: Mapping[str, Any], wanted: Iterable[str] = ()
    ) -> list[str]:
        """Set plain values; returns the wanted names that could not be set."""
        now, lost = _encoded(found)[0], []
        for name in sorted({*values} & {*found.places} | {*wanted}):
            if name in now and now[name] == values[name]:
                continue
            place = found.places.get(name)
            write = place.write if place else found.takes(name)
            try:
                if write is None:
                    raise KeyError(name)
                write(decode(values[name]))
            except Exception:  # setting an attribute may run any code of the program
                lost.append(name)
        return lost


_NOTHING = object()


def _encoded(found: Reachable) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plain values as JSON, and fingerprints of all that cannot be saved."""
    values: dict[str, Any] = {}
    marks = dict(found.marks)
    for name, place in found.places.items():
        value = _json(place.value)
        (marks if value is _NOTHING else values)[name] = value
    return values, marks


def _json(value: Any) -> Any:
    try:
        return encode(value)
    except NoJSONError:
        return _NOTHING
