"""Suggestions as people use them: pasted, for files of many kinds, and where they are shown."""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tf_keras
from safetensors.numpy import save_file
from zoo import command_line
from zoo.pairs.build import start_anew
from zoo.pasted import equal, pasted

import tfckpt

# --- Files of PyTorch ---

NORM = ("weight", "bias", "running_mean", "running_var")
CONV = {"conv1": (3, 4), "layer1.conv1": (4, 6), "layer1.conv2": (6, 7)}


def resnet():
    shapes = {"fc.weight": (10, 7), "fc.bias": (10,)}
    for name, (before, width) in CONV.items():
        shapes |= {f"{name}.weight": (width, before, 3, 5)}
        shapes |= {f"{name.replace('conv', 'bn')}.{word}": (width,) for word in NORM}
        shapes[f"{name.replace('conv', 'bn')}.num_batches_tracked"] = ()
    return shapes


def test_a_small_model_of_pytorch(tmp_path):
    shapes = resnet()
    rng, path = np.random.default_rng(0), str(tmp_path / "model.safetensors")
    held = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    counted = {name: np.array(7) for name in held if name.endswith("tracked")}
    save_file(held | counted, path)
    x = inputs = keras.Input((9, 9, 3))
    for name, (_, width) in CONV.items():
        own = name.replace(".", "_")
        x = keras.layers.Conv2D(width, (3, 5), padding="same", use_bias=False, name=own)(x)
        x = keras.layers.BatchNormalization(name=own.replace("conv", "bn"))(x)
    model = keras.Model(inputs, keras.layers.Dense(10, name="fc")(x))
    pasted(path, model)
    for name in {each.replace("conv", word) for each in (*CONV, "fc") for word in ("conv", "bn")}:
        variables = model.get_layer(name.replace(".", "_")).weights
        for variable, word in zip(variables, NORM, strict=False):
            value = held[f"{name}.{word}"]
            equal([value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T], [variable])


# --- Models put together in another way ---

MANY = [
    "ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionResNetV2",
    "InceptionV3", "MobileNetV2", "MobileNetV3Small", "NASNetMobile", "ResNet50", "ResNet50V2",
    "VGG16", "VGG19", "Xception",
]  # fmt: skip
LONG = [pytest.param(name, marks=pytest.mark.long) for name in MANY]


@pytest.mark.parametrize("name", ["MobileNet", *LONG])
@pytest.mark.parametrize("nested", [False, True])
def test_a_backbone_into_a_classifier_of_ones_own(name, nested, tmp_path):
    make = getattr(keras.applications, name)
    shape = (224, 224, 3) if name == "NASNetMobile" else (96, 96, 3)
    whole = make(weights=None, input_shape=shape, classes=10)
    path = str(tmp_path / "whole.weights.h5")
    whole.save_weights(path)
    keras.backend.clear_session()
    backbone = make(weights=None, input_shape=shape, include_top=False, pooling="avg")
    inputs = keras.Input(shape) if nested else backbone.input
    features = backbone(inputs) if nested else backbone.output
    model = keras.Model(inputs, keras.layers.Dense(5, name="mine")(features))
    head = model.get_layer("mine").get_weights()
    pasted(path, model)
    equal(whole.weights[: len(backbone.weights)], backbone.weights)
    equal(head, model.get_layer("mine").weights)


def test_a_layer_moves_from_an_attribute_into_a_list(tmp_path):
    """The file has its weights by number alone: it is asked."""

    def made(seed, **kept):
        model, body = keras.Model(), keras.layers.Dense(3)
        for layer in (body, *kept.pop("layers")):
            layer.build((None, 3))
            layer.set_weights([np.random.default_rng(seed).random(v.shape) for v in layer.weights])
        for name, each in {"body": body, **kept}.items():
            setattr(model, name, each)
        model.built = True
        return model

    one, other = (keras.layers.LayerNormalization(name=name) for name in "ab")
    first, second = made(1, layers=[one], scaling=one), made(2, layers=[other], norms=[other])
    path = str(tmp_path / "first.weights.h5")
    first.save_weights(path)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, second)
    (answer, *_) = refused.value.plan.suggestion.answers
    assert answer.words == "model/norms/0 is the checkpoint's model/a"
    tfckpt.restore(path, second, policy=answer.suggestion.policy)
    equal([*one.weights, *first.body.weights], [*other.weights, *second.body.weights])


def recurrent(k, name, stateful):
    """Two cells with seeds of their own, in Keras 3, and a Dropout."""
    layers = [
        k.layers.Dropout(0.2, name=f"{name}_dropout", seed=len(name)),
        k.layers.Bidirectional(k.layers.LSTM(4, stateful=stateful, dropout=0.1), name=name),
        k.layers.Dense(2, name="out"),
    ]
    return k.Sequential([k.Input((5, 3), batch_size=2), *layers])


