"""Calls models on the batch of a save, to record their outputs or to compare them.

A call leaves nothing behind. Variables are compared by their bytes and put back; a model whose call
changes anything else, its attributes or the generators of the process, is put back and refused.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import math
import pickle
import random
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import tensorflow as tf

from tfckpt.core.text import one_line
from tfckpt.errors import DamagedCheckpointError, RestoreError, SaveError, TfckptError
from tfckpt.live import generators
from tfckpt.live.apply import Undo
from tfckpt.live.flavors import flavor_of
from tfckpt.live.inventory import collect_as
from tfckpt.live.turns import live_objects
from tfckpt.live.variables import array_of, is_variable
from tfckpt.planning.outputs import OutputCheck, Packed, RecordedOutputs, compare, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.inventory import Live

MOST_BATCH = 1 << 20  # bytes
_KERAS = ("keras", "tf_keras")
_ATOMS = (str, bytes, int, float, complex, type(None))
_LISTS = (list, set, collections.deque)
_NONE = object()
# How a state is read and set.
_GENERATORS: dict[type, Any] = {
    random.Random: (random.Random.getstate, random.Random.setstate),
    np.random.RandomState: (np.random.RandomState.get_state, np.random.RandomState.set_state),
    np.random.Generator: (
        lambda generator: generator.bit_generator.state,
        lambda generator, state: setattr(generator.bit_generator, "state", state),
    ),
}


def record(live: Live, probe: Any, workers: object) -> dict[str, Any]:
    """The outputs of models on a batch, as a commit record holds them."""
    arrays: list[Packed] = []
    outputs: dict[str, Packed] = {}
    try:
        if workers is not None:
            raise TfckptError("a probe is for one process, and several workers save together")
        if not live.models:
            raise TfckptError("there is no Keras model among the objects")
        if len(live.models) == 1:
            probe = dict.fromkeys(live.models, probe)
        elif not isinstance(probe, dict) or not probe or not probe.keys() <= live.models.keys():
            names = ", ".join(live.models)
            raise TfckptError(f"of several models, pass a dict with a batch of each: {names}")
        batches = {name: _positions(batch, arrays) for name, batch in probe.items()}
        if sum(len(array.data) for array in arrays) > MOST_BATCH:
            hint = "pass fewer examples"
            raise TfckptError(f"the batch has more than {MOST_BATCH:,} bytes", hint=hint)
        for name, batch in batches.items():
            found = _called(live, name, _filled(batch, arrays))
            outputs.update((key, pack(array)) for key, array in found.items())
    except TfckptError as error:
        raise SaveError(f"probe: {error}", hint="nothing was written") from error
    saved: dict[str, Any] = msgspec.to_builtins(RecordedOutputs(batches, tuple(arrays), outputs))
    return saved


def check(models: Mapping[str, Any], recorded: Mapping[str, Any] | None, path: str) -> OutputCheck:
    """Compare what models return for the batch of a checkpoint with what its record holds."""
    if recorded is None:
        hint = "record them with the save: save(…, probe=batch)"
        raise RestoreError(f"{path}: its save has recorded no outputs", hint=hint)
    try:
        saved = msgspec.convert(dict(recorded), RecordedOutputs)
        batches = {name: _filled(batch, saved.arrays) for name, batch in saved.batch.items()}
        _ = [output.values for output in saved.outputs.values()]
        examples = max((array.shape[0] for array in saved.arrays if array.shape), default=1)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        message = f"the commit record's 'outputs' cannot be read: {error}"
        raise DamagedCheckpointError(message, path=path) from None
    if len(batches) == len(models) == 1:  # whatever their keywords are
        models = dict(zip(batches, models.values(), strict=True))
    if absent := sorted(batches.keys() - models.keys()):
        raise TfckptError(f"{path}: it has outputs of {absent[0]!r}, which was not given")
    live = collect_as(models)

    def called() -> dict[str, np.ndarray]:
        found = [_called(live, name, batch) for name, batch in batches.items()]
        return {name: output for outputs in found for name, output in outputs.items()}

    now = called()
    result = OutputCheck(path, examples, tuple(compare(saved.outputs, now)))
    if not result.equal:  # a model that draws numbers differs from itself
        packed = {name: pack(output) for name, output in now.items()}
        if chance := [one.name for one in compare(packed, called()) if not one.equal]:
            raise TfckptError(f"{path}: {chance[0]} is another one at each call: it draws numbers")
    return result


def checker(live: Live, recorded: Any, path: str) -> Callable[[], OutputCheck]:
    """:func:`check` for a report, which does not keep the models alive."""
    models = {name: weakref.ref(model) for name, model in live.models.items()}

    def call() -> OutputCheck:
        found = {name: model() for name, model in models.items()}
        if gone := [name for name, model in found.items() if model is None]:
            raise TfckptError(f"{path}: {gone[0]}, which was restored, is gone")
        return check(found, recorded, path)

    return call


def _positions(batch: Any, arrays: list[Packed]) -> Any:
    """A batch as JSON, in which each array is its position in ``arrays``."""
    if isinstance(batch, dict):
        return {str(key): _positions(value, arrays) for key, value in batch.items()}
    plain = not any(hasattr(value, "dtype") for value in tf.nest.flatten(batch))
    if isinstance(batch, list | tuple) and not plain:  # several inputs, not one of numbers
        return [_positions(value, arrays) for value in batch]
    array = array_of(batch)
    if plain and array.dtype == np.float64:
        array = array.astype(np.float32)
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    arrays.append(pack(array.astype(object) if array.dtype.kind == "S" else array, math.inf))
    return len(arrays) - 1


def _filled(batch: Any, arrays: Sequence[Packed]) -> Any:
    if isinstance(batch, dict):
        return {key: _filled(value, arrays) for key, value in batch.items()}
    if isinstance(batch, list):
        return [_filled(value, arrays) for value in batch]
    return arrays[batch].values


def _called(live: Live, name: str, batch: Any) -> dict[str, np.ndarray]:
    """What a model returns, by name."""
    model = live.models[name]
    if not tf.executing_eagerly():
        raise TfckptError("a model is called in eager mode only")
    unbuilt = [path for path in live.unbuilt if f"{path}/".startswith(f"{name}/")]
    if unbuilt or not model.built:
        path = (unbuilt or [name])[0]
        raise TfckptError(f"{path} is not built: call the model once on a batch before")
    takes = "training" in inspect.signature(model.call).parameters
    with live_objects(), _unchanged(live, name), _untraced(), tf.device("CPU:0"):
        try:
            tensors = tf.nest.map_structure(tf.constant, batch)
            outputs = model(tensors, **({"training": False} if takes else {}))
        except Exception as error:
            reason = one_line(str(error))[:300]
            raise TfckptError(
                f"{name} cannot be called on this batch: {type(error).__name__}: {reason}",
                hint="pass a batch that `model(batch, training=False)` takes, as `probe=`",
            ) from error
        return {key: array_of(output).copy() for key, output in _leaves(name, outputs)}


def _leaves(name: str, outputs: Any) -> Iterator[tuple[str, Any]]:
    """The tensors of a structure: ``model``, ``model[0]``, ``model[logits]``."""
    if isinstance(outputs, dict | list | tuple):
        items = outputs.items() if isinstance(outputs, dict) else enumerate(outputs)
        for key, value in items:
            yield from _leaves(f"{name}[{key}]", value)
    elif isinstance(outputs, tf.Tensor | np.ndarray):
        yield name, outputs
    elif outputs is not None:  # ragged or sparse
        yield from _leaves(name, tf.nest.flatten(outputs, expand_composites=True))


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    """Functions run as they are written: a trace of this call would be used by later ones."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@contextlib.contextmanager
def _unchanged(live: Live, name: str) -> Iterator[None]:
    """Put back all that the body changes; raise if it is more than variables."""
    undo, drawn, seen = Undo(), generators.take(), set[int]()
    undo.watch({id(v): v for v in live.variables.values() if is_variable(v)}.values())
    held = [row for path, layer in live.layers.items() for row in _state(path, layer, seen)]
    try:
        yield
    finally:
        changed = [key for key, now in generators.take().items() if drawn.get(key) != now]
        generators.put(drawn)
        undo.roll_back()
        while held:  # also after Ctrl-C
            with contextlib.suppress(KeyboardInterrupt):
                changed += _put_back(*held[-1])
                held.pop()
    if names := [*filter(None, dict.fromkeys(changed))]:
        raise TfckptError(
            f"{name} changes more than variables when it is called: {', '.join(names)}",
            hint="keep what a call changes in a variable, or do without a probe",
        )


