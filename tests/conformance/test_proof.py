"""A model that computes something else is found, and the part that does; one that does not is not.

The wrongs are those that names, shapes and dtypes cannot see. Each is planted by hand into a model
that was restored, and the part that is expected to be named is the layer it was planted in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from zoo.models import IN_FLAVOUR, MODELS

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

ROW, STEPS, IMAGE, WORDS = (4,), (5, 4), (8, 8, 4), (6,)


# Models: two equal ones from two calls, apart from their values


def dense(k: Any, activation: str = "tanh") -> Any:
    layers = [k.layers.Dense(4, activation, name="a"), k.layers.Dense(4, activation, name="b")]
    return k.Sequential([k.Input(ROW), *layers, k.layers.Dense(4, name="c")])


def conv(k: Any, epsilon: float = 1e-3) -> Any:
    x = start = k.Input(IMAGE)
    for n in (1, 2):
        x = k.layers.Conv2D(4, 3, padding="same", name=f"conv{n}")(x)
        x = k.layers.BatchNormalization(epsilon=epsilon, name=f"bn{n}")(x)
        x = k.layers.ReLU(name=f"relu{n}")(x)
    x = k.layers.DepthwiseConv2D(3, padding="same", name="depth")(x)
    x = k.layers.PReLU(shared_axes=[1, 2], name="alpha")(x)
    return k.Model(start, k.layers.GlobalAveragePooling2D(name="pool")(x))


def text(k: Any) -> Any:
    start = k.Input(WORDS, dtype="int32")
    x = k.layers.Embedding(9, 4, name="words")(start)
    x = k.layers.LayerNormalization(name="norm")(x)
    x = k.layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    return k.Model(start, k.layers.Dense(9, name="logits")(x))


def recurrent(k: Any) -> Any:
    x = start = k.Input(STEPS)
    x = k.layers.LSTM(4, return_sequences=True, name="lstm")(x)
    x = k.layers.GRU(4, return_sequences=True, name="gru")(x)
    return k.Model(start, k.layers.Bidirectional(k.layers.SimpleRNN(4), name="both")(x))


def towers(k: Any) -> Any:
    def tower(name: str) -> Any:
        layers = [k.layers.Dense(4, "tanh", name="first"), k.layers.Dense(4, name="second")]
        return k.Sequential([k.Input(ROW), *layers], name=name)

    one, other = k.Input(ROW, name="one"), k.Input(ROW, name="other")
    return k.Model([one, other], [tower("left")(one), tower("right")(other)])


def named_inputs(k: Any) -> Any:
    inputs = {"price": k.Input(ROW, name="price"), "size": k.Input(ROW, name="size")}
    found = [k.layers.Dense(4, name=f"of_{name}")(x) for name, x in inputs.items()]
    return k.Model(inputs, k.layers.Concatenate(name="joined")(found))


def prepared(k: Any, scale: float = 1 / 255) -> Any:
    x = start = k.Input(ROW)
    x = k.layers.Rescaling(scale, name="rescaling")(x)
    normalization = k.layers.Normalization(name="normalization")
    normalization.adapt(np.random.default_rng(1).normal(1.0, 2.0, (32, *ROW)).astype("float32"))
    return k.Model(start, k.layers.Dense(4, name="out")(normalization(x)))


def low_rank(k: Any) -> Any:
    class LowRank(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(name="kernel", shape=(shape[-1], 4))
            self.lora_a = self.add_weight(name="lora_a", shape=(shape[-1], 2))
            self.lora_b = self.add_weight(name="lora_b", shape=(2, 4))

        def call(self, x: Any) -> Any:
            return x @ self.kernel + (x @ self.lora_a) @ self.lora_b

    layers = [k.layers.Dense(4, name="a"), LowRank(name="tuned"), k.layers.Dense(4, name="out")]
    return k.Sequential([k.Input(ROW), *layers])


def subclassed(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [k.layers.Dense(4, "tanh"), k.layers.Dense(4, "tanh")]
            self.drop = k.layers.Dropout(0.5)
            self.scale = self.add_weight(name="scale", shape=(4,))
            self.out = k.layers.Dense(4)

        def call(self, x: Any, training: bool = False) -> Any:
            for block in self.blocks:
                x = self.drop(block(x), training=training)
            return self.out(x * self.scale)

    model = Net()
    model(np.zeros((1, *ROW), "float32"))
    return model


def nested(k: Any) -> Any:
    inner = [k.layers.Dense(4, "tanh", name=name) for name in ("one", "two")]
    encoder = k.Sequential([k.Input(ROW), *inner], name="encoder")
    shared, start = k.layers.Dense(4, name="shared"), k.Input(ROW)
    x = encoder(start)
    heads = [k.layers.Dense(4, name=name)(shared(shared(x))) for name in ("mean", "spread")]
    return k.Model(start, heads)


BATCHES: dict[Any, Callable[[], Any]] = {
    dense: lambda: numbers(ROW),
    conv: lambda: numbers(IMAGE),
    text: lambda: np.random.default_rng(2).integers(0, 9, (3, *WORDS)).astype("int32"),
    recurrent: lambda: numbers(STEPS),
    towers: lambda: [numbers(ROW), numbers(ROW, 3)],
    named_inputs: lambda: {"price": numbers(ROW), "size": numbers(ROW, 3)},
    prepared: lambda: numbers(ROW),
    low_rank: lambda: numbers(ROW),
    subclassed: lambda: numbers(ROW),
    nested: lambda: numbers(ROW),
}


def numbers(shape: tuple[int, ...], seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.5, 1.0, (3, *shape)).astype("float32")


def of(model: Any, part: str) -> Any:
    """A layer by its canonical name."""
    found = model
    for name in part.split("/")[1:]:
        layers = {layer.name: layer for layer in getattr(found, "layers", [])}
        if isinstance(found, list):
            found = found[int(name)]
        else:
            found = layers.get(name) or getattr(found, name, None) or getattr(found, f"_{name}")
    return found


def filled(build: Callable[..., Any], k: Any) -> Any:
    """A model whose values are neither 0 nor 1, and no two alike."""
    model = build(k)
    if build is prepared:  # its constants are made of data
        return model
    rng = np.random.default_rng(5)
    model.set_weights([rng.uniform(0.2, 0.9, w.shape).astype(w.dtype) for w in model.get_weights()])
    return model


# Wrongs


class Wrong(NamedTuple):
    """What is done to a model, and the part that it is done to, or the parts beside each other."""

    model: Callable[..., Any]
    part: str
    plant: Callable[[Any], None]
    arguments: tuple[Any, ...] = ()


def changed(
    part: str, change: Callable[[np.ndarray], Any], index: int = 0
) -> Callable[[Any], None]:
    """One weight of a part is replaced by what is made of it."""

    def plant(model: Any) -> None:
        layer = of(model, part)
        weights = layer.get_weights()
        weights[index] = np.asarray(change(weights[index]), weights[index].dtype)
        layer.set_weights(weights)

    return plant


def exchanged(one: str, other: str) -> Callable[[Any], None]:
    """Two parts have each other's weights."""

    def plant(model: Any) -> None:
        first, second = of(model, one), of(model, other)
        weights = first.get_weights()
        first.set_weights(second.get_weights())
        second.set_weights(weights)

    return plant


