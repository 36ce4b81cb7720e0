"""F6 to F8: weights of a model that end up elsewhere, or nowhere, without a word.

TensorFlow matches functional and sequential models by position, does not see what a Keras 3 object
holds in a list or a dict, and restores a model that is not built yet halfway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = pytest.mark.parametrize("kind", ["functional", "sequential"])


def same(left: Any, right: Any) -> bool:
    return np.array_equal(left.kernel.numpy(), right.kernel.numpy())


@KINDS
def test_f6_plain_tensorflow_gives_a_layer_its_neighbours_weights(
    flavour, stack, fill, kind, tmp_path
) -> None:
    source = stack(flavour, ["a", "b", "c"], kind)
    shorter = stack(flavour, ["a", "c"], kind)
    longer = stack(flavour, ["a", "new", "b", "c"], kind)
    for seed, model in enumerate([source, shorter, longer]):
        fill(seed, model)
    prefix = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))

    status = tf.train.Checkpoint(model=shorter).restore(prefix)
    status.expect_partial().assert_existing_objects_matched()
    assert same(shorter.get_layer("c"), source.get_layer("b"))
    tf.train.Checkpoint(model=longer).restore(prefix).expect_partial().assert_nontrivial_match()
    assert same(longer.get_layer("new"), source.get_layer("b"))


def test_f6_plain_keras_does_the_same_with_its_weights_files(flavour, stack, fill, tmp_path):
    source, shorter = stack(flavour, ["a", "b", "c"]), stack(flavour, ["a", "c"])
    fill(1, source)
    source.save_weights(tmp_path / "all.weights.h5")
    shorter.load_weights(tmp_path / "all.weights.h5")
    assert same(shorter.get_layer("c"), source.get_layer("b"))


@KINDS
@pytest.mark.parametrize("names", [["a", "c"], ["a", "new", "b", "c"]], ids=["shorter", "longer"])
def test_f6_tfckpt_gives_a_named_layer_its_own_weights(
    flavour, stack, fill, kind, names, tmp_path
) -> None:
    source, target = stack(flavour, ["a", "b", "c"], kind), stack(flavour, names, kind)
    fill(1, source)
    fill(2, target)
    prefix = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    untaught = [layer.kernel.numpy() for layer in target.layers if layer.name == "new"]

    tfckpt.Checkpoint(model=target).restore(prefix).expect_partial()
    for name in set(names) - {"new"}:
        assert same(target.get_layer(name), source.get_layer(name)), name
    if untaught:
        np.testing.assert_array_equal(target.get_layer("new").kernel.numpy(), untaught[0])


@KINDS
@pytest.mark.parametrize("layers", [2, 4])
def test_f6_tfckpt_refuses_to_guess_which_numbered_layer_is_which(
    flavour, stack, fill, untouched, kind, layers, tmp_path
) -> None:
    source, target = (stack(flavour, [None] * count, kind) for count in (3, layers))
    fill(1, source)
    prefix = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    with untouched(target), pytest.raises(tfckpt.RefusedError) as refusal:
        tfckpt.Checkpoint(model=target).restore(prefix)
    steps = refusal.value.plan.steps
    statuses = {step.status.name for step in steps if step.name.startswith("model/")}
    assert "SUSPECT" in statuses
    assert "LOADED" not in statuses


class Held(keras.Model):
    """Layers in a list and in a dict, and one in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [keras.layers.Dense(3) for _ in range(3)]
        self.heads = {"x": keras.layers.Dense(3), "y": keras.layers.Dense(3)}
        self.out = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.out(self.heads["x"](x) + self.heads["y"](x))


class Weights(keras.layers.Layer):
    """A list of weights."""

    def build(self, shape: Any) -> None:
        self.parts = [self.add_weight(shape=(3,), name=f"part_{i}") for i in range(2)]

    def call(self, x: Any) -> Any:
        return x * self.parts[0] + self.parts[1]


def held() -> Any:
    model = Held()
    model(np.ones((1, 3)))
    return model


def cells() -> Any:
    stacked = [keras.layers.LSTMCell(2), keras.layers.LSTMCell(2)]
    rnn = keras.layers.RNN(stacked, name="rnn")
    return keras.Sequential([keras.Input((2, 3)), rnn, keras.layers.Dense(1, name="out")])


def parts() -> Any:
    return keras.Sequential(
        [keras.Input((3,)), Weights(name="scale"), keras.layers.Dense(1, name="out")]
    )


def noisy() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((3,)),
            layers.Dropout(0.5, name="drop"),
            layers.GaussianNoise(0.1, name="noise"),
            layers.Dense(1, name="out"),
        ]
    )


BUILDERS = pytest.mark.parametrize("build", [held, cells, parts, noisy])


@BUILDERS
def test_f7_plain_tensorflow_saves_a_part_and_calls_it_consumed(build, keys, tmp_path) -> None:
    model = build()
    checkpoint = tf.train.Checkpoint(model=model)
    prefix = checkpoint.save(str(tmp_path / "ckpt"))
    checkpoint.restore(prefix).assert_consumed()
    assert len(model.variables) > 2
    assert len(keys(prefix) - {"save_counter"}) == 2


