"""The names of live objects, the same however the object came to be and wherever it is kept."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo import models
from zoo.names import below, chain, weights
from zoo.optimizers import compiled
from zoo.variables import inner

import tfckpt
from tfckpt.errors import NamingError
from tfckpt.live.inventory import collect


@pytest.mark.parametrize("way", ["root", "another keyword", "compiled", "with optimizer", "again"])
@pytest.mark.parametrize(("flavour", "build"), models.IN_FLAVOUR, indirect=True)
def test_names_do_not_depend_on_how_a_model_is_given(flavour, build, way) -> None:
    model = build(flavour)
    expected = weights(collect({"model": model}))
    if way in {"compiled", "with optimizer"}:
        compiled(model, flavour.optimizers.Adam())
    given: dict[str, Any] = {
        "root": ({}, model),
        "another keyword": ({"net": model},),
        "compiled": ({"model": model},),
        "with optimizer": ({"optimizer": getattr(model, "optimizer", None), "net": model},),
        "again": ({"model": build(flavour)},),
    }
    assert weights(collect(*given[way])) == expected


@pytest.mark.parametrize(
    "change",
    [{}, {"dropout": True}, {"kind": "sequential"}, {"name": "mine"}],
    ids=["again", "dropout", "sequential", "named"],
)
def test_names_do_not_depend_on_what_does_not_matter(flavour, change) -> None:
    chain(flavour)  # a process that has built other models
    assert weights(collect({"model": chain(flavour, **change)})) == below(
        "dense", "head", "dense_1"
    )


def test_names_do_not_depend_on_a_private_spelling(flavour) -> None:
    def net(attribute: str) -> Any:
        class Net(flavour.Model):
            def __init__(self) -> None:
                super().__init__()
                setattr(self, attribute, flavour.layers.Dense(2))

            def call(self, x: Any) -> Any:
                return getattr(self, attribute)(x)

        model = Net()
        model(np.ones((1, 3), "float32"))
        return model

    assert weights(collect({"model": net("_encoder")})) == below("encoder")
    assert weights(collect({"model": net("encoder")})) == below("encoder")


def test_names_do_not_depend_on_the_order_of_keywords(flavour) -> None:
    one, two = chain(flavour), chain(flavour)
    step = tf.Variable(1)
    forward = collect({"generator": one, "discriminator": two, "step": step})
    backward = collect({"step": step, "discriminator": two, "generator": one})
    assert {id(v): n for n, v in forward.variables.items()} == {
        id(v): n for n, v in backward.variables.items()
    }


def test_an_optimizer_alone_has_its_slots_by_the_variables_own_names(flavour) -> None:
    optimizer = flavour.optimizers.SGD(momentum=0.9)
    model = chain(flavour, name="net")
    optimizer.build(model.trainable_variables)
    names = set(collect({"optimizer": optimizer}).variables)
    own = "net/head/kernel" if model.variables[2].name == "kernel" else "head/kernel"
    own = getattr(model.get_layer("head").kernel, "path", own)
    assert {"optimizer/iterations", f"optimizer/momentum/{own}"} <= names


def test_a_keyword_that_is_the_models_name_is_refused(flavour) -> None:
    with pytest.raises(NamingError, match="'model' is reserved for the only model"):
        collect({"net": chain(flavour), "model": tf.Variable(1.0)})


def test_a_metric_that_a_models_own_list_leaves_out_is_named(flavour) -> None:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.seen = flavour.metrics.Mean(name="seen")
            self.extra = flavour.metrics.Sum(name="extra")

        @property
        def metrics(self) -> list[Any]:
            return [self.seen]

    names = collect({"model": Net()}).inventory.entries.keys()
    assert names == {"metrics/seen/count", "metrics/seen/total", "metrics/extra/total"}


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


def conv(cls: str, filters: int, size: int) -> tuple[str, dict[str, Any]]:
    return cls, {"filters": filters, "kernel_size": size}


@pytest.fixture(autouse=True)
def _own_input_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """tf_keras's SpectralNormalization takes tf.keras's, which is Keras 3's here."""
    monkeypatch.setattr(tf.keras.layers, "InputSpec", tf_keras.layers.InputSpec)


@pytest.mark.parametrize("reader", [tf_keras, keras])
def test_a_layers_name_with_a_slash(reader, tmp_path) -> None:
    """Keras 3 allows none, and has underscores there; as in DenseNet121 of either flavour."""

    def build(slash: str, k: Any) -> Any:
        names = [f"conv1{slash}conv", f"conv1{slash}bn", "bn", "head"]
        x = y = k.Input((3,))
        for name in names:
            y = k.layers.Dense(3, use_bias=False, name=name)(y)
        return k.Model(x, y)

    source = build("/", tf_keras)
    for target in (build("_", reader), *([build("/", tf_keras)] if reader is tf_keras else [])):
        for package in (tf.train, tfckpt):
            path = package.Checkpoint(source).write(str(tmp_path / f"{package.__name__}-ckpt"))
            tfckpt.Checkpoint(model=target).read(path).assert_consumed()
            for found, wanted in zip(target.weights, source.weights, strict=True):
                np.testing.assert_array_equal(inner(found), inner(wanted))


def test_a_layer_that_another_one_made_is_found_by_its_own_name(flavour, tmp_path) -> None:
    """In tf_keras it bears the other one's name as a scope, which looks like a slash."""

    def build(k: Any) -> Any:
        outer = k.Sequential([k.layers.Dense(3, name="a"), k.layers.Dense(3)], name="outer")
        outer(np.zeros((1, 3), "float32"))
        x = k.Input((3,))
        made = [outer.layers[0], k.layers.Dense(3, name="b"), k.layers.Dense(3, name="c")]
        return k.Sequential([x, *made])

    source, target = build(tf_keras), build(flavour)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).assert_consumed()
    for found, wanted in zip(target.weights, source.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))
