"""Which optimizer variable belongs to which variable of the model, as the optimizer itself sees it.

The optimizer is the judge: one step with a gradient for one variable changes the slots of that
variable, and no others.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo import optimizers
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import Live, collect

WIDTH = 3


@pytest.fixture
def net(flavour) -> Any:
    return small(flavour)


def small(k: Any) -> Any:
    layers = [k.layers.Dense(4), k.layers.LayerNormalization(), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((WIDTH,)), *layers])


def variables_of(optimizer: Any) -> list[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def step(optimizer: Any, variable: Any, everything: list[Any]) -> None:
    """One step in which only one variable has a gradient."""
    every = hasattr(optimizer, "optimizers") or getattr(
        optimizer, "gradient_accumulation_steps", None
    )
    if every:  # these want a gradient for each
        pairs = [(tf.ones(v.shape) * float(v is variable), v) for v in everything]
    else:
        pairs = [(tf.ones(variable.shape), variable)]
    optimizer.apply_gradients(pairs)


def slots(live: Live) -> dict[str, Any]:
    """Those that a gradient changes."""
    return {
        name: live.variables[name]
        for name, entry in live.inventory.entries.items()
        if entry.of and entry.slot != "moving_average"
    }


# Plain SGD keeps no momentum, and tf_keras makes room for it all the same.
WITHOUT_SLOTS = {"sgd"}


@pytest.mark.parametrize(("flavour", "optimizer"), optimizers.IN_FLAVOUR, indirect=True)
def test_every_variable_of_an_optimizer_has_one_name(net, optimizer) -> None:
    live = collect({"model": compiled(net, optimizer)})
    named = [id(inner(variable)) for variable in live.variables.values()]
    assert len(set(named)) == len(named)
    assert {id(inner(v)) for v in variables_of(optimizer)} <= set(named)
    assert not [name for name in live.variables if "~" in name]


@pytest.mark.parametrize(("flavour", "optimizer"), optimizers.IN_FLAVOUR, indirect=True)
def test_a_step_changes_the_slots_of_its_variable_alone(net, optimizer, request) -> None:
    live = collect({"model": compiled(net, optimizer)})
    entries = live.inventory.entries
    for variable in net.trainable_variables:
        (name,) = (n for n, v in live.variables.items() if inner(v) is inner(variable))
        for value in slots(live).values():
            inner(value).assign(tf.zeros_like(inner(value)))  # so that no gradient is no change
        before = {n: inner(v).numpy() for n, v in slots(live).items()}
        step(optimizer, variable, net.trainable_variables)
        changed = {n for n, v in slots(live).items() if (inner(v).numpy() != before[n]).any()}
        assert {entries[n].of for n in changed} <= {name}
        assert changed or request.node.callspec.params["optimizer"] in WITHOUT_SLOTS


@pytest.mark.parametrize(("flavour", "optimizer"), optimizers.IN_FLAVOUR, indirect=True)
def test_a_name_says_slot_and_variable(net, optimizer) -> None:
    live = collect({"model": compiled(net, optimizer)})
    for name, entry in live.inventory.entries.items():
        if entry.of:
            assert name.endswith(f"/{entry.slot}/{entry.of.removeprefix('model/')}")
            assert entry.of in live.variables


def names(k: Any, optimizer: Any) -> set[str]:
    live = collect({"model": compiled(small(k), optimizer)})
    return {n for n, e in live.inventory.entries.items() if n.startswith("optimizer/")}


# What one flavour keeps and the other does not: (Keras 3 alone, tf_keras alone).
DIFFERENCES = {
    "sgd": (
        set(),
        {
            f"optimizer/momentum/{name}"
            for name in (
                "dense/kernel",
                "dense/bias",
                "layer_normalization/gamma",
                "layer_normalization/beta",
                "head/kernel",
                "head/bias",
            )
        },
    ),
    "adam_schedule": (set(), {"optimizer/current_learning_rate"}),
    "scaled_adam": (
        {"optimizer/loss_scale/iterations", "optimizer/loss_scale/learning_rate"},
        set(),
    ),
}


@pytest.mark.parametrize("in_both", optimizers.BOTH_FLAVOURS)
def test_both_flavours_say_the_same(in_both) -> None:
    make = optimizers.OPTIMIZERS[in_both]
    ours = names(keras, make(keras))
    theirs = names(tf_keras, make(tf_keras))
    assert (ours - theirs, theirs - ours) == DIFFERENCES.get(in_both, (set(), set()))


def test_an_average_is_that_of_its_variable(flavour, net) -> None:
    optimizer = flavour.optimizers.SGD(0.0, use_ema=True, ema_momentum=0.75)
    live = collect({"model": compiled(net, optimizer)})
    averages = {n: e.of for n, e in live.inventory.entries.items() if e.slot == "moving_average"}
    assert set(averages.values()) == {
        f"model/{layer}/{name}"
        for layer, names in (
            ("dense", ("kernel", "bias")),
            ("layer_normalization", ("gamma", "beta")),
            ("head", ("kernel", "bias")),
        )
        for name in names
    }
    distinguish(live.variables[of] for of in averages.values())
    for name in averages:
        inner(live.variables[name]).assign(tf.zeros_like(inner(live.variables[name])))
    inner(optimizer.iterations).assign(5)  # Keras 3 takes the variable itself at the first step
    optimizer.learning_rate = 0.0
    optimizer.apply_gradients([(tf.zeros(v.shape), v) for v in net.trainable_variables])
    for name, of in averages.items():
        expected = 0.25 * inner(live.variables[of]).numpy()
        np.testing.assert_allclose(inner(live.variables[name]).numpy(), expected)


LEGACY = ["adam", "adam_amsgrad", "adamax", "adagrad", "adadelta", "ftrl", "nadam"]


@pytest.mark.parametrize("name", LEGACY)
def test_a_legacy_optimizer_has_the_slots_of_the_newer_one(name) -> None:
    def kept(make: Any) -> set[str]:
        found = names(tf_keras, make(tf_keras))
        return {each for each in found if each.count("/") > 1} | {
            each for each in found if each.endswith(("iterations", "u_product"))
        }

    assert kept(optimizers.OPTIMIZERS[f"legacy_{name}"]) == kept(optimizers.OPTIMIZERS[name])


def test_a_slot_is_what_the_optimizer_calls_by_that_word() -> None:
    new = compiled(small(keras), keras.optimizers.Adam())
    old = compiled(small(tf_keras), tf_keras.optimizers.Adam())
    oldest = compiled(small(tf_keras), tf_keras.optimizers.legacy.Adam())
    for model in (new, old, oldest):
        live = collect({"model": model})
        kernel = model.get_layer("head").kernel
        optimizer = model.optimizer
        if model is oldest:
            momentum, velocity = (optimizer.get_slot(kernel, word) for word in ("m", "v"))
        else:
            index = (
                optimizer._get_variable_index(kernel)
                if model is new
                else optimizer._index_dict[optimizer._var_key(kernel)]
            )
            momentum, velocity = optimizer._momentums[index], optimizer._velocities[index]
        assert inner(live.variables["optimizer/momentum/head/kernel"]) is inner(momentum)
        assert inner(live.variables["optimizer/velocity/head/kernel"]) is inner(velocity)


def test_the_order_of_training_does_not_matter(flavour) -> None:
    model = small(flavour)
    optimizer = flavour.optimizers.Adam()
    optimizer.build(list(reversed(model.trainable_variables)))
    live = collect({"model": model, "optimizer": optimizer})
    for name, entry in live.inventory.entries.items():
        if entry.of:
            assert entry.shape == live.inventory.entries[entry.of].shape, name


def test_a_frozen_layer_takes_its_slots_along_and_no_others(flavour) -> None:
    model = small(flavour)
    model.layers[0].trainable = False
    optimizer = flavour.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    found = collect({"model": model, "optimizer": optimizer}).inventory.entries
    assert "optimizer/momentum/head/kernel" in found
    assert not [name for name in found if "/dense/" in name and name.startswith("optimizer")]


def test_roles_tell_counters_settings_and_slots_apart(flavour) -> None:
    live = collect({"model": compiled(small(flavour), flavour.optimizers.Nadam())})
    roles = {name: entry.role for name, entry in live.inventory.entries.items()}
    assert roles["optimizer/iterations"] == "iterations"
    assert roles["optimizer/learning_rate"] == "hyperparameter"
    assert roles["optimizer/momentum/head/kernel"] == "slot"
    assert roles["optimizer/u_product"] == "slot"


def test_a_legacy_optimizer_alone_has_its_slots_by_the_variables_own_names(tmp_path) -> None:
    model = small(tf_keras)
    optimizer = tf_keras.optimizers.legacy.Adam()
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(np.ones((2, WIDTH)), np.ones((2, 2)), verbose=0)
    names = collect({"optimizer": optimizer}).inventory.entries
    assert {"optimizer/momentum/head/kernel", "optimizer/velocity/head/bias"} <= names.keys()
    assert {names[f"optimizer/velocity/head/{part}"].role for part in ("kernel", "bias")} == {
        "slot"
    }

    saved = [np.array(value) for value in optimizer.get_weights()]
    path = tfckpt.Checkpoint(optimizer=optimizer).write(str(tmp_path / "ckpt"))
    optimizer.set_weights([value * 0 for value in saved])
    tfckpt.Checkpoint(optimizer=optimizer).read(path).assert_consumed()
    for value, was in zip(optimizer.get_weights(), saved, strict=True):
        np.testing.assert_array_equal(value, was)


def test_slots_that_some_variables_have_are_known_by_the_variables_names() -> None:
    class Own(keras.optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            chosen = [v for v in variables if "bias" in v.path]
            self._memory = [self.add_variable_from_reference(v, name="memory") for v in chosen]

    net = small(keras)
    optimizer = Own(0.1)
    optimizer.build(net.trainable_variables)
    live = collect({"model": net, "optimizer": optimizer})
    found = {
        entry.of: live.variables[name]
        for name, entry in live.inventory.entries.items()
        if entry.slot == "memory"
    }
    assert set(found) == {"model/dense/bias", "model/head/bias"}
    assert found["model/head/bias"] is optimizer._memory[-1]
