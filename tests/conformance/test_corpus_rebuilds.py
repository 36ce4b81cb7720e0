"""Models built anew, in both flavours, and restored from checkpoints that other people wrote.

Each by a policy of a few lines; what must come out is in `expected/<id>.json` of the corpus, as
TensorFlow read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.corpus import digest, expected_of, prefix_of
from zoo.rebuilt import (
    BARE,
    SONNET,
    Module,
    autoencoder,
    basic_pitch,
    deepconsensus,
    dense,
    music,
)
from zoo.variables import inner

import tfckpt
from tfckpt.live.inventory import collect

if TYPE_CHECKING:
    from collections.abc import Mapping

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
SLOT = "/.OPTIMIZER_SLOT/optimizer/"
ADAM = {"m": "momentum", "v": "velocity"}


@pytest.fixture(autouse=True)
def _needs(corpus: Any) -> None:
    """Skips, saying so, where the corpus is absent."""


class Item:
    """One item of the corpus, and what its values are to be."""

    def __init__(self, name: str) -> None:
        self.path = prefix_of(name)
        self._expected = expected_of(name)

    def restore(self, policy: Mapping[str, Any], **objects: Any) -> Any:
        """Restore as a run does, which counts its saves; few of these files do."""
        restore = {"path": self.path, "policy": dict(policy)}
        return tfckpt.restore({"version": 1, "restore": restore}, **objects)

    def has(self, key: str, variable: Any) -> None:
        """Assert that a variable is, bit for bit, what stands under a key."""
        value = np.asarray(inner(variable).numpy())
        wanted = self._expected[key + VALUE]
        assert list(value.shape) == wanted["shape"], key
        assert digest(value, wanted["dtype"]) == wanted["sha256"], key


def layers_of(model: Any) -> list[Any]:
    return [layer for layer in model.layers if layer.weights]


def keys_of(layer: Any, number: int, below: str) -> dict[str, Any]:
    """Key in Keras 2's files → variable, of one layer of a functional or sequential model."""
    path = f"{below}layer_with_weights-{number}/{'cell/' if hasattr(layer, 'cell') else ''}"
    names = [variable.name.removesuffix(":0").rpartition("/")[2] for variable in layer.weights]
    return {path + name: variable for name, variable in zip(names, layer.weights, strict=True)}


def check_weights(item: Item, model: Any, below: str = "") -> None:
    for number, layer in enumerate(layers_of(model)):
        for key, variable in keys_of(layer, number, below).items():
            item.has(key, variable)


def check_slots(item: Item, model: Any, slots: Mapping[str, str], below: str = "") -> None:
    """Every slot of the optimizer, of every trained variable; slot in the file → its name."""
    live = collect({"model": model}).variables
    names = {id(inner(variable)): name for name, variable in live.items()}
    trained = {id(inner(variable)) for variable in model.trainable_weights}
    for number, layer in enumerate(layers_of(model)):
        for key, variable in keys_of(layer, number, below).items():
            if id(inner(variable)) in trained:
                name = names[id(inner(variable))].removeprefix("model/")
                for word, slot in slots.items():
                    item.has(f"{key}{SLOT}{word}", live[f"optimizer/{slot}/{name}"])


def test_a_recurrent_model_of_tensorflow_1_13(flavour) -> None:
    """With the layers' configurations among the values, and an optimizer of `tf.train`."""
    item, model = Item("tf2_lstm_md_configjson"), music(flavour)
    item.restore({"include": ["model/**"]}, model=model)
    check_weights(item, model)


def test_an_optimizer_of_tensorflow_1_goes_on_as_keras_adam(flavour) -> None:
    item, model = Item("tf2_lstm_md_configjson"), music(flavour)
    model.compile(flavour.optimizers.Adam(1e-3), "mse")
    policy = {
        "exclude_checkpoint": ["optimizer/beta?_power"],
        "optimizer": {"hyperparameters": "config"},
    }
    item.restore(policy, model=model)
    check_weights(item, model)
    check_slots(item, model, {f"optimizer/{word}": slot for word, slot in ADAM.items()})
    item.has("optimizer/global_step", model.optimizer.iterations)
    # What TF1 kept as numbers, Keras computes from the step: it is the same step.
    steps = int(inner(model.optimizer.iterations)) + 1
    stored = tf.train.load_variable(item.path, f"optimizer/optimizer/beta1_power{VALUE}")
    assert stored == pytest.approx(0.9**steps, rel=1e-3, abs=1e-30)


def test_an_optimizer_of_tensorflow_1_is_of_its_class(flavour) -> None:
    item, model = Item("tf2_lstm_md_configjson"), music(flavour)
    model.compile(flavour.optimizers.Nadam(1e-3), "mse")
    with pytest.raises(tfckpt.RefusedError, match="'nadam' in the model and 'adam' in"):
        item.restore({"expect_partial": True}, model=model)
    item.restore({"expect_partial": True, "optimizer": {"slots": "reset"}}, model=model)
    check_weights(item, model)


