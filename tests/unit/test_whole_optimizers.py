"""An optimizer is restored as a whole, or it begins anew; averages follow the restored weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt

INPUTS, TARGETS = np.ones((8, 3), "float32"), np.zeros((8, 2), "float32")
ANEW: dict[str, Any] = {"optimizer": "reset"}


def build(flavour: Any, *, width: int = 2, steps: int = 0, **options: Any) -> Any:
    """A compiled model after some steps; before the first one its optimizer has no slots."""
    layers = [flavour.Input((3,)), flavour.layers.Dense(width, name="a")]
    model = flavour.Sequential(layers)
    model.compile(flavour.optimizers.Adam(0.1, **options), "mse")
    if steps:
        model.fit(INPUTS, TARGETS, batch_size=8 // steps, verbose=0)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.trainable_variables]


def at_the_end(model: Any) -> list[np.ndarray]:
    """The weights that the end of a `fit` without a step leaves."""
    model.optimizer.build(model.trainable_variables)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return weights(model)


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


# --- averages


@pytest.mark.parametrize("steps", [0, 4], ids=["built now", "trained before"])
@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
@pytest.mark.parametrize(
    "policy",
    [{}, {"optimizer": {"slots": "reset"}}, ANEW, {"include": ["model/**"]}],
    ids=["all", "slots reset", "reset", "weights"],
)
def test_averages_that_the_checkpoint_lacks_begin_at_the_restored_weights(
    flavour, tmp_path, writer, policy, steps
) -> None:
    old = build(flavour, steps=4)
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=steps, use_ema=True)
    model.optimizer.build(model.trainable_variables)
    tfckpt.restore(path, model, policy=policy)
    assert same(weights(model), weights(old))
    assert same(at_the_end(model), weights(old))


@pytest.mark.parametrize(
    "policy",
    [{"exclude": ["optimizer/moving_average/**"]}, ANEW, {"include": ["model/**"]}],
    ids=["excluded", "reset", "weights"],
)
def test_stored_averages_that_are_left_are_not_mixed_with_others(flavour, tmp_path, policy) -> None:
    old = build(flavour, steps=4, use_ema=True)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=2, use_ema=True)
    tfckpt.restore(path, model, policy=policy)
    assert same(at_the_end(model), weights(old))


def test_stored_averages_are_restored(flavour, tmp_path) -> None:
    old = build(flavour, steps=4, use_ema=True)
    old.optimizer.learning_rate = 0.0
    old.layers[-1].kernel.assign_add(np.ones((3, 2)))  # so that they are not the weights
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, use_ema=True)
    tfckpt.restore(path, model)
    assert same(weights(model), weights(old))
    assert same(at_the_end(model), at_the_end(old))
    assert not same(weights(model), [v - 0 for v in weights(build(flavour))])


def test_the_copies_of_schedule_free_begin_at_the_restored_weights(tmp_path) -> None:
    made = getattr(keras.optimizers, "ScheduleFreeAdamW", None)
    if made is None:
        pytest.skip("this Keras has no ScheduleFreeAdamW")
    old = build(keras, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(keras)
    model.compile(made(0.1), "mse")
    model.fit(INPUTS, TARGETS, verbose=0)
    tfckpt.restore(path, model, policy=ANEW)
    copies = [variable.numpy() for variable in model.optimizer._momentums]
    assert same(copies, weights(old))


def test_weights_of_one_checkpoint_and_averages_of_another(flavour, tmp_path) -> None:
    first, second = build(flavour, steps=2), build(flavour, steps=4, use_ema=True)
    paths = [
        tfckpt.Checkpoint(model=model).save(str(tmp_path / name / "ckpt"))
        for name, model in (("first", first), ("second", second))
    ]
    parts = [
        {"path": paths[0], "policy": {"include": ["model/**"]}},
        {"path": paths[1], "policy": {"include": ["optimizer/**"], "on_unexpected": "ignore"}},
    ]
    model = build(flavour, use_ema=True)
    tfckpt.restore({"version": 1, "restore": {"all_of": parts}}, model=model)
    assert same(weights(model), weights(first))
    assert same(at_the_end(model), at_the_end(second))


# --- slots of one side


def test_slots_of_amsgrad_begin_at_zero_beside_the_restored_ones(flavour, tmp_path) -> None:
    old = build(flavour, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=2, amsgrad=True)
    report = tfckpt.restore(path, model)
    assert int(model.optimizer.iterations) == 4
    assert same(
        [v.numpy() for v in model.optimizer._momentums],
        [v.numpy() for v in old.optimizer._momentums],
    )
    assert not any(v.numpy().any() for v in model.optimizer._velocity_hats)
    assert "begins anew, since the checkpoint's optimizer has no such slot" in str(report)


def test_assertions_keep_tensorflows_meaning(flavour, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=build(flavour, steps=2)).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=2, amsgrad=True)
    status = tfckpt.Checkpoint(model=model).restore(path)
    with pytest.raises(tfckpt.StatusAssertionError, match="velocity_hat"):
        status.assert_existing_objects_matched()
    config = {"version": 1, "restore": {"path": path, "policy": {"assert": "consumed"}}}
    with pytest.raises(tfckpt.RefusedError, match="velocity_hat"):
        tfckpt.restore(config, model=model)


def test_a_subclass_takes_what_its_class_has_saved(flavour, tmp_path) -> None:
    class Own(flavour.optimizers.Adam):  # type: ignore[misc, name-defined]
        pass

    old = build(flavour, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour)
    model.compile(Own(0.1), "mse")
    tfckpt.restore(path, model)
    assert int(model.optimizer.iterations) == 4


@pytest.mark.parametrize("made", ["SGD", "RMSprop", "Nadam", "Adamax"])
def test_another_class_is_refused_whole_and_begins_anew(flavour, tmp_path, made) -> None:
    old = build(flavour, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour)
    model.compile(getattr(flavour.optimizers, made)(0.5), "mse")
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model)
    assert '"optimizer": "reset"' in str(refused.value)
    assert "optimizer/iterations" in {step.name for step in refused.value.plan.errors}
    tfckpt.restore(path, model, policy=ANEW)
    assert same(weights(model), weights(old))
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.learning_rate) == 0.5


def test_batches_that_accumulate_are_not_updates(tmp_path) -> None:
    old = build(keras, steps=4, gradient_accumulation_steps=2)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(keras)
    with pytest.raises(tfckpt.RefusedError, match="counts batches, of which several are one"):
        tfckpt.restore(path, model)
    tfckpt.restore(path, model, policy={"optimizer": {"iterations": "restore"}})
    assert int(model.optimizer.iterations) == 4
    tfckpt.restore(path, model, policy=ANEW)
    assert int(model.optimizer.iterations) == 0
    again = build(keras, gradient_accumulation_steps=2)
    tfckpt.restore(path, again)
    assert int(again.optimizer.iterations) == 2


# --- optimizers that are attributes


class _Named:
    """What `compile` of a GAN makes."""

    def compile(self, g_optimizer: Any, d_optimizer: Any) -> None:
        super().compile()  # type: ignore[misc]
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer


def gan(flavour: Any, rate: float, *, built: bool = True) -> Any:
    def init(self: Any) -> None:
        flavour.Model.__init__(self)
        self.g = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(3)])
        self.d = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(1)])

    made = type(
        "Gan",
        (_Named, flavour.Model),
        {"__init__": init, "call": lambda self, inputs: self.d(self.g(inputs))},
    )()
    made(np.zeros((1, 2), "float32"))
    made.compile(flavour.optimizers.Adam(rate), flavour.optimizers.Adam(rate))
    if built:
        made.g_optimizer.build(made.g.trainable_variables)
        made.d_optimizer.build(made.d.trainable_variables)
        for optimizer in (made.g_optimizer, made.d_optimizer):
            optimizer.iterations.assign(7)
    return made


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_the_model_means_its_weights_wherever_its_optimizers_are(
    flavour, tmp_path, writer, built
) -> None:
    old = gan(flavour, 0.1)
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = gan(flavour, 0.5, built=built)
    counts = [int(model.g_optimizer.iterations), int(model.d_optimizer.iterations)]
    report = tfckpt.restore(path, model, include=["model/**"])
    assert same(weights(model), weights(old))
    assert [float(o.learning_rate) for o in (model.g_optimizer, model.d_optimizer)] == [0.5] * 2
    assert [int(o.iterations) for o in (model.g_optimizer, model.d_optimizer)] == counts
    assert "model/** means the weights; name the optimizer to include it" in str(report)
    named = ["model/**", "model/g_optimizer/**"]
    tfckpt.restore(path, model, include=named)
    rates = [float(o.learning_rate) for o in (model.g_optimizer, model.d_optimizer)]
    np.testing.assert_allclose(rates, [0.1, 0.5])
