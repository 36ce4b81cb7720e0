"""The axes of the matrix of formats: models, optimizers, writers, readers; and what a case gives.

A case is one file, read by every reader, each into a model that holds other values. What comes of
it is a word per reader: `all`, the groups of values that arrived, or the error. ``python -m
zoo.matrix``, in ``tests``, writes the table of `test_matrix.py` anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import tfckpt
from tfckpt.live.inventory import collect
from zoo import models, optimizers
from zoo.models import WIDTH
from zoo.values import variables
from zoo.variables import inner

KERAS = {"keras3": keras, "tf_keras": tf_keras}
OTHER = {"keras3": "tf_keras", "tf_keras": "keras3"}

# --- Models ---

_DRAW = np.random.default_rng(1)
FLAT = _DRAW.normal(size=(2, WIDTH)).astype("float32")
SERIES = _DRAW.normal(size=(2, 4, WIDTH)).astype("float32")
IMAGES = _DRAW.normal(size=(2, 8, 8, WIDTH)).astype("float32")


def crossed(k):
    """Layers with the names of one another's attributes, and a weight like one of a layer in it."""

    class Mix(k.layers.Layer):
        def __init__(self):
            super().__init__(name="mix")
            self.parts = [k.layers.Dense(WIDTH, use_bias=False)]

        def build(self, shape):
            self.kernel = self.add_weight(name="kernel", shape=(WIDTH, WIDTH))
            super().build(shape)

        def call(self, x):
            return self.parts[0](tf.matmul(x, self.kernel))

    def parts():
        b, a = models.dense(k, "a", "b")
        return {"b": b, "a": a, "mix": Mix()}

    cls = models.net(k.Model, parts, lambda self, x: self.mix(self.a(self.b(x))))
    return models.called(cls(), FLAT)


class Part(tf.Module):
    """No Keras: lists, dicts, and modules in a module."""

    def __init__(self, more):
        super().__init__()
        self.w = tf.Variable(tf.ones([WIDTH, WIDTH]))
        self.rows = [tf.Variable(tf.ones([WIDTH])) for _ in range(2)]
        self.keyed = {"x": tf.Variable(tf.ones([WIDTH]))}
        self.parts = [Part(more=False), Part(more=False)] if more else []

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH])])
    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return tf.matmul(x, self.w) * self.rows[0] + self.rows[1] - self.keyed["x"]


MODELS = {
    name: models.MODELS[name]
    for name in (
        *("sequential", "functional", "functional_in_functional", "subclassed_in_functional"),
        *("containers", "shared", "own_weights", "attention", "seeded", "normalized", "text"),
        "module_in_layer",
    )
} | {"crossed": crossed}
NO_KERAS = {"module": lambda _: Part(more=True)}
BATCHES = {"attention": SERIES, "seeded": IMAGES, "text": tf.constant(["a b", "c d"])}
BASE = "sequential"

# --- Optimizers: of others see `zoo/continued` ---

SOLVERS = ("none", "adam")

# --- Sides: objects, and what they hold ---

GROUPS = {
    "weight": "weights",
    "hyperparameter": "settings",
    "seed": "seeds",
    "metric": "metrics",
}  # all else is the optimizer's


class Value(NamedTuple):
    group: str
    value: np.ndarray


class Side:
    """Objects, and their variables by the names that tfckpt gives them; all of them have one."""

    def __init__(self, flavour, model, optimizer):
        k = KERAS.get(flavour)
        self.flavour, self.batch = flavour, BATCHES.get(model, FLAT)
        self.root, self.solver = (MODELS | NO_KERAS)[model](k), None
        self.objects = {"module" if k is None else "model": self.root}
        if optimizer != "none":
            solver = optimizers.OPTIMIZERS[optimizer](k)
            self.solver = optimizers.compiled(self.root, solver).optimizer
            if model == BASE:  # with metrics
                self.root.compile(self.solver, "mse", metrics=["mae"], run_eagerly=True)
                self.root.train_on_batch(self.batch, np.ones((2, 2), "float32"))
        live = collect(self.objects)
        self.variables, self.groups = {}, {}
        for name, entry in live.inventory.entries.items():
            if entry.role not in ("object", "vocabulary"):
                self.variables[name] = inner(live.variables[name])
                self.groups[name] = GROUPS.get(entry.role, "optimizer")
        found = {id(variable) for variable in self.variables.values()}
        assert len(found) == len(self.variables)
        for thing in (self.root, self.solver) if self.solver else (self.root,):
            ours = filter(lambda each: hasattr(each, "assign"), variables(thing))
            assert {id(inner(each)) for each in ours} <= found

    def scramble(self, seed):
        """Give each variable values of its own; vocabularies are the program's, and stay."""
        draw = np.random.default_rng(seed)
        for variable in self.variables.values():
            kind = variable.dtype.as_numpy_dtype
            if np.issubdtype(kind, np.floating):
                value = draw.uniform(0.5, 1.5, variable.shape)
            else:
                value = draw.integers(1, 1000, variable.shape)
            variable.assign(np.asarray(value).astype(kind))
        for layer in getattr(self.root, "layers", ()):
            if hasattr(layer, "finalize_state"):  # it computes with constants made of its variables
                layer.finalize_state()

    def values(self):
        return {n: Value(self.groups[n], v.numpy()) for n, v in self.variables.items()}

    def answer(self):
        inference = {"training": False} if self.flavour in KERAS else {}
        return [np.asarray(each) for each in tf.nest.flatten(self.root(self.batch, **inference))]

    def plain(self):
        """As in TensorFlow's guide, the optimizer beside the model."""
        more = {"optimizer": self.solver} if self.solver else {}
        return tf.train.Checkpoint(**self.objects, **more)


