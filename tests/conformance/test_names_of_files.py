"""The names in files: those of the live objects, also where optimizers are scaled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo import command_line
from zoo.attached import chain
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import Live, collect
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from tfckpt.core.inventory import Inventory


FOREIGN = re.compile(r"layer_with_weights-\d+|/trainable_variables/\d+/|^optimizer/\w+/\d+$")


def opened(prefix: str, live: Live) -> Any:
    return open_checkpoint(prefix, roots=live.roots, bases=live.weak_bases)


def compare(prefix: str, live: Live) -> tuple[set[str], set[str]]:
    """Names of one side alone, after a look at the values of both; seeds and metrics aside."""
    with opened(prefix, live) as stored:
        ours, theirs = live.inventory.entries, stored.inventory.entries
        for name in ours.keys() & theirs.keys():
            assert (ours[name].role, ours[name].slot, ours[name].of) == (
                theirs[name].role,
                theirs[name].slot,
                theirs[name].of,
            )
            if theirs[name].shape is not None:
                value = inner(live.variables[name]).numpy()
                np.testing.assert_array_equal(stored.values.read(theirs[name].key), value, name)
        missing = {n for n, e in ours.items() if n not in theirs and e.role not in UNSAVED}
        return missing, set(theirs) - set(ours) - {"save_counter"}


UNSAVED = {"seed", "metric", "vocabulary"}


def entries_of(prefix: str, live: Live) -> Inventory:
    with opened(prefix, live) as stored:
        return stored.inventory


def test_a_list_held_layer_is_not_taken_for_the_layer_that_holds_it(tmp_path) -> None:
    """Keras 3 gives both the name `mix/kernel`, and TensorFlow saves both, where compiled."""

    class Mix(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="mix")
            self.parts = [keras.layers.Dense(3, use_bias=False)]

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(3, 3))
            super().build(shape)

        def call(self, x: Any) -> Any:
            return self.parts[0](x @ self.kernel)

    inputs = keras.Input((3,))
    model = compiled(keras.Model(inputs, Mix()(inputs)), keras.optimizers.SGD(momentum=0.9))
    live = collect({"model": model})
    distinguish(live.variables.values())
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    missing, foreign = compare(prefix, live)
    assert missing == {"model/mix/parts/0/kernel", "optimizer/momentum/mix/parts/0/kernel"}
    assert all(FOREIGN.search(name) for name in foreign)


def test_slots_without_a_list_go_to_no_variable_whose_name_two_have(tmp_path) -> None:
    """Muon's lists have gaps and are not saved; its slots' names alone are left."""

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="net")
            self.one, self.two = keras.layers.Dense(3), keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.two(self.one(x))

    model = Net()
    model(np.ones((1, 3), "float32"))
    live = collect({"model": compiled(model, keras.optimizers.Muon())})
    distinguish(live.variables.values())
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    _, foreign = compare(prefix, live)
    assert {re.sub(r"\d+", "N", name) for name in foreign} == {"optimizer/variable/N"}


def test_slots_of_some_variables_are_not_given_to_the_first_ones(tmp_path) -> None:
    class Own(keras.optimizers.SGD):
        def build(self, variables: Any) -> None:
            super().build(variables)
            chosen = [v for v in variables if "bias" in v.path]
            self._memory = [self.add_variable_from_reference(v, name="memory") for v in chosen]

    model = compiled(chain(keras, "a", "b"), Own(0.1))
    live = collect({"model": model})
    distinguish(live.variables.values())
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    assert compare(prefix, live) == (set(), set())
    assert "optimizer/memory/b/bias" in live.inventory.entries


def test_without_a_hint_an_optimizer_as_the_root_is_recognized(flavour, tmp_path) -> None:
    optimizer = flavour.optimizers.SGD(momentum=0.9)
    optimizer.build(chain(flavour, "a").trainable_variables)
    prefix = tf.train.Checkpoint(optimizer).write(str(tmp_path / "ckpt"))
    with open_checkpoint(prefix) as stored:
        assert {"optimizer/iterations", "optimizer/learning_rate"} <= set(stored.inventory.entries)


def test_a_layer_whose_name_the_file_does_not_tell_is_said_to_be_untold(flavour, tmp_path) -> None:
    inner = chain(flavour, "d1", "d2")
    inputs = flavour.Input((3,))
    outputs = flavour.layers.Dense(2, name="head")(inner(inputs))
    live = collect({"model": (model := flavour.Model(inputs, outputs))})
    inventory = entries_of(tf.train.Checkpoint(model=model).write(str(tmp_path / "c")), live)
    assert [bool(layer.own) for layer in inventory.containers["model"].layers] == [False, True]
    assert all(layer.own for layer in live.inventory.containers["model"].layers)


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
def test_a_mixed_precision_run_resumes_whole(k, make, scale, writer, tmp_path) -> None:
    first, second = trained(mixed_run(k, make, scale)), trained(mixed_run(k, make, scale))
    wanted = collect({"model": first}).variables
    distinguish(value for name, value in wanted.items() if name.startswith("optimizer/"))
    path = writer(model=first).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=second).restore(path).assert_consumed()
    for name, value in collect({"model": second}).variables.items():
        if not name.startswith("metrics/"):
            np.testing.assert_array_equal(inner(value), inner(wanted[name]), name)


@pytest.fixture
def written(flavour: Any, tmp_path: Any) -> tuple[Any, str, str]:
    """A subclassed model by TensorFlow, as `save_weights` of Keras 2 wrote it: without a root."""

    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.enc = flavour.layers.Dense(3)
            self.dec = flavour.layers.Dense(4)

        def call(self, x: Any) -> Any:
            return self.dec(self.enc(x))

    first, second = Net(), Net()
    for model in (first, second):
        model(np.ones((1, 4), "float32"))
    path = str(tf.train.Checkpoint(first).write(str(tmp_path / "weights")))
    printed = command_line.run("inspect", path).out
    (name,) = (w for w in printed.split() if w.endswith("enc/kernel"))
    return (first, second), path, name


def test_a_name_as_printed_is_taken_in_every_key(written: Any) -> None:
    (first, second), path, name = written
    own = inner(second.enc.kernel).numpy()
    scope = name.removesuffix("kernel") + "**"
    report = tfckpt.restore(path, second, exclude=[scope], exclude_checkpoint=[name])
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), own)
    np.testing.assert_array_equal(inner(second.dec.kernel).numpy(), inner(first.dec.kernel).numpy())
    assert len(report.plan.assignments) == 2
    tfckpt.restore(path, second, include=[name], on_unexpected="ignore")
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), inner(first.enc.kernel).numpy())


def test_a_rule_may_say_where_a_printed_name_goes(written: Any, flavour: Any) -> None:
    (first, _), path, name = written
    layers = [flavour.layers.Dense(3, name="a"), flavour.layers.Dense(4, name="b")]
    model = flavour.Sequential([flavour.Input((4,)), *layers])
    rename = [
        {"checkpoint": name.replace("enc/kernel", f"{old}/**"), "model": f"model/{new}/**"}
        for old, new in (("enc", "a"), ("dec", "b"))
    ]
    tfckpt.restore(path, model, rename=rename)
    np.testing.assert_array_equal(inner(layers[0].kernel).numpy(), inner(first.enc.kernel).numpy())
