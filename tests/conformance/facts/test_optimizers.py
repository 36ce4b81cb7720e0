"""F9 and F11: optimizer state that goes to another variable, or takes the model with it.

TensorFlow restores an optimizer by position in one list of slots. A slot belongs to a variable, and
is matched by the two.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfckpt


def square(flavour: Any, frozen: tuple[str, ...] = ()) -> Any:
    """Two layers without biases: all variables, and so all slots, of one shape."""
    inputs = outputs = flavour.Input((3,))
    for name in ("a", "b"):
        outputs = flavour.layers.Dense(3, use_bias=False, name=name)(outputs)
    model = flavour.Model(inputs, outputs)
    for name in frozen:  # Keras 3.1 trains a layer that was made with `trainable=False`
        model.get_layer(name).trainable = False
    return model


def built(optimizer: Any, model: Any) -> Any:
    optimizer.build(model.trainable_variables)
    return optimizer


def slots(flavour: Any, optimizer: Any, model: Any) -> dict[tuple[str, str], np.ndarray]:
    """(slot, layer) → value, by the names that each flavour gives the variables of Adam."""
    found = {}
    for variable in optimizer.variables:
        for slot, short in (("momentum", "m"), ("velocity", "v")):
            for layer in model.layers:
                old = f"{short}/{layer.name}/kernel:0"
                if variable.name == f"{layer.name}_kernel_{slot}" or variable.name.endswith(old):
                    found[slot, layer.name] = variable.numpy()
    assert len(found) == 2 * len(model.trainable_variables), flavour
    return found


@pytest.fixture
def older(fill, tmp_path) -> tuple[Any, Any, str]:
    """A model of tf_keras, its Adam with momentum below zero, and a plain checkpoint of both."""
    model = square(tf_keras)
    adam = built(tf_keras.optimizers.Adam(), model)
    fill(1, model, adam)
    for variable in adam.variables:
        if "m/" in variable.name:
            variable.assign(-variable)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=adam)
    return model, adam, checkpoint.write(str(tmp_path / "tf_keras"))


def test_f9_plain_tensorflow_takes_velocity_for_momentum(older, fill) -> None:
    source, old, prefix = older
    target = square(keras)
    adam = built(keras.optimizers.Adam(), target)
    fill(2, target, adam)
    tf.train.Checkpoint(model=target, optimizer=adam).read(prefix).expect_partial()
    wrong, right = slots(keras, adam, target), slots(tf_keras, old, source)
    np.testing.assert_array_equal(wrong["momentum", "a"], right["velocity", "a"])
    np.testing.assert_array_equal(wrong["velocity", "a"], right["momentum", "b"])
    adam.apply([keras.ops.zeros_like(variable) for variable in target.trainable_variables])
    assert np.isnan(target.get_layer("a").kernel.numpy()).all()


def test_f9_tfckpt_keeps_momentum_apart_from_velocity(
    older, fill, values, right_or_refused
) -> None:
    source, old, prefix = older
    target = square(keras)
    adam = built(keras.optimizers.Adam(), target)
    fill(2, target, adam)

    def restore() -> None:
        tfckpt.Checkpoint(model=target, optimizer=adam).read(prefix).expect_partial()

    # Both flavours order m0, v0, m1, v1; the learning rate is a variable of its own in tf_keras.
    iterations, *moments = values(old)
    rate = old.learning_rate.numpy()
    right_or_refused(restore, [target, adam], [*values(source), iterations, rate, *moments])


@pytest.fixture
def adam_of_two(flavour, fill, tmp_path) -> tuple[Any, Any, str]:
    model = square(flavour)
    adam = built(flavour.optimizers.Adam(), model)
    fill(1, model, adam)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=adam)
    return model, adam, checkpoint.save(str(tmp_path / "ckpt"))


def test_f9_plain_tensorflow_shifts_slots_past_a_frozen_layer(flavour, adam_of_two, fill) -> None:
    source, adam, prefix = adam_of_two
    target = square(flavour, frozen=("a",))
    fewer = built(flavour.optimizers.Adam(), target)
    fill(2, target, fewer)
    status = tf.train.Checkpoint(model=target, optimizer=fewer).restore(prefix)
    status.expect_partial().assert_nontrivial_match()
    wrong, right = slots(flavour, fewer, target), slots(flavour, adam, source)
    np.testing.assert_array_equal(wrong["momentum", "b"], right["momentum", "a"])


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_f9_plain_tensorflow_shifts_weights_past_a_frozen_layer(flavour, adam_of_two, fill) -> None:
    source, _, prefix = adam_of_two
    target = square(flavour, frozen=("a",))
    fill(2, target)
    fewer = built(flavour.optimizers.Adam(), target)
    tf.train.Checkpoint(model=target, optimizer=fewer).restore(prefix).expect_partial()
    a, b = (target.get_layer(name).kernel.numpy() for name in "ab")
    np.testing.assert_array_equal(b, source.get_layer("a").kernel.numpy())
    assert not np.array_equal(a, source.get_layer("a").kernel.numpy())


def test_f9_tfckpt_restores_past_a_frozen_layer(flavour, adam_of_two, fill) -> None:
    source, adam, prefix = adam_of_two
    target = square(flavour, frozen=("a",))
    fewer = built(flavour.optimizers.Adam(), target)
    fill(2, target, fewer)
    tfckpt.Checkpoint(model=target, optimizer=fewer).restore(prefix).expect_partial()
    for name in "ab":
        np.testing.assert_array_equal(
            target.get_layer(name).kernel.numpy(), source.get_layer(name).kernel.numpy()
        )
    wanted = slots(flavour, adam, source)
    np.testing.assert_equal(
        slots(flavour, fewer, target), {key: wanted[key] for key in wanted if key[1] == "b"}
    )


def sgd(flavour: Any, model: Any) -> Any:
    return built(flavour.optimizers.SGD(momentum=0.9), model)


def test_f9_plain_tensorflow_gives_sgd_the_state_of_adam(flavour, adam_of_two, values) -> None:
    source, adam, prefix = adam_of_two
    target = square(flavour)
    optimizer = sgd(flavour, target)
    status = tf.train.Checkpoint(model=target, optimizer=optimizer).restore(prefix)
    status.expect_partial().assert_existing_objects_matched()
    velocity = slots(flavour, adam, source)["velocity", "a"]
    assert any(np.array_equal(value, velocity) for value in values(optimizer))


def test_f9_tfckpt_refuses_to_give_sgd_the_state_of_adam(
    flavour, adam_of_two, untouched, fill
) -> None:
    *_, prefix = adam_of_two
    target = square(flavour)
    optimizer = sgd(flavour, target)
    fill(2, target, optimizer)
    with untouched(target, optimizer), pytest.raises(tfckpt.RefusedError):
        tfckpt.Checkpoint(model=target, optimizer=optimizer).restore(prefix)


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_f11_plain_tensorflow_restores_the_model_with_its_optimizer(
    flavour, adam_of_two, values
) -> None:
    source, _, prefix = adam_of_two
    target = square(flavour)
    adam = built(flavour.optimizers.Adam(), target)
    tf.train.Checkpoint(optimizer=adam).restore(prefix).expect_partial()
    np.testing.assert_equal(values(target), values(source))


def test_f11_tfckpt_restores_the_optimizer_alone(flavour, adam_of_two, untouched, fill) -> None:
    _, source, prefix = adam_of_two
    target = square(flavour)
    adam = built(flavour.optimizers.Adam(), target)
    fill(2, target, adam)
    with untouched(target):
        tfckpt.Checkpoint(optimizer=adam).restore(prefix).expect_partial()
    assert int(adam.iterations.numpy()) == int(source.iterations.numpy())


def saved_at(rate: float, flavour: Any, directory: Any) -> str:
    model = square(flavour)
    adam = built(flavour.optimizers.Adam(rate), model)
    return tf.train.Checkpoint(model=model, optimizer=adam).save(str(directory / "rate"))


def test_f11_plain_tensorflow_overwrites_the_learning_rate(flavour, tmp_path) -> None:
    """https://github.com/tensorflow/tensorflow/issues/33842."""
    prefix = saved_at(0.25, flavour, tmp_path)
    model = square(flavour)
    adam = built(flavour.optimizers.Adam(0.5), model)
    tf.train.Checkpoint(model=model, optimizer=adam).restore(prefix).assert_consumed()
    assert float(adam.learning_rate.numpy()) == 0.25


def test_f11_tfckpt_keeps_the_configured_learning_rate_if_asked(flavour, config, tmp_path) -> None:
    prefix = saved_at(0.25, flavour, tmp_path)
    model = square(flavour)
    adam = built(flavour.optimizers.Adam(0.5), model)
    policy = config(prefix, optimizer={"hyperparameters": "config"})
    tfckpt.restore(policy, model=model, optimizer=adam)
    assert float(adam.learning_rate.numpy()) == 0.5
    tfckpt.Checkpoint(model=model, optimizer=adam).restore(prefix).assert_consumed()
    assert float(adam.learning_rate.numpy()) == 0.25
