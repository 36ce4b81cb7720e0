"""What is written for the golden files: models, optimizers, objects given in several ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from zoo import models, optimizers
from zoo import models as attached
from zoo.models import BATCH
from zoo.optimizers import compiled

KERASES = {"keras3": keras, "tf_keras": tf_keras}


class Subject(NamedTuple):
    """Objects that are saved together.

    Attributes:
        make: from a flavour, the objects by keyword.
        flavours: those that have them.
        files: Keras's own files that are written of ``model``, by their endings.
        more: whether SavedModels are written, too, and a checkpoint with the model as its root;
            some SavedModels take tf_keras many seconds.
    """

    make: Callable[[Any], dict[str, Any]]
    flavours: tuple[str, ...]
    files: tuple[str, ...] = ()
    more: bool = False


def fresh(flavour: str) -> Any:
    """The flavour as in a new process: what it counts begins anew, random numbers too."""
    keras.utils.clear_session(free_memory=False)  # a collection takes as long as a model
    tf_keras.backend.reset_uids()
    keras.utils.set_random_seed(1)
    return KERASES[flavour]


def trained(k: Any) -> dict[str, Any]:
    """With what a training adds: metrics, a loss, a step."""
    layers = [k.layers.Dense(3), k.layers.Dropout(0.5, seed=3), k.layers.Dense(2, name="head")]
    model = k.Sequential([k.Input((3,)), *layers])
    model.compile(k.optimizers.Adam(), "mse", metrics=["mae", k.metrics.Precision()])
    model.fit(BATCH, np.ones((2, 2)), verbose=0)
    return {"model": model, "step": tf.Variable(1, dtype=tf.int64)}


def deep(k: Any) -> dict[str, Any]:
    """With more than ten layers: a number has two digits."""
    return {"model": attached.chain(k, *[None] * 6, *"abcdef")}


def optimizer_alone(k: Any) -> dict[str, Any]:
    return {"optimizer": compiled(attached.chain(k, None, "head"), k.optimizers.Adam()).optimizer}


def optimizer_first(k: Any) -> dict[str, Any]:
    model = compiled(attached.chain(k, None, "head"), k.optimizers.Adam())
    return {"optimizer": model.optimizer, "model": model}


def quantized(k: Any) -> dict[str, Any]:
    model = attached.chain(k, None, "head")
    model.quantize("int8")
    return {"model": model}


def modules(k: Any) -> dict[str, Any]:
    """Without Keras: variables by themselves, in modules, lists and dicts, and a table."""

    class Linear(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self._b = tf.Variable(tf.ones([2, 3])), tf.Variable(tf.ones([3]))
            self.same = self.w

    outer = tf.Module(name="outer")
    outer.parts, outer.by_name = [Linear(), Linear()], {"x": Linear(), "y/z": tf.Variable(1.0)}
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    generator = tf.random.Generator.from_seed(1)
    return {"net": outer, "step": tf.Variable(0), "table": table, "generator": generator}


def _model(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda k: {"model": models.MODELS[name](k)}


def _optimizer(name: str) -> Callable[[Any], dict[str, Any]]:
    """With one layer, but those that tell several apart."""
    layers = (None, "head") if name in TOLD_APART else ("head",)

    def made(k: Any) -> dict[str, Any]:
        return {"model": compiled(attached.chain(k, *layers), optimizers.OPTIMIZERS[name](k))}

    return made


def _flavours(name: str, pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(flavour for flavour, each in pairs if each == name)


BOTH = tuple(KERASES)
TOLD_APART = ("multi", "adam", "legacy_adam", "muon")  # in Keras's files, by their numbers
FILES = (".weights.h5", ".keras", ".h5")
MORE = (
    *("sequential", "functional", "subclassed", "functional_in_functional", "normalized"),
    *("lookups", "own_weights", "module_in_layer"),
)
# Their slots are called as those of others here.
ALIKE = (
    *("sgd", "sgd_nesterov", "adamax", "adadelta", "rmsprop", "lamb", "legacy_adamax"),
    *("legacy_nadam", "legacy_adadelta", "legacy_adam_amsgrad", "legacy_adam_schedule"),
)
SUBJECTS: dict[str, Subject] = {
    **{
        name: Subject(
            _model(name),
            _flavours(name, models.IN_FLAVOUR),
            (*FILES, "weights", "weights.h5", "exported.weights.h5"),
            name in MORE,
        )
        for name in models.MODELS
    },
    **{
        f"optimizer_{name}": Subject(
            _optimizer(name),
            _flavours(name, optimizers.IN_FLAVOUR),
            FILES if name in TOLD_APART else (),
            name == "adam",
        )
        for name in optimizers.OPTIMIZERS
        if name not in ALIKE
    },
    **{name: Subject(make, BOTH) for name, make in attached.ATTACHED.items()},
    "deep": Subject(deep, BOTH, FILES),
    "optimizer_alone": Subject(optimizer_alone, BOTH),
    "optimizer_first": Subject(optimizer_first, BOTH),
    "trained": Subject(trained, BOTH, FILES, True),
    "quantized": Subject(quantized, ("keras3",), FILES),
    "modules": Subject(modules, ("keras3",)),
}
