"""Low-rank factors, of layers that are quantized and that are not.

What ``load_weights`` assigns is what is right, value by value. It makes both factors of LoRA zero;
tfckpt makes the second one zero, so that the first still learns.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
from zoo.models import called, in_turn, stack
from zoo.saved import attended, einsum, embedded
from zoo.values import FORMATS, fill, save

import tfckpt


def dense(k):
    layers = [k.layers.Dense(6, name="a"), k.layers.Dense(6, use_bias=False), k.layers.Dense(4)]
    return stack(k, *layers, shape=(8,))


def convolution(k):
    return stack(k, k.layers.Conv2D(4, 3), k.layers.Conv2D(4, 3), shape=(8, 8, 3))


def subclassed(k):
    first, last = lambda: k.layers.Dense(6), lambda: k.layers.Dense(3)
    return called(in_turn(k.Model, first=first, last=last)(), np.zeros((1, 8)))


def quantized(build, mode):
    model = build(keras)
    if mode:
        model.quantize(mode)
    return model


def adapted(model, rank):
    for layer in model.layers:
        if hasattr(layer, "enable_lora"):
            layer.enable_lora(rank)
    return model


ADAPTED = [(build, "") for build in (dense, einsum, embedded, attended, convolution, subclassed)]
ADAPTED += [(einsum, "int8"), (embedded, "int4")]


def filled(model, seed):
    fill(seed, model)
    for variable in model.weights:
        if "g_idx" in variable.name:  # int4's groups
            variable.assign(np.zeros(variable.shape))
    return model


def compare(written, target, folder, formats=FORMATS):
    for suffix in formats:
        path = save(filled(written, 1), folder, suffix)
        filled(target, 2).load_weights(path)
        loaded = target.get_weights()
        filled(target, 3)
        tfckpt.restore(path, target)
        for one, value in zip(target.weights, loaded, strict=True):
            if one.name.startswith("lora_") and not np.any(value):
                # the second one is zero, and the first has no effect
                assert one.name.endswith("_a") or not np.any(one), one.path
            else:
                assert np.asarray(one).tobytes() == value.tobytes(), f"{suffix}: {one.path}"


@pytest.mark.parametrize(("build", "mode"), ADAPTED)
def test_low_rank_factors(build, mode, tmp_path):
    """Keras merges them into the kernel; only ``.h5`` has them, for a model that has them, too."""
    base, other = quantized(build, mode), quantized(build, mode)
    one, two, three = (adapted(quantized(build, mode), rank) for rank in (2, 2, 3))
    formats = FORMATS if build is not subclassed else FORMATS[:1]
    merged = [suffix for suffix in formats if suffix != ".h5"]
    compare(base, one, tmp_path, merged)
    compare(one, other, tmp_path, merged)
    compare(one, three, tmp_path, merged)
    compare(one, two, tmp_path, formats)
