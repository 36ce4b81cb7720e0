"""KerasHub: backbones from their configurations; with LoRA, in int8, and both."""

from __future__ import annotations

from typing import Any

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from clients.exchange import A_CALLBACK, WAYS, Program, assert_restored, checksums, killing, resumed

import tfckpt

pytestmark = pytest.mark.long
EPOCHS, EVERY, KILLED = 3, 2, 8
IN_LISTS = "ViTBackbone"  # it keeps its layers in a list, which TensorFlow does not save
TEXT = {
    "token_ids": np.arange(16).reshape(2, 8),
    "padding_mask": np.ones((2, 8), "int32"),
}
SEGMENTS = {**TEXT, "segment_ids": np.zeros((2, 8), "int32")}
IMAGES = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype("float32")
ENCODER = {"vocabulary_size": 20, "num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
HEADS = {"num_heads": 2, "dropout": 0.0}
QUERIES = {"num_query_heads": 2, "num_key_value_heads": 1}
IMAGE = {"image_shape": (16, 16, 3)}
STACKS = {"stackwise_num_filters": [64, 64], "stackwise_num_blocks": [1, 1]}
RESNET = {"input_conv_filters": [64], "input_conv_kernel_sizes": [3], "block_type": "basic_block"}
VIT = {"patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 16}
BACKBONES: dict[str, tuple[dict[str, Any], Any]] = {
    "BertBackbone": ({**ENCODER, **HEADS, "max_sequence_length": 8}, SEGMENTS),
    "GPT2Backbone": ({**ENCODER, **HEADS, "max_sequence_length": 8}, TEXT),
    "GemmaBackbone": ({**ENCODER, **QUERIES, "head_dim": 4}, TEXT),
    "LlamaBackbone": ({**ENCODER, **QUERIES, "dropout": 0.0}, TEXT),
    "ResNetBackbone": ({**RESNET, **STACKS, "stackwise_num_strides": [1, 2], **IMAGE}, IMAGES),
    IN_LISTS: ({**VIT, **IMAGE}, IMAGES),
}


def backbone(name: str, seed: int = 1) -> Any:
    keras.utils.set_random_seed(seed)
    cls = getattr(keras_hub.models, name)
    return cls.from_config(cls(**BACKBONES[name][0]).get_config())


def program(name: str, seed: int, *prepare: str) -> Program:
    """``prepare``: ``int8`` and ``lora``, in the order in which they are called."""
    model, inputs = backbone(name, seed), BACKBONES[name][1]
    for what in prepare:
        model.quantize("int8") if what == "int8" else model.enable_lora(2)
    optimizer = keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)

    def train() -> None:
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(model(inputs, training=True))
            loss = tf.add_n([tf.reduce_mean((each - 1) ** 2) for each in outputs])
        gradients = tape.gradient(loss, model.trainable_weights)
        optimizer.apply(gradients, model.trainable_weights)

    return Program(
        {"model": model, "optimizer": optimizer},
        lambda: [*model.weights, *optimizer.variables],
        train,
        output=lambda: tf.nest.flatten(model(inputs))[0],
    )


def train(directory: str, stop: int | None) -> list[str]:
    body = backbone("GemmaBackbone")
    body.enable_lora(2)
    model = keras.Sequential([body, keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)

    draw = np.random.default_rng(0)
    tokens = {"token_ids": draw.integers(20, size=(16, 8)), "padding_mask": np.ones((16, 8), bool)}
    data = tf.data.Dataset.from_tensor_slices((tokens, draw.normal(size=(16, 8, 1)))).batch(4)
    model(next(iter(data))[0])
    resume = tfckpt.callbacks.resume(model, directory, save_freq=EVERY, verbose=0)
    model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[resume, killing(keras, stop)])
    return checksums([*model.variables, *model.optimizer.variables])


@WAYS
@pytest.mark.parametrize("name", [name for name in BACKBONES if name != IN_LISTS])
def test_a_backbone_is_exchanged_with_tensorflow(name, writer, reader, tmp_path) -> None:
    assert_restored(lambda seed: program(name, seed), writer, reader, tmp_path)


def test_a_backbone_that_keeps_layers_in_a_list(tmp_path, outcome) -> None:
    outcome(
        "unchanged; from a file of plain TensorFlow refused: not in the checkpoint, as TensorFlow "
        "does not save them"
    )
    old, new = program(IN_LISTS, 1), program(IN_LISTS, 2)
    new.train()
    model, before = {"model": new.objects["model"]}, checksums(new.values())
    path = tf.train.Checkpoint(model=old.objects["model"]).save(str(tmp_path / "plain"))
    with pytest.raises(AssertionError, match=r"encoder_layers/0/.*: not in the checkpoint"):
        tfckpt.Checkpoint(**model).restore(path).assert_existing_objects_matched()
    assert checksums(new.values()) == before
    assert_restored(lambda seed: program(IN_LISTS, seed), tfckpt, tfckpt, tmp_path)


@WAYS
@pytest.mark.parametrize("name", ["GemmaBackbone", "LlamaBackbone"])
@pytest.mark.parametrize("prepare", [["lora"], ["int8", "lora"]], ids="+".join)
def test_an_adapted_backbone_is_exchanged(prepare, name, writer, reader, tmp_path) -> None:
    assert_restored(lambda seed: program(name, seed, *prepare), writer, reader, tmp_path)


def test_a_pretrained_backbone_gets_new_factors(tmp_path, outcome) -> None:
    outcome("unchanged")
    old, new = program("GemmaBackbone", 1), program("GemmaBackbone", 2, "lora")
    path = tf.train.Checkpoint(**old.objects).save(str(tmp_path / "ckpt"))
    tfckpt.restore(path, model=new.objects["model"])
    np.testing.assert_array_equal(new.output(), old.output())  # one factor begins with zeros


@pytest.mark.parametrize("ways", [([], ["int8"]), (["int8"], [])], ids=["float-int8", "int8-float"])
def test_only_one_of_two_backbones_is_quantized(ways, tmp_path, outcome) -> None:
    outcome("refused: only one of them is quantized")
    old, new = (backbone("GemmaBackbone", seed) for seed in (1, 2))
    for model, prepare in zip((old, new), ways, strict=True):
        if prepare:
            model.quantize("int8")
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    before = checksums(new.weights)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=new).restore(path)
    assert "only one of them is quantized" in " ".join(str(refused.value).split())
    assert checksums(new.weights) == before


test_a_killed_fit_goes_on_exactly = resumed(__file__, KILLED, f"with one line: {A_CALLBACK}")
