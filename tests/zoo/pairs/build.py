"""A description → a Keras model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from zoo.pairs.describe import ATTRIBUTED, Item

STEPS, WIDTH, WORDS = 4, 3, 5


class NotAModelError(Exception):
    """Keras makes no model of the description: two layers have one name."""


def built(keras: Any, item: Item) -> Any:
    """A model.

    Raises:
        NotAModelError: Keras refuses.
    """
    tokens = any(each.op == "embedding" for each in item.inside)
    shape, dtype = ((STEPS,), "int32") if tokens else ((STEPS, WIDTH), "float32")
    made = _Maker(keras)
    try:
        if item.op in ("sequential", "functional"):
            model = getattr(made, item.op)(item, keras.Input(shape, dtype=dtype))
        else:
            model = made.layer(item)
    except ValueError as error:
        if "unique" in str(error):
            raise NotAModelError(str(error)) from None
        raise
    model(np.zeros((2, *shape), dtype))  # builds what is not built yet
    return model


def start_anew(keras: Any) -> None:
    """Automatic names begin at their first number, as in a program started anew."""
    # a full collection takes half a second
    quick = {"free_memory": False} if keras.__name__ == "keras" else {}
    keras.backend.clear_session(**quick)


class _Maker:
    """Makes the layers of one model."""

    def __init__(self, keras: Any) -> None:
        self._keras = keras
        self._block, self._net = (
            _attributed(base, name)
            for base, name in ((keras.layers.Layer, "Block"), (keras.Model, "Net"))
        )

    def layer(self, item: Item) -> Any:
        if item.op == "sequential":
            return self.sequential(item)
        if item.op == "functional":
            return self.functional(item, self._keras.Input((None, WIDTH)))
        named = {} if item.name is None else {"name": item.name}
        if item.op in ATTRIBUTED:
            return (self._block if item.op == "block" else self._net)(self, item, **named)
        return self._plain()[item.op](**named)

    def _plain(self) -> dict[str, Callable[..., Any]]:
        layers = self._keras.layers
        return {
            "dense": partial(layers.Dense, WIDTH),
            "conv": partial(layers.Conv1D, WIDTH, 1),
            "batch_norm": layers.BatchNormalization,
            "layer_norm": layers.LayerNormalization,
            "separable": partial(layers.SeparableConv1D, WIDTH, 1),
            "prelu": partial(layers.PReLU, shared_axes=[1]),
            "embedding": partial(layers.Embedding, WORDS, WIDTH),
            "relu": layers.ReLU,
            "dropout": partial(layers.Dropout, 0.5),
            "add": layers.Add,
            "subtract": layers.Subtract,
        }

    def sequential(self, item: Item, start: Any = None) -> Any:
        first = [] if start is None else [start]
        layers = [self.layer(each) for each in item.inside]
        return self._keras.Sequential([*first, *layers], name=item.name)

    def functional(self, item: Item, start: Any) -> Any:
        found: dict[int, Any] = {}
        for each in item.inside:
            fed = [found[uid] for uid in each.inputs]
            layer = self.layer(each)
            found[each.uid] = layer(start if not fed else fed[0] if len(fed) == 1 else fed)
        outputs = [found[uid] for uid in item.outputs]
        outputs = outputs if len(outputs) > 1 else outputs[0]
        return self._keras.Model(start, outputs, name=item.name)


def _attributed(base: Any, name: str) -> Any:
    def __init__(self: Any, maker: _Maker, item: Item, name: str | None = None) -> None:
        base.__init__(self, name=name)
        kept: dict[str, Any] = {}
        chain = [maker.layer(each) for each in item.inside]
        for each, layer in zip(item.inside, chain, strict=True):
            if each.form == "one":
                kept[each.attribute] = layer
            elif each.form == "list":
                kept.setdefault(each.attribute, []).append(layer)
            else:
                kept.setdefault(each.attribute, {})[each.key] = layer
        for attribute, value in kept.items():
            setattr(self, attribute, value)
        object.__setattr__(self, "chain", lambda: chain)

    def call(self: Any, inputs: Any) -> Any:
        for layer in self.chain():
            inputs = layer(inputs)
        return inputs

    def get_config(self: Any) -> dict[str, Any]:
        return {}  # without one, tf_keras warns of each

    return type(name, (base,), {"__init__": __init__, "call": call, "get_config": get_config})
