"""A loss-scale optimizer is transparent: a run in float32 goes on in mixed precision, and back.

tf_keras's TensorFlow checkpoints are so; Keras 3's are not, and its judge is the optimizer inside.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint


def adam(k: Any) -> Any:
    return k.optimizers.Adam(0.003)


def legacy_adam(k: Any) -> Any:
    return k.optimizers.legacy.Adam(0.003)


def dynamic(k: Any, optimizer: Any) -> Any:
    module = k.mixed_precision if k is tf_keras else k.optimizers
    return module.LossScaleOptimizer(optimizer, initial_scale=64)


def static(k: Any, optimizer: Any) -> Any:
    return k.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=64)


CASES = [
    pytest.param(keras, adam, dynamic, id="keras"),
    pytest.param(tf_keras, adam, dynamic, id="tf_keras"),
    pytest.param(tf_keras, adam, static, id="tf_keras-static"),
    pytest.param(tf_keras, legacy_adam, dynamic, id="legacy"),
    pytest.param(tf_keras, legacy_adam, static, id="legacy-static"),
]
SCALE = {"optimizer/loss_scale/dynamic_scale", "optimizer/loss_scale/step_counter"}
OUTER = {"optimizer/loss_scale/iterations", "optimizer/loss_scale/learning_rate"}  # Keras 3's
every_case = pytest.mark.parametrize(("k", "make", "scale"), CASES)
either_writer = pytest.mark.parametrize("writer", [tf.train.Checkpoint, tfckpt.Checkpoint])


def net(k: Any, optimizer: Any, dtype: str = "float32") -> Any:
    layers = [k.layers.Dense(4, dtype=dtype), k.layers.Dense(2, name="head", dtype=dtype)]
    model = k.Sequential([k.Input((3,)), *layers])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def trained(model: Any) -> Any:
    model.fit(np.ones((4, 3)), np.ones((4, 2)), batch_size=2, verbose=0)
    return model


def plain_run(k: Any, make: Any) -> Any:
    return net(k, make(k))


def mixed_run(k: Any, make: Any, scale: Any) -> Any:
    return net(k, scale(k, make(k)), "mixed_float16")


def state(optimizer: Any) -> list[np.ndarray]:
    """What an optimizer says it consists of; of a loss-scale one, what the one inside says."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    own = optimizer.variables
    values = [inner(variable).numpy() for variable in (own() if callable(own) else own)]
    return [*values, np.asarray(optimizer.learning_rate), np.asarray(optimizer.iterations)]


def scales(model: Any) -> set[str]:
    names = collect({"model": model}).variables
    return {name for name in names if name.startswith("optimizer/loss_scale")}


@every_case
def test_the_names_are_those_of_the_optimizer_inside(k, make, scale) -> None:
    plain = collect({"model": compiled(plain_run(k, make), make(k))})
    mixed = collect({"model": compiled(mixed_run(k, make, scale), scale(k, make(k)))})
    own = (SCALE if scale is dynamic else set()) | (OUTER if k is keras else set())
    assert set(mixed.variables) - set(plain.variables) == own
    assert set(plain.variables) <= set(mixed.variables)
    assert mixed.inventory.optimizers == plain.inventory.optimizers == {"optimizer": "adam"}


@every_case
def test_what_builds_the_optimizer_is_the_outer_one(k, make, scale) -> None:
    model = mixed_run(k, make, scale)
    assert collect({"model": model}).optimizers == {"optimizer": model.optimizer}


@pytest.mark.parametrize("order", [("outer", "within"), ("within", "outer")])
@every_case
def test_the_optimizer_inside_may_be_given_too(k, make, scale, order) -> None:
    model = compiled(mixed_run(k, make, scale), scale(k, make(k)))
    both = {"outer": model.optimizer, "within": model.optimizer.inner_optimizer}
    live = collect({"model": model} | {keyword: both[keyword] for keyword in order})
    assert {name for name in live.variables if "/momentum/head/" in name} == {
        "outer/momentum/head/kernel",
        "outer/momentum/head/bias",
    }
    assert live.inventory.find("within/momentum/head/kernel") is not None


