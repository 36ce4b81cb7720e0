"""Every layer of Keras that has variables computes after a restore what the saved one computes.

Equal variables are not enough: Normalization computes with constants that it made from them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROW, STEPS, IMAGE, CUBE = (4,), (5, 4), (6, 6, 4), (4, 4, 4, 2)
WORDS = {"Embedding", "ReversibleEmbedding"}


def layer(name: str, **arguments: Any) -> Callable[[Any, Any], Any]:
    return lambda k, x: getattr(k.layers, name)(name="it", **arguments)(x)


def wrapper(name: str, inner: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda k, x: getattr(k.layers, name)(inner(k), name="it")(x)


convolution = functools.partial(layer, filters=3, kernel_size=2)
# Class → how it is called, and the shape of an input.
LAYERS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "AdditiveAttention": (lambda k, x: k.layers.AdditiveAttention(name="it")([x, x]), STEPS),
    "Attention": (lambda k, x: k.layers.Attention(use_scale=True, name="it")([x, x]), STEPS),
    "BatchNormalization": (layer("BatchNormalization"), ROW),
    "Bidirectional": (wrapper("Bidirectional", lambda k: k.layers.LSTM(3)), STEPS),
    **{f"Conv{n}D": (convolution(f"Conv{n}D"), s) for n, s in enumerate((STEPS, IMAGE, CUBE), 1)},
    **{
        f"Conv{n}DTranspose": (convolution(f"Conv{n}DTranspose"), s)
        for n, s in enumerate((STEPS, IMAGE, CUBE), 1)
    },
    **{
        f"ConvLSTM{n}D": (convolution(f"ConvLSTM{n}D"), (2, *s))
        for n, s in enumerate((STEPS, IMAGE, CUBE), 1)
    },
    "Dense": (layer("Dense", units=3), ROW),
    "DepthwiseConv1D": (layer("DepthwiseConv1D", kernel_size=2), STEPS),
    "DepthwiseConv2D": (layer("DepthwiseConv2D", kernel_size=2), IMAGE),
    "EinsumDense": (
        layer("EinsumDense", equation="ab,bc->ac", output_shape=3, bias_axes="c"),
        ROW,
    ),
    "Embedding": (layer("Embedding", input_dim=7, output_dim=3), ROW),
    "GRU": (layer("GRU", units=3), STEPS),
    "GroupNormalization": (layer("GroupNormalization", groups=2), ROW),
    "GroupQueryAttention": (
        lambda k, x: k.layers.GroupQueryAttention(2, 2, 1, name="it")(x, x),
        STEPS,
    ),
    "LSTM": (layer("LSTM", units=3), STEPS),
    "LayerNormalization": (layer("LayerNormalization"), ROW),
    "LocallyConnected1D": (convolution("LocallyConnected1D"), STEPS),
    "LocallyConnected2D": (convolution("LocallyConnected2D"), IMAGE),
    "MultiHeadAttention": (lambda k, x: k.layers.MultiHeadAttention(2, 2, name="it")(x, x), STEPS),
    "PReLU": (layer("PReLU"), ROW),
    "RMSNormalization": (layer("RMSNormalization"), ROW),
    "RNN": (
        wrapper("RNN", lambda k: [k.layers.LSTMCell(3), k.layers.GRUCell(3)]),
        STEPS,
    ),
    "ReversibleEmbedding": (layer("ReversibleEmbedding", input_dim=7, output_dim=3), ROW),
    "SeparableConv1D": (convolution("SeparableConv1D"), STEPS),
    "SeparableConv2D": (convolution("SeparableConv2D"), IMAGE),
    "SimpleRNN": (layer("SimpleRNN", units=3), STEPS),
    # tf_keras's asks for an InputSpec of the Keras that TensorFlow has by now.
    "SpectralNormalization": (wrapper("SpectralNormalization", lambda k: k.layers.Dense(3)), ROW),
    "TimeDistributed": (wrapper("TimeDistributed", lambda k: k.layers.Dense(3)), STEPS),
}


def inputs(name: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(7)
    if name in WORDS:
        return rng.integers(0, 7, (6, *shape)).astype("int32")
    return rng.normal(3.0, 2.0, (6, *shape)).astype("float32")


def net(k: Any, name: str, x: np.ndarray) -> Any:
    start = k.Input(x.shape[1:], dtype=x.dtype.name)
    return k.Model(start, LAYERS[name][0](k, start), name="net")


def restored(model: Any, path: object, how: str) -> None:
    """Restore by the drop-in class, or by a policy."""
    if how == "checkpoint":
        tfckpt.Checkpoint(model=model).restore(path).assert_consumed()
    else:
        policy = {"api": "read", "include": ["model/**"]}
        config = {"version": 1, "restore": {"path": str(path), "policy": policy}}
        tfckpt.restore(config, model=model)


def saved(model: Any, directory: Path, how: str) -> object:
    if how == "checkpoint":
        return tfckpt.Checkpoint(model=model).save(directory / "ckpt")
    model.save_weights(directory / "it.weights.h5")
    return directory / "it.weights.h5"


@pytest.mark.parametrize("name", LAYERS)
def test_a_restored_layer_computes_the_same(flavour, name, tmp_path) -> None:
    absent = flavour.__name__ == "tf_keras" and name == "SpectralNormalization"
    if absent or not hasattr(flavour.layers, name):
        pytest.skip(f"{flavour.__name__} has no {name}")
    x = inputs(name, LAYERS[name][1])
    model, other = net(flavour, name, x), net(flavour, name, x)
    rng = np.random.default_rng(5)
    model.set_weights([rng.uniform(0.5, 1.5, w.shape).astype(w.dtype) for w in model.get_weights()])
    expected = np.asarray(model(x))
    fresh = other.get_weights()
    for how in ("checkpoint", "weights.h5"):
        assert not np.array_equal(np.asarray(other(x)), expected)
        restored(other, saved(model, tmp_path, how), how)
        np.testing.assert_array_equal(np.asarray(other(x)), expected)
        other.set_weights(fresh)


def normalizing(k: Any, *, adapted: bool) -> tuple[Any, np.ndarray]:
    x = inputs("", ROW)
    it = k.layers.Normalization(name="it")
    model = k.Sequential([k.Input(ROW), it], name="net")
    if adapted:
        it.adapt(x)
    return model, x


def binning(k: Any, *, adapted: bool) -> tuple[Any, np.ndarray]:
    x = inputs("", (1,))
    it = k.layers.Discretization(num_bins=3, name="it")
    model = k.Sequential([k.Input((1,)), it], name="net")
    if adapted:
        it.adapt(x)
    return model, x


@pytest.mark.parametrize("how", ["checkpoint", "weights.h5"])
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used before"])
def test_normalization_computes_with_what_was_restored(flavour, how, used, tmp_path) -> None:
    model, x = normalizing(flavour, adapted=True)
    expected = model.predict(x, verbose=0)
    other, _ = normalizing(flavour, adapted=False)
    if used:  # Keras has traced it with the constants of then
        assert not np.array_equal(other.predict(x, verbose=0), expected)
    restored(other, saved(model, tmp_path, how), how)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)


@pytest.mark.parametrize("how", ["checkpoint", "weights.h5"])
def test_bins_are_those_that_were_restored(how, tmp_path) -> None:
    """tf_keras's; Keras 3 keeps the bins of an adapted layer in its config alone."""
    k = pytest.importorskip("tf_keras")
    model, x = binning(k, adapted=True)
    other, _ = binning(k, adapted=False)
    restored(other, saved(model, tmp_path, how), how)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))