def _state(path: str, layer: Any, seen: set[int]) -> Iterator[tuple[Any, Any, Any]]:
    """What holds the Python state of a layer, a copy, and the name of a key; "" for Keras's own."""
    flavor = flavor_of(layer)
    plain = flavor.plain_attributes if flavor is not None else frozenset()
    own = type(layer).__module__.partition(".")[0] not in _KERAS

    def named(key: Any) -> str:
        return f"{path}.{key}" if own and key not in plain else ""

    yield vars(layer), dict(vars(layer)), named
    for key, value in sorted(vars(layer).items(), key=lambda item: not named(item[0])):
        for holder in _holders(value, seen):
            yield holder, _copied(holder), functools.partial(_same, named(key))


def _same(name: str, _: object) -> str:
    return name


def _holders(value: Any, seen: set[int]) -> Iterator[Any]:
    """Containers, arrays, random generators, and the attributes of the program's own objects."""
    value = getattr(value, "__wrapped__", value)  # of TensorFlow's dicts
    if id(value) in seen or flavor_of(value) is not None:
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, (dict, *_LISTS, np.ndarray, *_GENERATORS)):
        yield value
    if isinstance(value, (dict, *_LISTS, tuple)):
        inner += value.values() if isinstance(value, dict) else value
    if hasattr(value, "_storage") or isinstance(value, threading.local) or _is_own(type(value)):
        yield (attributes := getattr(value, "__dict__", {}))
        inner += attributes.values()
    if any(not issubclass(kind, _ATOMS) for kind in {*map(type, inner)}):
        for each in inner:
            yield from _holders(each, seen)