def swapped(part: str, one: int, other: int) -> Callable[[Any], None]:
    """Two weights of a part have each other's values."""

    def plant(model: Any) -> None:
        weights = of(model, part).get_weights()
        weights[one], weights[other] = weights[other], weights[one]
        of(model, part).set_weights(weights)

    return plant


def copied(one: str, other: str) -> Callable[[Any], None]:
    return lambda model: of(model, other).set_weights(of(model, one).get_weights())


def averages(model: Any) -> None:
    model.set_weights([0.999 * w + 0.001 * np.ones_like(w) for w in model.get_weights()])


def overflowed(kernel: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return (kernel * 1e6).astype("float16")


def gates(kernel: np.ndarray) -> np.ndarray:
    i, f, c, o = np.split(kernel, 4, -1)
    return np.concatenate([i, c, f, o], -1)


def renormalized(model: Any) -> None:
    """The constant that Normalization computes with, which is another one after a wrong adapt."""
    layer = of(model, "model/normalization")
    layer.adapt(np.random.default_rng(9).normal(0.0, 1.0, (32, *ROW)).astype("float32"))


def merged(model: Any) -> None:
    layer = of(model, "model/tuned")
    layer.kernel.assign(layer.kernel + np.asarray(layer.lora_a) @ np.asarray(layer.lora_b))


def rescaled(model: Any) -> None:
    model.scale.assign(model.scale * 1.5)


def nothing(model: Any) -> None:
    """The code is another one."""


WRONGS: dict[str, Wrong] = {
    "equal layers exchanged": Wrong(dense, "model/a", exchanged("model/a", "model/b")),
    "last two exchanged": Wrong(dense, "model/b", exchanged("model/b", "model/c")),
    "one layer twice": Wrong(dense, "model/c", copied("model/b", "model/c")),
    "kernel transposed": Wrong(dense, "model/a", changed("model/a", np.transpose)),
    "bias zeroed": Wrong(dense, "model/b", changed("model/b", np.zeros_like, 1)),
    "bias reversed": Wrong(dense, "model/c", changed("model/c", np.flip, 1)),
    "rows shifted": Wrong(dense, "model/b", changed("model/b", lambda w: np.roll(w, 1, 0))),
    "columns shifted": Wrong(dense, "model/c", changed("model/c", lambda w: np.roll(w, 1, 1))),
    "sign of one column": Wrong(dense, "model/a", changed("model/a", lambda w: w * [1, 1, -1, 1])),
    "one value by a thousandth": Wrong(
        dense, "model/b", changed("model/b", lambda w: w + 1e-3 * np.eye(4)[:, :1])
    ),
    "averages for weights": Wrong(dense, "model/a", averages),
    "cast that overflows": Wrong(dense, "model/b", changed("model/b", overflowed)),
    "not a number": Wrong(dense, "model/c", changed("model/c", lambda w: w * np.nan)),
    "fresh layer": Wrong(
        dense, "model/c", changed("model/c", np.random.default_rng(8).permutation)
    ),
    "another activation": Wrong(dense, "model/a", nothing, ("relu",)),
    "kernel's sides transposed": Wrong(
        conv, "model/conv1", changed("model/conv1", lambda w: w.transpose(1, 0, 2, 3))
    ),
    "channels transposed": Wrong(
        conv, "model/conv2", changed("model/conv2", lambda w: w.transpose(0, 1, 3, 2))
    ),
    "kernel flipped": Wrong(conv, "model/conv1", changed("model/conv1", lambda w: w[::-1, ::-1])),
    "equal convolutions exchanged": Wrong(
        conv, "model/conv1", exchanged("model/conv1", "model/conv2")
    ),
    "statistics exchanged": Wrong(conv, "model/bn1", exchanged("model/bn1", "model/bn2")),
    "gamma and beta exchanged": Wrong(conv, "model/bn2", swapped("model/bn2", 0, 1)),
    "mean and variance exchanged": Wrong(conv, "model/bn1", swapped("model/bn1", 2, 3)),
    "variance as at the start": Wrong(conv, "model/bn2", changed("model/bn2", np.ones_like, 3)),
    "another epsilon": Wrong(conv, "model/bn1", nothing, (1e-5,)),
    "depthwise channels shifted": Wrong(
        conv, "model/depth", changed("model/depth", lambda w: np.roll(w, 1, 2))
    ),
    "words of another vocabulary": Wrong(
        text, "model/words", changed("model/words", lambda w: np.roll(w, 1, 0))
    ),
    "scale and offset exchanged": Wrong(text, "model/norm", swapped("model/norm", 0, 1)),
    "query for key": Wrong(
        text,
        "model/attention/query_dense",
        exchanged("model/attention/query_dense", "model/attention/key_dense"),
    ),
    "heads exchanged": Wrong(
        text,
        "model/attention/output_dense",
        changed("model/attention/output_dense", lambda w: w[::-1]),
    ),
    "gates of a cell exchanged": Wrong(recurrent, "model/lstm", changed("model/lstm", gates)),
    "recurrent kernel reversed": Wrong(
        recurrent, "model/gru", changed("model/gru", lambda w: w[::-1], 1)
    ),
    "forward for backward": Wrong(
        recurrent,
        "model/both",
        exchanged("model/both/forward_layer", "model/both/backward_layer"),
    ),
    "one tower for the other": Wrong(
        towers, "model/left/first or model/right/first", exchanged("model/left", "model/right")
    ),
    "the same tower twice": Wrong(towers, "model/right/first", copied("model/left", "model/right")),
    "inputs exchanged": Wrong(
        named_inputs, "model/of_price", exchanged("model/of_price", "model/of_size")
    ),
    "another mean": Wrong(prepared, "model/normalization", renormalized),
    "another constant": Wrong(prepared, "model/rescaling", nothing, (1 / 127,)),
    "low rank left out": Wrong(low_rank, "model/tuned", changed("model/tuned", np.zeros_like, 2)),
    "low rank merged twice": Wrong(low_rank, "model/tuned", merged),
    "blocks in another order": Wrong(
        subclassed, "model/blocks/0", exchanged("model/blocks/0", "model/blocks/1")
    ),
    "a weight of the model itself": Wrong(subclassed, "model", rescaled),
    "layers of a nested model": Wrong(
        nested, "model/encoder/one", exchanged("model/encoder/one", "model/encoder/two")
    ),
    "shared layer": Wrong(nested, "model/shared", changed("model/shared", np.transpose)),
    "heads of two outputs": Wrong(
        nested, "model/mean or model/spread", exchanged("model/mean", "model/spread")
    ),
}


@pytest.mark.parametrize("name", WRONGS)
def test_what_names_and_shapes_cannot_see_is_found(flavour, name, tmp_path) -> None:
    wrong = WRONGS[name]
    model, other = filled(wrong.model, flavour), wrong.model(flavour, *wrong.arguments)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=BATCHES[wrong.model]())
    report = tfckpt.restore(path, other)
    assert wrong.arguments or report.prove().same
    wrong.plant(other)
    proof = report.prove()
    assert not proof.same
    assert f"{proof.part}/".startswith(tuple(f"{part}/" for part in wrong.part.split(" or ")))


