"""Where a user keeps layers and variables: lists, dicts, sets, attributes that Keras uses too."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.names import below, chain, weights

import tfckpt
from tfckpt.live.inventory import collect


def listing(k: Any, *names: str | None, kind: str = "list") -> Any:
    """A model that holds layers of those names in a list, tuple or dict."""

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            layers = [k.layers.Dense(3, name=name) for name in names]
            if kind == "dict":
                self.blocks = {f"key{index}": layer for index, layer in enumerate(layers)}
            else:
                self.blocks = tuple(layers) if kind == "tuple" else layers

        def call(self, x: Any) -> Any:
            for layer in self.blocks.values() if kind == "dict" else self.blocks:
                x = layer(x)
            return x

    model = Net()
    model(np.ones((1, 3), "float32"))
    return model


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_layers_in_a_list_are_told_by_the_names_the_user_gave_them(flavour, kind) -> None:
    flavour.layers.Dense(1)  # a process that has built other layers
    inventory = collect({"model": listing(flavour, "a", None, "b_2", kind=kind)}).inventory
    keys = [f"key{index}" for index in range(3)] if kind == "dict" else ["0", "1", "2"]
    layers = inventory.containers["model/blocks"].layers
    assert [(layer.place, layer.given, layer.given and layer.own) for layer in layers] == [
        (keys[0], True, "a"),
        (keys[1], False, False),
        (keys[2], True, "b_2"),
    ]
    assert f"model/blocks/{keys[2]}/kernel" in inventory.entries


def test_layers_in_the_list_of_a_module_are_told_likewise(flavour) -> None:
    module = tf.Module()
    module.layers = [flavour.layers.Dense(2, name="a"), flavour.layers.Dropout(0.5)]
    for layer in module.layers:
        layer(np.ones((1, 2), "float32"))
    held = collect({"module": module}).inventory.containers["module/layers"]
    assert [(layer.place, layer.own) for layer in held.layers] == [("0", "a")]


@pytest.mark.parametrize("attribute", ["history", "loss", "train_function"])
def test_a_users_layers_may_stand_on_an_attribute_that_fit_uses(flavour, attribute) -> None:
    def net() -> Any:
        class Net(flavour.Model):
            def __init__(self) -> None:
                super().__init__()
                setattr(self, attribute, [flavour.layers.Dense(3), flavour.layers.Dense(3)])

            def call(self, x: Any) -> Any:
                first, second = getattr(self, attribute)
                return second(first(x))

        model = Net()
        model(np.ones((1, 3), "float32"))
        return collect({"model": model})

    assert weights(net()) == weights(net()) == below(f"{attribute}/0", f"{attribute}/1")


def test_what_fit_leaves_on_a_model_is_no_value_of_it(flavour) -> None:
    model = chain(flavour)
    model.compile("sgd", "mse")
    model.fit(np.ones((2, 3)), np.ones((2, 3)), verbose=0)
    assert weights(collect({"model": model})) == below("dense", "head", "dense_1")


def test_a_layer_that_is_no_model_may_call_its_parts_as_it_likes(flavour) -> None:
    class Block(flavour.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="block")
            self.optimizer, self.loss = flavour.layers.Dense(3), flavour.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.loss(self.optimizer(x))

    block = Block()
    block(np.ones((1, 3), "float32"))
    assert weights(collect({"model": block})) == below("optimizer", "loss")


def test_layers_in_a_set_are_numbered_anew_and_weak() -> None:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(3)
            self.blocks = {keras.layers.Dense(3), keras.layers.Dense(3)}

        def call(self, x: Any) -> Any:
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return x

    for _ in range(2):
        model = Net()
        model(np.ones((1, 3), "float32"))
        live = collect({"model": model})
        assert weights(live) == below("first", "dense", "dense_1")
        held = live.inventory.containers["model"]
        assert [(layer.cls, layer.auto) for layer in held.layers] == [("dense", True)] * 2


def test_a_variable_without_a_fixed_shape_has_that_of_its_value(tmp_path) -> None:
    variable = tf.Variable([1.0, 2.0], shape=tf.TensorShape([None]))
    entry = collect({"v": variable}).inventory.entries["v"]
    assert (entry.shape, entry.nbytes) == ((2,), 8)
    path = tfckpt.Checkpoint(v=variable).write(str(tmp_path / "ckpt"))
    variable.assign([0.0, 0.0])
    tfckpt.Checkpoint(v=variable).read(path).assert_consumed()
    np.testing.assert_array_equal(variable.numpy(), [1.0, 2.0])


def test_a_metric_of_a_layer_alone_is_a_value_of_the_layer(flavour) -> None:
    class Counting(flavour.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="counting")
            self.seen = flavour.metrics.Mean(name="seen")

        def call(self, x: Any) -> Any:
            return x

    layer = Counting()
    expected = {
        f"{value.name.removesuffix(':0').rpartition('/')[2]}" for value in layer.seen.variables
    }
    entries = collect({"layer": layer}).inventory.entries
    assert {n for n, e in entries.items() if e.role == "metric"} == {
        f"layer/seen/{name}" for name in expected
    }
    model = flavour.Sequential([flavour.Input((3,)), Counting()])
    entries = collect({"model": model}).inventory.entries
    assert {n for n, e in entries.items() if e.role == "metric"} == {
        f"metrics/seen/{name}" for name in expected
    }


@pytest.mark.parametrize("cls", ["_Block", "ResNet50Block", "MyConv2D", "Block1d"])
def test_what_keras_calls_a_layer_of_ones_own_is_an_automatic_name(flavour, cls) -> None:
    block = type(cls, (flavour.layers.Dense,), {})
    block(3)  # a process that has built others
    model = flavour.Sequential([flavour.Input((3,)), block(3), block(3)])
    first, second = collect({"model": model}).inventory.containers["model"].layers
    assert first.place == first.cls == second.cls
    assert (first.auto, second.auto, second.place) == (True, True, f"{first.cls}_1")
