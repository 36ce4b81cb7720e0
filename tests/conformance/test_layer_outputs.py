"""Every layer of Keras that has variables computes after a restore what the saved one computes.

From a checkpoint and from each of Keras's files, and with the same values in the other flavor.
Equal variables are not enough: Normalization computes with constants that it made from them.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tf_keras
from zoo.models import stack
from zoo.values import FORMATS, equal, fill, save

import tfckpt

ROW, STEPS, IMAGE, CUBE = (4,), (5, 4), (6, 6, 4), (4, 4, 4, 2)
CONV = {"filters": 3, "kernel_size": 2}
WORDS = {"input_dim": 7, "output_dim": 3}
GROUPED = {"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1}
EINSUM = {"equation": "ab,bc->ac", "output_shape": 3, "bias_axes": "c"}
# What a wrapper is given first.
INNER = {
    "Bidirectional": lambda k: k.layers.LSTM(3),
    "RNN": lambda k: [k.layers.LSTMCell(3), k.layers.GRUCell(3)],
    "SpectralNormalization": lambda k: k.layers.Dense(3),
    "TimeDistributed": lambda k: k.layers.Dense(3),
}
# Class, and in brackets which of it → the shape of an input, and what it is made with.
LAYERS = {
    **dict.fromkeys(("AdditiveAttention", "Bidirectional", "RNN", "TimeDistributed"), (STEPS, {})),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization", "RMSNormalization"), (ROW, {})),
    **dict.fromkeys(("PReLU", "SpectralNormalization"), (ROW, {})),
    **dict.fromkeys(("Embedding", "ReversibleEmbedding"), (ROW, WORDS)),
    **dict.fromkeys(("GRU", "LSTM", "SimpleRNN"), (STEPS, {"units": 3})),
    **{f"Conv{n}D": (shape, CONV) for n, shape in enumerate((STEPS, IMAGE, CUBE), 1)},
    **{f"Conv{n}DTranspose": (shape, CONV) for n, shape in enumerate((STEPS, IMAGE, CUBE), 1)},
    **{f"ConvLSTM{n}D": ((2, *shape), CONV) for n, shape in enumerate((STEPS, IMAGE, CUBE), 1)},
    **{f"LocallyConnected{n}D": (shape, CONV) for n, shape in enumerate((STEPS, IMAGE), 1)},
    **{f"SeparableConv{n}D": (shape, CONV) for n, shape in enumerate((STEPS, IMAGE), 1)},
    "DepthwiseConv1D": (STEPS, {"kernel_size": 2}),
    "DepthwiseConv2D": (IMAGE, {"kernel_size": 2}),
    "Attention": (STEPS, {"use_scale": True}),
    "BatchNormalization (no scale)": (ROW, {"scale": False}),
    "Dense": (ROW, {"units": 3}),
    "Dense (no bias)": (ROW, {"units": 3, "use_bias": False}),
    "EinsumDense": (ROW, EINSUM),
    "GRU (reset before)": (STEPS, {"units": 3, "reset_after": False}),
    "GroupNormalization": (ROW, {"groups": 2}),
    "GroupQueryAttention": (STEPS, GROUPED),
    "MultiHeadAttention": (STEPS, {"num_heads": 2, "key_dim": 2}),
}


def has(k, name):
    """tf_keras's SpectralNormalization asks for an InputSpec of the Keras that TensorFlow has."""
    absent = k.__name__ == "tf_keras" and name == "SpectralNormalization"
    return hasattr(k.layers, name) and not absent


def inputs(name, shape):
    rng = np.random.default_rng(7)
    if name.endswith("Embedding"):
        return rng.integers(0, 7, (6, *shape)).astype("int32")
    return rng.normal(0.3, 0.2, (6, *shape)).astype("float32")


def net(k, name, options, batch, seed):
    x = k.Input(batch.shape[1:], dtype=batch.dtype.name)
    inner = [INNER[name](k)] if name in INNER else []
    layer = getattr(k.layers, name)(*inner, name="it", **options)
    if name.endswith("Attention"):
        y = layer(x, x) if "key_dim" in options or "head_dim" in options else layer([x, x])
    else:
        y = layer(x)
    return fill(seed, k.Model(x, y, name="net"))


