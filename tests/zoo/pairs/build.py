"""A description → a Keras model, each weight of it with values that no other has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.pairs.describe import ATTRIBUTED, Item

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, WIDTH, WORDS = 4, 3, 5


class NotAModelError(Exception):
    """Keras makes no model of the description: two layers have one name."""


class Built:
    """A model and its layers by number.

    Raises:
        NotAModelError: Keras refuses.
    """

    def __init__(self, keras: Any, item: Item, *, tokens: bool, seed: int) -> None:
        self.tokens = tokens
        self.layers: dict[int, Any] = {}
        made = Maker(keras, self.layers)
        try:
            if item.op == "sequential":
                self.model = made.sequential(item, self._input(keras))
            elif item.op == "functional":
                self.model = made.functional(item, self._input(keras))
            else:
                self.model = made.layer(item)
        except ValueError as error:
            if "unique" in str(error):
                raise NotAModelError(str(error)) from None
            raise
        self.outputs()  # builds what is not built yet
        self.variables = {
            (uid, at): variable
            for uid, layer in self.layers.items()
            for at, variable in enumerate(layer.weights)
        }
        rng = np.random.default_rng(seed)
        for variable in self.variables.values():
            variable.assign(rng.uniform(0.5, 1.5, variable.shape).astype("float32"))

    def _input(self, keras: Any) -> Any:
        if self.tokens:
            return keras.Input((STEPS,), dtype="int32")
        return keras.Input((STEPS, WIDTH))

    def values(self) -> dict[tuple[int, int], Any]:
        return {key: variable.numpy() for key, variable in self.variables.items()}

    def assign(self, values: dict[tuple[int, int], Any]) -> None:
        for key, value in values.items():
            self.variables[key].assign(value)

    def outputs(self) -> list[Any]:
        """What it makes of a fixed input."""
        if self.tokens:
            sample = np.arange(2 * STEPS, dtype="int32").reshape(2, STEPS) % WORDS
        else:
            size = 2 * STEPS * WIDTH
            sample = np.linspace(-1, 1, size, dtype="float32").reshape(2, STEPS, WIDTH)
        import tensorflow as tf

        return [np.array(each) for each in tf.nest.flatten(self.model(sample))]


def start_anew(keras: Any) -> None:
    """Automatic names begin at their first number, as in a program started anew."""
    if keras.__name__ == "keras":
        keras.backend.clear_session(free_memory=False)  # a full collection takes half a second
    else:
        keras.backend.clear_session()


class Maker:
    """Makes the layers of one model."""

    def __init__(self, keras: Any, layers: dict[int, Any]) -> None:
        self._keras = keras
        self._layers = layers
        self._block, self._net = (
            _attributed(base, name)
            for base, name in ((keras.layers.Layer, "Block"), (keras.Model, "Net"))
        )

    def layer(self, item: Item) -> Any:
        if item.op == "sequential":
            return self.sequential(item)
        if item.op == "functional":
            return self.functional(item, self._keras.Input((None, WIDTH)))
        if item.op in ATTRIBUTED:
            named = {} if item.name is None else {"name": item.name}
            return (self._block if item.op == "block" else self._net)(self, item, **named)
        made = self._plain()[item.op](**({} if item.name is None else {"name": item.name}))
        if item.op not in ("relu", "dropout", "add", "subtract", "concat"):
            self._layers[item.uid] = made
        return made

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
            "concat": partial(layers.Concatenate, axis=1),
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
        outputs: Any = [found[uid] for uid in item.outputs]
        if item.outputs_as == "dict":
            outputs = {f"out{uid}": found[uid] for uid in item.outputs}
        elif len(outputs) == 1:
            outputs = outputs[0]
        return self._keras.Model(start, outputs, name=item.name)


def _attributed(base: Any, name: str) -> Any:
    def __init__(self: Any, maker: Maker, item: Item, name: str | None = None) -> None:
        base.__init__(self, name=name)
        kept: dict[str, Any] = {}
        chain = []
        for each in item.inside:
            layer = maker.layer(each)
            chain.append(layer)
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

    methods = {"__init__": __init__, "call": call, "get_config": get_config}
    return type(name, (base,), methods)
