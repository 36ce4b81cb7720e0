"""F1 to F5: what a value is called.

TensorFlow names a value by the shortest path that reaches it, so a name tells how an object was put
together and in which process. Canonical names tell only which variable it is.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import trackable_object_graph_pb2 as graph_pb2

import tfckpt

MODEL_WEIGHTS = {"model/a/kernel", "model/a/bias", "model/b/kernel", "model/b/bias"}
ADAM = {
    "optimizer/iterations",
    "optimizer/learning_rate",
    "optimizer/momentum/a/kernel",
    "optimizer/velocity/a/kernel",
    "optimizer/momentum/a/bias",
    "optimizer/velocity/a/bias",
}


def compiled(flavour: Any, model: Any) -> Any:
    model.compile(optimizer=flavour.optimizers.Adam(), loss="mse")
    model.fit(np.ones((2, 3)), np.ones((2, 3)), verbose=0)
    return model


def full_names(prefix: str) -> list[str]:
    """What the object graph in a checkpoint calls its values."""
    stored = tf.train.load_checkpoint(prefix).get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
    graph = graph_pb2.TrackableObjectGraph.FromString(stored)
    return [value.full_name for node in graph.nodes for value in node.attributes]


def test_f1_plain_tensorflow_has_another_key_for_each_way_to_build_a_model(
    stack, keys, tmp_path
) -> None:
    def key_of_a(model: Any, **more: Any) -> str:
        names = keys(tf.train.Checkpoint(model=model, **more).write(str(tmp_path / "ckpt")))
        candidates = {
            "model/_operations/1/_kernel",
            "model/_functional/_operations/1/_kernel",
            "model/optimizer/_trainable_variables/0",
            "optimizer/_trainable_variables/0",
        }
        (found,) = names & candidates
        return found

    functional = stack(keras, ["a", "b"])
    sequential = stack(keras, ["a", "b"], "sequential")
    assert key_of_a(functional) == "model/_operations/1/_kernel"
    assert key_of_a(sequential) == "model/_functional/_operations/1/_kernel"
    assert key_of_a(compiled(keras, sequential)) == "model/optimizer/_trainable_variables/0"
    compiled(keras, functional)
    assert (
        key_of_a(functional, optimizer=functional.optimizer) == "optimizer/_trainable_variables/0"
    )


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_f1_tfckpt_has_one_name_however_the_model_was_built(flavour, stack, weights, kind) -> None:
    model = stack(flavour, ["a", "b"], kind)
    assert weights(tfckpt.inventory(model=model)) == MODEL_WEIGHTS
    compiled(flavour, model)
    assert weights(tfckpt.inventory(model=model)) == MODEL_WEIGHTS
    assert weights(tfckpt.inventory(model=model, optimizer=model.optimizer)) == MODEL_WEIGHTS


def test_f1_plain_tensorflow_stores_the_model_under_the_optimizer(stack, keys, tmp_path) -> None:
    model = compiled(keras, stack(keras, ["a", "b"]))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    stored = keys(checkpoint.write(str(tmp_path / "ckpt")))
    assert not {key for key in stored if not key.startswith("optimizer/")}


def test_f1_tfckpt_excludes_the_optimizer_without_the_model(
    flavour, stack, fill, values, config, tmp_path
) -> None:
    source = compiled(flavour, stack(flavour, ["a", "b"]))
    fill(1, source)
    checkpoint = tf.train.Checkpoint(model=source, optimizer=source.optimizer)
    prefix = checkpoint.write(str(tmp_path / "ckpt"))
    target = stack(flavour, ["a", "b"], "sequential")
    tfckpt.restore(config(prefix, api="read", exclude=["optimizer/**"]), model=target)
    for restored, expected in zip(values(target), values(source), strict=True):
        np.testing.assert_array_equal(restored, expected)


def test_f2_plain_tensorflow_numbers_the_optimizer_by_what_else_it_holds(
    stack, keys, tmp_path
) -> None:
    def stored(keras_: Any, optimizer: Any) -> dict[str, str]:
        """Where each of the optimizer's numbered keys comes from."""
        model = stack(keras_, ["a"])
        if hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(model.trainable_variables)
        else:
            optimizer.build(model.trainable_variables)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        listed = keys(checkpoint.write(str(tmp_path / "ckpt")))
        if not isinstance(optimizer, tf_keras.optimizers.legacy.Optimizer):
            names = [variable.name for variable in optimizer.variables]
            return {
                key: names[int(key.split("/")[-1])]
                for key in listed
                if key.startswith("optimizer/_variables/")
            }
        return dict.fromkeys(listed, "")

    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    adam = stored(keras, keras.optimizers.Adam())
    assert adam["optimizer/_variables/2"] == "a_kernel_momentum"
    assert adam["optimizer/_variables/3"] == "a_kernel_velocity"
    scheduled = stored(keras, keras.optimizers.Adam(rate))
    assert scheduled["optimizer/_variables/2"] == "a_kernel_velocity"
    accumulating = stored(keras, keras.optimizers.Adam(gradient_accumulation_steps=2))
    assert accumulating["optimizer/_variables/2"] == "a_kernel_gradient_accumulator"
    older = stored(tf_keras, tf_keras.optimizers.Adam())
    assert older["optimizer/_variables/2"].endswith("v/a/kernel:0")
    oldest = stored(tf_keras, tf_keras.optimizers.legacy.Adam())
    assert "model/layer_with_weights-0/kernel/.OPTIMIZER_SLOT/optimizer/m" in oldest
    assert {"optimizer/iter", "optimizer/beta_1", "optimizer/decay"} <= set(oldest)


