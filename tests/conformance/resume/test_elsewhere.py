"""A training goes on where something else is wanted than before: done right, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = X[:, ::-1] ** 2
CLASSES = np.arange(12) % 4
STEPS = 3
SEEN = 2 * STEPS + 1  # steps of what was interrupted in its third epoch


@pytest.fixture
def begin(flavour, tmp_path) -> Callable[..., Any]:
    """``begin(optimizer)``: model and run of one directory; all layers have the same shapes."""

    def build(
        optimizer: Any, policy: Any = None, loss: Any = "mse", frozen: Any = "", **more: Any
    ) -> Any:
        flavour.utils.set_random_seed(7)
        model = flavour.Sequential([flavour.Input((4,))])
        for name, units in (("a", 4), ("b", 4), ("head", more.get("head", 4))):
            layer = flavour.layers.Dense(units, name=name, dtype=more.get("dtype"))
            model.add(layer)
            layer.trainable = name != frozen
        model.compile(optimizer, loss)
        where = {"directory": str(tmp_path / "run")}
        config = {
            "version": 1,
            "manager": {**where, "save": {"every_steps": 1, "every_epochs": 1}, "durable": False},
            "restore": {**where, "if_none": "initialize", "policy": policy or {}},
        }
        return model, tfckpt.from_config(config, model=model)

    return build


@pytest.fixture
def until(flavour) -> Callable[..., None]:
    """``until(model, run)``: trains, or goes on, and ends before the batch after ``SEEN`` steps."""

    def train(model: Any, run: Any, **more: Any) -> None:
        class Stop(flavour.callbacks.Callback):
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if steps(model) >= SEEN:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(model, run, Stop(), **more)
        assert steps(model) == SEEN

    return train


def steps(model: Any) -> int:
    """In Keras 3.1 an optimizer around another one does not count."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return int(optimizer.iterations.numpy())


def fit(model: Any, run: Any = None, *others: Any, epochs: int = 4, y: Any = Y) -> None:
    more = {"batch_size": 4, "shuffle": False, "verbose": 0}
    callbacks = [run.callback(verbose=0), *others] if run else []
    model.fit(X, y, epochs=epochs, **more, callbacks=callbacks)


def weights(model: Any, *names: str) -> list[Any]:
    return [model.get_layer(name).get_weights() for name in names or ("a", "b", "head")]


def slots(model: Any) -> dict[Any, Any]:
    """Adam's two slots of each weight, by layer and place there."""
    names = [(each.name, at) for each in model.layers for at in range(len(each.trainable_weights))]
    pairs = zip(model.optimizer._momentums, model.optimizer._velocities, strict=True)
    return {name: [slot.numpy() for slot in pair] for name, pair in zip(names, pairs, strict=True)}


@pytest.mark.parametrize(("hyperparameters", "rate"), [("restore", 0.05), ("config", 0.01)])
def test_the_policy_says_whose_learning_rate_it_is(begin, flavour, hyperparameters, rate) -> None:
    model, run = begin(flavour.optimizers.Adam(0.05))
    fit(model, run, epochs=2)
    policy = {"optimizer": {"hyperparameters": hyperparameters}}
    other, run = begin(flavour.optimizers.Adam(0.01), policy)
    fit(other, run)
    model.optimizer.learning_rate.assign(rate)
    fit(model, epochs=2)
    np.testing.assert_equal(weights(other), weights(model))
    np.testing.assert_equal(slots(other), slots(model))


def test_a_schedule_goes_on_at_its_step(begin, until, flavour) -> None:
    def training() -> Any:
        schedule = flavour.optimizers.schedules.CosineDecay(0.5, 20)
        # Each step takes the learning rate off each bias of the head.
        return begin(flavour.optimizers.SGD(schedule), loss=lambda y, out: 4 * out)

    until(*training())
    model, run = training()
    fit(model, run)
    rates = 0.5 * (1 + np.cos(np.pi * np.arange(4 * STEPS) / 20)) / 2
    bias = model.get_layer("head").get_weights()[1]
    np.testing.assert_allclose(bias, np.full(4, -rates.sum()), rtol=1e-5)


