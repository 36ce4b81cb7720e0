"""Small trainings with a state in a random place of what a ``fit`` holds, stopped.

What changes is a :class:`Kind` of value, in up to three containers, at a ``ROOTS``; a callback
changes it and moves a weight by it, or a loss reads it.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import functools
import importlib
import itertools
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from zoo.programs import sequence, shuffled
from zoo.start import ARRAYS, BATCH, Start
from zoo.stopped import SAID, squared

PLACE: Any = None  # of a root
SETTINGS = types.ModuleType("settings")  # as one of the program's


class Kind(NamedTuple):
    """A value: how it is made and changed, and which number it is; ``step`` returns another one."""

    make: Callable[[], Any]
    step: Callable[[Any], Any]
    number: Callable[[Any], float]


class Color(enum.Enum):
    RED, GREEN, BLUE = 1, 2, 3


class Item:
    def __init__(self, count: int = 0) -> None:
        self.count = count


@dataclasses.dataclass(frozen=True)
class Frozen:
    count: int = 0


class Named(NamedTuple):
    count: int = 0


class Keeps:
    """A property that has the value itself."""

    value = 0

    def __get__(self, owner: Any, kind: Any = None) -> int:
        return self.value

    def __set__(self, owner: Any, value: int) -> None:
        self.value = value


class Described(Item):
    count = Keeps()  # type: ignore[assignment]


class Setting:
    """What is an attribute of a module."""

    @property
    def it(self) -> Any:
        return SETTINGS.it

    @it.setter
    def it(self, new: Any) -> None:
        SETTINGS.it = new  # type: ignore[attr-defined]


class Slotted:
    __slots__ = ("it",)


class Holding:
    pass


def count(value: Any) -> None:
    value.count += 1


def counts(value: Any) -> int:
    return int(value.count)


def forgets(value: Any) -> None:
    value.seen += 1 + vars(value).pop("more", 0)


def inside(change: Callable[[Any], object]) -> Callable[[Any], Any]:
    def step(value: Any) -> Any:
        change(value)
        return value

    return step


def generated() -> Any:
    yield from itertools.count()


def counted(value: Any) -> int:
    return 0 if value is None else value.__reduce__()[1][0]


def draws(value: Any) -> float:
    """What it would draw next."""
    copied = type(value)(np.random.PCG64()) if isinstance(value, np.random.Generator) else None
    if copied is not None:
        copied.bit_generator.state = value.bit_generator.state
        return float(copied.random())
    if isinstance(value, random.Random):
        other = random.Random()
        other.setstate(value.getstate())
        return other.random()
    other = np.random.RandomState()
    other.set_state(value.get_state())
    return float(other.rand())


KINDS: dict[str, Kind] = {
    "int": Kind(int, lambda v: v + 1, float),
    "float": Kind(float, lambda v: v / 2 + 1, float),
    "complex": Kind(complex, lambda v: v * 1j + 1, abs),
    "bytes": Kind(bytes, lambda v: v + b"x", len),
    "text": Kind(str, lambda v: v + "x", len),
    "tuple": Kind(tuple, lambda v: (*v, len(v)), sum),
    "numpy scalar": Kind(lambda: np.float32(0), lambda v: np.float32(v + 0.5), float),
    "enum": Kind(lambda: Color.RED, lambda v: Color(v.value % 3 + 1), lambda v: v.value),
    "none": Kind(lambda: None, lambda v: 0 if v is None else v + 1, lambda v: v or 0),
    "datetime": Kind(
        lambda: datetime.datetime(2020, 1, 1),
        lambda v: v + datetime.timedelta(days=1),
        lambda v: v.day,
    ),
    "tensor": Kind(lambda: tf.constant(0.0), lambda v: v * 2 + 1, lambda v: float(v) % 7),
    "named tuple": Kind(Named, lambda v: Named(v.count + 1), counts),
    "frozen dataclass": Kind(Frozen, lambda v: Frozen(v.count + 1), counts),
    "object anew": Kind(Item, lambda v: Item(v.count + 1), counts),
    "object": Kind(Item, inside(count), counts),
    "value of a property": Kind(Described, inside(count), counts),
    "class": Kind(lambda: type("Settings", (), {"count": 0}), inside(count), counts),
    "attribute removed": Kind(
        lambda: types.SimpleNamespace(more=3, seen=0), inside(forgets), lambda v: v.seen
    ),
    "list": Kind(list, inside(lambda v: v.append(len(v))), len),
    "dict": Kind(dict, inside(lambda v: v.update({len(v): 1})), len),
    "set": Kind(set, inside(lambda v: v.add(len(v))), len),
    "deque": Kind(lambda: collections.deque([1], 5), inside(lambda v: v.append(sum(v) % 7)), sum),
    "counter": Kind(collections.Counter, inside(lambda v: v.update("a")), lambda v: v["a"]),
    "defaultdict": Kind(
        lambda: collections.defaultdict(int), inside(lambda v: v.update(a=v["a"] + 1)), len
    ),
    "UserDict": Kind(
        lambda: collections.UserDict(a=0),
        inside(lambda v: v.update(a=v["a"] + 1)),
        lambda v: v["a"],
    ),
    "array": Kind(lambda: np.zeros(3), inside(lambda v: v.__iadd__(1)), lambda v: v.sum()),
    "large array": Kind(lambda: np.zeros(99), inside(lambda v: v.__iadd__(1)), lambda v: v.mean()),
    "array of objects": Kind(
        lambda: np.array([Item(), None]), inside(lambda v: count(v[0])), lambda v: v[0].count
    ),
    "numpy generator": Kind(lambda: np.random.default_rng(3), inside(lambda v: v.random()), draws),
    "numpy seeds": Kind(
        lambda: np.random.default_rng(3),
        inside(lambda v: v.spawn(1)),
        lambda v: v.bit_generator.seed_seq.n_children_spawned,
    ),
    "numpy bits": Kind(
        lambda: np.random.PCG64(3),
        inside(lambda v: v.random_raw()),
        lambda v: v.state["state"]["state"] % 997,
    ),
    "random state": Kind(lambda: np.random.RandomState(3), inside(lambda v: v.rand()), draws),
    "python generator": Kind(lambda: random.Random(3), inside(lambda v: v.random()), draws),
    "variable": Kind(lambda: tf.Variable(0.0), inside(lambda v: v.assign_add(1.0)), float),
    "tf generator": Kind(
        lambda: tf.random.Generator.from_seed(3),
        inside(lambda v: v.normal([])),
        lambda v: float(v.state[0] % 1000),
    ),
    "list of objects": Kind(list, inside(lambda v: v.append(Item(len(v)))), len),
    "a generator": Kind(generated, inside(next), lambda v: counted(v.gi_yieldfrom)),
    "itertools": Kind(itertools.count, inside(next), counted),
}
UNSAVED = [*KINDS][-3:]
BY_VALUE = [*itertools.takewhile(lambda name: name != "object", KINDS)]  # another one each time


def _object(value: Any, make: Callable[[], Any]) -> Any:
    held = make()
    held.it = value
    return held


# How a value is held, and how one gets to it: an attribute, or a key.
HOLDERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "dict": (lambda value: {"a": value, "b": 1}, "a"),
    "list": (lambda value: [7, value], 1),
    "tuple": (lambda value: (value, 2), 0),
    "object": (lambda value: _object(value, Holding), None),
    "slots": (lambda value: _object(value, Slotted), None),
    "namespace": (lambda value: types.SimpleNamespace(it=value), None),
    "ordered": (lambda value: collections.OrderedDict(a=value), "a"),
}
ROOTS = (
    *("callback", "other callback", "closure", "nonlocal", "global", "class", "partial", "method"),
    *("default", "function", "module"),
    *("model", "layer", "loss", "regularizer", "optimizer", "metric", "initializer"),
)
EVENTS = ("on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end")
DATA: dict[str, Callable[[Start], dict[str, Any]]] = {
    "arrays": lambda run: dict(ARRAYS),
    "dataset": lambda run: {"x": shuffled().batch(BATCH)},
    "sequence": lambda run: {"x": sequence(run)},
}
FITS: dict[str, tuple[int, ...]] = {"once": (2,), "twice": (2, 1)}


class Place(NamedTuple):
    """A training of this table: one word of each of its parts."""

    root: str
    holders: tuple[str, ...]
    kind: str
    event: str
    data: str
    fits: str
    eager: bool
    in_loss: bool


def drawn(number: int, draw: random.Random) -> Place:
    """Of each kind of value one, and of each root, in turn; all else is drawn."""
    turn, at = divmod(number, len(KINDS))
    kind, root = [*KINDS][at], ROOTS[(turn + at) % len(ROOTS)]
    holders = tuple(draw.choices([*HOLDERS], k=draw.randrange(4)))
    if kind in BY_VALUE and (holders[-1:] == ("tuple",) or (not holders and root == "method")):
        holders = (*holders, "dict")  # where another value can be assigned
    eager = draw.random() < 0.7
    event, data, fits = draw.choice(EVENTS), draw.choice([*DATA]), draw.choice([*FITS])
    return Place(root, holders, kind, event, data, fits, eager, eager and draw.random() < 0.3)


def get(holder: Any, key: Any) -> Any:
    return holder.it if key is None else holder[key]


def put(holder: Any, key: Any, value: Any) -> None:
    if key is None:
        holder.it = value
    else:
        holder[key] = value


def changes(root: Any, place: Place) -> float:
    """Change the value below an object that has it as ``it``; its number."""
    holder, key = at(root, place)
    kind = KINDS[place.kind]
    value = kind.step(get(holder, key))
    if place.kind in BY_VALUE:
        put(holder, key, value)
    return float(kind.number(value))


def at(root: Any, place: Place) -> tuple[Any, Any]:
    holder, key = root, None
    for name in place.holders:
        holder, key = get(holder, key), HOLDERS[name][1]
    return holder, key


def number_of(root: Any, place: Place) -> float:
    return float(KINDS[place.kind].number(get(*at(root, place))))


def program(place: Place) -> Callable[[Start], None]:
    def trains(run: Start) -> None:
        keras = run.keras
        value = KINDS[place.kind].make()
        for name in reversed(place.holders):
            value = HOLDERS[name][0](value)
        found: list[Callable[[], Any]] = []  # where it is

        class Loss(keras.losses.Loss):
            def call(self, real: Any, guessed: Any) -> Any:
                scale = 1 + 0.01 * number_of(found[0](), place) if place.in_loss else 1
                return squared(real, guessed) * scale

        class Layer(keras.layers.Layer):
            def call(self, inputs: Any) -> Any:
                return inputs

        class Grows(keras.regularizers.Regularizer):
            def __call__(self, weights: Any) -> Any:
                return 0.001 * tf.reduce_sum(tf.convert_to_tensor(weights) ** 2)

        def own(name: str, base: Any) -> Any:
            return type(name, (base,), {})

        layer, regularizer = Layer(), Grows()
        initializer = own("Nothing", keras.initializers.Zeros)()
        dense = keras.layers.Dense(
            3, "tanh", kernel_regularizer=regularizer, bias_initializer=initializer
        )
        layers = [keras.Input((4,)), dense, layer, keras.layers.Dense(1)]
        model, loss = own("Network", keras.Sequential)(layers), Loss()
        optimizer = own("Descends", keras.optimizers.SGD)(0.05, momentum=0.9)
        metric = own("Error", keras.metrics.MeanSquaredError)()
        made = {"run_eagerly": place.eager, "jit_compile": False}
        model.compile(optimizer=optimizer, loss=loss, metrics=[metric], **made)

        def step(self: Any, *_: Any, **more: Any) -> None:
            kernel = self.model.layers[0].kernel
            kernel.assign(kernel * (1 + 0.001 * (changes(found[0](), place) % 13)))

        callback, other = run.callback("Steps", **{place.event: step}), run.callback("Other")
        roots = {
            "model": model,
            "layer": layer,
            "loss": loss,
            "regularizer": regularizer,
            "optimizer": optimizer,
            "initializer": initializer,
            "metric": metric,
            "callback": callback,
            "other callback": other,
            "class": type(callback),
        }
        found.append(_found(place.root, value, roots))
        resuming = run.resume(model)
        data = DATA[place.data](run)
        for epochs in FITS[place.fits]:
            run.fit(model, callback, other, **data, epochs=epochs, resume=resuming)
        run.sees("number", number_of(found[0](), place))

    return trains


def _found(root: str, value: Any, roots: dict[str, Any]) -> Callable[[], Any]:
    """Put a value at a root; returns a function that returns what has it as ``it``."""
    held, it = types.SimpleNamespace(it=value), value
    if root in roots:
        owner = roots[root]
        owner.it = value
        return lambda: owner
    if root == "global":
        globals()["PLACE"] = held
        return lambda: PLACE
    if root == "module":
        SETTINGS.it = value  # type: ignore[attr-defined]
        return Setting
    if root == "partial":
        return functools.partial(lambda one: one, held)
    if root == "default":
        return lambda held=held: held
    if root == "function":

        def function() -> Any:
            return function

        function.it = value  # type: ignore[attr-defined]
        return function
    if root == "method":
        return types.MethodType(lambda self: self, _object(value, Holding))
    if root == "closure":
        return lambda: held

    class Cell:
        @property
        def it(self) -> Any:
            return it

        @it.setter
        def it(self, new: Any) -> None:
            nonlocal it
            it = new

    cell = Cell()
    return lambda: cell


# Stopped


def stopped(
    flavor: str, place: Place, draw: random.Random, folder: Path, times: int = 2
) -> tuple[str, str]:
    """``equal``, ``said``, ``SILENT`` or ``DIES``, and what was said at any start."""
    keras = importlib.import_module(flavor)
    all_of = [
        (number, epoch, batch)
        for number, epochs in enumerate(FITS[place.fits])
        for epoch, batch in itertools.product(range(epochs), range(3))
    ]
    ends = [*sorted(draw.sample(all_of[1:], times)), None]
    whole = Start(keras, folder, None, saves=False).run(program(place))
    found = [Start(keras, folder, end, saves=True).run(program(place)) for end in ends]
    errors = [each["error"] for each in (whole, *found) if each["error"]]
    said = "".join([*errors, *(each["output"] for each in found)])
    if errors:  # TensorFlow names a dict of a layer that is changed past its wrapper
        return "said" if all("outside the wrapper" in each for each in errors) else "DIES", said
    if whole["result"] == found[-1]["result"]:
        return "equal", said
    return "said" if any(each in said for each in SAID) else "SILENT", said
