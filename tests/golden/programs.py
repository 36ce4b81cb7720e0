"""One small program, in four kinds of models, and what people change in it between runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from zoo.optimizers import compiled

# A layer is a name or None, and how many units; or another kind of layer.
Layers = tuple[tuple[str | None, int | str], ...]
BASE: Layers = ((None, 3), ("middle", 3), (None, 4), ("head", 2))
FIRST, MIDDLE, LAST, HEAD = BASE
EDITS: dict[str, Layers] = {
    "the same": BASE,
    "a Dropout more": (FIRST, (None, "dropout"), MIDDLE, LAST, HEAD),
    "a norm more": (FIRST, (None, "norm"), MIDDLE, LAST, HEAD),
    "an unnamed layer more": (FIRST, (None, 3), MIDDLE, LAST, HEAD),
    "a named layer more": (FIRST, MIDDLE, ("more", 3), LAST, HEAD),
    "one layer fewer": (FIRST, MIDDLE, ("head", 2)),
    "the middle renamed": (FIRST, ("center", 3), LAST, HEAD),
    "the first named": (("first", 3), MIDDLE, LAST, HEAD),
    "the middle unnamed": (FIRST, (None, 3), LAST, HEAD),
    "another head": (FIRST, MIDDLE, LAST, ("classes", 5)),
    "a wider head": (FIRST, MIDDLE, LAST, ("head", 5)),
    "exchanged": (MIDDLE, FIRST, LAST, HEAD),
}
POLICIES: dict[str, dict[str, Any]] = {
    "strict": {},
    "partly": {"expect_partial": True},
    "weights": {"include": ["model/**"]},
    "cast": {"on_dtype_mismatch": "cast"},
    "finetune": {
        "include": ["model/**"],
        "exclude": ["model/head/**"],
        "on_missing": "warn",
        "on_unexpected": "warn",
        "optimizer": {"slots": "reset", "iterations": "reset", "hyperparameters": "config"},
        "min_restored": 0.5,
    },
}
OPTIMIZERS = ("momentum", "adam", "averaged", "scheduled", "none")
# What checkpoints are written of; all kinds are restored into.
SOURCES = {"sequential": "momentum", "nested": "none", "listed": "none"}


class Program(NamedTuple):
    """How a model is put together, its layers, what it is trained by, and its precision."""

    kind: str
    layers: Layers = BASE
    optimizer: str = "momentum"
    dtype: str = "float32"

    def model(self, k: Any) -> Any:
        built = KINDS[self.kind](k, [_layer(k, *each, dtype=self.dtype) for each in self.layers])
        made = _optimizer(k, self.optimizer)
        return built if made is None else compiled(built, made)


def _optimizer(k: Any, name: str) -> Any:
    if name == "adam":
        return k.optimizers.Adam(0.1)
    falling = k.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    rate = falling if name == "scheduled" else 0.1
    averaged = name == "averaged"
    return None if name == "none" else k.optimizers.SGD(rate, momentum=0.9, use_ema=averaged)


def _layer(k: Any, name: str | None, what: int | str, dtype: str) -> Any:
    if what == "dropout":
        return k.layers.Dropout(0.5, name=name)
    if what == "norm":
        return k.layers.LayerNormalization(name=name)
    return k.layers.Dense(what, name=name, dtype=dtype)


def sequential(k: Any, layers: list[Any]) -> Any:
    return k.Sequential([k.Input((3,)), *layers])


def functional(k: Any, layers: list[Any]) -> Any:
    inputs = outputs = k.Input((3,))
    for layer in layers:
        outputs = layer(outputs)
    return k.Model(inputs, outputs)


def nested(k: Any, layers: list[Any]) -> Any:
    """All but the head in a model of their own, which has a name."""
    body = k.Sequential([k.Input((3,)), *layers[:-1]], name="body")
    return k.Sequential([k.Input((3,)), body, layers[-1]])


def listed(k: Any, layers: list[Any]) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = layers[:-1], layers[-1]

        def call(self, x: Any) -> Any:
            for layer in self.blocks:
                x = layer(x)
            return self.head(x)

    net = Net()
    net(k.ops.ones((1, 3)) if hasattr(k, "ops") else k.backend.ones((1, 3)))
    return net


KINDS = {kind.__name__: kind for kind in (sequential, functional, nested, listed)}