def test_a_restore_that_is_taken_back_takes_back_what_was_made_from_it(flavour, tmp_path) -> None:
    model, x = normalizing(flavour, adapted=True)
    path = tfckpt.Checkpoint(
        model=model,
        more=flavour.Variable(1.0)
        if hasattr(flavour, "Variable")
        else flavour.backend.variable(1.0),
    ).save(tmp_path / "ckpt")
    other, _ = normalizing(flavour, adapted=False)
    before = np.asarray(other(x))
    status = tfckpt.Checkpoint(model=other).restore(path)
    with pytest.raises(AssertionError):
        status.assert_consumed()
    np.testing.assert_array_equal(np.asarray(other(x)), before)


@pytest.mark.parametrize("how", ["checkpoint", "weights.h5"])
def test_a_layer_of_ones_own_is_loaded_as_keras_loads_it(flavour, how, tmp_path) -> None:
    class Cached(flavour.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(shape[-1], 2))
            self.cache = None

        def load_own_variables(self, store: Any) -> None:
            super().load_own_variables(store)
            self.cache = np.array(self.kernel)

        def call(self, x: Any) -> Any:
            return x @ (self.kernel if self.cache is None else self.cache)

    def make() -> Any:
        return flavour.Sequential([flavour.Input(ROW), Cached(name="it")], name="net")

    model, other, x = make(), make(), inputs("", ROW)
    other.layers[0].cache = np.zeros((4, 2), "float32")
    restored(other, saved(model, tmp_path, how), how)
    np.testing.assert_allclose(np.asarray(other(x)), np.asarray(model(x)), rtol=1e-6)
