"""Which optimizer variable belongs to which variable of the model, as the optimizer itself sees it.

The optimizer is the judge: one step with a gradient for one variable changes the slots of that
variable, and no others.
"""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from zoo import optimizers
from zoo.optimizers import compiled
from zoo.variables import inner

from tfckpt.live.inventory import Live, collect

WIDTH = 3


@pytest.fixture
def net(flavour) -> Any:
    return small(flavour)


def small(k: Any) -> Any:
    layers = [k.layers.Dense(4), k.layers.LayerNormalization(), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((WIDTH,)), *layers])


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
