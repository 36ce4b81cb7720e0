"""The names of live objects: each variable one, the same however the object came to be."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo import models
from zoo.names import KERNEL_AND_BIAS, below, chain, weights
from zoo.optimizers import compiled
from zoo.variables import inner

from tfckpt.errors import NamingError
from tfckpt.live.inventory import collect

CELL = ("bias", "kernel", "recurrent_kernel")
NORM = ("beta", "gamma", "moving_mean", "moving_variance")


# What the user of such a model would write in a config.
WEIGHTS = {
    "sequential": below("dense", "head", "dense_1") | below("batch_normalization", names=NORM),
    "sequential_deferred": below("dense", "head"),
    "functional": below("dense", "right", "dense_1", "value"),
    "subclassed": below("first", "second") | below("norm", names=NORM),
    "functional_in_functional": below(
        "dense", "dense_1", "encoder/a", "encoder/dense", "decoder/a", "decoder/dense"
    ),
    "unnamed_functional_in_functional": below("functional/dense", "functional_1/dense"),
    "sequential_in_sequential": below(
        "body/dense", "body/dense_1", "top/dense", "top/dense_1", "dense"
    ),
    "sequential_in_subclassed": below("body/dense", "body/dense_1", "head"),
    "subclassed_in_functional": below("net/first", "net/second", "dense")
    | below("net/norm", names=NORM),
    "blocks_in_sequential": below("block/inner", "middle/inner", "block_1/inner", "dense")
    | below("block/norm", "middle/norm", "block_1/norm", names=("beta", "gamma")),
    "containers": below(
        *(f"blocks/{index}" for index in range(11)),
        *("heads/left", "heads/right", "pair/0", "pair/1", "nested/0/0", "nested/1/0"),
    ),
    "shared": below("decode", "wrapped/inner") | below("wrapped/norm", names=("beta", "gamma")),
    "shared_in_functional": below("dense", "dense_1"),
    "own_weights": below("dense")
    | below(
        "own", names=("counter", "keyed/x", "parts/0", "parts/1", "parts/2", "scale", "untold")
    ),
    "weights_on_model": below("dense") | {"model/token"},
    "recurrent": below("time_distributed/layer")
    | below("lstm/cell", "rnn/cell", "simple_rnn/cell", names=CELL)
    | below("stacked/cell/cells/0", "stacked/cell/cells/1", names=CELL)
    | below("bidirectional/forward_layer/cell", "bidirectional/backward_layer/cell", names=CELL),
    "attention": below("dense")
    | below("encoder/norm", names=("beta", "gamma"))
    | below(
        *(
            f"{layer}/{part}_dense"
            for layer in ("multi_head_attention", "encoder/attend")
            for part in ("query", "key", "value", "output")
        )
    ),
    "convolutional": below("conv2d", "depthwise_conv2d", "conv2d_transpose")
    | below("separable_conv2d", names=("bias", "depthwise_kernel", "pointwise_kernel"))
    | below("batch_normalization", names=NORM)
    | below("group_normalization", names=("beta", "gamma"))
    | below("p_re_lu", names=("alpha",))
    | below("conv_lstm2d/cell", names=CELL),
    "spectral": below("first", "last", names=("kernel", "vector_u"))
    | below("first/layer", names=("bias",)),
    "normalized": below("dense")
    | below("normalization", names=("adapt_mean", "adapt_variance", "count")),
    "text": below("dense") | {"model/embedding/embeddings"},
    "lookups": {"model/embed/embeddings"},
    "low_rank": below("dense", "head") | below("head", names=("lora_kernel_a", "lora_kernel_b")),
    "seeded": below("dense", "dense_1"),
    "module_in_layer": below("dense")
    | below("holder", names=("bare", "module/w", "module/more/0", "module/more/1")),
    "mixed_precision": below("dense", "dense_1")
    | below("batch_normalization", names=NORM)
    | {"model/own/scale"},
}


@pytest.mark.parametrize(("flavour", "build"), models.IN_FLAVOUR, indirect=True)
def test_a_model_has_the_names_that_its_source_shows(flavour, build, request) -> None:
    expected = WEIGHTS[request.node.callspec.params["build"]]
    assert weights(collect({"model": build(flavour)})) == expected


@pytest.mark.parametrize(("flavour", "build"), models.IN_FLAVOUR, indirect=True)
def test_every_variable_of_a_model_has_one_name(flavour, build) -> None:
    model = compiled(build(flavour), flavour.optimizers.Adam())
    live = collect({"model": model})
    named = [
        id(inner(v))
        for n, v in live.variables.items()
        if live.inventory.entries[n].shape is not None
    ]
    assert len(named) == len(set(named))
    variables = [
        v for v in model.variables if hasattr(v, "assign")
    ]  # a lookup table is no variable
    variables += model.optimizer.variables
    assert {id(inner(variable)) for variable in variables} <= set(named)


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


def test_a_shared_layer_is_found_by_every_name_it_has(flavour) -> None:
    inventory = collect({"model": models.MODELS["shared"](flavour)}).inventory
    for name in ("model/decode/kernel", "model/encode/kernel", "model/wrapped/extra/kernel"):
        found = inventory.find(name)
        assert found is not None
        assert found.name == "model/decode/kernel"


def test_seeds_are_named_by_their_layer() -> None:
    live = collect({"model": models.MODELS["seeded"](keras)})
    assert {n for n, e in live.inventory.entries.items() if e.role == "seed"} == {
        "seed/dropout",
        "seed/dropout_1",
        "seed/noise",
        "seed/random_flip",
        "seed/random_rotation",
    }


def test_a_lookup_table_is_an_object_beside_the_weights(flavour) -> None:
    entry = collect({"model": models.MODELS["text"](flavour)}).inventory.entries[
        "model/text_vectorization/lookup_layer/token_counts"
    ]
    assert (entry.role, entry.shape) == ("object", None)


def test_an_autocast_variable_is_saved_as_it_is_kept(flavour) -> None:
    entries = collect({"model": models.MODELS["mixed_precision"](flavour)}).inventory.entries
    assert {entry.dtype for entry in entries.values()} == {"float32"}


def test_keras_inside_a_module_has_the_same_names_as_alone(flavour) -> None:
    class Holder(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = chain(flavour)
            self.scale = tf.Variable(1.0)
            self.more = [flavour.layers.Dense(1)]
            self.more[0](np.ones((1, 2), "float32"))

    expected = {"net/dense", "net/head", "net/dense_1", "more/0"}
    assert set(collect({"holder": Holder()}).variables) == {"holder/scale"} | {
        f"holder/{layer}/{name}" for layer in expected for name in KERNEL_AND_BIAS
    }
    assert set(collect({}, Holder()).variables) == {"scale"} | {
        f"{layer}/{name}" for layer in expected for name in KERNEL_AND_BIAS
    }


def test_an_optimizer_under_the_model_and_a_keyword_has_one_name(flavour) -> None:
    model = compiled(chain(flavour), flavour.optimizers.SGD(momentum=0.9))
    for keyword in ("optimizer", "opt"):
        names = set(collect({"model": model, keyword: model.optimizer}).variables)
        assert names == set(collect({"model": model}).variables)
        assert "optimizer/momentum/dense/kernel" in names


def test_a_model_given_twice_has_one_name_and_an_alias(flavour) -> None:
    model = chain(flavour)
    inventory = collect({"student": model, "teacher": model}).inventory
    assert set(inventory.entries) == below("dense", "head", "dense_1")
    assert inventory.aliases == {"student": "model"}


def test_two_models_stand_under_their_keywords(flavour) -> None:
    model = compiled(chain(flavour), flavour.optimizers.SGD(momentum=0.9))
    live = collect({"model": model, "ema": chain(flavour)})
    copies = {name.replace("model/", "ema/", 1) for name in below("dense", "head", "dense_1")}
    assert below("dense", "head", "dense_1") | copies <= set(live.variables)
    assert live.inventory.entries["optimizer/momentum/head/kernel"].of == "model/head/kernel"


def test_each_of_two_compiled_models_has_its_own_optimizer(flavour) -> None:
    given = {
        name: compiled(chain(flavour), flavour.optimizers.SGD(momentum=0.9))
        for name in ("generator", "discriminator")
    }
    names = set(collect(given).variables)
    for owner in given:
        assert f"{owner}/optimizer/iterations" in names
        assert f"{owner}/optimizer/momentum/{owner}/dense/kernel" in names


def test_models_in_a_list_or_a_dict_stand_under_it(flavour) -> None:
    lists = collect({"models": [chain(flavour), chain(flavour)]})
    dicts = collect({"models": {"a": chain(flavour), "b": chain(flavour)}})
    assert {"models/0/dense_1/kernel", "models/1/dense_1/kernel"} <= set(lists.variables)
    assert {"models/a/dense_1/kernel", "models/b/dense_1/kernel"} <= set(dicts.variables)


def test_a_layer_alone_stands_under_its_keyword(flavour) -> None:
    layer = flavour.layers.Dense(2)
    layer(np.ones((1, 3), "float32"))
    assert set(collect({"layer": layer}).variables) == {"layer/bias", "layer/kernel"}


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


def test_flavours_side_by_side_do_not_meet() -> None:
    live = collect({"new": chain(keras), "old": chain(tf_keras)})
    new = {name.removeprefix("new/") for name in live.variables if name.startswith("new/")}
    old = {name.removeprefix("old/") for name in live.variables if name.startswith("old/")}
    assert new == old


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
