"""What a training changes on what it holds, as the record of a checkpoint has it.

A value is state if it is another one than when this ``fit`` began (:mod:`tfckpt.training.walk`):
of callbacks, of the `PyDataset` that makes the batches, of the model with what it is made of.
``get_state`` and ``set_state`` of a callback have precedence. It is saved as JSON and arrays, never
as pickle; what cannot be saved is reported when it changes.

When to call, since most callbacks reset in ``on_train_begin`` and count in ``on_epoch_begin``:

- ``begins`` when every callback has seen ``on_train_begin``, and none ``on_epoch_begin``;
- ``collect`` after every callback has seen the end of the saved batch or epoch, including
  ``History``, which Keras puts at the end of the list;
- ``restore`` after ``begins``, and in mid-epoch after ``on_epoch_begin``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.core.text import listed
from tfckpt.errors import TfckptError
from tfckpt.live.inventory import collect, is_model
from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.live.private.fit import NO_STATE, OF_ALL, keep_best, make_train_function
from tfckpt.live.private.keras_code import KERAS, package
from tfckpt.live.variables import is_variable, raw
from tfckpt.training.json_values import decode
from tfckpt.training.walk import HeldValues, as_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfckpt.live.data import DatasetsRead

    Array = np.ndarray[Any, Any]

_SETTINGS = ("monitor", "mode")  # if they differ, `best` has another meaning
_OURS = "tfckpt.training.callback"  # has no state of its own to save
_TRACED_AGAIN = "traced_again"
_TRACED = "has changed before and after the step was traced with it, so the step is not exact"
_OTHERS = {*KERAS, "builtins", "tensorflow", "tfckpt"}
_FLAVORS = {"keras": "Keras 3", "tf_keras": "tf_keras"}
_LEFT = "was in the saved training, but is not in this one"
_CHANGES = "changes in training and cannot be saved"
_RESET = "it is reset when training resumes, which is not exact"


class States:
    """What the callbacks of a ``fit`` and its model hold, or what it reads its data from.

    A traced step has seen the values of its tracing: it is traced again after a restore if that
    was after they had changed.

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
        objects: Mapping[str, Any] | None = None,
        datasets: DatasetsRead | None = None,
    ) -> None:
        """``objects`` are those whose variables are saved."""
        self._all = _described(owners, named or {})
        self._objects, self._datasets = objects or {}, datasets
        self._first: dict[str, HeldValues] | None = None
        self._seen: dict[str, Any] | None = None  # marks of what the traced step has seen
        self._again: tuple[Any, dict[str, Any]] | None = None  # a step made again, and its marks
        self._said: set[str] = set()
        self._lost: dict[str, None] = {}
        self._saved: dict[int, Any] = {}  # variables by id, which live as long

    def lose(self, text: str) -> None:
        """What else is not exact, which a later start names, too."""
        self._lost |= {text: None}

    def begins(self) -> None:
        """Record what each is before the first epoch; raise what cannot be saved."""
        if self._first is None:
            self._first = self._now()
            self.collect(self._first)

    def traced(self, function: Any) -> list[str]:
        """The step is traced now, with the values of this moment; those that it had not seen."""
        self._seen = self._marks(self._now())
        made, to_see = self._again or (None, {})
        if made != function:  # the program makes it again itself
            return []
        unlike = sorted(path for path, mark in to_see.items() if self._seen.get(path) != mark)
        return [f"{path} {_TRACED}" for path in unlike]

    def _marks(self, values: Mapping[str, HeldValues]) -> dict[str, Any]:
        """Of what the model held when this ``fit`` began, and of what its layers hold."""
        marks: dict[str, Any] = {}
        for key in (one.key for one in self._all if is_model(one.owner)):
            first, now = (self._first or values)[key], values[key]
            own = (path for path in now.held if path.startswith(f"{key}.layers["))
            marks |= {path: now.mark_of(path) for path in {*first.held, *own}}
        return marks

    def _step(self, now: Mapping[str, HeldValues]) -> tuple[bool, list[str]]:
        """Whether the step must be traced again after a restore; values of which it cannot."""
        if self._first is None or self._seen is None:
            return False, []
        current, first = self._marks(now), self._marks(self._first)
        changed = sorted(n for n, mark in self._seen.items() if mark != first.get(n))
        return bool(changed), [n for n in changed if self._seen[n] != current.get(n)]

    def _known(self) -> Callable[[Any], bool]:
        """Whether a variable is saved with the objects, which are looked at again at most once."""
        looked = False

        def is_saved(variable: Any) -> bool:
            nonlocal looked
            if not (looked or id(raw(variable)) in self._saved):
                looked, self._saved = True, _variables_of(self._objects)
            return id(raw(variable)) in self._saved

        return is_saved

    def _now(self) -> dict[str, HeldValues]:
        """What each holds; what several do belongs to the first of them."""
        seen = {id(one.owner): one.owner for one in self._all}
        for one in self._all:
            if is_model(one.owner):
                seen |= {id(each): each for each in with_layers_below(one.owner)}
        own = {package(type(each)) for each in seen.values()} - _OTHERS
        known = self._known()
        found = {}
        for one in self._all:
            found[one.key] = held = HeldValues(seen, known, own, self._datasets)
            if one.offers_state():
                held.objects[one.key] = one.owner
            else:
                held.begin(one.owner, one.key, None if is_model(one.owner) else one.keeps)
            for name in one.named:
                held.also(one.owner, one.key, name)
        return found

    def collect(
        self, now: Mapping[str, HeldValues] | None = None
    ) -> tuple[dict[str, Any], dict[str, Array], list[str]]:
        """JSON values by class name, numbered from the second of a class on; arrays; messages."""
        saved: dict[str, Any] = {}
        arrays: dict[str, Array] = {}
        now = now or self._now()
        again, unlike = self._step(now)
        for one in self._all:
            saved[one.key] = one.state((self._first or {}).get(one.key), now[one.key], arrays)
            if is_model(one.owner):
                saved[one.key][_TRACED_AGAIN] = again and not unlike
                saved[one.key]["lost"] += [*(f"{path} {_TRACED}" for path in unlike), *self._lost]
        lost = [text for one in saved.values() for text in one["lost"] if text not in self._said]
        self._said.update(lost)
        return saved, arrays, lost

    def restore(self, saved: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[str]:
        """Restore each completely or not at all; returns messages about the others."""
        by_key, now = {one.key: one for one in self._all}, self._now()
        messages, made = [], None
        for key, entry in saved.items():
            try:
                if key not in by_key:
                    messages += [f"{key} {_LEFT}"] * bool(entry["attributes"] or "state" in entry)
                    continue
                objection = by_key[key].restore(entry, now[key], arrays)
                if entry.get(_TRACED_AGAIN) is True and is_model(by_key[key].owner):
                    made = make_train_function(by_key[key].owner)
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
                objection = f"its saved state is not valid: {error!r}"
            if objection:
                messages.append(f"{key}: {objection}")
        self._again = made and (made, self._marks(self._now()))
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

    def offers_state(self) -> bool:
        both = (getattr(self.owner, name, None) for name in ("get_state", "set_state"))
        return not is_model(self.owner) and all(map(callable, both))

    def settings(self) -> dict[str, str]:
        settings = {name: getattr(self.owner, name, None) for name in _SETTINGS}
        return {name: value for name, value in settings.items() if isinstance(value, str)}

    def state(
        self, first: HeldValues | None, now: HeldValues, arrays: dict[str, Array]
    ) -> dict[str, Any]:
        """What has changed since the beginning; all of it where nobody has seen that."""
        attributes: dict[str, Any] = {}
        inside: list[str] = []
        lost: list[str] = []
        state = {"flavour": self.flavor, "settings": self.settings(), "attributes": attributes}
        if self.offers_state():
            state["state"], its, why = as_data(self.owner.get_state(), f"{self.key}/state")
            if why:
                hint = "return numbers, strings, arrays, lists, dicts and sets"
                raise self._refused(f"the value of get_state(){why}", hint)
            arrays.update((key, np.array(array)) for key, array in its.items())
        passed: list[str] = []
        for path, held in now.held.items():
            then = first and first.held.get(path)
            if then and then.mark == held.mark and not self.named:
                continue
            name = path.removeprefix(f"{self.key}.")
            if held.why and name in self.named:
                raise self._refused(f"{name}{held.why}", "list other attributes")
            if first and then is None and now.is_made_by_keras(path, first):
                then = first.held[path] = held  # it begins now
            if then and then.mark == held.mark and name not in self.named:
                continue
            if not held.why:
                attributes[name] = held.kept
                arrays.update((key, np.array(array)) for key, array in held.arrays.items())
                inside += [name] * bool(then and then.value is held.value)
            elif not path.startswith(tuple(passed)):
                passed.append(path)
                lost.append(f"{self.key}: {name} {_CHANGES}, since it{held.why}: {_RESET}")
        removed = [path for path in (first.held if first else ()) if now.lacks(path)]
        state["removed"] = [path.removeprefix(f"{self.key}.") for path in removed]
        return {**state, "inside": inside, "lost": lost}

    def restore(self, entry: Any, now: HeldValues, arrays: Mapping[str, Array]) -> str:
        """Why it, or a part of it, could not be restored; "" if it was."""
        if entry["flavour"] != self.flavor:
            saved = _FLAVORS.get(entry["flavour"], "other code")
            own = _FLAVORS.get(self.flavor, "other code")
            return f"it was saved as a callback of {saved} and is now one of {own}"
        for name, then in entry["settings"].items():
            current = self.settings().get(name)
            if current != then:
                return f"its {name} changed from {then!r} to {current!r}, so it is reset"
        offered = "state" in entry
        state = decode(entry["state"], stored=arrays) if offered else None
        values = {n: decode(v, stored=arrays) for n, v in entry["attributes"].items()}
        inside = {*entry.get("inside", ())}
        messages = [str(text).removeprefix(f"{self.key}: ") for text in entry["lost"]]
        if offered and self.offers_state():
            self.owner.set_state(state)
        elif offered:
            messages.append("it no longer has get_state and set_state, so it is reset")
        for name in entry.get("removed", ()):
            holder, _, attribute = f"{self.key}.{name}".rpartition(".")
            if self._takes(owner := now.objects.get(holder), attribute):
                vars(owner).pop(attribute, None)
        messages += self._assign(values, inside, now)
        if "best" in values:
            keep_best(self.owner)
        return "; ".join(messages)

    def _assign(
        self, values: Mapping[str, Any], inside: set[str], now: HeldValues
    ) -> Iterator[str]:
        places = {path.removeprefix(f"{self.key}."): held for path, held in now.held.items()}
        for name, held in places.items():  # in the order of the walk: a model before its layers
            if name in values:
                held.restore(values[name], inside=name in inside)
        missing = []
        for name in sorted(values.keys() - places.keys()):
            holder, _, attribute = f"{self.key}.{name}".rpartition(".")
            if self._takes(owner := now.objects.get(holder), attribute):
                setattr(owner, attribute, values[name])
            else:
                missing.append(name)
        if missing:
            yield f"{listed(missing, 3)} {'is' if len(missing) == 1 else 'are'} reset"

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

    def keeps(self, name: str) -> bool:
        """Whether an attribute may be state: not what Keras sets as it begins."""
        excluded = (each for base in self.bases for each in NO_STATE.get(base, "").split())
        return name in self.named or (name not in OF_ALL and name not in excluded)

    def _takes(self, holder: Any, name: str) -> bool:
        """Whether a saved attribute may be made, since a record may come from anybody."""
        known = holder is not None and name.isidentifier() and not name.startswith("__")
        return known and self.keeps(name) and not callable(getattr(holder, name, None))

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
        of_keras = [each for each in cls.__mro__ if package(each) in _FLAVORS]
        bases = tuple(each.__name__ for each in of_keras if each.__name__ != "Callback")
        flavor = package(of_keras[0]) if of_keras else ""
        key = name if number == 1 else f"{name} {number}"
        attributes = tuple(named.get(name, ()))
        described.append(_Described(owner, key, flavor, bases, attributes))
        for attribute in attributes:
            if not hasattr(owner, attribute):
                existing = ", ".join(sorted(vars(owner)))
                message = f"{key} has no attribute {attribute!r}"
                raise TfckptError(message, hint=f"it has: {existing}")
    if absent := sorted(named.keys() - seen.keys()):
        keys = ", ".join(each.key for each in described if not is_model(each.owner))
        message = f"no callback is of class {absent[0]!r}"
        raise TfckptError(message, hint=f"the callbacks are: {keys}")
    return described


def _variables_of(objects: Mapping[str, Any]) -> dict[int, Any]:
    found = filter(is_variable, collect(objects).variables.values())
    return {id(one): one for one in map(raw, found)}