# Right restores


def by_checkpoint(k: Any, model: Any, other: Any, path: str) -> Any:
    return tfckpt.restore(path, other).prove()


def by_rewrite(k: Any, model: Any, other: Any, path: str) -> Any:
    tfckpt.rewrite(path, f"{path}-new", drop_optimizer=True)
    return tfckpt.restore(f"{path}-new", other).prove()


def by_weights_file(k: Any, model: Any, other: Any, path: str) -> Any:
    model.save_weights(f"{path}.weights.h5")
    other.load_weights(f"{path}.weights.h5")
    return tfckpt.prove(path, other)


def by_conversion(k: Any, model: Any, other: Any, path: str) -> Any:
    tfckpt.convert(path, f"{path}.safetensors", include=["model/**"])
    tfckpt.restore(f"{path}.safetensors", other)
    return tfckpt.prove(path, other)


def by_cast(dtype: str) -> Callable[..., Any]:
    def cast(k: Any, model: Any, other: Any, path: str) -> Any:
        tfckpt.rewrite(path, f"{path}-{dtype}", cast=dtype)
        return tfckpt.restore(f"{path}-{dtype}", other, on_dtype_mismatch="cast").prove()

    return cast


WAYS = {
    "checkpoint": by_checkpoint,
    "rewrite": by_rewrite,
    "weights.h5": by_weights_file,
    "safetensors": by_conversion,
    "float16": by_cast("float16"),
    "bfloat16": by_cast("bfloat16"),
}
CASTS = ("float16", "bfloat16")


