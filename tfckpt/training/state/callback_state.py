"""The state of ``History`` and of other callbacks as JSON values: never pickle, never code.

Keras's callbacks keep their state in plain attributes, which are not in a checkpoint of variables.
This module has a table of them, for Keras 3 and tf_keras; a custom callback has ``get_state`` and
``set_state``, or the config lists its attributes. What cannot be restored is reported, so that
nobody takes an inexact training for an exact one.

When to call, since most callbacks reset in ``on_train_begin`` and count in ``on_epoch_end``:

- ``collect`` and ``arrays`` after every callback has seen the end of the saved batch or epoch,
  including ``History``, which Keras puts at the end of the list;
- ``restore`` between two epochs: when every callback has seen ``on_train_begin`` and none has seen
  ``on_epoch_begin``, where ``SwapEMAWeights`` must know which weights are in the model;
- ``restore`` in mid-epoch: right before the first trained batch, since a callback may reset its
  counts in ``on_epoch_begin``.

So the caller must be last in the list. Keras iterates over it with ``for``, so a callback that
another one appends in ``on_train_begin`` is last already in this iteration.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.errors import TfckptError
from tfckpt.live.private.callbacks import ARRAYS, NO_STATE, OF_ALL, SET_UP, STATE, keep_best
from tfckpt.live.private.versions import in_use
from tfckpt.live.program_state.reachable import saved_itself
from tfckpt.live.variables.origins import names_in_keras, package, set_anew, set_in, set_in_methods
from tfckpt.training.state.json_values import NoJSONError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_SETTINGS = ("monitor", "mode")  # if they differ, `best` has another meaning
_OURS = "tfckpt.training.callback"  # has no state of its own to save
_FLAVORS = {"keras": "Keras 3", "tf_keras": "tf_keras"}
_BEGINS = ("on_train_begin", "on_epoch_begin")


def collect(
    callbacks: Iterable[Any], named: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The state of each callback that has one, as JSON values.

    Returns:
        State by class name, with a number from the second callback of a class on.

    >>> class Counter:
    ...     calls = 3
    ...     def get_state(self): return {"calls": self.calls}
    ...     def set_state(self, state): self.calls = state["calls"]
    >>> saved = collect([Counter()])
    >>> saved["Counter"]["state"]
    {'calls': 3}
    >>> fresh = Counter()
    >>> fresh.calls = 0
    >>> restore([fresh], saved), fresh.calls
    ([], 3)
    """
    described = _described(callbacks, named or {})
    return {one.key: one.state() for one in described if one.has_state()}


