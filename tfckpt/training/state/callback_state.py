"""The state of ``History`` and of other callbacks as JSON values: never pickle, never code.

Keras's callbacks count in plain attributes, which no checkpoint of variables holds. Here is a table
of them, for both flavours; a callback of one's own offers ``get_state`` and ``set_state``, or is
named with its attributes. What cannot come back is said in words, so that nobody takes a training
for exact that is not.

When to call, since most callbacks forget in ``on_train_begin`` and count in ``on_epoch_end``:

- ``collect`` and ``arrays`` once every callback has seen the end of the batch or epoch that is
  saved, ``History`` included, which Keras puts at the end of the list;
- ``restore`` between two epochs: when every callback has seen ``on_train_begin`` and none has seen
  ``on_epoch_begin``, where ``SwapEMAWeights`` must know what it has left in the model;
- ``restore`` in mid-epoch: right before the first batch that is trained, since a callback may begin
  to count anew in ``on_epoch_begin``.

Both moments belong to whom is last in the list. Keras goes through it by ``for``, so a callback
that ``on_train_begin`` of another appends is last in this very round.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from tfckpt.errors import TfckptError
from tfckpt.live.program_state.reachable import saved_itself
from tfckpt.live.variables.origins import names_in_keras, package, set_anew, set_in, set_in_methods
from tfckpt.training.state.json_values import NoJSONError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# keras/src/callbacks/*.py and tf_keras/src/callbacks.py; what a flavour lacks is passed over.
_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "BackupAndRestore": (),
    "BaseLogger": ("seen", "totals"),
    "CSVLogger": (),
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch"),
    "History": ("epoch", "history"),
    "LambdaCallback": (),
    "LearningRateScheduler": (),
    "ModelCheckpoint": (
        "best",
        "epochs_since_last_save",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_current_epoch",
    ),
    "OrbaxCheckpoint": (
        "best",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_total_batches_seen",
    ),
    "ProgbarLogger": (),
    "ReduceLROnPlateau": ("wait", "cooldown_counter", "best"),
    "RemoteMonitor": (),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_train_step"),
    "TerminateOnNaN": (),
}
_ARRAYS = {"EarlyStopping": "best_weights"}
_SETTINGS = ("monitor", "mode")  # of another one, `best` would be compared with something else
_OURS = "tfckpt.training.callback"  # what another run keeps, it keeps by itself
_FLAVOURS = {"keras": "Keras 3", "tf_keras": "tf_keras"}
_BEGINS = ("on_train_begin", "on_epoch_begin")


def collect(
    callbacks: Iterable[Any], named: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The state of each callback that has one, as JSON values.

    Args:
        callbacks: all of a training, in their order.
        named: attributes to save besides, by the name of the callback's class.

    Returns:
        By the class's name, with a number from the second of one class on.

    Raises:
        TfckptError: ``named`` names what is not there, or ``get_state`` gives no JSON values.

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
    """What is too large for JSON, to be saved beside it: the weights EarlyStopping holds.

    Returns:
        Copies, by the key of the callback, the attribute and the place in its list:
        ``EarlyStopping/best_weights/0``.
    """
    found = {}
    for one in _described(callbacks, {}):
        for place, value in enumerate(one.held()):
            found[f"{one.key}/{one.array}/{place}"] = np.array(value)
    return found


def restore(
    callbacks: Iterable[Any],
    saved: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
    named: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Give callbacks the state that was collected; each as a whole, or not at all.

    Args:
        callbacks: all of this training, in their order.
        saved: by :func:`collect`; only attributes that it would save are set.
        arrays: by :func:`arrays`.
        named: as for :func:`collect`.

    Returns:
        What does not come back as it was, in words, that of :func:`inexact` included.

    Raises:
        TfckptError: ``named`` names what is not there.
    """
    described = _described(callbacks, named or {})
    here = {one.key: one for one in described}
    said = []
    for key, entry in saved.items():
        if key not in here:
            said.append(f"{key} was in the saved training, but is not in this one")
            continue
        try:
            objection = here[key].restore(entry, arrays or {})
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            objection = f"its saved state is not valid: {error!r}"
        if objection:
            said.append(f"{key}: {objection}")
    said += [
        f"{one.key} was not in the saved training, so it is reset"
        for one in described
        if one.key not in saved and one.has_state()
    ]
    return said + [sentence for one in described for sentence in one.inexact()]