@pytest.mark.parametrize(
    ("flavour", "build", "way"),
    [
        (("keras3", "tf_keras")[(m + n) % 2], build, way)
        for m, build in enumerate(BATCHES)
        for n, way in enumerate(WAYS)
    ],
    indirect=["flavour"],
)
def test_a_right_restore_is_not_accused(flavour, build, way, tmp_path) -> None:
    model, other = filled(build, flavour), build(flavour)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe=BATCHES[build]())
    proof = WAYS[way](flavour, model, other, path)
    assert proof.same, proof
    assert (proof.difference == 0) == (way not in CASTS)


@pytest.mark.parametrize(
    ("flavour", "name"),
    [each for each in IN_FLAVOUR if each[1] not in ("text", "lookups", "normalized")],
    indirect=["flavour"],
)
def test_every_model_of_numbers_makes_its_own_batch(flavour, name, tmp_path) -> None:
    path = tfckpt.Checkpoint(model=MODELS[name](flavour)).save(tmp_path / "ckpt", probe="auto")
    model = MODELS[name](flavour)
    proof = tfckpt.restore(path, model).prove()
    assert (proof.same, proof.difference) == (True, 0)


def test_renamed_layers_compute_the_same(flavour, tmp_path) -> None:
    model = dense(flavour)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe="auto")
    layers = [flavour.layers.Dense(4, "tanh", name=name) for name in ("first", "second")]
    other = flavour.Sequential([flavour.Input(ROW), *layers, flavour.layers.Dense(4, name="c")])
    names = {"a": "first", "b": "second"}
    rename = [{"checkpoint": f"model/{a}/**", "model": f"model/{b}/**"} for a, b in names.items()]
    report = tfckpt.restore(path, other, rename=rename)
    assert report.prove().same
    other.layers[1].kernel.assign(np.transpose(other.layers[1].kernel))
    assert report.prove().part == "model/second"


def test_the_other_flavor_computes_the_same(tmp_path) -> None:
    keras, tf_keras = pytest.importorskip("keras"), pytest.importorskip("tf_keras")
    model, other = filled(conv, keras), conv(tf_keras)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe="auto")
    proof = tfckpt.restore(path, other).prove()
    assert proof.same
    assert proof.difference <= 1e-5