@lru_cache(4)
def side(flavour, model, optimizer, copy):
    """One that is written, and one (copy 1) that is restored."""
    return Side(flavour, model, optimizer)


# --- Writers: side, where → path ---


def _tfckpt(side, place):
    return tfckpt.Checkpoint(**side.objects).save(str(place / "ckpt"))


def _manager(side, place):
    return tfckpt.CheckpointManager(tfckpt.Checkpoint(**side.objects), str(place), 2).save()


def _keras(method, name, **more):
    def write(side, place):
        getattr(side.root, method)(str(place / name), **more)
        return str(place / name)

    return write


def _export(side, place):
    if side.flavour not in KERAS:
        tf.saved_model.save(side.root, str(place))
    else:
        side.root.export(str(place), **({"verbose": False} if side.flavour == "keras3" else {}))
    return str(place)


def _exported(name):
    def write(side, place):
        model = [side.root] if name.endswith(".weights.h5") else []
        return tfckpt.export(_tfckpt(side, place), place / name, *model)

    return write


class Writer(NamedTuple):
    """`by` is who reads it beside tfckpt; `often`, whether it writes more than the base model."""

    write: Callable[[Side, Path], str | None]
    by: str = ""
    often: bool = True
    flavours: tuple[str, ...] = ("keras3", "tf_keras")


EVERY = ("keras3", "tf_keras", "tf")
WRITERS = {
    "tfckpt": Writer(_tfckpt, "tensorflow", True, EVERY),
    "manager": Writer(_manager, "tensorflow", False, EVERY),
    "tensorflow": Writer(
        lambda side, place: side.plain().save(str(place / "ckpt")), "tensorflow", True, EVERY
    ),
    "weights_tf": Writer(_keras("save_weights", "weights"), "keras", True, ("tf_keras",)),
    "weights_h5": Writer(_keras("save_weights", "w.weights.h5"), "keras"),
    "shards": Writer(
        _keras("save_weights", "w.weights.json", max_shard_size=1e-6), "keras", False, ("keras3",)
    ),
    "weights_keras2": Writer(_keras("save_weights", "w.h5"), "keras", True, ("tf_keras",)),
    "h5": Writer(_keras("save", "m.h5"), "keras"),
    "keras": Writer(_keras("save", "m.keras"), "keras"),
    "saved_model": Writer(_keras("save", "m", save_format="tf"), "", False, ("tf_keras",)),
    "export": Writer(_export, "", False, EVERY),
    "safetensors": Writer(_exported("v.safetensors"), "", False, EVERY),
    "npz": Writer(_exported("v.npz"), "", False, EVERY),
    "to_weights_h5": Writer(_exported("c.weights.h5"), "keras", False),
}

# --- Readers: path, side ---


def _checkpoint(path, side):
    tfckpt.Checkpoint(**side.objects).restore(path).expect_partial()


def _by_keras(path, side):
    status = side.root.load_weights(path)
    if status is not None:  # it is in TensorFlow's format
        status.expect_partial()


READERS = {
    "restore": lambda path, side: tfckpt.restore(path, **side.objects),
    "weights": lambda path, side: tfckpt.restore(
        path, include=[f"{next(iter(side.objects))}/**"], **side.objects
    ),
    # as for many of Keras's files, which hold no learning rate
    "settings": lambda path, side: tfckpt.restore(
        path, optimizer={"hyperparameters": "config"}, **side.objects
    ),
    "checkpoint": _checkpoint,
    "tensorflow": lambda path, side: side.plain().restore(path).assert_existing_objects_matched(),
    "keras": _by_keras,
}


