"""Keras 3's `quantize` and `enable_lora`: what is restored before and after them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import tfckpt

CAST = {"on_dtype_mismatch": "cast", "on_missing": "warn", "on_unexpected": "ignore"}


def build(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((4,)),
            layers.Dense(8, activation="relu", name="first"),
            layers.Dense(2, name="last"),
        ]
    )


def quantized(seed: int) -> Any:
    model = build(seed)
    model.quantize("int8")
    return model


@pytest.mark.parametrize("policy", [{}, CAST], ids=["strict", "cast"])
@pytest.mark.parametrize(("old", "new"), [(build, quantized), (quantized, build)])
def test_kernels_without_their_scale_are_refused(old, new, policy, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=old(1)).write(str(tmp_path / "ckpt"))
    model = new(2)
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model=model, policy={"api": "read", **policy})
    said = " ".join(str(refused.value).split())
    assert "only one of them is quantized → restore, then call `quantize`" in said
    assert "on_dtype_mismatch" not in said
    assert "may be" not in said
    for value, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_quantized_models_are_restored_into_each_other(tmp_path) -> None:
    old, new = quantized(1), quantized(2)
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    tfckpt.restore(path, model=new, policy={"api": "read"})
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(np.array(new(x)), np.array(old(x)))


def test_new_low_rank_factors_of_a_restored_kernel_have_no_effect(tmp_path) -> None:
    old, new = build(1), build(2)
    path = tfckpt.Checkpoint(model=old).write(str(tmp_path / "ckpt"))
    new.layers[0].enable_lora(2)
    a, b = new.layers[0].trainable_variables[-2:]
    kept, _ = a.numpy(), b.assign(np.ones(b.shape))
    with pytest.raises(tfckpt.RefusedError, match="lora_kernel_b"):
        tfckpt.restore(path, model=new, policy={"on_missing": "error"})
    assert "low-rank factors" in str(tfckpt.restore(path, model=new))
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(np.array(new(x)), np.array(old(x)))
    np.testing.assert_array_equal(a, kept)  # of two zeros, neither would learn


def test_factors_whose_kernel_stays_are_asked_for(tmp_path) -> None:
    new = build(2)
    path = tfckpt.Checkpoint(model=build(1)).write(str(tmp_path / "ckpt"))
    new.layers[0].enable_lora(2)
    with pytest.raises(tfckpt.RefusedError, match="lora_kernel_b"):
        tfckpt.restore(path, model=new, policy={"exclude": ["model/first/kernel"]})
