"""The programs of the table of everyday restores: tiny models, and what else a program has.

A value is known by what it means in the program (``head/0``), not by a name in TensorFlow, Keras or
tfckpt: what has one meaning in the program that saved and in the one that restores is one value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Make = Callable[[Any], "Program"]

WIDTH = 3
# Lists of an optimizer that hold no slots.
_NO_SLOTS = ("_variables", "_trainable_variables", "_weights")
AVERAGES = "_model_variables_moving_average"


@dataclass
class Program:
    """What a program has when it saves or restores.

    Attributes:
        objects: what it passes to a checkpoint, by keyword.
        parts: the layers and variables, by what they mean.
        optimizers: by what they mean.
    """

    objects: dict[str, Any]
    parts: Mapping[str, Any]
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
    if isinstance(part, tf.Variable):
        return [part]
    # A list of Keras 3 holds its layers in the order in which they were built.
    return getattr(part, "weights", None) or getattr(part, "variables", [])


def _state(optimizer: Any, weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    inside = getattr(optimizer, "inner_optimizer", None)
    if inside is not None:
        scale = getattr(optimizer, "_loss_scale", None)
        yield "scale", inner(getattr(scale, "_current_loss_scale", None) or optimizer.dynamic_scale)
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
        if name.endswith("/rate"):
            continue
        if variable.dtype.is_floating:
            value = draws.uniform(0.5, 1.5, variable.shape)
        else:
            value = draws.integers(3, 90, variable.shape)
        variable.assign(tf.cast(value, variable.dtype))


# Optimizers


def adam(keras: Any, **options: Any) -> Any:
    return keras.optimizers.Adam(0.01, **options)


def amsgrad(keras: Any) -> Any:
    return adam(keras, amsgrad=True)


def averaged(keras: Any) -> Any:
    return adam(keras, use_ema=True)


def accumulating(keras: Any) -> Any:
    return adam(keras, gradient_accumulation_steps=2)


def scaled(keras: Any) -> Any:
    module = keras.mixed_precision if keras.__name__ == "tf_keras" else keras.optimizers
    return module.LossScaleOptimizer(adam(keras))


def sgd(keras: Any) -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def plain_sgd(keras: Any) -> Any:
    return keras.optimizers.SGD(0.1)


def adamw(keras: Any) -> Any:
    return keras.optimizers.AdamW(0.01)


def faster(keras: Any) -> Any:
    return keras.optimizers.Adam(0.5)


def of_model(
    keras: Any,
    model: Any,
    parts: Mapping[str, Any],
    optimizer: Callable[[Any], Any] | None,
    *,
    metrics: Sequence[str] = (),
    built: bool = True,
) -> Program:
    """A compiled model; without ``built`` its optimizer has no variables yet, as before a `fit`."""
    if optimizer is None:
        return Program({"model": model}, parts)
    made = optimizer(keras)
    model.compile(made, "mse", metrics=list(metrics))
    if built:
        made.build(model.trainable_variables)
    return Program({"model": model}, parts, {"optimizer": made})


# Models


def names(*given: str) -> Callable[[str], dict[str, str]]:
    """``name=`` of the layers that are given one."""
    return lambda part: {"name": part} if part in given or "all" in given else {}


def stack(
    *layers: str,
    named: Sequence[str] = (),
    classes: int = 2,
    head: str = "",
    hidden: int = WIDTH,
    inputs: int = WIDTH,
    optimizer: Callable[[Any], Any] | None = adam,
    frozen: Sequence[str] = (),
    metrics: Sequence[str] = (),
    built: bool = True,
    shape: str = "sequential",
    activation: str = "relu",
) -> Make:
    """A chain of layers: `dense1`, `norm`, `drop`, `conv`, and the last one is the head."""

    def make(keras: Any) -> Program:
        called = names(*named)
        parts: dict[str, Any] = {}
        for part in layers or ("dense1", "dense2", "head"):
            kind = part.rstrip("0123456789")
            name = {"name": head} if part == "head" and head else called(part)
            if kind == "norm":
                parts[part] = keras.layers.BatchNormalization(**name)
            elif kind == "scale":
                parts[part] = keras.layers.LayerNormalization(**name)
            elif kind == "drop":
                parts[part] = keras.layers.Dropout(0.5, **name)
            else:
                units = classes if part == "head" else hidden
                parts[part] = keras.layers.Dense(units, activation=activation, **name)
        model = SHAPES[shape](keras, list(parts.values()), inputs)
        for part in frozen:
            parts[part].trainable = False
        kept = {name: part for name, part in parts.items() if not name.startswith("drop")}
        return of_model(keras, model, kept, optimizer, metrics=metrics, built=built)

    return make


def _sequential(keras: Any, layers: Sequence[Any], width: int) -> Any:
    return keras.Sequential([keras.Input((width,)), *layers])


def _functional(keras: Any, layers: Sequence[Any], width: int) -> Any:
    inputs = found = keras.Input((width,))
    for layer in layers:
        found = layer(found)
    return keras.Model(inputs, found)


def _subclassed(keras: Any, layers: Sequence[Any], width: int) -> Any:
    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, *rest = layers
            for number, layer in enumerate(rest, 2):
                setattr(self, f"part{number}", layer)
            self.rest = len(rest)

        def call(self, inputs: Any) -> Any:
            found = self.first(inputs)
            for number in range(self.rest):
                found = getattr(self, f"part{number + 2}")(found)
            return found

    return _called(Own(), width)


def _listed(keras: Any, layers: Sequence[Any], width: int) -> Any:
    class Listed(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.blocks = list(layers)

        def call(self, inputs: Any) -> Any:
            for layer in self.blocks:
                inputs = layer(inputs)
            return inputs

    return _called(Listed(), width)


def _keyed(keras: Any, layers: Sequence[Any], width: int) -> Any:
    class Keyed(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.by_name = {f"part {number}": layer for number, layer in enumerate(layers)}

        def call(self, inputs: Any) -> Any:
            for key in sorted(self.by_name):
                inputs = self.by_name[key](inputs)
            return inputs

    return _called(Keyed(), width)


def _nested(keras: Any, layers: Sequence[Any], width: int) -> Any:
    *inside, last = layers
    return keras.Sequential([keras.Input((width,)), _sequential(keras, inside, width), last])


def _custom(keras: Any, layers: Sequence[Any], width: int) -> Any:
    class Inside(keras.layers.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = layers[:2]

        def build(self, shape: Any) -> None:
            self.one.build(shape)
            self.two.build((None, self.one.units))

        def call(self, inputs: Any) -> Any:
            return self.two(self.one(inputs))

    return _sequential(keras, [Inside(), *layers[2:]], width)


def _called(model: Any, width: int) -> Any:
    model(np.zeros((1, width), "float32"))
    return model


SHAPES = {
    "sequential": _sequential,
    "functional": _functional,
    "subclassed": _subclassed,
    "listed": _listed,
    "keyed": _keyed,
    "nested": _nested,
    "custom": _custom,
}


def own_weights(keras: Any) -> Program:
    """A layer with weights of its own, one of which is not trained."""

    class Affine(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(WIDTH,), name="scale")
            self.seen = self.add_weight(shape=(), name="seen", trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale + self.seen

    affine, head = Affine(), keras.layers.Dense(2)
    model = _sequential(keras, [affine, head], WIDTH)
    return of_model(keras, model, {"affine": affine, "head": head}, adam)


def images(keras: Any, optimizer: Callable[[Any], Any] | None = sgd) -> Program:
    """Convolutions with batch normalization."""
    layers = keras.layers
    parts = {
        "conv1": layers.Conv2D(2, 2),
        "norm1": layers.BatchNormalization(),
        "conv2": layers.Conv2D(2, 2),
        "norm2": layers.BatchNormalization(),
        "head": layers.Dense(2),
    }
    chain = [*list(parts.values())[:-1], layers.GlobalAveragePooling2D(), parts["head"]]
    model = keras.Sequential([keras.Input((4, 4, 1)), *chain])
    return of_model(keras, model, parts, optimizer)


def text(keras: Any) -> Program:
    """An embedding and a recurrent layer."""
    layers = keras.layers
    parts = {"words": layers.Embedding(5, 3), "gru": layers.GRU(2), "head": layers.Dense(2)}
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *parts.values()])
    return of_model(keras, model, parts, adam)


def shared(keras: Any) -> Program:
    """One layer on two branches."""
    one, head = keras.layers.Dense(WIDTH), keras.layers.Dense(2)
    left, right = keras.Input((WIDTH,)), keras.Input((WIDTH,))
    found = head(keras.layers.Concatenate()([one(left), one(right)]))
    return of_model(keras, keras.Model([left, right], found), {"one": one, "head": head}, adam)


def towers(*which: str, named: bool = True, head: bool = True) -> Make:
    """Named towers, side by side, of equal shapes."""

    def make(keras: Any) -> Program:
        found, inputs = [], keras.Input((WIDTH,))
        parts = {}
        for name in which or ("left", "right"):
            parts[name] = keras.layers.Dense(WIDTH, **({"name": name} if named else {}))
            found.append(parts[name](inputs))
        added = keras.layers.Add()(found) if len(found) > 1 else found[0]
        if head:
            parts["head"] = keras.layers.Dense(2, **({"name": "head"} if named else {}))
            added = parts["head"](added)
        return of_model(keras, keras.Model(inputs, added), parts, adam)

    return make


def two_heads(*heads: str, widths: Sequence[int] = (2, 4)) -> Make:
    """A trunk with named heads."""

    def make(keras: Any) -> Program:
        inputs = keras.Input((WIDTH,))
        parts = {"trunk": keras.layers.Dense(WIDTH, name="trunk")}
        found = parts["trunk"](inputs)
        for name, width in zip(heads, widths, strict=False):
            parts[name] = keras.layers.Dense(width, name=name)
        model = keras.Model(inputs, [parts[name](found) for name in heads])
        return of_model(keras, model, parts, None)

    return make


def encoder_decoder(keras: Any) -> Program:
    """Two models in one, which share no name."""
    parts = {"encoder": _sequential(keras, [keras.layers.Dense(4)], WIDTH)}
    parts["decoder"] = _sequential(keras, [keras.layers.Dense(WIDTH)], 4)
    inputs = keras.Input((WIDTH,))
    model = keras.Model(inputs, parts["decoder"](parts["encoder"](inputs)))
    return of_model(keras, model, parts, adam)


def encoder_alone(keras: Any) -> Program:
    encoder = _sequential(keras, [keras.layers.Dense(4)], WIDTH)
    return Program({"model": encoder}, {"encoder": encoder})


def gan(*which: str, optimizers: bool = True) -> Make:
    """Two models with an optimizer each, by keywords."""

    def make(keras: Any) -> Program:
        parts = {
            "generator": keras.Sequential([keras.Input((2,)), keras.layers.Dense(4)]),
            "discriminator": keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]),
        }
        parts = {name: model for name, model in parts.items() if not which or name in which}
        found = {}
        for name, model in parts.items() if optimizers else ():
            found[f"{name}_optimizer"] = adam(keras)
            found[f"{name}_optimizer"].build(model.trainable_variables)
        return Program({**parts, **found}, parts, found)

    return make


def loop(
    *more: str,
    model: Make | None = None,
    keyword: str = "model",
    optimizer: bool = True,
    without: Sequence[str] = (),
) -> Make:
    """A loop of one's own: model and optimizer apart, ``step`` and other counters."""

    def make(keras: Any) -> Program:
        found = (model or stack(optimizer=None))(keras)
        objects, parts = {keyword: found.model}, dict(found.parts)
        optimizers = {}
        if optimizer:
            optimizers["optimizer"] = objects["optimizer"] = adam(keras)
            objects["optimizer"].build(found.model.trainable_variables)
        for name in more:
            if name == "data":
                objects["data"] = iter(tf.data.Dataset.range(8))
            else:
                parts[name] = objects[name] = tf.Variable(0, dtype=tf.int64, trainable=False)
        objects = {name: each for name, each in objects.items() if name not in without}
        parts = {name: each for name, each in parts.items() if name not in without}
        return Program(objects, parts, optimizers)

    return make


