"""The state of ``History`` and of other callbacks: what training has changed on them.

An attribute is state if its value is another one than before the first epoch: that of Keras's
callbacks and of custom ones, of their instances, not of classes and closures. ``get_state`` and
``set_state`` of a callback have precedence. It is saved as JSON and arrays, never as pickle; what
cannot be saved is reported when it changes. What training changes on a `PyDataset` is kept, too,
and plain values on the model itself.

When to call, since most callbacks reset in ``on_train_begin`` and count in ``on_epoch_begin``:

- ``begins`` when every callback has seen ``on_train_begin``, and none ``on_epoch_begin``;
- ``collect`` after every callback has seen the end of the saved batch or epoch, including
  ``History``, which Keras puts at the end of the list;
- ``restore`` after ``begins``, and in mid-epoch after ``on_epoch_begin``.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.errors import TfckptError
from tfckpt.live.private.fit import NO_STATE, OF_ALL, keep_best
from tfckpt.stored.bundles.crc import extend
from tfckpt.training.json_values import NoJSONError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Array = np.ndarray[Any, Any]

# What Keras itself changes on a model; names with an underscore are its own, too.
_OF_MODELS = {
    *("built", "compiled", "history", "loss", "optimizer", "stop_training", "trainable"),
    *("train_function", "test_function", "predict_function"),
}
_SETTINGS = ("monitor", "mode")  # if they differ, `best` has another meaning
_OURS = "tfckpt.training.callback"  # has no state of its own to save
_FLAVORS = {"keras": "Keras 3", "tf_keras": "tf_keras"}
_LEFT = "was in the saved training, but is not in this one"
_CHANGES = "changes in training and cannot be saved"
_RESET = "it is reset when training resumes, which is not exact"


class States:
    """The callbacks of a ``fit``, or what it reads its data from.

    ``first`` keeps what they were before the first epoch of a process, from ``fit`` to ``fit``.

    >>> class Counter:
    ...     calls = 0
    >>> counter = Counter()
    >>> states = States([counter])
    >>> states.begins()
    >>> counter.calls += 3
    >>> saved, arrays, _ = states.collect()
    >>> saved["Counter"]["attributes"]
    {'calls': 3}
    >>> fresh = Counter()
    >>> States([fresh]).restore(saved, arrays), fresh.calls
    ([], 3)
    """

    def __init__(
        self,
        owners: Iterable[Any],
        named: Mapping[str, Sequence[str]] | None = None,
        first: dict[int, Any] | None = None,
    ) -> None:
        self._all = _described(owners, named or {})
        self._first = {} if first is None else first
        self._said: set[str] = set()

    def begins(self) -> None:
        """Record what each is before the first epoch."""
        for one in self._all:
            if id(one.owner) not in self._first:  # which lives as long as its record
                marks = {} if one.offers_state() else {n: m for n, m, *_ in one.looked_at()}
                self._first[id(one.owner)] = one.owner, marks

    def collect(self) -> tuple[dict[str, Any], dict[str, Array], list[str]]:
        """JSON values by class name, numbered from the second of a class on; arrays; messages."""
        saved: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        for one in self._all:
            _, first = self._first.get(id(one.owner), (None, {}))
            saved[one.key] = one.state(first, arrays)
        lost = [text for one in saved.values() for text in one["lost"] if text not in self._said]
        self._said.update(lost)
        return saved, arrays, lost

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[str]:
        """Restore each completely or not at all; returns messages about the others."""
        by_key = {one.key: one for one in self._all}
        messages = []
        for key, entry in saved.items():
            try:
                if key not in by_key:
                    messages += [f"{key} {_LEFT}"] * bool(entry["attributes"] or "state" in entry)
                    continue
                objection = by_key[key].restore(entry, arrays)
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                objection = f"its saved state is not valid: {error!r}"
            if objection:
                messages.append(f"{key}: {objection}")
        messages += [
            f"{one.key} was not in the saved training, so it is reset"
            for one in self._all
            if one.key not in saved and (one.settings() or one.offers_state())
        ]
        return messages

    def warnings(self) -> list[str]:
        """Messages about callbacks that would not continue exactly after an interruption."""
        return [message for one in self._all for message in one.warnings()]


@dataclasses.dataclass(frozen=True)
class _Described:
    """A callback, and the classes of Keras's that it is of."""

    owner: Any
    key: str
    flavor: str
    bases: tuple[str, ...]
    named: tuple[str, ...]

    @property
    def is_model(self) -> bool:
        return "Model" in self.bases

    def offers_state(self) -> bool:
        both = (getattr(self.owner, name, None) for name in ("get_state", "set_state"))
        return not self.is_model and all(map(callable, both))

    def settings(self) -> dict[str, str]:
        settings = {name: getattr(self.owner, name, None) for name in _SETTINGS}
        return {name: value for name, value in settings.items() if isinstance(value, str)}

    def looked_at(self) -> Iterator[tuple[str, Any, Any, dict[str, Array], str]]:
        """Each attribute: its name, a mark of its value, JSON and arrays, or why there are none."""
        for name, value in {**getattr(self.owner, "__dict__", {}), **self._named()}.items():
            if self._keeps(name):
                kept, arrays, why = _as_data(value, f"{self.key}/{name}")
                sums = [extend(0, np.ravel(each).view(np.uint8)) for each in arrays.values()]
                yield name, _identity(value) if why else (kept, sums), kept, arrays, why

    def state(self, first: Mapping[str, Any], arrays: dict[str, Array]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        lost: list[str] = []
        state = {"flavour": self.flavor, "settings": self.settings(), "attributes": attributes}
        if self.offers_state():
            state["state"], its, why = _as_data(self.owner.get_state(), f"{self.key}/state")
            if why:
                hint = "return numbers, strings, arrays, lists and dicts"
                raise self._refused(f"the value of get_state(){why}", hint)
            arrays.update((key, np.array(array)) for key, array in its.items())
        else:
            for name, mark, kept, its, why in self.looked_at():
                if name in self.named and why:
                    raise self._refused(f"{name}{why}", "list other attributes")
                if mark == first.get(name) and name not in self.named:
                    continue
                if not why:
                    attributes[name] = kept
                    arrays.update((key, np.array(array)) for key, array in its.items())
                elif not self.is_model:
                    lost.append(f"{self.key}: {name} {_CHANGES}, since it{why}: {_RESET}")
        return {**state, "lost": lost}

    def restore(self, entry: Any, arrays: Mapping[str, Array]) -> str:
        """Why it, or a part of it, could not be restored; "" if it was."""
        if entry["flavour"] != self.flavor:
            saved = _FLAVORS.get(entry["flavour"], "other code")
            own = _FLAVORS.get(self.flavor, "other code")
            return f"it was saved as a callback of {saved} and is now one of {own}"
        for name, then in entry["settings"].items():
            now = self.settings().get(name)
            if now != then:
                return f"its {name} changed from {then!r} to {now!r}, so it is reset"
        offered = "state" in entry
        state = decode(entry["state"], stored=arrays) if offered else None
        values = {n: decode(v, stored=arrays) for n, v in entry["attributes"].items()}
        refused = [name for name in values if not self._takes(name)]
        messages = [f"{name} is reset" for name in refused]
        if offered and self.offers_state():
            self.owner.set_state(state)
        elif offered:
            messages.append("it no longer has get_state and set_state, so it is reset")
        for name, value in values.items():
            if name not in refused:
                _set(self.owner, name, value)
        if "best" in values:
            keep_best(self.owner)
        messages += [str(text).removeprefix(f"{self.key}: ") for text in entry["lost"]]
        return "; ".join(messages)

    def warnings(self) -> Iterator[str]:
        if "BackupAndRestore" in self.bases:
            yield f"{self.key} restores weights and an epoch of its own: use one of the two"
        elif "CSVLogger" in self.bases and not self.owner.append:
            yield f"{self.key} overwrites its file when training resumes: pass append=True"
        elif "CSVLogger" in self.bases:
            yield (
                f"{self.key} may write two rows for the epoch in which training was interrupted: "
                "the later one counts"
            )
        elif getattr(self.owner, "load_weights_on_restart", False):
            yield f"{self.key} loads weights of its own: remove load_weights_on_restart"

    def _named(self) -> dict[str, Any]:
        return {name: getattr(self.owner, name) for name in self.named}

    def _keeps(self, name: str) -> bool:
        """Whether an attribute may be state: not what Keras sets as it begins."""
        if self.is_model:
            return not name.startswith("_") and name not in _OF_MODELS
        excluded = (each for base in self.bases for each in NO_STATE.get(base, "").split())
        return name not in OF_ALL and name not in excluded

    def _takes(self, name: str) -> bool:
        """Whether a saved attribute may be set, since a record may come from anybody."""
        now = getattr(self.owner, name, None)
        return self._keeps(name) and not name.startswith("__") and not callable(now)

    def _refused(self, what: str, hint: str) -> TfckptError:
        return TfckptError(f"the state of {self.key} cannot be saved: {what}", hint=hint)


def _described(owners: Iterable[Any], named: Mapping[str, Sequence[str]]) -> list[_Described]:
    described: list[_Described] = []
    seen: dict[str, int] = {}
    for owner in owners:
        cls = type(owner)
        if cls.__module__ == _OURS:
            continue
        name = cls.__name__
        seen[name] = number = seen.get(name, 0) + 1
        packages = {each: each.__module__.partition(".")[0] for each in cls.__mro__}
        of_keras = [each for each in cls.__mro__ if packages[each] in _FLAVORS]
        bases = tuple(each.__name__ for each in of_keras if each.__name__ != "Callback")
        flavor = packages[of_keras[0]] if of_keras else ""
        key = name if number == 1 else f"{name} {number}"
        attributes = tuple(named.get(name, ()))
        described.append(_Described(owner, key, flavor, bases, attributes))
        for attribute in attributes:
            if not hasattr(owner, attribute):
                existing = ", ".join(sorted(vars(owner)))
                message = f"{key} has no attribute {attribute!r}"
                raise TfckptError(message, hint=f"it has: {existing}")
    if absent := sorted(named.keys() - seen.keys()):
        keys = ", ".join(each.key for each in described if not each.is_model)
        message = f"no callback is of class {absent[0]!r}"
        raise TfckptError(message, hint=f"the callbacks are: {keys}")
    return described


def _as_data(value: Any, key: str) -> tuple[Any, dict[str, Array], str]:
    """A value as JSON and arrays, or why it cannot be encoded."""
    arrays: dict[str, Array] = {}

    def store(array: Array) -> str:
        name = f"{key}/{len(arrays)}"
        arrays[name] = array
        return name

    if isinstance(value, np.random.Generator):
        value = value.bit_generator.state
    elif isinstance(value, np.random.RandomState):
        value = value.get_state()
    elif isinstance(value, random.Random):
        value = value.getstate()
    try:
        return encode(value, store=store), arrays, ""
    except NoJSONError as error:
        return None, {}, str(error)
    except Exception as error:  # a variable of a strategy, or without a value
        return None, {}, f" cannot be read ({error})"


def _identity(value: Any) -> Any:
    """What shows that another object is there, or another number of items."""
    sized = isinstance(value, (set, frozenset, list, dict, tuple)) or hasattr(value, "maxlen")
    return id(value), len(value) if sized else None


def _set(owner: Any, name: str, value: Any) -> None:
    now: Any = getattr(owner, name, None)
    if isinstance(now, np.random.Generator):
        now.bit_generator.state = value
    elif isinstance(now, np.random.RandomState):
        now.set_state(value)
    elif isinstance(now, random.Random):
        now.setstate(value)
    elif hasattr(now, "assign"):  # tf_keras's TensorBoard counts in a variable of the model
        now.assign(value)
    else:
        setattr(owner, name, value)