def named(callbacks: Iterable[Any]) -> dict[str, Any]:
    """The callbacks by the keys of their states."""
    return {one.key: one.callback for one in _described(callbacks, {})}


def inexact(
    callbacks: Iterable[Any], named: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Which callbacks would not go on exactly after an interruption, and why.

    Raises:
        TfckptError: ``named`` names what is not there.

    >>> class Silent:
    ...     def __init__(self): self.calls = 0
    >>> print(*inexact([Silent()]))
    Silent is reset when training resumes (calls): it has no get_state and set_state
    """
    return [sentence for one in _described(callbacks, named or {}) for sentence in one.inexact()]


@dataclasses.dataclass(frozen=True)
class _Described:
    """A callback, and what is known of its class."""

    callback: Any
    key: str
    flavour: str
    base: str  # the class of Keras in the table, "" where it is none
    named: tuple[str, ...] | None

    @property
    def array(self) -> str:
        return _ARRAYS.get(self.base, "")

    def held(self) -> Sequence[Any]:
        return getattr(self.callback, self.array, None) or () if self.array else ()

    def attributes(self) -> dict[str, Any]:
        known = [a for a in _ATTRIBUTES.get(self.base, ()) if hasattr(self.callback, a)]
        return {name: getattr(self.callback, name) for name in (*known, *(self.named or ()))}

    def offers_state(self) -> bool:
        return all(callable(getattr(self.callback, a, None)) for a in ("get_state", "set_state"))

    def has_state(self) -> bool:
        return bool(self.attributes() or self.offers_state())

    def settings(self) -> dict[str, Any]:
        found = {name: getattr(self.callback, name, None) for name in _SETTINGS}
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = {"flavour": self.flavour, "settings": self.settings()}
        attributes = {}
        lost = {}
        for name, value in self.attributes().items():
            encoded, why = _attempt(value)
            if not why:
                attributes[name] = encoded
            elif name in (self.named or ()):
                raise self._refused(f"{name}{why}", "list other attributes")
            else:  # a metric may give anything, and is no reason to stop a training
                lost[name] = f"{name}{why}, so it is reset"
        found["attributes"] = attributes
        if lost:
            found["lost"] = lost
        if self.offers_state():
            found["state"], why = _attempt(self.callback.get_state())
            if why:
                hint = "return numbers, strings, lists and dicts"
                raise self._refused(f"the value of get_state(){why}", hint)
        if held := self.held():
            found["arrays"] = len(held)
        return found

    def _refused(self, what: str, hint: str) -> TfckptError:
        return TfckptError(f"the state of {self.key} cannot be saved: {what}", hint=hint)

    def restore(self, entry: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
        """Why it, or a part of it, cannot be as it was; "" if it is."""
        if entry["flavour"] != self.flavour:
            saved = _FLAVOURS.get(entry["flavour"], "other code")
            own = _FLAVOURS.get(self.flavour, "other code")
            return f"it was saved as a callback of {saved} and is now one of {own}"
        for name, then in entry["settings"].items():
            now = self.settings().get(name)
            if now != then:
                return f"its {name} changed from {then!r} to {now!r}, so it is reset"
        allowed = {*_ATTRIBUTES.get(self.base, ()), *(self.named or ())}
        values = {a: decode(v) for a, v in entry["attributes"].items() if a in allowed}
        count = min(entry.get("arrays", 0), len(arrays) + 1)  # whatever a record may claim
        keys = [f"{self.key}/{self.array}/{place}" for place in range(count)]
        said = [f"{name} is reset" for name in entry["attributes"] if name not in allowed]
        said += list(entry.get("lost", {}).values())
        if "state" in entry:
            if self.offers_state():
                self.callback.set_state(decode(entry["state"]))
            else:
                said.append("it no longer has get_state and set_state, so it is reset")
        for name, value in values.items():
            _set(self.callback, name, value)
        if "best" in values:
            _keep_best(self.callback)
        if not arrays.keys() >= set(keys):
            said.append(f"its {self.array} were not saved; it may restore those of a worse epoch")
        elif self.array:
            setattr(self.callback, self.array, [np.array(arrays[key]) for key in keys] or None)
        return "; ".join(said)

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

    def _own(self) -> list[str]:
        """Its attributes that Keras knows nothing of, and that are not saved by themselves."""
        cls: Any = type(self.callback)
        held = {name for name, value in _dict_of(self.callback).items() if saved_itself(value)}
        own = _dict_of(self.callback).keys() | _set_by_program(cls)
        return sorted(own - names_in_keras(cls) - held - _set_anew(cls))


@functools.cache
def _set_anew(cls: Any) -> set[str]:
    """Attributes that it sets as every training or epoch begins, one resumed too, and only then."""
    methods = (getattr(cls, name, None) for name in _BEGINS)
    own = [each for each in methods if isinstance(each, types.FunctionType)]
    others = [
        method
        for parent in cls.__mro__
        for name, method in vars(parent).items()
        if name not in (*_BEGINS, "__init__") and package(parent) not in _FLAVOURS
    ]
    later = {name for each in others for name in set_in(each)}
    return {name for each in own for name in set_anew(each)} - later


@functools.cache
def _set_by_program(cls: Any) -> set[str]:
    """Attributes that methods set on the object itself, be it long after it was made."""
    parents = [each for each in cls.__mro__ if package(each) not in _FLAVOURS]
    return {name for each in parents for name in set_in_methods(each)}


def _attempt(value: Any) -> tuple[Any, str]:
    """A value as JSON, or why there is none."""
    try:
        return encode(value), ""
    except NoJSONError as error:
        return None, str(error)


def _described(callbacks: Iterable[Any], named: Mapping[str, Sequence[str]]) -> list[_Described]:
    found: list[_Described] = []
    seen: dict[str, int] = {}
    for callback in callbacks:
        cls = type(callback)
        if cls.__module__ == _OURS:
            continue
        name = cls.__name__
        seen[name] = number = seen.get(name, 0) + 1
        parents = [each for each in cls.__mro__ if package(each) in _FLAVOURS]
        flavour = package(parents[0]) if parents else ""
        base = next((each.__name__ for each in parents if each.__name__ in _ATTRIBUTES), "")
        attributes = tuple(named[name]) if name in named else None
        key = name if number == 1 else f"{name} {number}"
        found.append(_Described(callback, key, flavour, base, attributes))
        for attribute in attributes or ():
            if not hasattr(callback, attribute):
                there = ", ".join(sorted(_dict_of(callback)))
                raise TfckptError(f"{key} has no attribute {attribute!r}", hint=f"it has: {there}")
    if absent := sorted(named.keys() - seen.keys()):
        raise TfckptError(
            f"no callback is of class {absent[0]!r}",
            hint=f"the callbacks are: {', '.join(sorted(seen))}",
        )
    return found


def _dict_of(callback: Any) -> dict[str, Any]:
    return getattr(callback, "__dict__", {})


def _keep_best(callback: Any) -> None:
    """What it compares by is settled in its first epoch, when Keras 3.3 to 3.6 forget `best`."""
    resolve = getattr(callback, "_set_monitor_op", None)
    if (
        resolve is None
        or "best" not in resolve.__code__.co_names
        or callback.monitor_op is not None
    ):
        return

    def resolve_and_keep() -> None:
        best = callback.best
        resolve()
        callback.best = best
        del callback._set_monitor_op

    callback._set_monitor_op = resolve_and_keep


def _set(callback: Any, name: str, value: Any) -> None:
    now: Any = getattr(callback, name, None)
    if hasattr(now, "assign"):  # tf_keras's TensorBoard counts by a variable of the model
        now.assign(value)
    else:
        setattr(callback, name, value)
