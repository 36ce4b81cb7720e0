"""F1 to F5: what a value is called.

TensorFlow names a value by the shortest path that reaches it, so a key tells how an object was put
together and in which process. Canonical names tell only which variable it is, in every flavor and
whoever wrote the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import trackable_object_graph_pb2 as graph_pb2
from zoo.models import called, chain, in_turn, stack, wired
from zoo.optimizers import compiled
from zoo.values import equal, fill
from zoo.variables import distinguish

import tfckpt

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class Key(NamedTuple):
    """Of objects, one variable: its key in TensorFlow's checkpoint."""

    k: Any
    make: Callable[[Any], dict[str, Any]]
    key: str


def model(k):
    return {"model": chain(k, "a", "b")}


def sequential(k):
    return {"model": chain(k, "a", "b", build=stack)}


def solved(k, optimizer=None):
    return {"model": compiled(chain(k, "a", "b", build=stack), optimizer or k.optimizers.Adam())}


def beside(k):
    whole = compiled(chain(k, "a", "b"), k.optimizers.Adam())
    return {"model": whole, "optimizer": whole.optimizer}


def adam(optimizers=None, **options):
    def make(k):
        whole = compiled(chain(k, "a"), (optimizers or k.optimizers).Adam(**options))
        return {"model": whole, "optimizer": whole.optimizer}

    return make


def layer(name, *arguments, shape=(4, 4, 2)):
    return lambda k: {"model": wired(k, getattr(k.layers, name)(*arguments, name="a"), shape=shape)}


LEGACY = tf_keras.optimizers.legacy
SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
OF_CONV = "_kernel" if hasattr(keras.layers.Conv2D, "kernel") else "kernel"  # as in Keras 3.1
IN_K3, IN_OLD = "model/_operations/1/", "model/layer_with_weights-0/"
KEYS = {
    "model/a/kernel": [  # F1: for each way to build a model
        Key(keras, model, f"{IN_K3}_kernel"),
        Key(keras, sequential, "model/_functional/_operations/1/_kernel"),
        Key(keras, solved, "model/optimizer/_trainable_variables/0"),
        Key(keras, beside, "optimizer/_trainable_variables/0"),
        Key(tf_keras, model, f"{IN_OLD}kernel"),
        Key(tf_keras, sequential, f"{IN_OLD}kernel"),
        Key(tf_keras, solved, f"{IN_OLD}kernel"),
        Key(tf_keras, beside, f"{IN_OLD}kernel"),
        # F5: for each private attribute
        Key(keras, layer("Conv2D", 2, 2), f"{IN_K3}{OF_CONV}"),
        Key(keras, layer("DepthwiseConv2D", 2), f"{IN_K3}kernel"),
        Key(tf_keras, layer("DepthwiseConv2D", 2), f"{IN_OLD}depthwise_kernel"),
        Key(keras, layer("EinsumDense", "abcd,de->abce", (4, 4, 3)), f"{IN_K3}_kernel"),
    ],
    "model/a/embeddings": [
        Key(keras, layer("Embedding", 5, 4, shape=(4,)), f"{IN_K3}_embeddings"),
        Key(tf_keras, layer("Embedding", 5, 4, shape=(4,)), f"{IN_OLD}embeddings"),
    ],
    "optimizer/momentum/a/kernel": [  # F2: by what else the optimizer holds
        Key(keras, adam(), "optimizer/_variables/2"),
        Key(keras, adam(learning_rate=SCHEDULE), "optimizer/_variables/1"),
        Key(keras, adam(gradient_accumulation_steps=2), "optimizer/_variables/4"),
        Key(tf_keras, adam(), "optimizer/_variables/1"),
        Key(tf_keras, adam(LEGACY), f"{IN_OLD}kernel/.OPTIMIZER_SLOT/optimizer/m"),
    ],
}


def named(path):
    """Key → name, as tfckpt reads a checkpoint."""
    entries = tfckpt.inspect(path).inventory.entries
    return {entry.key.removesuffix(SUFFIX): name for name, entry in entries.items()}


@pytest.mark.parametrize(
    ("name", "one"), [(name, one) for name, those in KEYS.items() for one in those]
)
def test_f1_f2_f5_many_keys_are_one_name(name, one, tmp_path):
    objects = one.make(one.k)
    plain = tf.train.Checkpoint(**objects).write(str(tmp_path / "plain"))
    ours = tfckpt.Checkpoint(**objects).write(tmp_path / "ours")
    assert named(plain)[one.key] == name
    assert named(ours)[one.key] == name
    assert name in tfckpt.inventory(**objects).entries


def test_f1_the_model_is_stored_under_the_optimizer_and_restored_without_it(flavour, tmp_path):
    """So plain TensorFlow cannot leave the optimizer out."""
    objects = beside(flavour)
    source, target = fill(1, objects["model"]), sequential(flavour)["model"]
    path = tf.train.Checkpoint(**objects).write(str(tmp_path / "ckpt"))
    below = {key.partition("/")[0] for key in named(path)}
    assert below == ({"optimizer"} if flavour is keras else {"model", "optimizer"})
    tfckpt.restore(path, model=target, exclude=["optimizer/**"])
    assert equal(source, target)


def test_f2_tfckpt_restores_slots_across_a_change_of_schedule(tmp_path):
    old, new = adam()(keras), adam(learning_rate=SCHEDULE)(keras)
    distinguish(old["optimizer"].variables)
    path = tf.train.Checkpoint(**old).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(**new).restore(path).expect_partial()
    wanted = {variable.name: variable.numpy() for variable in old["optimizer"].variables}
    for variable in new["optimizer"].variables:
        np.testing.assert_array_equal(variable.numpy(), wanted[variable.name], variable.name)


def lazy():
    """Its layers get their variables at the first call."""
    first, second = lambda: keras.layers.Dense(3), lambda: keras.layers.Dense(3)
    return called(in_turn(keras.Model, first=first, second=second)(name="s"))


def test_f3_one_full_name_for_two_variables_is_a_name_for_each(tmp_path):
    source, target = fill(1, lazy()), fill(2, lazy())
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "ckpt"))
    stored = tf.train.load_checkpoint(path).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    graph = graph_pb2.TrackableObjectGraph.FromString(stored)
    full = [value.full_name for node in graph.nodes for value in node.attributes]
    assert full.count("s/kernel") == 2
    wanted = {f"model/{name}/{of}" for name in ("first", "second") for of in ("kernel", "bias")}
    assert tfckpt.inventory(model=source).entries.keys() == wanted
    tfckpt.Checkpoint(model=target).read(path).assert_consumed()
    assert equal(source, target)


@pytest.mark.parametrize("build", [wired, stack])
def test_f4_numbers_of_a_process_are_in_no_name(flavour, build):
    layers = flavour.layers
    wanted = {f"model/{name}/{of}" for name in ("dense", "dense_1") for of in ("kernel", "bias")}
    paths = set()
    for more in ([], [layers.Dropout(0.5)], []):
        named = {"name": "mine"} if more else {}
        model = build(flavour, layers.Dense(3), *more, layers.Dense(3), *more, **named)
        assert {n for n in tfckpt.inventory(model=model).entries if n[:4] != "seed"} == wanted
        found = {getattr(v, "path", v.name) for v in model.weights}
        assert not found & paths  # Keras's own
        paths |= found