class Linear(tf.Module):  # type: ignore[misc]
    """A layer without Keras."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.zeros((size, out)))
        self.b = tf.Variable(tf.zeros((out,)))


class Net(tf.Module):  # type: ignore[misc]
    """A network without Keras, with a list and a dict of layers."""

    def __init__(self, out: int = 2, *, more: bool = False) -> None:
        super().__init__()
        self.blocks = [Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)]
        self.heads = {"main": Linear(WIDTH, out)}
        if more:
            self.bonus = Linear(WIDTH, 5)


def module(out: int = 2, *, more: bool = False, step: bool = False) -> Make:
    def make(keras: Any) -> Program:
        net = Net(out, more=more)
        parts = {"block1": net.blocks[0], "block2": net.blocks[1], "main": net.heads["main"]}
        parts |= {"bonus": net.bonus} if more else {}
        parts = {name: _Held([layer.w, layer.b]) for name, layer in parts.items()}
        objects: dict[str, Any] = {"model": net}
        if step:
            parts["step"] = objects["step"] = tf.Variable(0, dtype=tf.int64, trainable=False)
        return Program(objects, parts)

    return make


@dataclass
class _Held:
    variables: Sequence[Any]


# Other programs of the same


def meaning(make: Make, **means: str) -> Make:
    """A program whose parts mean what another one's do, under other names."""

    def made(keras: Any) -> Program:
        found = make(keras)
        found.parts = {means.get(name, name): part for name, part in found.parts.items()}
        return found

    return made
