"""Layers that names do not identify: quantized ones, low-rank factors, names like others' classes.

What ``load_weights`` assigns is what is right, value by value. It makes both factors of LoRA zero;
tfckpt makes the second one zero, so that the first still learns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from zoo.keras_savers import FORMATS, equal, fill, save

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Build = Callable[[Any], Any]


def dense(k: Any) -> Any:
    layers = [k.layers.Dense(6, name="a"), k.layers.Dense(6, use_bias=False), k.layers.Dense(4)]
    return k.Sequential([k.Input((8,)), *layers])


def einsum(k: Any) -> Any:
    def layer(*args: Any, **settings: Any) -> Any:
        return k.layers.EinsumDense("abc,cd->abd", *args, **settings)

    return k.Sequential([k.Input((5, 8)), layer((None, 6), bias_axes="d"), layer((None, 4))])


def embedding(k: Any) -> Any:
    layers = [k.layers.Embedding(10, 8), k.layers.Flatten(), k.layers.Dense(3)]
    return k.Sequential([k.Input((5,)), *layers])


def attention(k: Any) -> Any:
    x = k.Input((5, 8))
    return k.Model(x, k.layers.Dense(3)(k.layers.MultiHeadAttention(2, 4)(x, x)))


def convolution(k: Any) -> Any:
    return k.Sequential([k.Input((8, 8, 3)), k.layers.Conv2D(4, 3), k.layers.Conv2D(4, 3)])


class Pair(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Dense(6), keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.last(self.first(x))


def subclassed(_: Any) -> Any:
    model = Pair()
    model(np.zeros((1, 8)))
    return model


def quantized(build: Build, mode: str) -> Build:
    def quantize(k: Any) -> Any:
        model = build(k)
        model.quantize(mode)
        return model

    return quantize


def adapted(build: Build, rank: int = 2) -> Build:
    def enable(k: Any) -> Any:
        model = build(k)
        for layer in model.layers:
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(rank)
        return model

    return enable


QUANTIZED = [(build, mode) for build in (dense, einsum) for mode in ("int8", "int4", "float8")]
QUANTIZED += [(embedding, "int8"), (embedding, "int4"), (attention, "int8"), (subclassed, "int8")]
ADAPTED = [(build, "") for build in (dense, einsum, embedding, attention, convolution, subclassed)]
ADAPTED += [(einsum, "int8"), (embedding, "int4")]


def filled(build: Build, k: Any, seed: int) -> Any:
    model = build(k)
    fill(model, seed)
    for variable in model.weights:
        if "g_idx" in variable.name:  # int4's groups
            variable.assign(np.zeros(variable.shape))
    return model


def compare(k: Any, old: Build, new: Build, folder: Path, formats: Any = FORMATS) -> None:
    written = filled(old, k, 1)
    for suffix in formats:
        if suffix != ".weights.h5" and isinstance(written, Pair):
            continue
        path = save(written, folder, suffix)
        loaded, restored = filled(new, k, 2), filled(new, k, 3)
        loaded.load_weights(path)
        tfckpt.restore(path, restored)
        zero_effect(restored, loaded)
        assert equal(loaded, restored), suffix


def zero_effect(restored: Any, loaded: Any) -> None:
    """Set aside the first factors, if the second ones are zero in both."""
    for one, other in zip(restored.weights, loaded.weights, strict=True):
        if one.name.startswith("lora_") and not np.any(other):
            if one.name.endswith("_a"):
                one.assign(np.zeros(one.shape))
            assert not np.any(one), one.path


@pytest.mark.parametrize(("build", "mode"), QUANTIZED)
def test_quantized_layers(build: Build, mode: str, tmp_path: Path) -> None:
    layer = quantized(build, mode)
    if not hasattr(keras.layers.Dense, "variable_serialization_spec"):
        pytest.skip("this Keras does not say which values a quantized layer stores")
    compare(keras, layer, layer, tmp_path)


@pytest.mark.parametrize(("build", "mode"), ADAPTED)
def test_low_rank_factors(build: Build, mode: str, tmp_path: Path) -> None:
    """Keras merges them into the kernel; only ``.h5`` has them, for a model that has them, too."""
    base = quantized(build, mode) if mode else build
    merged = [suffix for suffix in FORMATS if suffix != ".h5"]
    compare(keras, base, adapted(base), tmp_path, merged)
    compare(keras, adapted(base), base, tmp_path, merged)
    compare(keras, adapted(base), adapted(base, 3), tmp_path, merged)
    compare(keras, adapted(base), adapted(base), tmp_path)


def called_model(k: Any) -> Any:
    layers = [k.layers.Dense(4, name="model"), k.layers.Dense(4, name="x")]
    return k.Sequential([k.Input((4,)), *layers, k.layers.LayerNormalization(name="dense")])


def called_like_others(k: Any) -> Any:
    x = k.Input((4,))
    y = k.layers.LayerNormalization(name="dense")(x)
    y = k.layers.Dense(4, name="layer_normalization")(y)
    return k.Model(x, k.layers.Dense(2, name="out")(k.layers.Dense(4, name="dense_1")(y)))


def called_in_called(k: Any) -> Any:
    inner = [k.layers.Dense(4, name="x"), k.layers.LayerNormalization(name="dense_3")]
    y = k.layers.BatchNormalization(name="conv2d")
    inside = k.Sequential([k.Input((4,)), *inner], name="inside")
    return k.Sequential([k.Input((4,)), inside, y, k.layers.Dense(3, name="model_1")])


@pytest.mark.parametrize("build", [called_model, called_like_others, called_in_called])
def test_layers_that_are_called_like_others(build: Build, flavour: Any, tmp_path: Path) -> None:
    compare(flavour, build, build, tmp_path)
    one, other = filled(build, flavour, 1), filled(build, flavour, 2)
    tfckpt.restore(tfckpt.Checkpoint(model=one).write(str(tmp_path / "ckpt")), other)
    assert equal(one, other)


def test_a_layer_in_a_list_that_is_called_like_an_attribute(flavour: Any, tmp_path: Path) -> None:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = flavour.layers.LayerNormalization()
            self.model = flavour.layers.Dense(4, name="model")
            norm = flavour.layers.LayerNormalization(name="dense")
            self.parts = [flavour.layers.Dense(4), norm]

        def call(self, x: Any) -> Any:
            return self.parts[1](self.parts[0](self.model(self.dense(x))))

    def build(_: Any) -> Any:
        model = Net()
        model(np.zeros((1, 4), "float32"))
        return model

    compare(flavour, build, build, tmp_path, [".weights.h5"])


@pytest.mark.parametrize("suffix", FORMATS)
def test_slots_known_by_index_go_to_no_other_layer(
    flavour: Any, suffix: str, tmp_path: Path
) -> None:
    def build(first: str, second: str, frozen: bool = False) -> Any:
        layers = [flavour.layers.Dense(4, name=first), flavour.layers.Dense(4, name=second)]
        base = flavour.Sequential([flavour.Input((4,)), *layers], name="base")
        base.trainable = not frozen
        head = flavour.layers.Dense(3, name="head")
        model = flavour.Sequential([flavour.Input((4,)), base, head])
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    whole = flavour is keras or suffix != ".h5"
    path = save(build("a", "b"), tmp_path, suffix)
    if flavour is keras or suffix == ".keras":  # the others of tf_keras have no names, or no slots
        with pytest.raises(tfckpt.RefusedError, match="another order") as refused:
            tfckpt.restore(path, build("b", "a"))
        assert '{"optimizer": "reset"}' in str(refused.value)
    tfckpt.restore(path, build("b", "a"), policy={"optimizer": "reset"})
    path = save(build("a", "b", frozen=True), tmp_path, suffix)
    report = tfckpt.restore(path, build("a", "b", frozen=True))
    slots = [step for step in report.plan.assignments if step.name.startswith("optimizer/momentum")]
    assert len(slots) == 2 * whole
