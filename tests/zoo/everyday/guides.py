"""Programs of TensorFlow's and Keras's guides, tiny: a function makes a model and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.everyday.programs import OPTIMIZERS, Make, Program, of_model
from zoo.models import net

Guide = Callable[..., tuple[Any, dict[str, Any]]]


def fit(guide: Guide, optimizer: str | None = "adam", **options: Any) -> Make:
    """Compiled, as before a `fit` that goes on."""
    how = {key: options.pop(key) for key in ("metrics", "built") if key in options}
    return lambda k: of_model(k, *guide(k, **options), optimizer=optimizer, **how)


def alone(guide: Guide, **options: Any) -> Make:
    return fit(guide, None, **options)


def loop(guide: Guide, *counters: str, key: str = "model", **options: Any) -> Make:
    """A loop of one's own: the model, its Adam and counters by keyword."""

    def make(k: Any) -> Program:
        model, parts = guide(k, **options)
        adam = OPTIMIZERS["adam"](k)
        adam.build(model.trainable_variables)
        counts = {name: tf.Variable(0, dtype=tf.int64, trainable=False) for name in counters}
        objects = {key: model, "optimizer": adam, **counts}
        return Program(objects, {**parts, **counts}, {"optimizer": adam})

    return make


def several(guide: Callable[[Any], dict[str, Any]], optimizers: Mapping[str, str]) -> Make:
    """Models by keyword, with an optimizer for some of them: keyword → the model's, "" for all."""

    def make(k: Any) -> Program:
        models, made = guide(k), {}
        for name, whose in optimizers.items():
            made[name] = OPTIMIZERS["adam"](k)
            each = [models[whose]] if whose else models.values()
            made[name].build([v for model in each for v in model.trainable_variables])
        return Program({**made, **models}, models, made)

    return make


def only(make: Make, *keywords: str, **renamed: str) -> Make:
    """A part of what a program passes to its checkpoint."""

    def made(k: Any) -> Program:
        program = make(k)
        kept = {renamed.get(name, name): program.objects[name] for name in keywords}
        parts = {n: p for n, p in program.parts.items() if n in keywords}
        optimizers = {n: o for n, o in program.optimizers.items() if n in keywords}
        return Program(kept, parts or program.parts, optimizers)

    return made


def own(k: Any, parts: dict[str, Any], call: Any, sample: Any = None, name: str = "Net") -> Any:
    """A subclassed model with these attributes, built by its first call."""
    made = net(k.Model, lambda: parts, call, name)()
    if sample is not None:
        made(sample)
    return made


IMAGES, SERIES = np.zeros((1, 8, 8, 1), "float32"), np.zeros((1, 5, 2), "float32")
WORDS = np.zeros((1, 4), "int32")


# Images


def autoencoder(k: Any) -> Any:
    parts = {
        "encoder": k.Sequential([k.layers.Flatten(), k.layers.Dense(3, "relu")]),
        "decoder": k.Sequential([k.layers.Dense(64), k.layers.Reshape((8, 8, 1))]),
    }
    return own(k, parts, lambda self, x: self.decoder(self.encoder(x)), IMAGES), parts


def encoder_alone(k: Any) -> Any:
    model = k.Sequential([k.Input((8, 8, 1)), k.layers.Flatten(), k.layers.Dense(3, "relu")])
    return model, {"encoder": model}


def vae(k: Any) -> Any:
    """keras.io's: it has no `call`, only built models."""
    x = k.Input((8, 8, 1))
    y = k.layers.Flatten()(k.layers.Conv2D(2, 3, strides=2, activation="relu")(x))
    y = k.layers.Dense(4, activation="relu")(y)
    ends = [k.layers.Dense(2, name=name)(y) for name in ("z_mean", "z_log_var")]
    z = k.Input((2,))
    y = k.layers.Reshape((4, 4, 2))(k.layers.Dense(32, activation="relu")(z))
    y = k.layers.Conv2DTranspose(1, 3, strides=2, padding="same")(y)
    parts = {
        "encoder": k.Model(x, ends, name="encoder"),
        "decoder": k.Model(z, y, name="decoder"),
    }
    trackers = {f"{name}_tracker": k.metrics.Mean(name=name) for name in ("total", "kl")}
    return own(k, {**parts, **trackers}, None, None, "VAE"), parts


