"""Objects as they are given to a checkpoint: a model alone, several, with their optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from zoo.optimizers import compiled


def chain(k: Any, *names: str | None) -> Any:
    inputs = outputs = k.Input((3,))
    for name in names:
        outputs = k.layers.Dense(3, name=name)(outputs)
    return k.Model(inputs, outputs)


def copies(k: Any) -> dict[str, Any]:
    model = compiled(chain(k, "a", "b"), k.optimizers.SGD(momentum=0.9))
    return {"model": model, "ema": chain(k, "a", "b")}


def twice(k: Any) -> dict[str, Any]:
    model = compiled(chain(k, "a", None), k.optimizers.SGD(momentum=0.9))
    return {"student": model, "teacher": model}


def adversaries(k: Any) -> dict[str, Any]:
    def made() -> Any:
        return compiled(chain(k, "a", None), k.optimizers.SGD(momentum=0.9))

    return {"generator": made(), "discriminator": made(), "step": tf.Variable(3)}


def with_optimizers(k: Any) -> dict[str, Any]:
    players = {"generator": chain(k, None, "g"), "discriminator": chain(k, None, "d")}
    solvers = {f"{name}_optimizer": k.optimizers.Adam() for name in players}
    for model, solver in zip(players.values(), solvers.values(), strict=True):
        solver.build(model.trainable_variables)
    return players | solvers


def listed(k: Any) -> dict[str, Any]:
    return {"models": [chain(k, "a"), chain(k, "a")], "more": {"x": chain(k, "a")}}


def same_optimizer(k: Any) -> dict[str, Any]:
    model = compiled(chain(k, "a", None), k.optimizers.Adam())
    return {"net": model, "opt": model.optimizer}


def layer_alone(k: Any) -> dict[str, Any]:
    layer = k.layers.Dense(2)
    layer(np.ones((1, 3), "float32"))
    return {"layer": layer}


def two_optimizers(k: Any) -> dict[str, Any]:
    model = compiled(chain(k, "a", None), k.optimizers.Adam())
    other = k.optimizers.SGD(momentum=0.9)
    other.build(model.trainable_variables)
    return {"model": model, "optimizer": other}


def in_module(k: Any) -> dict[str, Any]:
    module = tf.Module()
    module.net, module.scale = chain(k, "a", None), tf.Variable(1.0)
    return {"module": module}


ATTACHED = {
    make.__name__: make
    for make in (
        copies,
        twice,
        adversaries,
        with_optimizers,
        listed,
        same_optimizer,
        two_optimizers,
        layer_alone,
        in_module,
    )
}