@BUILDERS
def test_f7_tfckpt_saves_all_of_a_model(build, fill, values, tmp_path) -> None:
    source, target = build(), build()
    fill(1, source)
    fill(2, target)
    prefix = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).restore(prefix).assert_consumed()
    np.testing.assert_equal(values(target), values(source))


@BUILDERS
def test_f7_tfckpt_writes_an_ordinary_checkpoint(build, fill, keys, tmp_path) -> None:
    source, target = build(), build()
    fill(1, source)
    plain = tf.train.Checkpoint(model=source).save(str(tmp_path / "plain"))
    prefix = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    assert keys(plain) <= keys(prefix)
    tf.train.Checkpoint(model=target).restore(prefix).assert_existing_objects_matched()
    last = [model.variables[-1].numpy() for model in (target, source)]
    np.testing.assert_array_equal(*last)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (held, {"model/blocks/0/kernel", "model/blocks/2/bias", "model/heads/x/kernel"}),
        (noisy, {"seed/drop", "seed/noise", "model/out/kernel"}),
    ],
)
def test_f7_tfckpt_names_what_it_saved(
    build: Callable[[], Any], names: set[str], tmp_path: Any
) -> None:
    checkpoint = tfckpt.Checkpoint(model=build())
    status = checkpoint.restore(checkpoint.save(str(tmp_path / "ckpt")))
    assert names <= {step.name for step in status.report.plan.steps}


def measured(flavour: Any) -> tuple[Any, list[Any]]:
    """A compiled model that has seen some data, and the variables of its metrics."""
    model = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(1, name="out")])
    model.compile("sgd", "mse", metrics=["accuracy"])
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    return model, [variable for metric in model.metrics for variable in metric.variables]


def test_f7_plain_tensorflow_forgets_metrics(flavour, keys, tmp_path) -> None:
    model, metrics = measured(flavour)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    prefix = checkpoint.save(str(tmp_path / "ckpt"))
    for variable in metrics:
        variable.assign(7.0)
    checkpoint.restore(prefix).assert_consumed()
    assert [float(variable.numpy()) for variable in metrics] == [7.0] * 4


def test_f7_tfckpt_remembers_metrics(flavour, tmp_path) -> None:
    model, metrics = measured(flavour)
    for number, variable in enumerate(metrics):
        variable.assign(number)
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
    prefix = checkpoint.save(str(tmp_path / "ckpt"))
    for variable in metrics:
        variable.assign(7.0)
    status = checkpoint.restore(prefix).assert_consumed()
    assert [float(variable.numpy()) for variable in metrics] == [0.0, 1.0, 2.0, 3.0]
    names = {step.name for step in status.report.plan.steps}
    assert {"metrics/accuracy/total", "metrics/accuracy/count"} <= names


def subclassed(flavour: Any) -> Any:
    class Subclassed(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = flavour.layers.Dense(3)
            self.second = flavour.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

    return Subclassed()


@pytest.fixture
def trained(flavour, fill, tmp_path) -> tuple[Any, Any, str]:
    """A built model, its optimizer, and the prefix of a plain checkpoint of both."""
    model, optimizer = subclassed(flavour), flavour.optimizers.Adam()
    model(np.ones((1, 3), "float32"))
    optimizer.build(model.trainable_variables)
    fill(1, model, optimizer)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    return model, optimizer, checkpoint.save(str(tmp_path / "ckpt"))


@pytest.mark.parametrize("flavour", ["keras3"], indirect=True)
def test_f8_plain_tensorflow_restores_half_of_an_unbuilt_model(flavour, trained) -> None:
    """https://github.com/tensorflow/tensorflow/issues/82209."""
    source, _, prefix = trained
    target, optimizer = subclassed(flavour), flavour.optimizers.Adam()
    status = tf.train.Checkpoint(model=target, optimizer=optimizer).restore(prefix)
    status.assert_existing_objects_matched()
    x = np.ones((1, 3), "float32")
    different = target(x)
    assert not np.allclose(different, source(x))
    assert len(target.variables) == len(source.variables) + 1


def test_f8_tfckpt_refuses_an_unbuilt_model(flavour, trained) -> None:
    *_, prefix = trained
    target = subclassed(flavour)
    with pytest.raises(tfckpt.NotBuiltError):
        tfckpt.Checkpoint(model=target).restore(prefix)
    assert target.variables == []
    target(np.ones((1, 3), "float32"))
    assert len(target.variables) == 4


def test_f8_tfckpt_restores_a_built_model_and_builds_its_optimizer(
    flavour, trained, values
) -> None:
    source, source_optimizer, prefix = trained
    target, optimizer = subclassed(flavour), flavour.optimizers.Adam()
    target(np.ones((1, 3), "float32"))
    tfckpt.Checkpoint(model=target, optimizer=optimizer).restore(prefix).assert_consumed()
    np.testing.assert_equal(values(target), values(source))
    np.testing.assert_equal(values(optimizer), values(source_optimizer))