def unet(k: Any, classes: int = 2) -> Any:
    """Convolutions with automatic names."""
    parts = {}

    def conv(part: str, x: Any, width: int) -> Any:
        parts[part] = k.layers.Conv2D(width, 3, padding="same")
        parts[f"{part}_norm"] = k.layers.BatchNormalization()
        return k.layers.ReLU()(parts[f"{part}_norm"](parts[part](x)))

    x = k.Input((8, 8, 1))
    down1 = conv("down1", x, 2)
    down2 = conv("down2", k.layers.MaxPooling2D()(down1), 4)
    parts["up"] = k.layers.Conv2DTranspose(2, 3, 2, padding="same")
    y = conv("up1", k.layers.concatenate([parts["up"](down2), down1]), 2)
    parts["head"] = k.layers.Conv2D(classes, 1)
    return k.Model(x, parts["head"](y)), parts


def pix2pix(k: Any) -> Any:
    """Blocks that are Sequential, built inside a functional model."""

    def block(make: Any, width: int) -> Any:
        conv = make(width, 4, strides=2, padding="same", use_bias=False)
        return k.Sequential([conv, k.layers.BatchNormalization(), k.layers.LeakyReLU()])

    parts = {"down1": block(k.layers.Conv2D, 2), "down2": block(k.layers.Conv2D, 2)}
    parts |= {"up": block(k.layers.Conv2DTranspose, 2)}
    parts |= {"last": k.layers.Conv2DTranspose(1, 4, strides=2, padding="same")}
    x = k.Input((8, 8, 1))
    down = parts["down1"](x)
    y = k.layers.Concatenate()([parts["up"](parts["down2"](down)), down])
    return k.Model(x, parts["last"](y)), parts


def resnet(k: Any, drop: bool = False, head: str = "", augmented: bool = False, **how: Any) -> Any:
    parts = {"stem": k.layers.Conv2D(2, 3, padding="same", **how)}
    x = k.Input((8, 8, 1))
    y = k.layers.RandomFlip("horizontal")(k.layers.Rescaling(1 / 255)(x)) if augmented else x
    y = parts["stem"](y)
    for n in (1, 2):
        parts[f"conv{n}"] = k.layers.Conv2D(2, 3, padding="same", **how)
        parts[f"norm{n}"] = k.layers.BatchNormalization(**how)
        y = k.layers.add([y, parts[f"norm{n}"](parts[f"conv{n}"](y))])
    y = k.layers.GlobalAveragePooling2D()(y)
    y = k.layers.Dropout(0.2)(y) if drop else y
    parts[head or "head"] = k.layers.Dense(3, **{"name": head} if head else {})
    return k.Model(x, parts[head or "head"](y)), parts


def mobilenet(k: Any, head: str = "head", classes: int = 2, top: bool = True) -> Any:
    """A backbone of keras.applications, as a layer of a model."""
    base = k.applications.MobileNet((32, 32, 3), 0.25, include_top=False, weights=None)
    parts = {"backbone": base}
    x = k.Input((32, 32, 3))
    y = k.layers.GlobalAveragePooling2D()(base(x))
    if not top:
        return base, parts
    parts[head] = k.layers.Dense(classes, name=head)
    return k.Model(x, parts[head](y)), parts


def siamese(k: Any) -> Any:
    layers = [k.layers.Conv2D(2, 3), k.layers.Flatten(), k.layers.Dense(4)]
    parts = {"embedding": k.Sequential([k.Input((8, 8, 1)), *layers], name="embedding")}
    pair = [k.Input((8, 8, 1), name=name) for name in ("anchor", "positive")]
    return k.Model(pair, k.layers.Dot(1)([parts["embedding"](x) for x in pair])), parts


