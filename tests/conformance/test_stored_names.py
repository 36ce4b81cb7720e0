"""The names in checkpoints of plain TensorFlow: those of the live objects, and never another's.

A file tells less than the objects do. What cannot be known from it has a visibly foreign name, and
so is missing or unexpected in a plan; a wrong name would restore somebody else's value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo import models, optimizers
from zoo.attached import ATTACHED, chain, in_module
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

from tfckpt.live.inventory import Live, collect
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from tfckpt.core.inventory import Inventory

FOREIGN = re.compile(r"layer_with_weights-\d+|/trainable_variables/\d+/|^optimizer/\w+/\d+$")
# Per model, the layers whose names its file does not tell, by flavour.
NESTED = {"encoder", "decoder"}  # a functional model opens no scope of its name
UNTOLD = {
    ("functional_in_functional", "keras"): NESTED,
    ("functional_in_functional", "tf_keras"): NESTED,
    ("unnamed_functional_in_functional", "keras"): {"functional", "functional_1"},
    ("unnamed_functional_in_functional", "tf_keras"): {"functional", "functional_1"},
    ("sequential_in_sequential", "tf_keras"): {"body", "top"},
    ("sequential_in_subclassed", "keras"): {"body"},  # built in the scope of the outer model
    ("normalized", "tf_keras"): {"normalization"},  # adapt() builds it in no scope
    ("text", "keras"): {"text_vectorization"},  # has tables, and no variable that would bear a name
    ("text", "tf_keras"): {"text_vectorization"},
    ("module_in_layer", "keras"): {"holder"},  # a tf.Module's variables know no layer
    ("module_in_layer", "tf_keras"): {"holder"},
}
# What Keras 3 keeps in lists, TensorFlow does not reach, or only as what the optimizer trains.
LISTED = {
    "containers": {"blocks", "heads", "pair", "nested"},
    "own_weights": {"own/untold", "own/parts", "own/keyed"},
    "recurrent": {"stacked"},
}


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
WAYS = ("root", "model", "net")


def given(way: str, model: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if way == "root":
        return (model,), {}
    if way == "with optimizer":
        return (), {"model": model, "optimizer": model.optimizer}
    return (), {"net" if way == "net" else "model": model}


@pytest.mark.parametrize("state", ["plain", "compiled"])
@pytest.mark.parametrize(("flavour", "build"), models.IN_FLAVOUR, indirect=True)
def test_a_file_has_the_names_of_the_model_that_it_was_written_from(
    flavour, build, state, tmp_path, request
) -> None:
    which = request.node.callspec.params["build"], flavour.__name__
    unnamed = UNTOLD.get(which, set())
    if flavour is keras:
        unnamed = unnamed | LISTED.get(which[0], set())
    layers = "|".join(map(re.escape, unnamed)) or "(?!)"
    model = build(flavour)
    if state == "compiled":
        compiled(model, flavour.optimizers.Adam())
    for way in (*WAYS, "with optimizer") if state == "compiled" else WAYS:
        args, keywords = given(way, model)
        live = collect(keywords, *args)
        distinguish(v for v in live.variables.values() if hasattr(v, "assign"))
        prefix = tf.train.Checkpoint(*args, **keywords).write(str(tmp_path / "ckpt"))
        missing, foreign = compare(prefix, live)
        assert all(FOREIGN.search(name) for name in foreign), foreign
        assert all(re.search(f"/({layers})(/|$)", name) for name in missing), missing
        assert bool(missing) == bool(unnamed)


def small(k: Any) -> Any:
    layers = [k.layers.Dense(4), k.layers.LayerNormalization(), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((3,)), *layers])


@pytest.mark.parametrize("trained", [False, True], ids=["built", "trained"])
@pytest.mark.parametrize(("flavour", "optimizer"), optimizers.IN_FLAVOUR, indirect=True)
def test_a_file_has_the_names_of_the_optimizer_that_it_was_written_from(
    flavour, optimizer, trained, tmp_path
) -> None:
    model = small(flavour)
    model.compile(optimizer=optimizer, loss="mse")
    if trained:
        model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    else:
        compiled(model, optimizer)
    for way in (*WAYS, "with optimizer"):
        args, keywords = given(way, model)
        live = collect(keywords, *args)
        distinguish(live.variables.values())
        prefix = tf.train.Checkpoint(*args, **keywords).write(str(tmp_path / "ckpt"))
        missing, foreign = compare(prefix, live)
        assert not foreign
        # Keras 3 keeps a MultiOptimizer's inner ones in a list, which TensorFlow does not reach.
        assert all(name.startswith("optimizer/inner_optimizers/") for name in missing), missing
        assert bool(missing) == hasattr(optimizer, "optimizers")


# tf_keras makes a loss-scale optimizer's slots where no name says whose they are.
@pytest.mark.parametrize(
    ("flavour", "name"),
    [
        *(("keras3", name) for name in ("adam", "rmsprop", "scaled_adam")),
        *(("tf_keras", name) for name in ("adam", "rmsprop")),
    ],
    indirect=["flavour"],
)
def test_a_class_that_a_file_tells_is_the_right_one(flavour, name, tmp_path) -> None:
    model = small(flavour)
    model.compile(optimizer=optimizers.OPTIMIZERS[name](flavour), loss="mse")
    model.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    live = collect({"model": model})
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    with opened(prefix, live) as stored:
        told = {path: cls for path, cls in stored.inventory.optimizers.items() if cls}
        assert told
        assert told.items() <= live.inventory.optimizers.items()


@pytest.mark.parametrize("several", ATTACHED.values(), ids=ATTACHED)
def test_several_objects_keep_apart(flavour, several, tmp_path) -> None:
    keywords = several(flavour)
    live = collect(keywords)
    distinguish(live.variables.values())
    prefix = tf.train.Checkpoint(**keywords).write(str(tmp_path / "ckpt"))
    assert compare(prefix, live) == (set(), set())


def test_a_module_as_the_root_has_the_roles_of_the_live_one(flavour, tmp_path) -> None:
    module = in_module(flavour)["module"]
    live = collect({}, module)
    distinguish(live.variables.values())
    prefix = tf.train.Checkpoint(module).write(str(tmp_path / "ckpt"))
    assert compare(prefix, live) == (set(), set())


def test_an_optimizer_alone_says_not_whose_slots_it_has(flavour, tmp_path) -> None:
    model, optimizer = chain(flavour, "a", None), flavour.optimizers.SGD(momentum=0.9)
    optimizer.build(model.trainable_variables)
    live = collect({"optimizer": optimizer})
    prefix = tf.train.Checkpoint(optimizer=optimizer).write(str(tmp_path / "ckpt"))
    with opened(prefix, live) as stored:
        common = stored.inventory.entries.keys() & live.variables.keys()
    assert common == {"optimizer/iterations", "optimizer/learning_rate"}


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


def test_a_name_that_add_weight_gave_is_found_too(tmp_path) -> None:
    model = models.MODELS["own_weights"](tf_keras)
    live = collect({"model": model})
    inventory = entries_of(tf.train.Checkpoint(model=model).write(str(tmp_path / "c")), live)
    found = inventory.find("model/own/s")
    assert found is not None
    assert found.name == "model/own/scale"


@pytest.mark.parametrize("kind", ["functional", "sequential"])
def test_a_stack_has_the_layers_of_the_live_one(flavour, kind, tmp_path) -> None:
    model = models.MODELS[kind](flavour)
    live = collect({"model": model})
    inventory = entries_of(tf.train.Checkpoint(model=model).write(str(tmp_path / "c")), live)
    assert _named(inventory) == _named(live.inventory)


def _named(inventory: Any) -> dict[str, list[Any]]:
    return {
        path: [(layer.place, layer.own, layer.auto) for layer in held.layers]
        for path, held in inventory.containers.items()
    }


def test_without_a_hint_a_lone_model_is_recognized(flavour, tmp_path) -> None:
    model = compiled(chain(flavour, "a", None), flavour.optimizers.Adam())
    expected = {
        name
        for name, entry in collect({"model": model}).inventory.entries.items()
        if entry.role not in UNSAVED
    }
    for args, keywords in (((model,), {}), ((), {"net": model}), ((), {"model": model})):
        prefix = tf.train.Checkpoint(*args, **keywords).write(str(tmp_path / "ckpt"))
        with open_checkpoint(prefix) as stored:
            assert set(stored.inventory.entries) - {"save_counter"} == expected


def test_without_a_hint_an_optimizer_as_the_root_is_recognized(flavour, tmp_path) -> None:
    optimizer = flavour.optimizers.SGD(momentum=0.9)
    optimizer.build(chain(flavour, "a").trainable_variables)
    prefix = tf.train.Checkpoint(optimizer).write(str(tmp_path / "ckpt"))
    with open_checkpoint(prefix) as stored:
        assert {"optimizer/iterations", "optimizer/learning_rate"} <= set(stored.inventory.entries)


class Listing(tf_keras.Model):
    """Layers in a list, which TensorFlow reaches in tf_keras."""

    def __init__(self, *names: str | None) -> None:
        super().__init__()
        self.blocks = [tf_keras.layers.Dense(3, name=name) for name in names]

    def call(self, x: Any) -> Any:
        for layer in self.blocks:
            x = layer(x)
        return x


def test_a_list_of_layers_has_the_names_that_the_user_gave_them(tmp_path) -> None:
    model = Listing("a", None, "b")
    model(np.ones((1, 3), "float32"))
    live = collect({"model": model})
    inventory = entries_of(tf.train.Checkpoint(model=model).write(str(tmp_path / "c")), live)
    assert _named(inventory) == _named(live.inventory)
    layers = inventory.containers["model/blocks"].layers
    assert [(layer.own, layer.given) for layer in layers] == [
        ("a", True),
        (model.blocks[1].name, None),
        ("b", True),
    ]


def test_a_layer_whose_name_the_file_does_not_tell_is_said_to_be_untold(flavour, tmp_path) -> None:
    inner = chain(flavour, "d1", "d2")
    inputs = flavour.Input((3,))
    outputs = flavour.layers.Dense(2, name="head")(inner(inputs))
    live = collect({"model": (model := flavour.Model(inputs, outputs))})
    inventory = entries_of(tf.train.Checkpoint(model=model).write(str(tmp_path / "c")), live)
    assert [bool(layer.own) for layer in inventory.containers["model"].layers] == [False, True]
    assert all(layer.own for layer in live.inventory.containers["model"].layers)