@every_case
@either_writer
def test_a_file_has_the_same_names(k, make, scale, writer, tmp_path) -> None:
    model = trained(mixed_run(k, make, scale))
    live = collect({"model": model})
    distinguish(live.variables.values())
    for keywords in ({"model": model}, {"model": model, "optimizer": model.optimizer}):
        path = writer(**keywords).write(str(tmp_path / "ckpt"))
        with open_checkpoint(path, roots=live.roots) as stored:
            found = stored.inventory.entries
            assert {name for name in live.variables if name.startswith("optimizer/")} == {
                name for name in found if name.startswith("optimizer/")
            }
            for name, entry in found.items():
                expected = inner(live.variables[name]).numpy()
                np.testing.assert_array_equal(stored.values.read(entry.key), expected, name)
                assert entry.role == live.inventory.entries[name].role


@either_writer
def test_one_that_was_never_used_is_told_from_the_one_inside(writer, tmp_path) -> None:
    solver = dynamic(keras, adam(keras))
    path = writer(optimizer=solver).write(str(tmp_path / "ckpt"))
    other = dynamic(keras, keras.optimizers.Adam(0.5))
    tfckpt.Checkpoint(optimizer=other).read(path).assert_consumed()
    assert float(other.learning_rate.numpy()) == pytest.approx(0.003)


@every_case
@either_writer
def test_a_float32_run_goes_on_in_mixed_precision(k, make, scale, writer, tmp_path) -> None:
    plain, mixed = trained(plain_run(k, make)), mixed_run(k, make, scale)
    mixed.optimizer.learning_rate = 0.5
    path = writer(model=plain).save(str(tmp_path / "ckpt"))
    status = tfckpt.Checkpoint(model=mixed).restore(path).expect_partial()
    for ours, theirs in zip(state(mixed.optimizer), state(plain.optimizer), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    missing = {step.name for step in status.report.plan.steps if str(step.status) == "MISSING"}
    assert scales(mixed) <= missing
    assert all(name.startswith(("optimizer/loss_scale/", "metrics/")) for name in missing)


@every_case
@either_writer
def test_a_mixed_precision_run_goes_on_in_float32(k, make, scale, writer, tmp_path) -> None:
    mixed, plain = trained(mixed_run(k, make, scale)), plain_run(k, make)
    plain.optimizer.learning_rate = 0.5
    path = writer(model=mixed).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=plain).restore(path).expect_partial()
    for ours, theirs in zip(state(plain.optimizer), state(mixed.optimizer), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_case
@either_writer
def test_a_mixed_precision_run_resumes_whole(k, make, scale, writer, tmp_path) -> None:
    first, second = trained(mixed_run(k, make, scale)), trained(mixed_run(k, make, scale))
    wanted = collect({"model": first}).variables
    distinguish(value for name, value in wanted.items() if name.startswith("optimizer/"))
    path = writer(model=first).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=second).restore(path).assert_consumed()
    for name, value in collect({"model": second}).variables.items():
        if not name.startswith("metrics/"):
            np.testing.assert_array_equal(inner(value), inner(wanted[name]), name)


@pytest.mark.parametrize(("k", "make", "scale"), CASES[1:])
def test_tf_keras_itself_restores_the_same(k, make, scale, tmp_path) -> None:
    """The claim above, on plain TensorFlow: it is why the names are so."""
    plain, mixed = trained(plain_run(k, make)), trained(mixed_run(k, make, scale))
    path = tf.train.Checkpoint(model=plain).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(model=mixed).restore(path).expect_partial()
    for ours, theirs in zip(state(mixed.optimizer), state(plain.optimizer), strict=True):
        np.testing.assert_array_equal(ours, theirs)
