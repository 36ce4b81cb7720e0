"""Into what the real checkpoints are restored, and by which policies besides the strict one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from zoo import rebuilt
from zoo.optimizers import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = {"include": ["model/**"]}
CONFIG = {"optimizer": {"hyperparameters": "config"}}


class Rebuilt(NamedTuple):
    """Objects by keyword, from a flavour, and a policy."""

    make: Callable[[Any], dict[str, Any]]
    policy: dict[str, Any]


def _model(build: Callable[[Any], Any], policy: dict[str, Any] = WEIGHTS) -> Rebuilt:
    return Rebuilt(lambda k: {"model": build(k)}, policy)


def _trained(
    build: Callable[[Any], Any], policy: dict[str, Any] = CONFIG, optimizer: str = "Adam"
) -> Rebuilt:
    return Rebuilt(
        lambda k: {"model": compiled(build(k), getattr(k.optimizers, optimizer)())}, policy
    )


def _dense(*sizes: int, names: tuple[str | None, ...] = ()) -> Callable[[Any], Any]:
    return lambda k: rebuilt.dense(k, *sizes, names=names)


def _file(name: str) -> Callable[[Any], Any]:
    _, shape, layers = rebuilt.KERAS_FILES[name]
    return lambda k: k.Sequential([k.Input(shape), *layers(k)])


def _bare(name: str, k: Any) -> dict[str, Any]:
    dtype = "int32" if name == "sm_tfjs_uint8" else "float32"
    return {n: tf.Variable(np.zeros(shape, dtype)) for n, shape in rebuilt.BARE[name].items()}


def _module(name: str, k: Any) -> dict[str, Any]:
    return {"module": rebuilt.Module(**rebuilt.SONNET[name])}


AGENT = {
    "rename": [
        {"checkpoint": f"model_variables/{2 * index + at}", "model": f"model/{layer}/{name}"}
        for index, layer in enumerate(("dense", "dense_1", "dense_2"))
        for at, name in enumerate(("kernel", "bias"))
    ],
    "exclude_checkpoint": ["train_step"],
}
RESET = {"expect_partial": True, "optimizer": {"slots": "reset"}}
RESTORES: dict[str, list[Rebuilt]] = {
    "tf2_lstm_md_configjson": [
        _model(rebuilt.music),
        _trained(rebuilt.music, {**CONFIG, "exclude_checkpoint": ["optimizer/beta?_power"]}),
        _trained(rebuilt.music, RESET, "AdamW"),
    ],
    "tf2_vae_cardio": [
        _model(rebuilt.autoencoder),
        Rebuilt(lambda k: {"encoder": rebuilt.autoencoder(k).encoder}, {"on_unexpected": "warn"}),
    ],
    "tf2_deepconsensus_fc": [_trained(rebuilt.deepconsensus)],
    "sm_tfx_keras": [_trained(_dense(4, 8, 8, 3))],
    "sm_rust_keras_single": [_trained(_dense(5, 5, 5, 1, names=("test_in", None, "test_out")))],
    "tuner_tfx_iris": [_trained(_dense(4, 8, 8, 8, 3))],
    "sm_basic_pitch": [_trained(rebuilt.basic_pitch)],
    "sm_cartpole_policy": [_model(_dense(4, 64, 64, 9), AGENT)],
    "h5_rl_deep_sarsa": [_model(_file("h5_rl_deep_sarsa"))],
    "h5_rl_drqn": [_model(_file("h5_rl_drqn"))],
    "k3_nlf": [_model(_file("k3_nlf")), _trained(_file("k3_nlf"))],
    **{name: [Rebuilt(partial(_bare, name), {})] for name in rebuilt.BARE},
    **{name: [Rebuilt(partial(_module, name), {})] for name in rebuilt.SONNET},
}