def test_f2_tfckpt_names_a_slot_by_its_variable(flavour, stack) -> None:
    model = stack(flavour, ["a"])
    optimizer = flavour.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    names = set(tfckpt.inventory(model=model, optimizer=optimizer).entries)
    assert {name for name in names if name.startswith("optimizer/")} == ADAM


def test_f2_tfckpt_restores_slots_across_a_change_of_schedule(
    stack, fill, values, tmp_path
) -> None:
    source, target = stack(keras, ["a"]), stack(keras, ["a"])
    constant = keras.optimizers.Adam(0.01)
    constant.build(source.trainable_variables)
    fill(1, source, constant)
    saved = tf.train.Checkpoint(model=source, optimizer=constant).save(str(tmp_path / "ckpt"))
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    scheduled = keras.optimizers.Adam(rate)
    scheduled.build(target.trainable_variables)
    tfckpt.Checkpoint(model=target, optimizer=scheduled).restore(saved).expect_partial()
    wanted = {variable.name: variable.numpy() for variable in constant.variables}
    for variable in scheduled.variables:
        np.testing.assert_array_equal(variable.numpy(), wanted[variable.name], variable.name)


class Lazy(keras.Model):
    """Its layers get their variables at the first call."""

    def __init__(self) -> None:
        super().__init__(name="s")
        self.first = keras.layers.Dense(3)
        self.second = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def test_f3_plain_tensorflow_has_one_full_name_for_two_variables(tmp_path) -> None:
    model = Lazy()
    model(np.ones((1, 3)))
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    assert full_names(prefix).count("s/kernel") == 2
    assert len({variable.path for variable in model.variables}) == 4


def test_f3_tfckpt_has_a_name_for_each_variable(weights, fill, values, tmp_path) -> None:
    model = Lazy()
    model(np.ones((1, 3)))
    wanted = {"model/first/kernel", "model/first/bias", "model/second/kernel", "model/second/bias"}
    assert weights(tfckpt.inventory(model=model)) == wanted
    fill(1, model)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    again = Lazy()
    again(np.ones((1, 3)))
    status = tfckpt.Checkpoint(model=again).read(prefix).assert_consumed()
    assert {step.source for step in status.report.plan.steps} == wanted
    np.testing.assert_equal(values(again), values(model))


def test_f4_plain_tensorflow_numbers_models_and_layers_by_process(stack) -> None:
    first, second = (
        [variable.path for variable in stack(keras, [None, None], "sequential").variables]
        for _ in range(2)
    )
    assert not set(first) & set(second)


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_f4_tfckpt_names_do_not_depend_on_what_was_built_before(
    flavour, stack, weights, kind
) -> None:
    wanted = {f"model/{name}/{of}" for name in ("dense", "dense_1") for of in ("kernel", "bias")}
    for _ in range(10):
        model = stack(flavour, [None, None], kind)
        assert weights(tfckpt.inventory(model=model)) == wanted


def test_f4_tfckpt_names_do_not_depend_on_layers_without_weights(flavour, weights) -> None:
    layers = flavour.layers
    dense, dropout = (lambda: layers.Dense(3)), (lambda: layers.Dropout(0.5))
    plain = flavour.Sequential([flavour.Input((3,)), dense(), dense()])
    dropped = flavour.Sequential([flavour.Input((3,)), dense(), dropout(), dense(), dropout()])
    assert weights(tfckpt.inventory(model=dropped)) == weights(tfckpt.inventory(model=plain))


def zoo(flavour: Any) -> Any:
    """Every layer whose attributes changed their names between the flavours."""
    layers = flavour.layers
    words = flavour.Input((4,), dtype="int32")
    pixels = flavour.Input((4, 4, 2))
    outputs = layers.Embedding(5, 4, name="embed")(words)
    outputs = layers.MultiHeadAttention(2, 3, name="attend")(outputs, outputs)
    outputs = layers.EinsumDense("abc,cd->abd", (None, 4), name="einsum")(outputs)
    outputs = layers.Dense(3, name="dense")(outputs)
    image = layers.Conv2D(2, 2, name="conv")(pixels)
    image = layers.DepthwiseConv2D(2, name="depthwise")(image)
    return flavour.Model([words, pixels], [outputs, image])


def test_f5_plain_tensorflow_keys_follow_private_attributes(keys, tmp_path) -> None:
    def attributes(flavour: Any) -> set[str]:
        prefix = tf.train.Checkpoint(model=zoo(flavour)).write(str(tmp_path / "ckpt"))
        return {key.split("/")[-1] for key in keys(prefix) if key != "save_counter"}

    assert attributes(tf_keras) == {"kernel", "bias", "embeddings", "depthwise_kernel"}
    assert attributes(keras) == {"_kernel", "kernel", "bias", "_embeddings"}


def test_f5_tfckpt_names_are_the_same_in_both_flavours(weights) -> None:
    names = weights(tfckpt.inventory(model=zoo(keras)))
    assert names == weights(tfckpt.inventory(model=zoo(tf_keras)))
    assert {"model/dense/kernel", "model/conv/kernel", "model/embed/embeddings"} <= names
