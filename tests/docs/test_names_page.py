"""docs/names.md is enough to name the values of a model: a few lines that follow it agree."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import keras
import pytest
import tf_keras

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Iterator


def weights(container: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Names and variables below a functional or sequential model, by the rules of the page."""
    generated: Counter[str] = Counter()
    for layer in container.layers:
        base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__).lower()
        name = layer.name.replace("/", "_")
        if re.fullmatch(rf"{base}(_\d+)?", name):
            name = f"{base}_{generated[base]}" if generated[base] else base
            generated[base] += 1
        below = f"{path}/{name}"
        if hasattr(layer, "layers"):
            yield from weights(layer, below)
        else:
            for variable in layer.weights:
                attribute = variable.name.rpartition("/")[2].partition(":")[0]
                yield f"{below}/{attribute}", variable


def build(flavor: Any) -> Any:
    layers = flavor.layers
    flavor.Sequential([layers.Input((4,)), layers.Dense(2)])  # which Keras counts, names do not
    body = flavor.Sequential([layers.Input((4,)), layers.Dense(8), layers.Dense(8)], name="body")
    inputs = layers.Input((4,))
    outputs = layers.Dense(3, name="classes")(layers.BatchNormalization()(body(inputs)))
    model = flavor.Model(inputs, outputs)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize("flavor", [keras, tf_keras], ids=lambda flavor: flavor.__name__)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "of two"])
def test_names_are_those_of_the_page(flavor: Any, alone: bool) -> None:
    model, other = build(flavor), build(flavor)
    objects = {"net": model} if alone else {"net": model, "other": other}
    root, optimizer = ("model", "optimizer") if alone else ("net", "net/optimizer")
    named = [*weights(model, root)]
    slots = {
        f"{optimizer}/{slot}/{name.removeprefix('model/') if alone else name}"
        for slot in ("momentum", "velocity")
        for name, variable in named
        if variable.trainable
    }
    hyperparameters = {f"{optimizer}/iterations", f"{optimizer}/learning_rate"}
    found = {
        name
        for name in tfckpt.inventory(**objects).entries
        if name.startswith((f"{root}/", f"{optimizer}/")) and "/metrics/" not in name
    }
    assert found == {name for name, _ in named} | slots | hyperparameters