def vit(k: Any, blocks: int = 2) -> Any:
    """Patches with positions, by a layer of one's own, and attention."""
    parts = {"projection": k.layers.Dense(4), "positions": k.layers.Embedding(4, 4)}
    held = dict(parts)
    patches = net(
        k.layers.Layer,
        lambda: held,
        lambda self, x: self.projection(x) + self.positions(tf.range(4)),
        "PatchEncoder",
    )
    x = k.Input((4, 16))
    y = patches()(x)
    for n in range(blocks):
        parts[f"norm{n}"] = k.layers.LayerNormalization()
        parts[f"attention{n}"] = k.layers.MultiHeadAttention(2, 2, dropout=0.1)
        parts[f"mlp{n}"] = k.layers.Dense(4, "gelu")
        z = parts[f"norm{n}"](y)
        y = k.layers.Add()([y, parts[f"mlp{n}"](parts[f"attention{n}"](z, z))])
    parts["head"] = k.layers.Dense(3)
    return k.Model(x, parts["head"](k.layers.Flatten()(y))), parts


def diffusion(k: Any) -> Any:
    """A network and its moving average, in one model."""
    make = partial(k.Sequential, name="network")
    parts = {"normalizer": k.layers.Normalization()}
    parts["normalizer"].build(IMAGES.shape)  # as `adapt` does
    parts |= {"network": make([k.Input((8, 8, 1)), k.layers.Conv2D(2, 3), k.layers.Conv2D(1, 3)])}
    parts |= {"ema_network": k.models.clone_model(parts["network"])}
    return own(k, parts, lambda self, x: self.network(self.normalizer(x)), IMAGES), parts


# Text and series


def nmt(k: Any, called: bool = True) -> Program:
    """Encoder and decoder of a translation; their loop calls them, perhaps after the restore."""
    layers = k.layers

    def encode(self: Any, x: Any) -> Any:
        return self.rnn(self.words(x))

    def decode(self: Any, x: Any) -> Any:
        y = self.rnn(self.words(x[0]))
        scores = self.v(tf.nn.tanh(self.query(y) + self.key(x[1])))
        return self.head(y + tf.reduce_sum(scores * x[1], 1, keepdims=True))

    parts = {"words": layers.Embedding(9, 4), "rnn": layers.GRU(4, return_sequences=True)}
    encoder = own(k, parts, encode, name="Encoder")
    parts = {"words": layers.Embedding(7, 4), "rnn": layers.GRU(4, return_sequences=True)}
    parts |= {"query": layers.Dense(4), "key": layers.Dense(4), "v": layers.Dense(1)}
    decoder = own(k, parts | {"head": layers.Dense(7)}, decode, name="Decoder")
    models, adam = {"encoder": encoder, "decoder": decoder}, OPTIMIZERS["adam"](k)
    program = Program({"optimizer": adam, **models}, models, {"optimizer": adam})
    return first_call(program) if called else program


def first_call(program: Program) -> Program:
    encoder, decoder = program.parts.values()
    decoder((WORDS, encoder(WORDS)))
    weights = encoder.trainable_variables + decoder.trainable_variables
    program.optimizers["optimizer"].build(weights)
    return program


def transformer(k: Any, layers: int = 2) -> Any:
    """A list of blocks."""

    def block() -> Any:
        parts = {
            "attention": k.layers.MultiHeadAttention(2, 2),
            "norm": k.layers.LayerNormalization(),
            "ffn": k.Sequential([k.layers.Dense(8, "relu"), k.layers.Dense(4)]),
        }
        made = lambda self, x: self.ffn(self.norm(x + self.attention(x, x)))  # noqa: E731
        return net(k.layers.Layer, lambda: parts, made, "Block")()

    def compute(self: Any, x: Any) -> Any:
        y = self.words(x)
        for each in self.blocks:
            y = each(y)
        return self.head(y)

    blocks = [block() for _ in range(layers)]
    parts = {"words": k.layers.Embedding(9, 4), "head": k.layers.Dense(9)}
    model = own(k, {**parts, "blocks": blocks}, compute, WORDS, "Transformer")
    return model, parts | {f"block{n}": each for n, each in enumerate(blocks)}