class Case(NamedTuple):
    flavour: str
    model: str
    optimizer: str
    writer: str

    def __str__(self):
        return "-".join(self)

    @property
    def full(self):
        return self.model in (BASE, *NO_KERAS)

    def readers(self):
        """Names, and whether it is in the other flavour."""
        ways = ("restore", "weights", "settings", "checkpoint") if self.full else ("restore",)
        across = (False, True) if self.flavour in OTHER else (False,)
        yield from ((name, other) for other in across for name in ways)
        if by := WRITERS[self.writer].by:
            yield by, False


FILES = ("weights_h5", "h5", "keras", "weights_keras2")  # `zoo/saved` has all of every model


@cache
def cases():
    """All of them → whether they run by default: every model with Adam.

    By every writer of TensorFlow's format, and one of Keras's files in turn.
    """
    every = [(f, m, o) for m in MODELS for f in KERAS for o in SOLVERS]
    every.sort(key=lambda scene: (scene[1] == BASE, scene[1], scene[2]))
    found = {}
    for at, scene in enumerate([*every, ("tf", "module", "none")]):
        flavour, _, optimizer = scene
        files = FILES if flavour == "tf_keras" else FILES[:3]
        often = {name for name in WRITERS if WRITERS[name].often} - {*files}
        often |= {files[at // len(SOLVERS) // len(KERAS) % len(files)]}
        for name, writer in WRITERS.items():
            if flavour in writer.flavours:
                case = Case(*scene, name)
                found[case] = case.full or (name in often and optimizer == "adam")
    return found


# --- What a case gives ---

# Of a reader: the groups of values that arrived, by letter, with a count if not all of a group did.
LETTERS = {"w": "weights", "o": "optimizer", "s": "settings", "r": "seeds", "m": "metrics"}
ERRORS = {"RefusedError": "refused", "UnsupportedCheckpointError": "unsupported"}


def row(case, place):
    """Write the file, and say what each reader makes of it."""
    flavour, model, optimizer, writer = case
    written = side(flavour, model, optimizer, 0)
    written.scramble(1)
    wanted, answer = written.values(), written.answer()
    try:
        path = WRITERS[writer].write(written, place)
    except Exception as error:
        return f"written={ERRORS.get(type(error).__name__, type(error).__name__)}"
    assert path is not None
    found = []
    for name, across in case.readers():
        live = side(flavour, model, optimizer, 1)
        if across:
            live = side(OTHER[flavour], model, optimizer, 1)
        live.scramble(2)
        before = live.values()
        try:
            READERS[name](path, live)
            word = ""
        except (Exception, AssertionError) as error:
            word = ERRORS.get(type(error).__name__, type(error).__name__)
        after = live.values()
        failed, word = bool(word), word or _arrived(before, after, wanted)
        found.append(f"{'across_' * across}{name}={word}")
        if name in ("tensorflow", "keras"):
            continue
        if failed:
            assert _arrived(before, after, before) == "all", f"{name}: refused, but changed"
        elif word == "all":
            for got, meant in zip(live.answer(), answer, strict=True):
                tolerance = {"rtol": 2e-5, "atol": 1e-6} if across else {"rtol": 0}
                np.testing.assert_allclose(got, meant, **tolerance, err_msg=name)
    return " ".join(found)


def _arrived(before, after, wanted):
    came = {}
    for name in before.keys() & wanted.keys():
        new = np.array_equal(after[name].value, wanted[name].value)
        assert new or np.array_equal(after[name].value, before[name].value), f"{name} is another's"
        came.setdefault(before[name].group, []).append(new)
    if all(map(all, came.values())):
        return "all"
    words = [
        letter + ("" if all(each) else f"{sum(each)}/{len(each)}")
        for letter, group in LETTERS.items()
        if any(each := came.get(group, ()))
    ]
    return "".join(words) or "none"


# --- The table ---

TABLE = Path(__file__).parents[1] / "conformance" / "matrix.txt"


def table():
    """Case → its row, as it is written there."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def main():
    """Write the table, or the rows whose cases begin with an argument."""
    rows = table() if len(sys.argv) > 1 else {}
    for case in [case for case, usual in cases().items() if usual]:
        if str(case).startswith(tuple(sys.argv[1:]) or ""):
            with tempfile.TemporaryDirectory() as place:
                rows[str(case)] = row(case, Path(place))
    TABLE.write_text("".join(f"{case}: {row}\n" for case, row in rows.items()), encoding="utf-8")


if __name__ == "__main__":
    main()