def _is_own(kind: type) -> bool:
    """Whether a class is of the program, not of Python or of an installed package."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__module__.partition(".")[0] not in sys.stdlib_module_names and (
        "-packages" not in file
    )


def _copied(holder: Any) -> Any:
    if state := _GENERATORS.get(type(holder)):
        return pickle.dumps(state[0](holder))
    if isinstance(holder, np.ndarray):
        return holder.copy()
    return dict(holder) if isinstance(holder, dict) else list(holder)


def _put_back(holder: Any, before: Any, named: Callable[[Any], str]) -> list[str]:
    """Put back what has changed, past what tracks changes; returns its names."""
    keys: list[Any] = []
    if state := _GENERATORS.get(type(holder)):
        if pickle.dumps(state[0](holder)) != before:
            keys = [None]
            state[1](holder, pickle.loads(before))  # noqa: S301  made above
    elif isinstance(holder, np.ndarray):
        if holder.tobytes() != before.tobytes():
            keys = [None]
            holder[...] = before
    elif isinstance(holder, dict):
        both = ((key, before.get(key, _NONE), holder.get(key, _NONE)) for key in before | holder)
        if keys := [key for key, old, new in both if _differs(old, new)]:
            ordered = isinstance(holder, collections.OrderedDict)
            kind: Any = collections.OrderedDict if ordered else dict
            kind.clear(holder)
            kind.update(holder, before)
    elif len(holder) != len(before) or any(map(_differs, holder, before)):
        keys = [None]
        kind = next(kind for kind in _LISTS if isinstance(holder, kind))
        kind.clear(holder)
        (kind.update if kind is set else kind.extend)(holder, before)
    return list(map(named, keys))


def _differs(one: Any, other: Any) -> bool:
    equal = type(one) is type(other) and isinstance(one, _ATOMS) and one == other
    return one is not other and not equal
