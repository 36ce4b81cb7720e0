"""Suggestions for files of others and nested models, pasted as people would."""

from __future__ import annotations

import itertools
import random
import tempfile
import textwrap
from typing import TYPE_CHECKING, Any

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from safetensors.numpy import save_file
from zoo.branched import built, drawn, edited
from zoo.graphs import save, v1
from zoo.pasted import equal, pasted
from zoo.variables import inner

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


LAYERS = keras.layers


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


WIDTHS = (4, 4, 2)


def _made(kind: str) -> Callable[[], None]:
    """A graph of three dense layers, whose variables a program has named."""

    def graph() -> None:
        for at, (rows, columns) in enumerate(itertools.pairwise((3, *WIDTHS))):
            for word, shape in (("kernel", (rows, columns)), ("bias", (columns,))):
                scope = f"dnn/hiddenlayer_{at}/{word}"
                if kind == "automatic":
                    v1.Variable(tf.zeros(shape))
                elif kind == "short":
                    v1.Variable(tf.zeros(shape), name=f"{word[0].replace('k', 'W')}{at + 1}")
                else:
                    scope += "/part_0" if kind == "a part" else ""
                    v1.get_variable(scope, shape)
                    tail = "Adagrad" if kind == "a part" else "t_0/Adagrad"
                    v1.get_variable(f"{scope}/{tail}", shape)

    return graph


@pytest.mark.parametrize("kind", ["automatic", "short", "a part", "of a part"])
def test_tf1_variables_that_a_program_named(kind: str, tmp_path: Any) -> None:
    saved = save(tmp_path / "model.ckpt-7", _made(kind))
    model = network(None, None, None, units=WIDTHS)
    pasted(saved.path, model)
    equal((x for name, x in saved.values.items() if "Adagrad" not in name), model.weights)


SHORT = {"weights_h1": (3, 4), "weights_h2": (4, 5), "weights_out": (5, 2)}


SHORT |= {"biases_b1": (4,), "biases_b2": (5,), "biases_out": (2,)}


def test_tf1_variables_that_only_their_shapes_tell_apart(tmp_path: Any) -> None:
    def graph() -> None:
        for name, shape in SHORT.items():
            v1.Variable(tf.zeros(shape), name=name)

    saved = save(tmp_path / "model.ckpt-7", graph)
    model = network(None, None, None)
    pasted(saved.path, model)
    kernels, biases = list(SHORT)[:3], list(SHORT)[3:]
    meant = [name for both in zip(kernels, biases, strict=True) for name in both]
    equal(map(saved.values.__getitem__, meant), model.weights)


SCOPES = ("eval", "target", "worker_0")


@pytest.mark.parametrize("row", [False, True])
def test_which_of_several_scopes_it_is_is_asked_once(row: bool, tmp_path: Any) -> None:
    def graph() -> None:
        for scope in SCOPES:
            for at, (rows, columns) in enumerate(itertools.pairwise((3, 4, 5, 2))):
                v1.get_variable(f"{scope}/l{at}/w{at}", (rows, columns))
                v1.get_variable(f"{scope}/l{at}/b{at}", (1, columns) if row else (columns,))

    saved = save(tmp_path / "model.ckpt-7", graph)
    model = network(None, None, None)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(saved.path, model)
    text = str(refused.value).partition("which layer is which:")[2]
    question = "model may be one of model/eval, model/target, model/worker_0 of the checkpoint"
    assert question in " ".join(text.split())
    answers = text.split("    → if it is ")[1:]
    assert [each.partition(":")[0] for each in answers] == [f"model/{scope}" for scope in SCOPES]
    lines = answers[1].partition(":\n")[2]
    tfckpt.restore(saved.path, model, policy=yaml.safe_load(textwrap.dedent(lines)))
    meant = [saved.values[f"target/l{at}/{word}{at}"] for at in range(3) for word in "wb"]
    equal(map(np.squeeze, meant), model.weights)


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


HEADS = [None, ("logits", 10), ("mine", 5), (None, 7)]
MORE = [pytest.param(n, marks=pytest.mark.long) for n in range(1000, 5000, 1000)]


@pytest.mark.parametrize("seed", [0, *MORE])
def test_no_layer_of_a_nested_model_gets_the_weights_of_another(seed: int, flavour: Any) -> None:
    found = [word for n in range(30 if seed == 0 else 150) if (word := of_one(seed + n, flavour))]
    assert "right" in found
    assert "wrong" not in found, [seed + n for n, word in enumerate(found) if word == "wrong"]


def of_one(seed: int, flavour: Any) -> str:
    """What becomes of one pair of models; "" where nothing is suggested.

    "as Keras" where the edited model would write the same file, but for the values: a .weights.h5
    file of tf_keras has no names or connections, and nobody can tell that it is another model's.
    """
    draw = random.Random(seed)
    calls = drawn(draw)
    start_anew(draw, flavour)
    nested = draw.choice([(False, True), (True, False), (True, True), (False, False)])
    saved, old = built(flavour, calls, head=draw.choice(HEADS), nested=nested[0])
    values = np.random.default_rng(seed)
    saved.set_weights([values.standard_normal(w.shape) for w in saved.get_weights()])
    with tempfile.TemporaryDirectory() as place:
        path = write(draw, saved, f"{place}/saved")
        start_anew(draw, flavour)
        model, new = built(flavour, edited(draw, calls), head=draw.choice(HEADS), nested=nested[1])
        fresh = {key: layer.get_weights() for key, layer in new.items()}
        try:
            tfckpt.restore(path, model)
        except tfckpt.RefusedError as error:
            if error.suggestion is None:
                return ""
            tfckpt.restore(path, model, policy=error.suggestion)
        if all(is_right(new[key], old.get(key), fresh[key]) for key in new):
            return "right"
        return "as Keras" if is_own(path, model) else "wrong"


def start_anew(draw: random.Random, flavour: Any) -> None:
    """Automatic names begin at 0, or somewhere else, as in a notebook."""
    flavour.backend.clear_session()
    for _ in range(draw.choice([0, 0, 3])):
        flavour.layers.Dense(1)


def write(draw: random.Random, model: Any, path: str) -> str:
    how = draw.choice([".weights.h5", ".weights.h5", "TensorFlow", "tfckpt"])
    if how == "TensorFlow":
        return tf.train.Checkpoint(model=model).write(path)
    if how == "tfckpt":
        return tfckpt.Checkpoint(model=model).write(path)
    model.save_weights(path + how)
    return path + how


def is_own(path: str, model: Any) -> bool:
    """Whether a model would write the same .weights.h5 file, and Keras reads the same values."""
    if not path.endswith(".weights.h5"):
        return False
    restored = model.get_weights()
    model.save_weights(own := f"{path}.own.weights.h5")
    model.load_weights(path)
    return layout(own) == layout(path) and same(restored, model.get_weights())


def layout(path: str) -> dict[str, Any]:
    """The groups of a file, with what is written about them, and the shapes of its values."""
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: (getattr(item, "shape", ()), {**item.attrs})})
        )
    return found


def is_right(layer: Any, saved: Any, fresh: list[np.ndarray]) -> bool:
    """Whether a layer has its own saved weights, or none of them."""
    now = layer.get_weights()
    return same(now, fresh) or (saved is not None and same(now, saved.get_weights()))


def same(values: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(map(np.array_equal, values, others))
