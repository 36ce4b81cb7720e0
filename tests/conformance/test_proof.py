"""A model that computes something else is found, and the part that does; one that does not is not.

The wrongs are those that names, shapes and dtypes cannot see. Each is planted by hand into a model
that was restored, and the part that is expected to be named is the layer it was planted in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import pytest
import tf_keras
from zoo import models as zoo
from zoo.models import stack, wired
from zoo.values import fill

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

    Plant = Callable[[Any], object]

ROW, STEPS, IMAGE, WORDS = (4,), (5, 4), (8, 8, 4), (6,)


def numbers(shape, seed=2):
    return np.random.default_rng(seed).normal(0.5, 1.0, (3, *shape)).astype("float32")


# Models: two equal ones from two calls, apart from their values


def dense(k, activation="tanh"):
    layers = [k.layers.Dense(4, activation, name=name) for name in "ab"]
    return stack(k, *layers, k.layers.Dense(4, name="c"), shape=ROW)


def conv(k, epsilon=1e-3):
    layers = [
        layer
        for n in (1, 2)
        for layer in (
            k.layers.Conv2D(4, 3, padding="same", name=f"conv{n}"),
            k.layers.BatchNormalization(epsilon=epsilon, name=f"bn{n}"),
            k.layers.ReLU(name=f"relu{n}"),
        )
    ]
    layers.append(k.layers.DepthwiseConv2D(3, padding="same", name="depth"))
    layers.append(k.layers.PReLU(shared_axes=[1, 2], name="alpha"))
    return wired(k, *layers, k.layers.GlobalAveragePooling2D(name="pool"), shape=IMAGE)


def text(k):
    start = k.Input(WORDS, dtype="int32")
    x = k.layers.Embedding(9, 4, name="words")(start)
    x = k.layers.LayerNormalization(name="norm")(x)
    x = k.layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    return k.Model(start, k.layers.Dense(9, name="logits")(x))


def recurrent(k):
    lstm = k.layers.LSTM(4, return_sequences=True, name="lstm")
    gru = k.layers.GRU(4, return_sequences=True, name="gru")
    both = k.layers.Bidirectional(k.layers.SimpleRNN(4), name="both")
    return wired(k, lstm, gru, both, shape=STEPS)


def towers(k):
    def tower(name):
        layers = [k.layers.Dense(4, "tanh", name="first"), k.layers.Dense(4, name="second")]
        return stack(k, *layers, shape=ROW, name=name)

    one, other = k.Input(ROW, name="one"), k.Input(ROW, name="other")
    return k.Model([one, other], [tower("left")(one), tower("right")(other)])


def named_inputs(k):
    inputs = {"price": k.Input(ROW, name="price"), "size": k.Input(ROW, name="size")}
    found = [k.layers.Dense(4, name=f"of_{name}")(x) for name, x in inputs.items()]
    return k.Model(inputs, k.layers.Concatenate(name="joined")(found))


def prepared(k, scale=1 / 255):
    normalization = k.layers.Normalization(name="normalization")
    normalization.adapt(np.random.default_rng(1).normal(1.0, 2.0, (32, *ROW)).astype("float32"))
    last = k.layers.Dense(4, name="out")
    return wired(k, k.layers.Rescaling(scale, name="rescaling"), normalization, last, shape=ROW)


def subclassed(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [k.layers.Dense(4, "tanh"), k.layers.Dense(4, "tanh")]
            self.drop = k.layers.Dropout(0.5)
            self.scale = self.add_weight(name="scale", shape=(4,))
            self.out = k.layers.Dense(4)

        def call(self, x, training=False):
            for block in self.blocks:
                x = self.drop(block(x), training=training)
            return self.out(x * self.scale)

    return zoo.called(Net(), np.zeros((1, *ROW), "float32"))


def nested(k):
    inner = [k.layers.Dense(4, "tanh", name=name) for name in ("one", "two")]
    encoder = stack(k, *inner, shape=ROW, name="encoder")
    shared, start = k.layers.Dense(4, name="shared"), k.Input(ROW)
    x = encoder(start)
    heads = [k.layers.Dense(4, name=name)(shared(shared(x))) for name in ("mean", "spread")]
    return k.Model(start, heads)


# Wrongs


def of(model, part):
    """A layer by its canonical name."""
    found = model
    for name in part.split("/"):
        layers = {layer.name: layer for layer in getattr(found, "layers", [])}
        if isinstance(found, list):
            found = found[int(name)]
        else:
            found = layers.get(name) or getattr(found, name, None) or getattr(found, f"_{name}")
    return found


class Wrong(NamedTuple):
    """What is done to a model, and the part that it is done to, or the parts beside each other."""

    part: str
    plant: Plant


def changed(part, change, index=0):
    """One weight of a part is replaced by what is made of it."""

    def plant(model):
        weights = of(model, part).get_weights()
        weights[index] = np.asarray(change(weights[index]), weights[index].dtype)
        of(model, part).set_weights(weights)

    return Wrong(part, plant)


def exchanged(one, other, named=""):
    """Two parts have each other's weights."""

    def plant(model):
        first, second = of(model, one), of(model, other)
        weights = first.get_weights()
        first.set_weights(second.get_weights())
        second.set_weights(weights)

    return Wrong(named or one, plant)


