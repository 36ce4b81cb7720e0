"""The programs of the table of everyday restores: tiny models, and what else a program has.

A value is known by what it means in the program (``head/0``), not by a name in TensorFlow, Keras or
tfckpt: what has one meaning in the program that saved and in the one that restores is one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.variables import inner

Make = Callable[[Any], "Program"]
WIDTH = 3
# Lists of an optimizer that hold no slots.
_NO_SLOTS = ("_variables", "_trainable_variables", "_weights")
AVERAGES = "_model_variables_moving_average"


@dataclass
class Program:
    """What a program has when it saves or restores."""

    objects: dict[str, Any]  # what it passes to a checkpoint, by keyword
    parts: Mapping[str, Any]  # the layers and variables, by what they mean
    optimizers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        return next(iter(self.objects.values()))

    def weights(self) -> dict[str, Any]:
        """The variables of the parts by what they mean."""
        return {
            f"{name}/{at}": inner(variable)
            for name, part in self.parts.items()
            for at, variable in enumerate(_variables(part))
        }

    def state(self) -> dict[str, Any]:
        """The variables of the optimizers by what they mean."""
        weights = self.weights()
        return {
            f"{name}/{what}": variable
            for name, optimizer in self.optimizers.items()
            for what, variable in _state(optimizer, weights)
        }


def _variables(part: Any) -> Sequence[Any]:
    if isinstance(part, (tf.Variable, list)):
        return part if isinstance(part, list) else [part]
    # A list of Keras 3 holds its layers in the order in which they were built.
    return getattr(part, "weights", None) or getattr(part, "variables", [])


def _state(optimizer: Any, weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    inside = getattr(optimizer, "inner_optimizer", None)
    if inside is not None:
        scale = getattr(optimizer, "_loss_scale", None)
        yield (
            "scale",
            inner(getattr(scale, "_current_loss_scale", None) or optimizer.dynamic_scale),
        )
        optimizer = inside
    yield "iterations", inner(getattr(optimizer, "_iterations", optimizer.iterations))
    if hasattr(rate := optimizer._learning_rate, "assign"):
        yield "rate", inner(rate)
    names = _trained(optimizer, weights)
    for what, held in vars(optimizer).items():
        if what in _NO_SLOTS or not isinstance(held, list) or len(held) != len(names):
            continue
        for name, slot in zip(names, held, strict=True):
            if hasattr(slot, "assign"):
                yield f"{what}/{name}", inner(slot)


def _trained(optimizer: Any, weights: Mapping[str, Any]) -> list[str]:
    """What the variables of an optimizer mean, in its order."""
    if hasattr(optimizer, "_trainable_variables"):
        whose = {id(variable): name for name, variable in weights.items()}
        return [whose[id(inner(variable))] for variable in optimizer._trainable_variables]
    indices = getattr(optimizer, "_index_dict", {})
    by_key = {optimizer._var_key(variable): name for name, variable in weights.items()}
    return [by_key[key] for key in sorted(indices, key=indices.get)]


def fill(variables: Mapping[str, Any], seed: int) -> None:
    """Give each a value that no other has, but what a program sets: a rate stays as it is."""
    draws = np.random.default_rng(seed)
    for name, variable in variables.items():
        if not name.endswith("/rate"):
            floats = variable.dtype.is_floating
            draw = draws.uniform if floats else draws.integers
            value = draw(*((0.5, 1.5) if floats else (3, 90)), variable.shape)
            variable.assign(tf.cast(value, variable.dtype))


# Optimizers

OPTIMIZERS: Mapping[str, Callable[[Any], Any]] = {
    "adam": lambda k: k.optimizers.Adam(0.01),
    "faster": lambda k: k.optimizers.Adam(0.5),
    "amsgrad": lambda k: k.optimizers.Adam(0.01, amsgrad=True),
    "averaged": lambda k: k.optimizers.Adam(0.01, use_ema=True),
    "accumulating": lambda k: k.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "adamw": lambda k: k.optimizers.AdamW(0.01),
    "sgd": lambda k: k.optimizers.SGD(0.1, momentum=0.9),
    "plain_sgd": lambda k: k.optimizers.SGD(0.1),
    "scaled": lambda k: (
        k.mixed_precision if k.__name__ == "tf_keras" else k.optimizers
    ).LossScaleOptimizer(k.optimizers.Adam(0.01)),
}


def of_model(
    k: Any,
    model: Any,
    parts: Mapping[str, Any],
    optimizer: str | None = "adam",
    metrics: Sequence[str] = (),
    built: bool = True,
) -> Program:
    """A compiled model; without ``built`` its optimizer has no variables yet, as before a `fit`."""
    if optimizer is None:
        return Program({"model": model}, parts)
    made = OPTIMIZERS[optimizer](k)
    model.compile(made, "mse", metrics=list(metrics))
    if built:
        made.build(model.trainable_variables)
    return Program({"model": model}, parts, {"optimizer": made})


# Models: chains of layers

LAYERS: Mapping[str, Callable[..., Any]] = {
    "norm": lambda k, **name: k.layers.BatchNormalization(**name),
    "scale": lambda k, **name: k.layers.LayerNormalization(**name),
    "drop": lambda k, **name: k.layers.Dropout(0.5, **name),
    "conv": lambda k, **name: k.layers.Conv2D(2, 2, **name),
    "pool": lambda k, **name: k.layers.GlobalAveragePooling2D(**name),
}


def stack(
    *layers: str,
    named: bool | Sequence[str] = (),
    classes: int = 2,
    head: str = "",
    hidden: int = WIDTH,
    inputs: tuple[int, ...] = (WIDTH,),
    frozen: Sequence[str] = (),
    shape: str = "sequential",
    activation: str = "relu",
    **how: Any,
) -> Make:
    """A chain of layers: `dense1`, or a key of ``LAYERS`` and a number; the last is the `head`."""

    def make(k: Any) -> Program:
        parts: dict[str, Any] = {}
        for part in layers or ("dense1", "dense2", "head"):
            name = {"name": part} if named is True or (named and part in named) else {}
            if part == "head":
                name = {"name": head} if head else name
            kind = part.rstrip("0123456789")
            if kind in LAYERS:
                parts[part] = LAYERS[kind](k, **name)
            else:
                units = classes if part == "head" else hidden
                parts[part] = k.layers.Dense(units, activation=activation, **name)
        model = SHAPES[shape](k, list(parts.values()), inputs)
        for part in frozen:
            parts[part].trainable = False
        return of_model(k, model, {n: p for n, p in parts.items() if p.weights}, **how)

    return make


def _sequential(k: Any, layers: Sequence[Any], shape: tuple[int, ...]) -> Any:
    return k.Sequential([k.Input(shape), *layers])


def _functional(k: Any, layers: Sequence[Any], shape: tuple[int, ...]) -> Any:
    inputs = found = k.Input(shape)
    for layer in layers:
        found = layer(found)
    return k.Model(inputs, found)


def _own(k: Any, layers: Sequence[Any], shape: tuple[int, ...], *, listed: bool = False) -> Any:
    """A model of one's own class, with attributes or a list."""

    class Own(k.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if listed:
                self.blocks = list(layers)
            for number, layer in enumerate(() if listed else layers):
                setattr(self, f"part{number}", layer)

        def call(self, inputs: Any) -> Any:
            for layer in layers:
                inputs = layer(inputs)
            return inputs

    model = Own()
    model(np.zeros((1, *shape), "float32"))
    return model


def _nested(k: Any, layers: Sequence[Any], shape: tuple[int, ...]) -> Any:
    return _sequential(k, [_sequential(k, layers[:-1], shape), layers[-1]], shape)


SHAPES = {
    "sequential": _sequential,
    "functional": _functional,
    "subclassed": _own,
    "listed": partial(_own, listed=True),
    "nested": _nested,
}


# Models with branches, and of several models


def heads(*names: str) -> Make:
    """A trunk with named heads of 2, 4 … units."""

    def make(k: Any) -> Program:
        inputs = k.Input((WIDTH,))
        parts = {"trunk": k.layers.Dense(WIDTH, name="trunk")}
        parts |= {name: k.layers.Dense(2 * n, name=name) for n, name in enumerate(names, 1)}
        found = parts["trunk"](inputs)
        model = k.Model(inputs, [parts[name](found) for name in names])
        return of_model(k, model, parts, None)

    return make


def encoder(k: Any, decoder: bool = False) -> Program:
    """A model, or two models in one, which share no name."""
    parts = {"encoder": _sequential(k, [k.layers.Dense(4)], (WIDTH,))}
    if not decoder:
        return Program({"model": parts["encoder"]}, parts)
    parts["decoder"] = _sequential(k, [k.layers.Dense(WIDTH)], (4,))
    inputs = k.Input((WIDTH,))
    return of_model(k, k.Model(inputs, parts["decoder"](parts["encoder"](inputs))), parts)


def gan(*which: str, optimizers: bool = True, called: str = "optimizer") -> Make:
    """Two models with an optimizer each, by keywords, ``generator_optimizer`` for one."""

    def make(k: Any) -> Program:
        parts = {
            "generator": _sequential(k, [k.layers.Dense(4)], (2,)),
            "discriminator": _sequential(k, [k.layers.Dense(1)], (4,)),
        }
        parts = {name: model for name, model in parts.items() if not which or name in which}
        found = {}
        for name, model in parts.items() if optimizers else ():
            found[f"{name}_optimizer"] = OPTIMIZERS["adam"](k)
            found[f"{name}_optimizer"].build(model.trainable_variables)
        objects = {name.replace("optimizer", called): each for name, each in found.items()}
        return Program({**parts, **objects}, parts, found)

    return make


# Other programs


def loop(*more: str, keyword: str = "model", optimizer: bool = True) -> Make:
    """A loop of one's own: model and optimizer apart, counters, and perhaps its ``data``."""

    def make(k: Any) -> Program:
        found = stack(optimizer=None)(k)
        objects, parts = {keyword: found.model}, dict(found.parts)
        optimizers = {}
        if optimizer:
            optimizers["optimizer"] = objects["optimizer"] = OPTIMIZERS["adam"](k)
            objects["optimizer"].build(found.model.trainable_variables)
        for name in more:
            if name == "data":
                objects["data"] = iter(tf.data.Dataset.range(8))
            else:
                parts[name] = objects[name] = _counter()
        return Program(objects, parts, optimizers)

    return make


def _counter() -> tf.Variable:
    return tf.Variable(0, dtype=tf.int64, trainable=False)


def _linear(out: int) -> tf.Module:
    """A layer without Keras."""
    made = tf.Module()
    made.w, made.b = tf.Variable(tf.zeros((WIDTH, out))), tf.Variable(tf.zeros((out,)))
    return made


def module(out: int = 2, *, more: bool = False, step: bool = False) -> Make:
    """A network without Keras, with a list and a dict of layers."""

    def make(k: Any) -> Program:
        net, one, two, main = tf.Module(), *map(_linear, (WIDTH, WIDTH, out))
        net.blocks, net.heads = [one, two], {"main": main}
        layers = {"block1": one, "block2": two, "main": main}
        if more:
            net.bonus = layers["bonus"] = _linear(5)
        parts: dict[str, Any] = {name: [layer.w, layer.b] for name, layer in layers.items()}
        objects: dict[str, Any] = {"model": net}
        if step:
            parts["step"] = objects["step"] = _counter()
        return Program(objects, parts)

    return make


def meaning(make: Make, **means: str) -> Make:
    """A program whose parts mean what another one's do, under other names."""

    def made(k: Any) -> Program:
        found = make(k)
        found.parts = {means.get(name, name): part for name, part in found.parts.items()}
        return found

    return made