def saved(model, directory, how):
    if how == "checkpoint":
        return str(tfckpt.Checkpoint(model=model).save(directory / "ckpt"))
    return save(model, directory, how)


def cases():
    """Each in one flavour and by two of the formats, in turn; in the long tests by all."""
    for at, kind in enumerate(LAYERS):
        found = [k for k in (keras, tf_keras) if has(k, kind.partition(" ")[0])]
        yield kind, found[at % len(found)], ("checkpoint", FORMATS[at % len(FORMATS)])
        for k in found:
            yield pytest.param(kind, k, ("checkpoint", *FORMATS), marks=pytest.mark.long)


@pytest.mark.parametrize(("kind", "k", "formats"), [*cases()])
def test_a_restored_layer_computes_the_same(kind, k, formats, tmp_path):
    name, (shape, options) = kind.partition(" ")[0], LAYERS[kind]
    x = inputs(name, shape)
    model, other = (net(k, name, options, x, seed) for seed in (1, 2))
    across = keras if k is tf_keras else tf_keras
    foreign = net(across, name, options, x, 3) if has(across, name) else None
    expected = np.asarray(model(x))
    assert not np.array_equal(np.asarray(other(x)), expected)
    for how in formats:
        path = saved(model, tmp_path, how)
        fill(2, other)
        tfckpt.restore(path, other)
        np.testing.assert_array_equal(np.asarray(other(x)), expected, how)
        if foreign is not None:
            fill(3, foreign)
            tfckpt.restore(path, foreign)
            assert equal(model, foreign), how


def adapted(k, name, *, adapt=True, **options):
    x = inputs("", ROW if name == "Normalization" else (1,))
    it = getattr(k.layers, name)(name="it", **options)
    model = stack(k, it, shape=x.shape[1:], name="net")
    if adapt:
        it.adapt(x)
    return model, x


@pytest.mark.parametrize("how", ["checkpoint", ".weights.h5"])
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used before"])
def test_normalization_computes_with_what_was_restored(flavour, how, used, tmp_path):
    model, x = adapted(flavour, "Normalization")
    expected = model.predict(x, verbose=0)
    other, _ = adapted(flavour, "Normalization", adapt=False)
    if used:  # Keras has traced it with the constants of then
        assert not np.array_equal(other.predict(x, verbose=0), expected)
    tfckpt.restore(saved(model, tmp_path, how), other)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)


def test_a_restore_that_is_taken_back_takes_back_what_was_made_from_it(flavour, tmp_path):
    model, x = adapted(flavour, "Normalization")
    more = (getattr(flavour, "Variable", None) or flavour.backend.variable)(1.0)
    path = tfckpt.Checkpoint(model=model, more=more).save(tmp_path / "ckpt")
    other, _ = adapted(flavour, "Normalization", adapt=False)
    before = np.asarray(other(x))
    status = tfckpt.Checkpoint(model=other).restore(path)
    with pytest.raises(AssertionError):
        status.assert_consumed()
    np.testing.assert_array_equal(np.asarray(other(x)), before)


@pytest.mark.parametrize("how", ["checkpoint", ".weights.h5"])
def test_a_layer_of_ones_own_is_loaded_as_keras_loads_it(flavour, how, tmp_path):
    class Cached(flavour.layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(name="kernel", shape=(shape[-1], 2))
            self.cache = None

        def load_own_variables(self, store):
            super().load_own_variables(store)
            self.cache = np.array(self.kernel)

        def call(self, x):
            return x @ (self.kernel if self.cache is None else self.cache)

    model, other = (stack(flavour, Cached(name="it"), shape=ROW) for _ in range(2))
    other.layers[0].cache = np.zeros((4, 2), "float32")
    x = inputs("", ROW)
    tfckpt.restore(saved(model, tmp_path, how), other)
    np.testing.assert_allclose(np.asarray(other(x)), np.asarray(model(x)), rtol=1e-6)