def text(k: Any, rnn: str = "GRU", classes: int = 2, bidirectional: bool = True, **how: Any) -> Any:
    parts = {"words": k.layers.Embedding(9, 4)}
    inside = getattr(k.layers, rnn)(3, **how)
    parts["rnn"] = k.layers.Bidirectional(inside) if bidirectional else inside
    parts |= {"dense": k.layers.Dense(4, "relu"), "head": k.layers.Dense(classes)}
    return k.Sequential([k.Input((4,), dtype="int32"), *parts.values()]), parts


def vectorized(k: Any) -> Any:
    """Strings in, by TextVectorization."""
    words = k.layers.TextVectorization(output_sequence_length=4, vocabulary=["a", "b", "c"])
    parts = {"words": k.layers.Embedding(5, 4), "head": k.layers.Dense(1)}
    first, last = parts.values()
    layers = [words, first, k.layers.GlobalAveragePooling1D(), last]
    return k.Sequential([k.Input((1,), dtype="string"), *layers]), parts


def seq2seq(k: Any) -> Any:
    x, y = k.Input((None, 3)), k.Input((None, 5))
    parts = {"encoder": k.layers.LSTM(4, return_state=True)}
    parts |= {"decoder": k.layers.LSTM(4, return_sequences=True), "head": k.layers.Dense(5)}
    states = parts["encoder"](x)[1:]
    return k.Model([x, y], parts["head"](parts["decoder"](y, initial_state=states))), parts


def forecast(k: Any, how: str = "sequential", names: bool = False) -> Any:
    """A series by LSTM and Dense layers."""
    named = [{"name": name} if names else {} for name in ("series", "middle", "forecast")]
    parts = {"rnn": k.layers.LSTM(4, **named[0])}
    parts |= {"dense": k.layers.Dense(3, **named[1]), "head": k.layers.Dense(1, **named[2])}
    x = y = k.Input((5, 2))
    chain = lambda self, z: self.head(self.dense(self.rnn(z)))  # noqa: E731
    if how == "sequential":
        return k.Sequential([x, *parts.values()]), parts
    if how == "subclassed":
        return own(k, parts, chain, SERIES), parts
    for part in parts.values():
        y = part(y)
    return (k.Model if how == "functional" else type("Custom", (k.Model,), {}))(x, y), parts


def feedback(k: Any) -> Any:
    """A cell that is also in an RNN, as in TensorFlow's guide to time series."""
    cell = k.layers.LSTMCell(4)
    held = {"cell": cell, "rnn": k.layers.RNN(cell, return_state=True), "dense": k.layers.Dense(2)}
    model = own(k, held, lambda self, x: self.dense(self.rnn(x)[0]), SERIES, "FeedBack")
    return model, {"cell": cell, "dense": held["dense"]}


def video(k: Any) -> Any:
    parts = {"frames": k.layers.TimeDistributed(k.layers.Conv2D(2, 3))}
    parts |= {"rnn": k.layers.LSTM(3), "head": k.layers.Dense(2)}
    flat = k.layers.TimeDistributed(k.layers.Flatten())
    first, *rest = parts.values()
    return k.Sequential([k.Input((2, 8, 8, 1)), first, flat, *rest]), parts


# Tables, agents, and what has no Keras
def structured(k: Any) -> Any:
    """Columns, normalized and looked up."""
    columns = [k.Input((1,), name="age"), k.Input((1,), name="job", dtype="string")]
    parts = {"age": k.layers.Normalization(name="normalized_age")}
    job = k.layers.StringLookup(vocabulary=["cook", "smith"], output_mode="multi_hot")
    parts |= {"dense": k.layers.Dense(4), "head": k.layers.Dense(1)}
    y = k.layers.concatenate([parts["age"](columns[0]), job(columns[1])])
    return k.Model(columns, parts["head"](parts["dense"](y))), parts


