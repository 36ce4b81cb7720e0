"""A model that is compiled after its restore: its optimizer goes on from the checkpoint."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(8, 3)
WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


@pytest.fixture
def build(flavour) -> Any:
    def built(optimizer: Any = None) -> Any:
        layers = [flavour.layers.Dense(3, name=name) for name in "ab"]
        model = flavour.Sequential([flavour.Input((3,)), *layers])
        return compiled(model, optimizer) if optimizer is not None else model

    return built


def compiled(model: Any, optimizer: Any = "adam") -> Any:
    model.compile(optimizer, "mse")
    return model


def train(model: Any, epochs: int = 1) -> Any:
    model.fit(X, X, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model


def warnings(caplog: Any) -> list[str]:
    found = [r for r in caplog.records if r.name == "absl" and r.levelno >= logging.WARNING]
    caplog.clear()
    return [record.getMessage() for record in found]


def iterations(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


@WRITERS
@pytest.mark.parametrize("optimizer", ["adam", "another"])
def test_training_goes_on_as_if_it_had_been_compiled_before(
    writer, optimizer, flavour, build, tmp_path, caplog
) -> None:
    def made() -> Any:
        if optimizer == "adam":
            return flavour.optimizers.Adam(0.01)
        if flavour is keras:
            return flavour.optimizers.SGD(0.01, momentum=0.9)
        return flavour.optimizers.legacy.Adam(0.01)

    saved = train(build(made()))
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    model = build()
    status = tfckpt.Checkpoint(model=model).restore(path)
    compiled(model, made())
    assert iterations(model) == 2
    status.assert_consumed()
    assert warnings(caplog) == []
    train(saved), train(model)
    for old, new in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_second_compile_begins_anew(build, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=train(build("adam"))).save(tmp_path / "ckpt")
    model = build()
    tfckpt.Checkpoint(model=model).restore(path)
    assert iterations(compiled(model)) == 2
    assert iterations(compiled(model)) == 0


def test_an_optimizer_of_another_class_begins_anew_and_that_is_said(
    build, tmp_path, caplog
) -> None:
    path = tfckpt.Checkpoint(model=train(build("adam"))).save(tmp_path / "ckpt")
    model = build()
    tfckpt.Checkpoint(model=model).restore(path)
    compiled(model, "adagrad")
    (text,) = warnings(caplog)
    assert text == (
        "optimizer was not restored and starts from scratch: 'optimizer' is 'adagrad' in the model "
        "and 'adam' in the checkpoint. To restore all of it, compile the model before the restore, "
        "as it was when saved"
    )
    assert iterations(model) == 0


def test_a_learning_rate_that_is_replaced_then_is_said(flavour, build, tmp_path, caplog) -> None:
    saved = train(build(flavour.optimizers.Adam(0.01)))
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt")
    model = build()
    tfckpt.Checkpoint(model=model).restore(path)
    compiled(model, flavour.optimizers.Adam(0.5))
    (text,) = warnings(caplog)
    assert text.startswith(f"{path}: optimizer/learning_rate was 0.5 and is 0.01")


def test_a_restore_that_was_taken_back_restores_nothing_later(build, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=train(build("adam"))).save(tmp_path / "ckpt")
    model = build()
    before = model.get_weights()
    status = tfckpt.Checkpoint(model=model).restore(path)
    with pytest.raises(tfckpt.StatusAssertionError, match="optimizer/iterations"):
        status.assert_consumed()
    assert iterations(compiled(model)) == 0
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_what_came_later_is_put_back_with_the_rest(build, tmp_path) -> None:
    saved = tfckpt.Checkpoint(model=train(build("adam")), more=tf.Variable(1.0))
    path = saved.save(tmp_path / "ckpt")
    model = build()
    status = tfckpt.Checkpoint(model=model).restore(path)
    assert iterations(compiled(model)) == 2
    with pytest.raises(tfckpt.StatusAssertionError, match="more"):
        status.assert_consumed()
    assert iterations(model) == 0


def test_the_last_restore_decides(build, tmp_path) -> None:
    trained = tfckpt.Checkpoint(model=train(build("adam"))).save(tmp_path / "trained")
    weights = tfckpt.Checkpoint(model=build()).save(tmp_path / "weights")
    model = build()
    tfckpt.Checkpoint(model=model).restore(trained)
    tfckpt.Checkpoint(model=model).restore(weights)
    assert iterations(compiled(model)) == 0
    longer = tfckpt.Checkpoint(model=train(build("adam"), 3)).save(tmp_path / "longer")
    model = build()
    tfckpt.Checkpoint(model=model).restore(trained)
    tf.train.Checkpoint(model=model).restore(longer).expect_partial()
    assert iterations(compiled(model)) == 6


def test_a_checkpoint_that_was_overwritten_or_deleted_since_is_not_read(
    build, tmp_path, caplog
) -> None:
    prefix = str(tmp_path / "ckpt")
    for change in ("overwritten since", "no checkpoint"):
        path = tfckpt.Checkpoint(model=train(build("adam"))).write(prefix)
        model = build()
        tfckpt.Checkpoint(model=model).read(path)
        if change == "no checkpoint":
            for file in tmp_path.iterdir():
                file.unlink()
        else:
            tfckpt.Checkpoint(model=train(build("adam"), 2)).write(prefix)
        assert iterations(compiled(model)) == 0
        (text,) = warnings(caplog)
        assert text.startswith("optimizer was not restored and starts from scratch: ")
        assert prefix in text


def test_each_of_two_models_gets_its_own(build, tmp_path) -> None:
    two = {"one": train(build("adam")), "two": train(build("adam"), 2)}
    path = tfckpt.Checkpoint(**two).save(tmp_path / "ckpt")
    one, two = build(), build()
    tfckpt.Checkpoint(one=one, two=two).restore(path)
    assert (iterations(compiled(two)), iterations(compiled(one))) == (4, 2)


def test_a_loss_scale_that_keras_adds_then_is_said_to_begin_anew(tmp_path, caplog) -> None:
    def model() -> Any:
        layers = [keras.layers.Dense(3, name=name, dtype="mixed_float16") for name in "ab"]
        built = keras.Sequential([keras.Input((3,)), *layers])
        built.dtype_policy = keras.DTypePolicy("mixed_float16")
        return built

    saved = train(compiled(model(), keras.optimizers.Adam(0.01)), 3)
    assert isinstance(saved.optimizer, keras.optimizers.LossScaleOptimizer)
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt")
    later = model()
    tfckpt.Checkpoint(model=later).restore(path)
    compiled(later, keras.optimizers.Adam(0.01))
    # Keras passes over a step whose gradient overflows, so not each of the six counts.
    assert iterations(later) == iterations(saved) > 0
    (text,) = warnings(caplog)
    assert text == (
        "optimizer: 4 values were not restored: optimizer/loss_scale/dynamic_scale, "
        "optimizer/loss_scale/iterations, optimizer/loss_scale/learning_rate, "
        "optimizer/loss_scale/step_counter. To restore all of it, compile the model before the "
        "restore, as it was when saved"
    )
    inner = saved.optimizer.inner_optimizer, later.optimizer.inner_optimizer
    for old, new in zip(*(each.variables for each in inner), strict=True):
        np.testing.assert_array_equal(old, new)


def test_an_attribute_of_ones_own_is_waited_for_as_well(flavour, tmp_path) -> None:
    class Gan(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = flavour.layers.Dense(3, name="dense")
            self(tf.ones((1, 3)))

        def call(self, data: Any) -> Any:
            return self.dense(data)

        def prepare(self) -> Any:
            self.dense_optimizer = flavour.optimizers.SGD(0.1, momentum=0.9)
            return self

    saved = Gan().prepare()
    gradients = [(tf.ones(v.shape), v) for v in saved.trainable_variables]
    saved.dense_optimizer.apply_gradients(gradients)
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt")
    model = Gan()
    status = tfckpt.Checkpoint(model=model).restore(path)
    model.prepare()
    assert int(model.dense_optimizer.iterations.numpy()) == 1
    status.assert_consumed()


@WRITERS
def test_an_optimizer_of_a_loop_of_ones_own_is_not_put_into_that_of_fit(
    writer, flavour, build, tmp_path, caplog
) -> None:
    """As in TensorFlow: only a compiled model leads to its optimizer."""
    model, optimizer = build(), flavour.optimizers.Adam(0.01)
    for _ in range(3):
        optimizer.apply_gradients([(tf.ones(v.shape), v) for v in model.trainable_variables])
    path = writer.Checkpoint(model=model, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    after = []
    for reader in (tf.train, tfckpt):
        model = build()
        reader.Checkpoint(model=model).restore(path).expect_partial()
        train(compiled(model, flavour.optimizers.Adam(1e-5)))
        assert iterations(model) == 2
        assert float(model.optimizer.learning_rate) == pytest.approx(1e-5)
        after.append(model.get_weights())
    assert warnings(caplog) == []
    for one, other in zip(*after, strict=True):
        np.testing.assert_array_equal(one, other)


@WRITERS
@pytest.mark.parametrize("keyword", ["model", "net", ""])
def test_that_of_a_compiled_model_is_whatever_else_it_was_given_as(
    writer, keyword, build, tmp_path
) -> None:
    saved = train(build("adam"))
    given = {keyword or "root": saved}
    path = writer.Checkpoint(**given, optimizer=saved.optimizer).save(str(tmp_path / "ckpt"))
    model = build()
    tfckpt.Checkpoint(model=model).restore(path).expect_partial()
    assert iterations(compiled(model)) == 2


@WRITERS
def test_that_of_another_keyword_is_not_put_into_the_compiled_one(
    writer, flavour, build, tmp_path, caplog
) -> None:
    saved, other = train(build("adam")), flavour.optimizers.Adam(0.01)
    for _ in range(5):
        other.apply_gradients([(tf.ones(v.shape), v) for v in saved.trainable_variables])
    path = writer.Checkpoint(model=saved, optimizer=other).save(str(tmp_path / "ckpt"))
    model = build()
    tfckpt.Checkpoint(model=model).restore(path).expect_partial()
    caplog.clear()
    assert iterations(compiled(model, flavour.optimizers.Adam(0.01))) == 0
    (text,) = warnings(caplog)
    assert text.startswith("model/optimizer was not restored and starts from scratch: ")
