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
from zoo.variables import inner

import tfckpt
from tfckpt.live.objects.collect import collect

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


def dense(k: Any, width: int, *units: int, names: tuple[str | None, ...] = ()) -> Any:
    names = names or (None,) * len(units)
    layers = [k.layers.Dense(n, name=name) for n, name in zip(units, names, strict=True)]
    return k.Sequential([k.Input((width,)), *layers])


def music(k: Any) -> Any:
    return k.Sequential(
        [
            k.layers.Input(batch_shape=(64, None))
            if k is keras
            else k.Input(batch_size=64, shape=(None,)),
            k.layers.Embedding(4, 8),
            k.layers.LSTM(64, return_sequences=True, stateful=True, recurrent_activation="sigmoid"),
            k.layers.Dense(4),
        ]
    )


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
    model.compile(flavour.optimizers.AdamW(1e-3), "mse")
    with pytest.raises(
        tfckpt.RefusedError, match="'adam_w' in the model and 'adam' in the checkpoint"
    ):
        item.restore({"expect_partial": True}, model=model)
    item.restore({"expect_partial": True, "optimizer": {"slots": "reset"}}, model=model)
    check_weights(item, model)


def autoencoder(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            layers = k.layers
            self.encoder = k.Sequential(
                [
                    k.Input((28, 28, 1)),
                    layers.Conv2D(32, 3, 2, activation="relu"),
                    layers.Conv2D(64, 3, 2, activation="relu"),
                    layers.Flatten(),
                    layers.Dense(4),
                ]
            )
            self.decoder = k.Sequential(
                [
                    k.Input((2,)),
                    layers.Dense(7 * 7 * 32, activation="relu"),
                    layers.Reshape((7, 7, 32)),
                    layers.Conv2DTranspose(64, 3, 2, "same", activation="relu"),
                    layers.Conv2DTranspose(32, 3, 2, "same", activation="relu"),
                    layers.Conv2DTranspose(1, 3, 1, "same"),
                ]
            )

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x)[:, :2])

    model = Net()
    model(np.zeros((1, 28, 28, 1), "float32"))
    return model


def test_a_subclassed_model_by_save_weights(flavour) -> None:
    item, model = Item("tf2_vae_cardio"), autoencoder(flavour)
    item.restore({}, model=model)
    check_weights(item, model.encoder, "encoder/")
    check_weights(item, model.decoder, "decoder/")


def test_one_half_of_a_subclassed_model(flavour) -> None:
    item, model = Item("tf2_vae_cardio"), autoencoder(flavour)
    item.restore({"on_unexpected": "warn"}, encoder=model.encoder)
    check_weights(item, model.encoder, "encoder/")


def deepconsensus(k: Any) -> Any:
    x = k.Input((100, 150, 1))
    y = k.layers.Flatten()(x)
    for units in (4, 4, 600):
        y = k.layers.Dense(units)(y)
    return k.Model(x, k.layers.Softmax()(k.layers.Reshape((120, 5))(y)))


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


def basic_pitch(k: Any) -> Any:
    """As in basic_pitch/models.py, but for what lies between the layers and has no weights."""
    layers = k.layers
    x = k.Input((None, 24, 1))
    stacked = layers.Concatenate()([layers.BatchNormalization()(x)] * 8)
    y = layers.Conv2D(8, (3, 39), padding="same")(stacked)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    contours = layers.Conv2D(1, 5, padding="same", name="contours-reduced")(y)
    y = layers.ReLU()(layers.Conv2D(32, 7, padding="same", strides=(1, 3))(contours))
    notes = layers.Conv2D(1, (7, 3), padding="same")(y)
    y = layers.Conv2D(32, 5, padding="same", strides=(1, 3))(stacked)
    y = layers.Concatenate()([notes, layers.ReLU()(layers.BatchNormalization()(y))])
    return k.Model(x, [contours, notes, layers.Conv2D(1, 3, padding="same")(y)])


def test_a_saved_model_of_convolutions(flavour) -> None:
    item, model = Item("sm_basic_pitch"), basic_pitch(flavour)
    model.compile(flavour.optimizers.Adam(), "mse")
    item.restore({"optimizer": {"hyperparameters": "config"}}, model=model)
    check_weights(item, model)
    check_slots(item, model, ADAM)


def test_a_saved_policy_of_an_agent_by_rules(flavour) -> None:
    """Its variables hang in a list; of the layers they come from, only their order is left."""
    item, model = Item("sm_cartpole_policy"), dense(flavour, 4, 64, 64, 9)
    names = [f"{layer}/{name}" for layer in ("dense", "dense_1", "dense_2") for name in WEIGHTS]
    rename = [
        {"checkpoint": f"model_variables/{index}", "model": f"model/{name}"}
        for index, name in enumerate(names)
    ]
    item.restore({"rename": rename, "exclude_checkpoint": ["train_step"]}, model=model)
    for index, variable in enumerate(model.weights):
        item.has(f"model_variables/{index}", variable)


WEIGHTS = ("kernel", "bias")
BARE = {
    "tf2_makemore": {
        "C": (67, 50),
        "W1": (400, 400),
        "W2": (400, 300),
        "W3": (300, 150),
        "W4": (150, 67),
        "b1": (400,),
        "b2": (300,),
        "b3": (150,),
        "b4": (67,),
    },
    "sm_serving_tf2": {"a": (), "b": (), "c": ()},
    "sm_tfjs_uint8": {"v1": (), "v2": ()},
}


@pytest.mark.parametrize("make", [tf.Variable, keras.Variable])
@pytest.mark.parametrize("name", BARE)
def test_bare_variables(name, make) -> None:
    item, dtype = Item(name), "int32" if name == "sm_tfjs_uint8" else "float32"
    variables = {key: make(np.zeros(shape, dtype)) for key, shape in BARE[name].items()}
    item.restore({}, **variables)
    for key, variable in variables.items():
        item.has(key, variable)


class Module(tf.Module):
    """A tf.Module with these attributes, as Sonnet's are: numbers are shapes of variables."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        for attribute, part in parts.items():
            setattr(self, attribute, self._made(part))

    def _made(self, part: Any) -> Any:
        if isinstance(part, dict):
            return Module(**part)
        if isinstance(part, list):
            return [self._made(each) for each in part]
        counter = part == ()
        return tf.Variable(tf.zeros(part, tf.int64 if counter else tf.float32))


def average(*shape: int) -> dict[str, Any]:
    return {"average": shape, "_hidden": shape, "_counter": ()}


def normed(width: int) -> dict[str, Any]:
    kept = (1, 1, 1, width)
    moving = {"moving_mean": average(*kept), "moving_variance": average(*kept)}
    return {"scale": (width,), "offset": (width,), **moving}


SONNET: dict[str, dict[str, Any]] = {
    "sonnet_ema_2": average(2),
    "sonnet_embed_100_100": {"embeddings": (100, 100)},
    "sonnet_mean_2x2": {"sum": (2, 2), "count": ()},
    "sonnet_lstm_8_projected_1": {
        "_w_i": (128, 32),
        "_w_h": (1, 32),
        "b": (32,),
        "projection": (8, 1),
    },
    "sonnet_cifar10_convnet_2x3_2x2_1x3x3x2": {
        "_conv_modules": [
            {"w": (3, 3, 2, 2), "b": (2,)},
            {"w": (3, 3, 2, 3), "b": (3,)},
        ],
        "_bn_modules": [normed(2), normed(3)],
        "_logits_module": {"w": (3, 10), "b": (10,)},
    },
}


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