def recommender(k: Any) -> Any:
    parts = {name: k.layers.Embedding(5, 3) for name in ("user", "movie")}
    parts |= {f"{name}_bias": k.layers.Embedding(5, 1) for name in ("user", "movie")}

    def compute(self: Any, x: Any) -> Any:
        both = tf.reduce_sum(self.user(x[:, 0]) * self.movie(x[:, 1]), 1, keepdims=True)
        return both + self.user_bias(x[:, 0]) + self.movie_bias(x[:, 1])

    return own(k, parts, compute, WORDS, "Recommender"), parts


def actor_critic(k: Any) -> Any:
    parts = {name: k.layers.Dense(n) for name, n in (("common", 4), ("actor", 2), ("critic", 1))}

    def compute(self: Any, x: Any) -> Any:
        return self.actor(self.common(x)), self.critic(self.common(x))

    return own(k, parts, compute, SERIES[0], "ActorCritic"), parts


def mlp(k: Any, *sizes: int) -> Any:
    return k.Sequential([k.Input((sizes[0],)), *(k.layers.Dense(n) for n in sizes[1:])])


def dqn(k: Any) -> dict[str, Any]:
    return {"model": mlp(k, 4, 5, 5, 2), "target": mlp(k, 4, 5, 5, 2)}


def ppo(k: Any) -> dict[str, Any]:
    return {"actor": mlp(k, 4, 5, 2), "critic": mlp(k, 4, 5, 1)}


def dcgan(k: Any) -> dict[str, Any]:
    norm, conv = k.layers.BatchNormalization(), k.layers.Conv2DTranspose(1, 3, 2, padding="same")
    layers = [k.layers.Dense(32), norm, k.layers.Reshape((4, 4, 2)), conv]
    generator = k.Sequential([k.Input((3,)), *layers])
    layers = [k.layers.Conv2D(2, 3, 2), k.layers.Dropout(0.3), k.layers.Flatten()]
    judge = k.Sequential([k.Input((8, 8, 1)), *layers, k.layers.Dense(1)])
    return {"generator": generator, "discriminator": judge}


def wgan(k: Any) -> Program:
    """A model that holds the models and their optimizers, and has no `call`."""
    parts, adams = (
        dcgan(k),
        {name: OPTIMIZERS["adam"](k) for name in ("d_optimizer", "g_optimizer")},
    )
    for name, adam in adams.items():
        which = "discriminator" if name.startswith("d") else "generator"
        adam.build(parts[which].trainable_variables)
    model = own(k, {**parts, **adams}, None, name="WGAN")
    return Program({"model": model}, parts, adams)


def style(k: Any) -> Program:
    """An image is what is trained."""
    image, adam = tf.Variable(tf.zeros((1, 4, 4, 3))), OPTIMIZERS["adam"](k)
    adam.build([image])
    return Program({"image": image, "optimizer": adam}, {"image": image}, {"optimizer": adam})


def module(k: Any) -> Program:
    """TensorFlow's guide without Keras: a list of layers, its own Adam with lists of slots."""
    net, adam, step = tf.Module(name="mlp"), tf.Module(name="adam"), tf.Variable(0, trainable=False)
    net.layers, weights = [], []
    for shape in ((3, 4), (4, 4), (4, 2)):
        layer = tf.Module(name="dense")
        layer.w, layer.b = tf.Variable(tf.zeros(shape)), tf.Variable(tf.zeros(shape[1:]))
        net.layers.append(layer)
        weights += [layer.w, layer.b]
    adam.v_dvar, adam.s_dvar = ([tf.Variable(w * 0.0) for w in weights] for _ in "vs")
    slots = {f"{n}{i}": v for n in ("v_dvar", "s_dvar") for i, v in enumerate(getattr(adam, n))}
    objects = {"model": net, "optimizer": adam, "step": step}
    return Program(objects, {"weights": weights, "step": step, **slots})