def swapped(part, one, other):
    """Two weights of a part have each other's values."""

    def plant(model):
        weights = of(model, part).get_weights()
        weights[one], weights[other] = weights[other], weights[one]
        of(model, part).set_weights(weights)

    return Wrong(part, plant)


def copied(one, other, named=""):
    return Wrong(named or other, lambda m: of(m, other).set_weights(of(m, one).get_weights()))


def averages(model):
    model.set_weights([0.999 * w + 0.001 * np.ones_like(w) for w in model.get_weights()])


def overflowed(kernel):
    with np.errstate(over="ignore"):
        return (kernel * 1e6).astype("float16")


def gates(kernel):
    i, f, c, o = np.split(kernel, 4, -1)
    return np.concatenate([i, c, f, o], -1)


def renormalized(model):
    """The constant that Normalization computes with, which is another one after a wrong adapt."""
    layer = of(model, "normalization")
    layer.adapt(np.random.default_rng(9).normal(0.0, 1.0, (32, *ROW)).astype("float32"))


class Subject(NamedTuple):
    """A batch, what goes wrong, and code that is another one: arguments → the part."""

    batch: Any
    wrongs: dict[str, Wrong]
    other_code: tuple[Any, str] | None = None


SUBJECTS = {
    dense: Subject(
        numbers(ROW),
        {
            "equal layers exchanged": exchanged("a", "b"),
            "one layer twice": copied("b", "c"),
            "kernel transposed": changed("a", np.transpose),
            "bias zeroed": changed("b", np.zeros_like, 1),
            "rows shifted": changed("b", lambda w: np.roll(w, 1, 0)),
            "sign of one column": changed("a", lambda w: w * [1, 1, -1, 1]),
            "one value by a thousandth": changed("b", lambda w: w + 1e-3 * np.eye(4)[:, :1]),
            "averages for weights": Wrong("a", averages),
            "cast that overflows": changed("b", overflowed),
            "not a number": changed("c", lambda w: w * np.nan),
            "fresh layer": changed("c", np.random.default_rng(8).permutation),
        },
        ("relu", "a"),
    ),
    conv: Subject(
        numbers(IMAGE),
        {
            "kernel's sides transposed": changed("conv1", lambda w: w.transpose(1, 0, 2, 3)),
            "channels transposed": changed("conv2", lambda w: w.transpose(0, 1, 3, 2)),
            "kernel flipped": changed("conv1", lambda w: w[::-1, ::-1]),
            "statistics exchanged": exchanged("bn1", "bn2"),
            "gamma and beta exchanged": swapped("bn2", 0, 1),
            "mean and variance exchanged": swapped("bn1", 2, 3),
            "variance as at the start": changed("bn2", np.ones_like, 3),
            "depthwise channels shifted": changed("depth", lambda w: np.roll(w, 1, 2)),
        },
        (1e-5, "bn1"),
    ),
    text: Subject(
        np.random.default_rng(2).integers(0, 9, (3, *WORDS)).astype("int32"),
        {
            "words of another vocabulary": changed("words", lambda w: np.roll(w, 1, 0)),
            "scale and offset exchanged": swapped("norm", 0, 1),
            "query for key": exchanged("attention/query_dense", "attention/key_dense"),
            "heads exchanged": changed("attention/output_dense", lambda w: w[::-1]),
        },
    ),
    recurrent: Subject(
        numbers(STEPS),
        {
            "gates of a cell exchanged": changed("lstm", gates),
            "recurrent kernel reversed": changed("gru", lambda w: w[::-1], 1),
            "forward for backward": exchanged("both/forward_layer", "both/backward_layer", "both"),
        },
    ),
    towers: Subject(
        [numbers(ROW), numbers(ROW, 3)],
        {
            "one for the other": exchanged("left", "right", "left/first or right/first"),
            "the same twice": copied("left", "right", "right/first"),
        },
    ),
    named_inputs: Subject(
        {"price": numbers(ROW), "size": numbers(ROW, 3)},
        {"inputs exchanged": exchanged("of_price", "of_size")},
    ),
    prepared: Subject(
        numbers(ROW), {"another mean": Wrong("normalization", renormalized)}, (1 / 127, "rescaling")
    ),
    subclassed: Subject(
        numbers(ROW),
        {
            "blocks in another order": exchanged("blocks/0", "blocks/1"),
            "a weight of the model": Wrong("", lambda m: m.scale.assign(m.scale * 1.5)),
        },
    ),
    nested: Subject(
        numbers(ROW),
        {
            "layers of a nested model": exchanged("encoder/one", "encoder/two"),
            "shared layer": changed("shared", np.transpose),
            "heads of two outputs": exchanged("mean", "spread", "mean or spread"),
        },
    ),
}
each_subject = pytest.mark.parametrize("build", SUBJECTS, ids=lambda build: build.__name__)