def arrays(callbacks: Iterable[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Copies of weights that EarlyStopping holds, by a key: ``EarlyStopping/best_weights/0``."""
    return {
        f"{one.key}/{one.array}/{index}": np.array(value)
        for one in _described(callbacks, {})
        for index, value in enumerate(one.held())
    }


def restore(
    callbacks: Iterable[Any],
    saved: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    named: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Restore collected states, each completely or not at all; returns messages about the others.

    Returns:
        Messages about state that could not be restored, including those of :func:`inexact`.
    """
    described = _described(callbacks, named or {})
    by_key = {one.key: one for one in described}
    messages = []
    for key, entry in saved.items():
        if key not in by_key:
            messages.append(f"{key} was in the saved training, but is not in this one")
            continue
        try:
            objection = by_key[key].restore(entry, arrays or {})
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            objection = f"its saved state is not valid: {error!r}"
        if objection:
            messages.append(f"{key}: {objection}")
    messages += [
        f"{one.key} was not in the saved training, so it is reset"
        for one in described
        if one.key not in saved and one.has_state()
    ]
    return messages + [message for one in described for message in one.inexact()]


def named(callbacks: Iterable[Any]) -> dict[str, Any]:
    """The callbacks, by the keys of their states."""
    return {one.key: one.callback for one in _described(callbacks, {})}


def inexact(
    callbacks: Iterable[Any], named: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Messages about callbacks that would not continue exactly after an interruption.

    >>> class Silent:
    ...     def __init__(self): self.calls = 0
    >>> print(*inexact([Silent()]))
    Silent is reset when training resumes (calls): it has no get_state and set_state
    """
    return [message for one in _described(callbacks, named or {}) for message in one.inexact()]


@dataclasses.dataclass(frozen=True)
class _Described:
    """A callback, and its class's row in the table."""

    callback: Any
    key: str
    flavor: str
    base: str  # the Keras class in the table, "" if none
    named: tuple[str, ...] | None

    @property
    def array(self) -> str:
        return ARRAYS.get(self.base, "")

    def held(self) -> Sequence[Any]:
        return getattr(self.callback, self.array, None) or () if self.array else ()

    def attributes(self) -> dict[str, Any]:
        known = [a for a in STATE.get(self.base, ()) if hasattr(self.callback, a)]
        return {name: getattr(self.callback, name) for name in (*known, *(self.named or ()))}

    def offers_state(self) -> bool:
        return all(callable(getattr(self.callback, a, None)) for a in ("get_state", "set_state"))

    def has_state(self) -> bool:
        return bool(self.attributes() or self.offers_state())

    def settings(self) -> dict[str, Any]:
        settings = {name: getattr(self.callback, name, None) for name in _SETTINGS}
        return {name: value for name, value in settings.items() if isinstance(value, str)}

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"flavour": self.flavor, "settings": self.settings()}
        attributes = {}
        lost = {}
        for name, value in self.attributes().items():
            encoded, why = _attempt(value)
            if not why:
                attributes[name] = encoded
            elif name in (self.named or ()):
                raise self._refused(f"{name}{why}", "list other attributes")
            else:  # a metric may be of any type, which must not stop a training
                lost[name] = f"{name}{why}, so it is reset"
        state["attributes"] = attributes
        if lost:
            state["lost"] = lost
        if self.offers_state():
            state["state"], why = _attempt(self.callback.get_state())
            if why:
                hint = "return numbers, strings, lists and dicts"
                raise self._refused(f"the value of get_state(){why}", hint)
        if held := self.held():
            state["arrays"] = len(held)
        return state

    def _refused(self, what: str, hint: str) -> TfckptError:
        return TfckptError(f"the state of {self.key} cannot be saved: {what}", hint=hint)

    def restore(self, entry: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
        """Why it, or a part of it, could not be restored; "" if it was."""
        if entry["flavour"] != self.flavor:
            saved = _FLAVORS.get(entry["flavour"], "other code")
            own = _FLAVORS.get(self.flavor, "other code")
            return f"it was saved as a callback of {saved} and is now one of {own}"
        for name, then in entry["settings"].items():
            now = self.settings().get(name)
            if now != then:
                return f"its {name} changed from {then!r} to {now!r}, so it is reset"
        allowed = {*STATE.get(self.base, ()), *(self.named or ())}
        values = {a: decode(v) for a, v in entry["attributes"].items() if a in allowed}
        count = min(entry.get("arrays", 0), len(arrays) + 1)  # the record may be damaged
        keys = [f"{self.key}/{self.array}/{index}" for index in range(count)]
        messages = [f"{name} is reset" for name in entry["attributes"] if name not in allowed]
        messages += list(entry.get("lost", {}).values())
        if "state" in entry:
            if self.offers_state():
                self.callback.set_state(decode(entry["state"]))
            else:
                messages.append("it no longer has get_state and set_state, so it is reset")
        for name, value in values.items():
            _set(self.callback, name, value)
        if "best" in values:
            keep_best(self.callback)
        if not arrays.keys() >= set(keys):
            messages.append(
                f"its {self.array} were not saved; it may restore those of a worse epoch"
            )
        elif self.array:
            setattr(self.callback, self.array, [np.array(arrays[key]) for key in keys] or None)
        return "; ".join(messages)

    def inexact(self) -> Iterator[str]:
        if self.base == "BackupAndRestore":
            yield f"{self.key} restores weights and an epoch of its own: use one of the two"
        elif self.base == "CSVLogger" and not self.callback.append:
            yield f"{self.key} overwrites its file when training resumes: pass append=True"
        elif self.base == "CSVLogger":
            yield (
                f"{self.key} may write two rows for the epoch in which training was interrupted: "
                "the later one counts"
            )
        elif getattr(self.callback, "load_weights_on_restart", False):
            yield f"{self.key} loads weights of its own: remove load_weights_on_restart"
        elif not self.offers_state() and self.named is None and (own := self._own()):
            yield (
                f"{self.key} is reset when training resumes ({', '.join(own)}): "
                "it has no get_state and set_state"
            )
        if self.base and (unknown := _unknown_of_keras(self.callback.__class__)):
            yield (
                f"{self.key} is reset when training resumes ({', '.join(unknown)}): tfckpt does "
                f"not know these attributes of Keras's; {in_use()}"
            )

    def _own(self) -> list[str]:
        """Its attributes that are not Keras's and that nothing else saves."""
        cls: Any = type(self.callback)
        held = {name for name, value in _dict_of(self.callback).items() if saved_itself(value)}
        own = _dict_of(self.callback).keys() | _set_by_program(cls)
        return sorted(own - names_in_keras(cls) - held - _set_anew(cls))


@functools.cache
def _set_anew(cls: Any) -> set[str]:
    """Attributes that it sets only when a training or epoch begins, which resuming does, too."""
    methods = (getattr(cls, name, None) for name in _BEGINS)
    own = [each for each in methods if isinstance(each, types.FunctionType)]
    others = [
        method
        for parent in cls.__mro__
        for name, method in vars(parent).items()
        if name not in (*_BEGINS, "__init__") and package(parent) not in _FLAVORS
    ]
    later = {name for each in others for name in set_in(each)}
    return {name for each in own for name in set_anew(each)} - later


@functools.cache
def _unknown_of_keras(cls: Any) -> list[str]:
    """Attributes that Keras's own methods set in training, and no table has."""
    parents = [each for each in cls.__mro__ if package(each) in _FLAVORS]
    known = {name for each in parents for name in NO_STATE.get(each.__name__, "").split()}
    known.update(OF_ALL, *(STATE.get(each.__name__, ()) for each in parents))
    methods = (item for each in parents for item in vars(each).items())
    found = {each for name, method in methods if name not in SET_UP for each in set_in(method)}
    return sorted(found - known)


@functools.cache
def _set_by_program(cls: Any) -> set[str]:
    """Attributes that its methods set, even long after it was created."""
    parents = [each for each in cls.__mro__ if package(each) not in _FLAVORS]
    return {name for each in parents for name in set_in_methods(each)}


def _attempt(value: Any) -> tuple[Any, str]:
    """A value as JSON, or why it cannot be encoded."""
    try:
        return encode(value), ""
    except NoJSONError as error:
        return None, str(error)


def _described(callbacks: Iterable[Any], named: Mapping[str, Sequence[str]]) -> list[_Described]:
    described: list[_Described] = []
    seen: dict[str, int] = {}
    for callback in callbacks:
        cls = type(callback)
        if cls.__module__ == _OURS:
            continue
        name = cls.__name__
        seen[name] = number = seen.get(name, 0) + 1
        parents = [each for each in cls.__mro__ if package(each) in _FLAVORS]
        flavor = package(parents[0]) if parents else ""
        base = next((each.__name__ for each in parents if each.__name__ in STATE), "")
        attributes = tuple(named[name]) if name in named else None
        key = name if number == 1 else f"{name} {number}"
        described.append(_Described(callback, key, flavor, base, attributes))
        for attribute in attributes or ():
            if not hasattr(callback, attribute):
                existing = ", ".join(sorted(_dict_of(callback)))
                message = f"{key} has no attribute {attribute!r}"
                raise TfckptError(message, hint=f"it has: {existing}")
    if absent := sorted(named.keys() - seen.keys()):
        raise TfckptError(
            f"no callback is of class {absent[0]!r}",
            hint=f"the callbacks are: {', '.join(sorted(seen))}",
        )
    return described


def _dict_of(callback: Any) -> dict[str, Any]:
    return getattr(callback, "__dict__", {})


def _set(callback: Any, name: str, value: Any) -> None:
    now: Any = getattr(callback, name, None)
    if hasattr(now, "assign"):  # tf_keras's TensorBoard counts in a variable of the model
        now.assign(value)
    else:
        setattr(callback, name, value)