def test_another_optimizer_is_refused_or_begins_with_slots_of_its_own(
    begin, until, flavour
) -> None:
    model, run = begin(flavour.optimizers.SGD(0.05, momentum=0.9))
    until(model, run)
    other, run = begin(flavour.optimizers.Lion(0.01))  # its slots have the same name
    initial = weights(other)
    with pytest.raises(
        tfckpt.RefusedError, match="'lion' in the model and 'sgd' in the checkpoint"
    ):
        fit(other, run)
    np.testing.assert_equal(weights(other), initial)
    anew = {"slots": "reset", "iterations": "restore", "hyperparameters": "config"}
    other, run = begin(flavour.optimizers.Adam(0.01), {"optimizer": anew})
    until(other, run)
    np.testing.assert_equal(weights(other), weights(model))
    assert all(not slot.any() for pair in slots(other).values() for slot in pair)


@pytest.mark.parametrize(("before", "after"), [(None, "a"), ("a", None), ("a", "b")])
def test_slots_stay_with_their_layer_where_another_is_frozen(
    begin, until, flavour, before, after
) -> None:
    model, run = begin(flavour.optimizers.Adam(0.05), frozen=before)
    until(model, run)
    other, run = begin(flavour.optimizers.Adam(0.05), frozen=after)
    initial = weights(other)
    with pytest.raises(tfckpt.RefusedError, match=f"optimizer/momentum/{before or after}/kernel"):
        fit(other, run)
    np.testing.assert_equal(weights(other), initial)
    policy = {"expect_partial": True}
    other, run = begin(flavour.optimizers.Adam(0.05), policy, frozen=after)
    until(other, run)
    np.testing.assert_equal(weights(other), weights(model))
    theirs = slots(model)
    for name, pair in slots(other).items():
        np.testing.assert_equal(pair, theirs.get(name, [0 * slot for slot in pair]), str(name))


def test_another_loss_is_no_matter(begin, flavour) -> None:
    model, run = begin(flavour.optimizers.Adam(0.05))
    fit(model, run, epochs=2)
    other, run = begin(flavour.optimizers.Adam(0.05), loss="mae")
    fit(other, run)
    model.compile(model.optimizer, "mae")
    fit(model, epochs=2)
    np.testing.assert_equal(weights(other), weights(model))


def test_a_head_for_more_classes_is_as_built(begin, until, flavour) -> None:
    loss = flavour.losses.SparseCategoricalCrossentropy(from_logits=True)
    model, run = begin(flavour.optimizers.Adam(0.05), loss=loss)
    until(model, run, y=CLASSES)
    policy = {"exclude": ["model/head/**", "optimizer/*/head/*"]}
    other, run = begin(flavour.optimizers.Adam(0.05), policy, loss=loss, head=6)
    head = weights(other, "head")
    until(other, run, y=CLASSES)
    np.testing.assert_equal(weights(other, "a", "b"), weights(model, "a", "b"))
    np.testing.assert_equal(weights(other, "head"), head)


def test_the_scale_of_the_loss_comes_back(begin, until, flavour) -> None:
    keras3 = flavour.__name__ == "keras"
    module = flavour.optimizers if keras3 else flavour.mixed_precision

    def training() -> Any:
        scale = {"initial_scale": 8.0, "dynamic_growth_steps": 5}
        optimizer = module.LossScaleOptimizer(flavour.optimizers.Adam(0.01), **scale)
        return begin(optimizer, dtype="mixed_float16")

    until(*training())
    model, run = training()
    until(model, run)
    scale = model.optimizer
    count = scale.step_counter if keras3 else scale.dynamic_counter
    assert float((scale.dynamic_scale if keras3 else scale.loss_scale).numpy()) == 16.0
    assert int(count.numpy()) == 2  # of seven steps, after five of which it doubled
    again, run = training()
    fit(again, run)
    whole, _ = training()
    fit(whole)
    np.testing.assert_equal(weights(again), weights(whole))