def saved(build, k, place):
    """A model whose values are neither 0 nor 1, and no two alike, and its checkpoint."""
    model = build(k)
    if build is not prepared:  # whose constants are made of data
        fill(5, model)
    path = tfckpt.Checkpoint(model=model).save(place / "ckpt", probe=SUBJECTS[build].batch)
    return model, str(path)


def accused(proof, part):
    names = tuple(f"model/{name}".rstrip("/") + "/" for name in part.split(" or "))
    return not proof.same and f"{proof.part}/".startswith(names)


@each_subject
def test_what_names_and_shapes_cannot_see_is_found(flavour, build, tmp_path):
    subject, other = SUBJECTS[build], build(flavour)
    _, path = saved(build, flavour, tmp_path)
    for name, wrong in subject.wrongs.items():
        report = tfckpt.restore(path, other)
        assert report.prove().same, name
        wrong.plant(other)
        assert accused(report.prove(), wrong.part), f"{name}: {report.prove()}"
    if subject.other_code:
        argument, part = subject.other_code
        another = build(flavour, argument)
        assert accused(tfckpt.restore(path, another).prove(), part)


# Right restores


def by_weights_file(model, other, path):
    model.save_weights(f"{path}.weights.h5")
    other.load_weights(f"{path}.weights.h5")
    return tfckpt.prove(path, other)


def by_conversion(model, other, path):
    tfckpt.export(path, f"{path}.safetensors")
    tfckpt.restore(f"{path}.safetensors", other, api="read", on_unexpected="ignore")
    return tfckpt.prove(path, other)


WAYS = {
    "weights.h5": by_weights_file,
    "safetensors": by_conversion,
}


@each_subject
def test_a_right_restore_is_not_accused(build, tmp_path):
    k = (keras, tf_keras)[[*SUBJECTS].index(build) % 2]
    model, path = saved(build, k, tmp_path)
    other = build(k)
    for way, restore in WAYS.items():
        proof = restore(model, other, path)
        assert proof.same, f"{way}: {proof}"
        assert proof.difference == 0


NOT_OF_NUMBERS = ("text", "lookups", "normalized")


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if name not in NOT_OF_NUMBERS])
def test_every_model_of_numbers_makes_its_own_batch(name, tmp_path):
    older = name not in zoo.KERAS_3 and [*zoo.MODELS].index(name) % 2
    k, build = tf_keras if older else keras, zoo.MODELS[name]
    model, other = build(k), build(k)
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt", probe="auto")
    proof = tfckpt.restore(path, other).prove()
    assert (proof.same, proof.difference) == (True, 0)


def test_renamed_layers_compute_the_same(flavour, tmp_path):
    path = tfckpt.Checkpoint(model=dense(flavour)).save(tmp_path / "ckpt", probe="auto")
    layers = [flavour.layers.Dense(4, "tanh", name=name) for name in ("first", "second")]
    other = stack(flavour, *layers, flavour.layers.Dense(4, name="c"), shape=ROW)
    names = {"a": "first", "b": "second"}
    rename = [{"checkpoint": f"model/{a}/**", "model": f"model/{b}/**"} for a, b in names.items()]
    report = tfckpt.restore(path, other, rename=rename)
    assert report.prove().same
    other.layers[1].kernel.assign(np.transpose(other.layers[1].kernel))
    assert report.prove().part == "model/second"


def test_the_other_flavor_computes_the_same(tmp_path):
    (_, path), other = saved(conv, keras, tmp_path), conv(tf_keras)
    proof = tfckpt.restore(path, other).prove()
    assert proof.same
    assert proof.difference <= 1e-5
