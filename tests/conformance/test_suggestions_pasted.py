"""Suggestions as people would use them: the restore is refused, the lines are pasted, it works.

What must come out is read by other means: by TensorFlow, from the models that were saved, and for
the corpus from `expected/<id>.json`.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from conformance.test_corpus_rebuilds import (
    VALUE,
    Item,
    autoencoder,
    basic_pitch,
    check_weights,
    deepconsensus,
    dense,
    music,
)
from safetensors.numpy import save_file
from zoo.corpus import CORPUS as FOLDER
from zoo.corpus import ITEMS, digest, expected_of, prefix_of
from zoo.graphs import save, v1
from zoo.pairs.build import Built, NotAModelError, start_anew
from zoo.pairs.cases import case
from zoo.pairs.verdicts import LEFT, MISPLACED, REFUSED, SUSPECT, _Judging, _save
from zoo.variables import inner

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LAYERS = keras.layers
ORDINALS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def pasted(path: str, model: Any) -> tfckpt.RestoreReport:
    """Restore at first try, or by the YAML that the refusal ends with."""
    if tfckpt.plan(path, model).ok:
        return tfckpt.restore(path, model)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model)
    assert refused.value.suggestion is not None, str(refused.value)
    shown = str(refused.value).partition("\n\nin Python:")[0]
    lead, _, code = shown.rpartition(":\n\n")
    assert lead.split("\n\n")[-1].startswith("this policy restores ")
    return tfckpt.restore(path, model, policy=yaml.safe_load(textwrap.dedent(code)))


def equal(stored: Iterable[Any], live: Iterable[Any]) -> None:
    for one, other in zip(stored, live, strict=True):
        wanted = one if isinstance(one, np.ndarray) else np.asarray(inner(one))
        np.testing.assert_array_equal(wanted, np.asarray(inner(other)))


# --- the corpus: with automatic names, with names of one's own, and with attributes


def renamed(k: Any, model: Any) -> Any:
    """The same layers, each with a name that somebody chose."""
    names = iter(ORDINALS)

    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if layer.weights:
            config["name"] = next(names)
        return type(layer).from_config(config)

    return k.models.clone_model(model, clone_function=clone)


def attributed(k: Any, model: Any) -> Any:
    """The same layers as attributes of a subclassed model."""

    class Own(k.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            weighty = [layer for layer in model.layers if layer.weights]
            for name, layer in zip(ORDINALS, weighty, strict=False):
                config = {k: v for k, v in layer.get_config().items() if k != "name"}
                made = type(layer).from_config(config)
                made.build(layer.get_build_config()["input_shape"])
                setattr(self, name, made)
            self.built = True

        def call(self, x: Any) -> Any:
            return x

    return Own()


CORPUS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tf2_lstm_md_configjson": (music, ""),
    "tf2_deepconsensus_fc": (deepconsensus, "model/"),
    "sm_tfx_keras": (lambda k: dense(k, 4, 8, 8, 3), ""),
    "tuner_tfx_iris": (lambda k: dense(k, 4, 8, 8, 8, 3), ""),
    "sm_basic_pitch": (basic_pitch, ""),
    "sm_rust_keras_single": (
        lambda k: dense(k, 5, 5, 5, 1, names=("test_in", None, "test_out")),
        "",
    ),
}


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_automatic_names(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), build(flavour)
    pasted(item.path, model)
    check_weights(item, model, below)


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_names_of_ones_own(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), renamed(flavour, build(flavour))
    pasted(item.path, model)
    check_weights(item, model, below)


# Two or three of their layers have equal shapes, and attributes say nothing of the order.
ALIKE = {"tuner_tfx_iris", "sm_rust_keras_single"}


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_with_attributes(name: str, flavour: Any, corpus: Any) -> None:
    build, below = CORPUS[name]
    item, model = Item(name), attributed(flavour, build(flavour))
    if name in ALIKE:
        with pytest.raises(tfckpt.RefusedError, match="neither names nor order") as refused:
            tfckpt.restore(item.path, model)
        assert refused.value.suggestion is None
    else:
        pasted(item.path, model)
        check_weights(item, model, below)


# Files of another form: which key each weight of the model has there, in the model's order.
WORDS = ("kernel", "bias")
HIDDEN = [f"hiddenlayer_{n}" for n in range(4)]
KEYED: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "h5_rl_deep_sarsa": (
        lambda k: dense(k, 15, 30, 30, 5),
        [f"dense_{n}/dense_{n}/{word}:0" for n in (1, 2, 3) for word in WORDS],
    ),
    "h5_rl_drqn": (
        lambda k: k.Sequential([k.Input((None, 2)), k.layers.LSTM(32), k.layers.Dense(2)]),
        [
            *(f"lstm_1/lstm_1/{word}:0" for word in ("kernel", "recurrent_kernel", "bias")),
            *(f"dense_1/dense_1/{word}:0" for word in WORDS),
        ],
    ),
    "k3_nlf": (
        lambda k: dense(k, 40, 256, 256, 1),
        [f"layers/{name}/vars/{n}" for name in ("dense", "dense_1", "dense_2") for n in (0, 1)],
    ),
    "tf1_tfx_est_keras_opt": (
        lambda k: dense(k, 3, 100, 70, 48, 34, 1),
        [f"dnn/{name}/{word}" for name in (*HIDDEN, "logits") for word in WORDS],
    ),
    "tf2_vae_cardio": (
        autoencoder,
        [
            f"{part}/layer_with_weights-{n}/{word}{VALUE}"
            for part, layers in (("encoder", 3), ("decoder", 4))
            for n in range(layers)
            for word in WORDS
        ],
    ),
}


def both(k: Any, **halves: Any) -> Any:
    """A subclassed model of two others."""

    class Own(k.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for name, half in halves.items():
                setattr(self, name, half)
            self.built = True

        def call(self, x: Any) -> Any:
            return x

    return Own()


def rebuilt(k: Any, how: str, model: Any) -> Any:
    if how == "automatic":
        return model
    if not hasattr(model, "encoder"):
        return renamed(k, model) if how == "named" else attributed(k, model)
    if how == "named":
        return both(k, encoder=renamed(k, model.encoder), decoder=renamed(k, model.decoder))
    return both(k, first=attributed(k, model.encoder), second=attributed(k, model.decoder))


@pytest.mark.parametrize("how", ["automatic", "named", "attributes"])
@pytest.mark.parametrize("name", KEYED)
def test_other_files_of_the_corpus(name: str, how: str, flavour: Any, corpus: Any) -> None:
    build, keys = KEYED[name]
    model = rebuilt(flavour, how, build(flavour))
    item = ITEMS[name]
    path = prefix_of(name) if "prefix" in item else str(FOLDER / name / Path(item["path"]).name)
    pasted(path, model)
    expected = expected_of(name)
    for key, variable in zip(keys, model.weights, strict=True):
        value = np.asarray(inner(variable))
        assert list(value.shape) == expected[key]["shape"], key
        assert digest(value, expected[key]["dtype"]) == expected[key]["sha256"], key


# --- keras.applications: the backbone goes on under another head

FEW = ["MobileNetV2", "ResNet50"]
MANY = [
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2",
    "InceptionV3", "MobileNet", "MobileNetV3Small", "NASNetMobile", "ResNet50V2", "VGG16", "VGG19",
    "Xception",
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.long) for name in MANY)]
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_backbone_into_a_classifier_of_ones_own(name: str, nested: bool, tmp_path: Any) -> None:
    make = getattr(keras.applications, name)
    shape = (224, 224, 3) if name == "NASNetMobile" else (96, 96, 3)
    whole = make(weights=None, input_shape=shape, classes=10)
    path = str(tmp_path / "whole.weights.h5")
    whole.save_weights(path)
    keras.backend.clear_session()
    backbone = make(weights=None, input_shape=shape, include_top=False, pooling="avg")
    inputs = keras.Input(shape) if nested else backbone.input
    features = backbone(inputs) if nested else backbone.output
    model = keras.Model(inputs, LAYERS.Dense(5, name="mine")(features))
    head = model.get_layer("mine").get_weights()
    pasted(path, model)
    equal(whole.weights[: len(backbone.weights)], backbone.weights)
    np.testing.assert_equal(model.get_layer("mine").get_weights(), head)


# --- layers that Keras's files number, and layers on attributes


class Normed(keras.Model):
    def __init__(self, **kept: Any) -> None:
        super().__init__()
        for name, each in kept.items():
            setattr(self, name, each)
        self.body = LAYERS.Dense(3)
        self.built = True
        for layer in self._flatten_layers(include_self=False):
            layer.build((None, 3))

    def call(self, x: Any) -> Any:
        return x


def test_a_layer_moves_from_an_attribute_into_a_list(tmp_path: Any) -> None:
    """The file has its weights by number alone."""
    first = Normed(scaling=LAYERS.LayerNormalization(name="a"))
    first.set_weights(
        [np.random.default_rng(n).random(v.shape) for n, v in enumerate(first.weights)]
    )
    path = str(tmp_path / "first.weights.h5")
    first.save_weights(path)
    second = Normed(norms=[LAYERS.LayerNormalization(name="b")])
    pasted(path, second)
    equal(first.scaling.weights, second.norms[0].weights)
    equal(first.body.weights, second.body.weights)


# --- TF1's Saver


def slim(scope: str = "net") -> Callable[[], None]:
    """Layers of TF-Slim, trained by Adam and averaged."""

    def graph() -> None:
        x = v1.placeholder(tf.float32, (None, 3))
        for name, width in (("fc1", 4), ("fc2", 5), ("logits", 2)):
            with v1.variable_scope(f"{scope}/{name}"):
                kernel = v1.get_variable("weights", (x.shape[-1], width))
                x = tf.matmul(x, kernel) + v1.get_variable("biases", (width,))
        step = v1.train.get_or_create_global_step()
        trained = v1.train.AdamOptimizer().minimize(tf.reduce_sum(x), step)
        with tf.control_dependencies([trained]):
            tf.train.ExponentialMovingAverage(0.9).apply(v1.trainable_variables())

    return graph


def network(*names: str, units: tuple[int, ...] = (4, 5, 2)) -> Any:
    layers = [LAYERS.Dense(n, name=name) for n, name in zip(units, names, strict=True)]
    return keras.Sequential([keras.Input((3,)), *layers])


@pytest.mark.parametrize("names", [("fc1", "fc2", "logits"), ("x", "y", "z"), (None, None, None)])
@pytest.mark.parametrize("version", [v1.train.SaverDef.V1, v1.train.SaverDef.V2])
@pytest.mark.parametrize("optimizer", [False, True])
def test_tf1_says_weights_and_biases(names: Any, version: Any, optimizer: bool, tmp_path) -> None:
    saved = save(tmp_path / "model.ckpt-7", slim(), version=version)
    model = network(*names)
    if optimizer:
        model.compile(keras.optimizers.Adam(), "mse")
        model.optimizer.build(model.trainable_variables)
    pasted(saved.path, model)
    for layer, scope in zip(model.layers, ("fc1", "fc2", "logits"), strict=True):
        equal((saved.values[f"net/{scope}/{w}"] for w in ("weights", "biases")), layer.weights)


def test_tf1_with_a_head_of_another_size(tmp_path: Any) -> None:
    saved = save(tmp_path / "model.ckpt-7", slim())
    model = network("fc1", "fc2", "logits", units=(4, 5, 9))
    report = pasted(saved.path, model)
    equal((saved.values[f"net/fc2/{w}"] for w in ("weights", "biases")), model.layers[1].weights)
    assert {s.name for s in report.plan.steps if s.status == "EXCLUDED" and s.name} == {
        "model/logits/kernel",
        "model/logits/bias",
    }


# --- PyTorch's names and axes


WIDTH, INNER = 8, 32


def bert() -> dict[str, Any]:
    """The tensors of a small BERT, as PyTorch has them."""
    rng = np.random.default_rng(0)
    square, wide = (WIDTH, WIDTH), (INNER, WIDTH)
    linear = {
        "attention.self.query": square,
        "attention.self.key": square,
        "attention.self.value": square,
        "attention.output.dense": square,
        "intermediate.dense": wide,
        "output.dense": wide[::-1],
    }
    tensors = {"embeddings.word_embeddings.weight": rng.normal(size=(50, WIDTH))}
    for n in range(3):
        for module, shape in linear.items():
            tensors[f"encoder.layer.{n}.{module}.weight"] = rng.normal(size=shape)
            tensors[f"encoder.layer.{n}.{module}.bias"] = rng.normal(size=shape[:1])
        for module in ("attention.output.LayerNorm", "output.LayerNorm"):
            for word in ("weight", "bias"):
                tensors[f"encoder.layer.{n}.{module}.{word}"] = rng.normal(size=(WIDTH,))
    return {name: value.astype("float32") for name, value in tensors.items()}


def test_a_small_bert_of_pytorch(tmp_path: Any) -> None:
    tensors = bert()
    save_file(tensors, str(tmp_path / "bert.safetensors"))
    x = inputs = keras.Input((6,), dtype="int32")
    x = LAYERS.Embedding(50, WIDTH, name="word_embeddings")(x)
    ours = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention_output": "attention.output.dense",
        "intermediate": "intermediate.dense",
        "output_dense": "output.dense",
    }
    for n in range(3):
        for name in ("query", "key", "value", "attention_output"):
            x = LAYERS.Dense(WIDTH, name=f"layer_{n}_{name}")(x)
        x = LAYERS.LayerNormalization(name=f"layer_{n}_attention_output_norm")(x)
        x = LAYERS.Dense(INNER, name=f"layer_{n}_intermediate")(x)
        x = LAYERS.Dense(WIDTH, name=f"layer_{n}_output_dense")(x)
        x = LAYERS.LayerNormalization(name=f"layer_{n}_output_norm")(x)
    model = keras.Model(inputs, x)
    pasted(str(tmp_path / "bert.safetensors"), model)
    for n in range(3):
        for name, module in ours.items():
            kernel, bias = model.get_layer(f"layer_{n}_{name}").weights
            equal([tensors[f"encoder.layer.{n}.{module}.weight"].T], [kernel])
            equal([tensors[f"encoder.layer.{n}.{module}.bias"]], [bias])


def test_a_small_bert_of_pytorch_into_keras_attention(flavour: Any, tmp_path: Any) -> None:
    """What PyTorch has as four layers is one in Keras, with an axis of heads."""
    tensors, layers = bert(), flavour.layers
    save_file(tensors, str(tmp_path / "bert.safetensors"))
    x = inputs = flavour.Input((6,), dtype="int32")
    x = layers.Embedding(50, WIDTH, name="word_embeddings")(x)
    for n in range(3):
        y = layers.MultiHeadAttention(2, WIDTH // 2, name=f"layer_{n}_attention")(x, x)
        x = layers.LayerNormalization(name=f"layer_{n}_attention_norm")(layers.Add()([x, y]))
        y = layers.Dense(INNER, name=f"layer_{n}_intermediate")(x)
        y = layers.Dense(WIDTH, name=f"layer_{n}_output")(y)
        x = layers.LayerNormalization(name=f"layer_{n}_output_norm")(layers.Add()([x, y]))
    model = flavour.Model(inputs, x)
    pasted(str(tmp_path / "bert.safetensors"), model)
    for n in range(3):
        found = [np.asarray(inner(v)) for v in model.get_layer(f"layer_{n}_attention").weights]
        modules = ("self.query", "self.key", "self.value", "output.dense")
        for at, module in enumerate(modules):
            name = f"encoder.layer.{n}.attention.{module}"
            kernel, bias = found[2 * at : 2 * at + 2]
            np.testing.assert_array_equal(kernel.reshape(WIDTH, WIDTH), tensors[f"{name}.weight"].T)
            np.testing.assert_array_equal(bias.ravel(), tensors[f"{name}.bias"])
        dense = model.get_layer(f"layer_{n}_intermediate").weights
        equal([tensors[f"encoder.layer.{n}.intermediate.dense.weight"].T], dense[:1])


def test_pytorchs_own_attention_into_keras_attention(flavour: Any, tmp_path: Any) -> None:
    """It has the kernels of query, key and value as one, (3 × out, in)."""
    rng, layers = np.random.default_rng(0), flavour.layers
    shapes = {
        "attention.in_proj_weight": (3 * WIDTH, WIDTH),
        "attention.in_proj_bias": (3 * WIDTH,),
        "attention.out_proj.weight": (WIDTH, WIDTH),
        "attention.out_proj.bias": (WIDTH,),
        "up.weight": (INNER, WIDTH),
        "up.bias": (INNER,),
    }
    tensors = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    path = str(tmp_path / "attention.safetensors")
    save_file(tensors, path)
    inputs = flavour.Input((6, WIDTH))
    attention = layers.MultiHeadAttention(2, WIDTH // 2, name="attention")
    up = layers.Dense(INNER, name="up")
    model = flavour.Model(inputs, up(attention(inputs, inputs)))
    pasted(path, model)
    found = [np.asarray(inner(variable)) for variable in attention.weights]
    kernels, biases = (tensors[f"attention.in_proj_{word}"] for word in ("weight", "bias"))
    for n, (kernel, bias) in enumerate(zip(found[:6:2], found[1:6:2], strict=True)):
        own = slice(n * WIDTH, (n + 1) * WIDTH)
        np.testing.assert_array_equal(kernel.reshape(WIDTH, WIDTH), kernels[own].T)
        np.testing.assert_array_equal(bias.ravel(), biases[own])
    np.testing.assert_array_equal(
        found[6].reshape(WIDTH, WIDTH), tensors["attention.out_proj.weight"].T
    )
    equal([tensors["up.weight"].T, tensors["up.bias"]], up.weights)


def test_a_small_resnet_of_pytorch(tmp_path: Any) -> None:
    rng, tensors = np.random.default_rng(0), {}
    widths = {"conv1": (3, 4), "layer1.conv1": (4, 6), "layer1.conv2": (6, 7)}
    for name, (before, width) in widths.items():
        norm = name.replace("conv", "bn")
        tensors[f"{name}.weight"] = rng.normal(size=(width, before, 3, 5))
        for word in ("weight", "bias", "running_mean", "running_var"):
            tensors[f"{norm}.{word}"] = rng.normal(size=(width,))
        tensors[f"{norm}.num_batches_tracked"] = np.array(7)
    tensors |= {"fc.weight": rng.normal(size=(10, 7)), "fc.bias": rng.normal(size=(10,))}
    tensors = {n: v.astype("float32") if v.shape else v for n, v in tensors.items()}
    save_file(tensors, str(tmp_path / "resnet.safetensors"))
    x = inputs = keras.Input((9, 9, 3))
    for name, (_, width) in widths.items():
        own = name.replace(".", "_")
        x = LAYERS.Conv2D(width, (3, 5), padding="same", use_bias=False, name=own)(x)
        x = LAYERS.BatchNormalization(name=own.replace("conv", "bn"))(x)
    model = keras.Model(inputs, LAYERS.Dense(10, name="classifier")(x))
    pasted(str(tmp_path / "resnet.safetensors"), model)
    for name in widths:
        kernel = tensors[f"{name}.weight"].transpose(2, 3, 1, 0)
        equal([kernel], model.get_layer(name.replace(".", "_")).weights)
        norm = name.replace("conv", "bn")
        words = ("weight", "bias", "running_mean", "running_var")
        found = model.get_layer(norm.replace(".", "_")).weights
        equal((tensors[f"{norm}.{word}"] for word in words), found)
    equal([tensors["fc.weight"].T, tensors["fc.bias"]], model.get_layer("classifier").weights)


# --- models that were edited, each weight of which has values of its own


MORE = [pytest.param(range(n, n + 100), marks=pytest.mark.long) for n in range(40, 540, 100)]


@pytest.mark.parametrize("starts", [range(40), *MORE])
def test_no_edit_of_a_model_makes_a_suggestion_wrong(starts: range, tmp_path: Any) -> None:
    import tf_keras

    found = {
        start: word
        for start in starts
        if (word := by_suggestion(start, (keras, tf_keras)[start % 2])) in WRONG
    }
    assert not found


WRONG = (MISPLACED, LEFT, REFUSED, SUSPECT)


def by_suggestion(start: int, flavor: Any) -> str:
    """What becomes of a random pair of models; "" where nothing is suggested."""
    import tempfile

    pair = case(flavor.__name__, start)
    with tempfile.TemporaryDirectory() as place:
        try:
            start_anew(flavor)
            first = Built(flavor, pair.first, tokens=pair.tokens, seed=1)
            path = _save(first, pair.writer, f"{place}/ckpt")
            if pair.anew:
                start_anew(flavor)
            second = Built(flavor, pair.second, tokens=pair.tokens, seed=2)
        except NotAModelError:
            return ""
        judging = _Judging(pair, first, second, path)
        fresh = second.values()
        try:
            found = tfckpt.suggest(path, second.model)
        except tfckpt.TfckptError:  # a model without weights, or one that is not built
            return ""
        if found is None or found.policy is None:
            return ""
        second.assign(fresh)
        restore = lambda: tfckpt.restore(path, second.model, policy=found.policy)  # noqa: E731
        return judging._verdict("suggestion", restore).word