@pytest.mark.parametrize(
    ("k", "stateful", "how", "match"),
    [
        (keras, True, "tfckpt", {}),
        (keras, False, "tfckpt", {"match": "structure"}),
        (keras, True, ".weights.h5", {}),
        (keras, False, ".weights.h5", {"match": "structure"}),
        (tf_keras, False, "tfckpt", {}),
        (tf_keras, True, ".weights.h5", {"match": "structure"}),
    ],
)
def test_a_renamed_recurrent_layer_keeps_its_seeds(k, stateful, how, match, tmp_path):
    saved = recurrent(k, "encoder", stateful)
    saved(np.ones((2, 5, 3), "float32"), training=True)  # seeds and states move
    path = str(tmp_path / f"saved{how}")
    if how == "tfckpt":
        path = tfckpt.Checkpoint(model=saved).write(path)
    else:
        saved.save_weights(path)
    model = recurrent(k, "body", stateful)
    ours = how == "tfckpt" and k is keras
    if match:
        dropout = {"checkpoint": "seed/encoder_dropout", "model": "seed/body_dropout"}
        rename = {"rename": [dropout]} if ours else {}  # the position of its seed is unknown
        tfckpt.restore(path, model, policy={**match, **rename})
    else:
        pasted(path, model)
    equal(saved.weights, model.weights)
    if ours:
        equal((variable.numpy() for variable in saved.variables), model.variables)


@pytest.mark.parametrize("place", [0, 1])
def test_seeds_go_with_attention_layers_where_an_answer_says(place, tmp_path):
    def attending(count):
        start_anew(keras)
        x = y = keras.Input((3, 4))
        layers = [keras.layers.MultiHeadAttention(2, 2, dropout=0.1) for _ in range(count)]
        for layer in layers:
            y = layer(y, y)
        return keras.Model(x, y), layers

    saved, old = attending(2)
    saved(np.ones((1, 3, 4)), training=True)  # seeds move
    path = tfckpt.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    model, new = attending(3)
    answer = tfckpt.suggest(path, model).answers[place]
    tfckpt.restore(path, model, policy=answer.suggestion.policy)
    for one, other in zip(old, new[place:], strict=False):
        equal((variable.numpy() for variable in one.variables), other.variables)


# --- Where they are shown, besides a refusal in Python: zoo/everyday pastes these ---

SCRIPT = """
import keras

def build(body="stem", classes=5):
    layers = [keras.layers.Dense(8, name=body), keras.layers.Dense(classes, name="head")]
    return keras.Sequential([keras.Input((4,)), *layers])
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "script", raising=False)
    Path("script.py").write_text(SCRIPT)
    from script import build

    return build


def test_a_refused_callback_ends_with_the_call_that_takes_it(build):
    directory, x = "runs/a run", np.ones((4, 4), "float32")
    first, model = build("body", 3), build()
    for each in (first, model):
        each.compile("sgd", "mse", run_eagerly=True)
    first.fit(x, x[:, :3], verbose=0, callbacks=[tfckpt.callbacks.resume(first, directory)])
    callback = tfckpt.callbacks.resume(model, directory)
    with pytest.raises(tfckpt.RefusedError) as refused:
        model.fit(x, np.ones((4, 5)), callbacks=[callback])
    call = str(refused.value).partition("\n\nin Python:\n\n")[2].strip()
    assert call.startswith("tfckpt.callbacks.resume(\n")
    assert "rename=[" in call
    callback = eval(call, {"tfckpt": tfckpt, "model": model})
    model.fit(x, np.ones((4, 5)), verbose=0, callbacks=[callback])
    equal(first.layers[0].weights, model.layers[0].weights)


def test_plan_writes_a_config_that_works_and_its_json_has_the_policy(build):
    saved = build("body", 3)
    tfckpt.Checkpoint(model=saved).save("ckpt")
    arguments = "plan", "ckpt-1", "--model", "script:build"
    ended = command_line.run(*arguments, "--write", "c.yaml")
    assert (ended.status, ended.err) == (0, "c.yaml: written\n")
    assert [line.strip() for line in ended.out.splitlines()[-2:]] == [
        'rename: [{checkpoint: "model/body/**", model: "model/stem/**"}]',
        'exclude: ["model/head/**"]',
    ]
    policy = command_line.document(*arguments, status=1)["suggestion"]
    for path, more in (("c.yaml", {}), ("ckpt-1", {"policy": policy})):
        model = build()
        tfckpt.restore(path, model, **more)
        equal(saved.layers[0].weights, model.layers[0].weights)