def test_a_subclassed_model_by_save_weights(flavour) -> None:
    item, model = Item("tf2_vae_cardio"), autoencoder(flavour)
    item.restore({}, model=model)
    check_weights(item, model.encoder, "encoder/")
    check_weights(item, model.decoder, "decoder/")


def test_one_half_of_a_subclassed_model(flavour) -> None:
    item, model = Item("tf2_vae_cardio"), autoencoder(flavour)
    item.restore({"on_unexpected": "warn"}, encoder=model.encoder)
    check_weights(item, model.encoder, "encoder/")


def test_a_file_that_tells_no_names_is_restored_by_position(flavour) -> None:
    item, model = Item("tf2_deepconsensus_fc"), deepconsensus(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model, "model/")
    check_slots(item, model, ADAM, "model/")
    item.has("optimizer/iter", model.optimizer.iterations)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("sm_tfx_keras", lambda k: dense(k, 4, 8, 8, 3)),
        (
            "sm_rust_keras_single",
            lambda k: dense(k, 5, 5, 5, 1, names=("test_in", None, "test_out")),
        ),
        ("tuner_tfx_iris", lambda k: dense(k, 4, 8, 8, 8, 3)),
    ],
)
def test_dense_layers_and_adam(name, build, flavour) -> None:
    item, model = Item(name), build(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model)
    check_slots(item, model, ADAM)
    item.has("optimizer/iter", model.optimizer.iterations)


def test_a_saved_model_of_convolutions(flavour) -> None:
    item, model = Item("sm_basic_pitch"), basic_pitch(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model)
    check_slots(item, model, ADAM)


def test_a_saved_policy_of_an_agent_by_rules(flavour) -> None:
    """Its variables hang in a list; of the layers they come from, only their order is left."""
    item, model = Item("sm_cartpole_policy"), dense(flavour, 4, 64, 64, 9)
    names = [
        f"{layer}/{name}"
        for layer in ("dense", "dense_1", "dense_2")
        for name in ("kernel", "bias")
    ]
    rename = [
        {"checkpoint": f"model_variables/{index}", "model": f"model/{name}"}
        for index, name in enumerate(names)
    ]
    item.restore({"rename": rename, "exclude_checkpoint": ["train_step"]}, model=model)
    for index, variable in enumerate(model.weights):
        item.has(f"model_variables/{index}", variable)


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable])
@pytest.mark.parametrize("name", BARE)
def test_bare_variables(name, make) -> None:
    item, dtype = Item(name), "int32" if name == "sm_tfjs_uint8" else "float32"
    variables = {key: make(np.zeros(shape, dtype)) for key, shape in BARE[name].items()}
    item.restore({}, **variables)
    for key, variable in variables.items():
        item.has(key, variable)


def leaves(part: Any, path: str) -> dict[str, Any]:
    if isinstance(part, tf.Variable):
        return {path: part}
    items = enumerate(part) if isinstance(part, (list, tuple)) else vars(part).items()
    found = {}
    for key, below in items:
        if isinstance(below, (tf.Variable, list, tuple, Module)):
            found |= leaves(below, f"{path}/{key}")
    return found


@pytest.mark.parametrize("name", SONNET)
def test_a_module_of_sonnet(name) -> None:
    item, module = Item(name), Module(**SONNET[name])
    item.restore({}, module=module)
    found = leaves(module, "module")
    assert len(found) == len(module.variables)
    for key, variable in found.items():
        item.has(key, variable)


def test_an_embedding_of_sonnet_in_keras(flavour) -> None:
    item = Item("sonnet_embed_100_100")
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Embedding(100, 100)])
    item.restore(
        {"rename": [{"checkpoint": "module/**", "model": "model/embedding/**"}]}, model=model
    )
    item.has("module/embeddings", model.layers[-1].embeddings)


def test_a_perceptron_of_sonnet_in_keras(flavour) -> None:
    """Sonnet says `w` and `b`."""
    item = Item("sonnet_cifar10_convnet_2x3_2x2_1x3x3x2")
    model = dense(flavour, 3, 10, names=("logits",))
    rename = [
        {"checkpoint": "module/logits_module/w", "model": "model/logits/kernel"},
        {"checkpoint": "module/logits_module/b", "model": "model/logits/bias"},
    ]
    item.restore({"rename": rename, "on_unexpected": "ignore"}, model=model)
    item.has("module/_logits_module/w", model.layers[-1].kernel)
    item.has("module/_logits_module/b", model.layers[-1].bias)
