"""Kinds of programs: transformers, translators, adversaries, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from zoo.kinds.parts import IDS, IMAGES, Made, X, Y, dense, descend, loss_of, model_of, trained

# Transformers


def encoder_block(k: Any) -> Any:
    def call(self: Any, x: Any, mask: Any = None, training: bool = False) -> Any:
        found = self.attend(x, x, attention_mask=mask)
        x = self.first_norm(x + self.drop(found, training=training))
        return self.second_norm(x + self.feed(x))

    return model_of(
        k,
        call,
        k.layers.Layer,
        attend=k.layers.MultiHeadAttention(2, 2),
        feed=k.Sequential(dense(k, 8, 4)),
        first_norm=k.layers.LayerNormalization(),
        second_norm=k.layers.LayerNormalization(),
        drop=k.layers.Dropout(0.0),
    )


def decoder_block(k: Any) -> Any:
    def call(self: Any, x: Any, memory: Any, look: Any, padding: Any) -> Any:
        x = self.norms[0](x + self.own(x, x, attention_mask=look))
        x = self.norms[1](x + self.cross(x, memory, attention_mask=padding))
        return self.norms[2](x + self.feed(x))

    return model_of(
        k,
        call,
        k.layers.Layer,
        own=k.layers.MultiHeadAttention(2, 2),
        cross=k.layers.MultiHeadAttention(2, 2),
        feed=k.Sequential(dense(k, 8, 4)),
        norms=[k.layers.LayerNormalization() for _ in range(3)],
    )


def transformer(k: Any) -> Made:
    """TensorFlow's tutorial: two inputs, lists of blocks, a flag."""

    def call(self: Any, inputs: Any, training: bool = False) -> Any:
        source, target = inputs
        memory, x = self.table(source), self.table(target)
        for block in self.encoders:
            memory = block(memory, training=training)
        for block in self.decoders:
            x = block(x, memory, look=None, padding=None)
        return self.final(x)

    model = model_of(
        k,
        call,
        table=k.layers.Embedding(7, 4),
        encoders=[encoder_block(k) for _ in range(2)],
        decoders=[decoder_block(k)],
        final=k.layers.Dense(7),
    )
    return trained(k, model, (IDS, IDS[:, :3]), training=True)


def vision(k: Any) -> Made:
    """A token of its own, made by the model's `build`."""

    class ViT(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.patches = k.layers.Conv2D(4, 4, 4)
            self.blocks = [encoder_block(k)]
            self.head = k.layers.Dense(2)

        def build(self, shape: Any) -> None:
            self.token = self.add_weight(name="token", shape=(1, 1, 4), initializer="normal")
            super().build(shape)

        def call(self, x: Any) -> Any:
            x = tf.reshape(self.patches(x), (-1, 4, 4))
            x = tf.concat([tf.tile(tf.convert_to_tensor(self.token), (2, 1, 1)), x], 1)
            for block in self.blocks:
                x = block(x)
            return self.head(x[:, 0])

    return trained(k, ViT(), IMAGES)


# Several networks


def translation(k: Any) -> Made:
    """TensorFlow's tutorial with attention: encoder and decoder are called by themselves."""

    def encode(self: Any, x: Any, hidden: Any) -> Any:
        return self.gru(self.embedding(x), initial_state=hidden)

    def attend(self: Any, query: Any, values: Any) -> Any:
        score = self.V(tf.nn.tanh(self.W1(query[:, None]) + self.W2(values)))
        return tf.reduce_sum(tf.nn.softmax(score, axis=1) * values, axis=1)

    def decode(self: Any, x: Any, hidden: Any, output: Any) -> Any:
        context = self.attention(hidden, output)
        x = tf.concat([context[:, None], self.embedding(x)], axis=-1)
        output, state = self.gru(x)
        return self.fc(tf.reshape(output, (-1, 3))), state

    gru = lambda: k.layers.GRU(3, return_sequences=True, return_state=True)  # noqa: E731
    encoder = model_of(k, encode, embedding=k.layers.Embedding(7, 4), gru=gru())
    words = dict(zip(("W1", "W2", "V"), dense(k, 3, 3, 1), strict=True))
    attention = model_of(k, attend, k.layers.Layer, **words)
    parts = {"embedding": k.layers.Embedding(7, 4), "gru": gru(), "fc": k.layers.Dense(7)}
    decoder = model_of(k, decode, attention=attention, **parts)
    optimizer = k.optimizers.Adam(0.05)

    def step() -> None:
        with tf.GradientTape() as tape:
            output, hidden = encoder(IDS, tf.zeros((2, 3)))
            predictions = []
            for t in range(2):
                found, hidden = decoder(IDS[:, t : t + 1], hidden, output)
                predictions.append(found)
            loss = loss_of(predictions)
        descend(optimizer, tape, loss, encoder.trainable_variables + decoder.trainable_variables)

    return Made({"optimizer": optimizer, "encoder": encoder, "decoder": decoder}, step)


def adversaries(k: Any, *, built: bool) -> tuple[Any, Any]:
    """TensorFlow's DCGAN, small."""
    start = lambda *shape: [k.Input(shape)] if built else []  # noqa: E731
    generator = [
        *(*start(3), k.layers.Dense(32, use_bias=False), k.layers.BatchNormalization()),
        *(k.layers.LeakyReLU(), k.layers.Reshape((4, 4, 2))),
        k.layers.Conv2DTranspose(1, 3, 2, "same", use_bias=False, activation="tanh"),
    ]
    discriminator = [
        *(*start(8, 8, 1), k.layers.Conv2D(2, 3, 2, "same"), k.layers.LeakyReLU()),
        *(k.layers.Flatten(), k.layers.Dense(1)),
    ]
    return k.Sequential(generator), k.Sequential(discriminator)


def play(generator: Any, discriminator: Any, solvers: tuple[Any, Any], noise: Any) -> None:
    with tf.GradientTape() as of_generator, tf.GradientTape() as of_discriminator:
        fake = discriminator(generator(noise, training=True), training=True)
        real = discriminator(IMAGES, training=True)
        loss = tf.reduce_mean((fake - 1.0) ** 2)
        other = tf.reduce_mean((real - 1.0) ** 2) + tf.reduce_mean(fake**2)
    descend(solvers[0], of_generator, loss, generator.trainable_variables)
    descend(solvers[1], of_discriminator, other, discriminator.trainable_variables)


def dcgan(k: Any, *, built: bool = True) -> Made:
    """TensorFlow's tutorial: four keywords, optimizers that begin at their first step."""
    generator, discriminator = adversaries(k, built=built)
    solvers = k.optimizers.Adam(0.01), k.optimizers.Adam(0.02)
    names = "generator_optimizer", "discriminator_optimizer", "generator", "discriminator"
    objects = dict(zip(names, (*solvers, generator, discriminator), strict=True))
    return Made(objects, lambda: play(generator, discriminator, solvers, X[:2]))


def gan_without_call(k: Any) -> Made:
    """keras.io's: a model that holds them, with both optimizers."""
    generator, discriminator = adversaries(k, built=True)
    solvers = k.optimizers.Adam(0.01), k.optimizers.Adam(0.02)
    gan = k.Model()
    gan.generator, gan.discriminator, gan.g_optimizer, gan.d_optimizer = (
        *(generator, discriminator),
        *solvers,
    )
    return Made({"gan": gan}, lambda: play(generator, discriminator, solvers, X[:2]))


def vae(k: Any) -> Made:
    """TensorFlow's tutorial: `encode` and `decode`, no `call`."""
    model = k.Model()
    model.encoder, model.decoder = k.Sequential(dense(k, 4, 4)), k.Sequential(dense(k, 4, 3))
    optimizer = k.optimizers.Adam(0.05)

    def step() -> None:
        with tf.GradientTape() as tape:
            mean, spread = tf.split(model.encoder(X), 2, axis=1)
            loss = loss_of(model.decoder(mean + tf.exp(spread) * Y), mean)
        found = model.encoder.trainable_variables + model.decoder.trainable_variables
        descend(optimizer, tape, loss, found)

    return Made({"model": model, "optimizer": optimizer}, step)


def two_rates(k: Any) -> Made:
    """One model, an optimizer for its body and one for its head."""
    body, head = dense(k, 4, 2)
    model = model_of(k, lambda self, x: self.head(self.body(x)), body=body, head=head)
    slow, fast = k.optimizers.Adam(0.01), k.optimizers.Adam(0.1)

    def step() -> None:
        with tf.GradientTape(persistent=True) as tape:
            loss = loss_of(model(X))
        descend(slow, tape, loss, model.body.trainable_variables)
        descend(fast, tape, loss, model.head.trainable_variables)

    return Made({"model": model, "slow": slow, "fast": fast}, step)


KINDS: dict[str, Callable[[Any], Made]] = {
    "transformer": transformer,
    "ViT": vision,
    "NMT": translation,
    "DCGAN": dcgan,
    "DCGAN, not built": lambda k: dcgan(k, built=False),
    "GAN without call": gan_without_call,
    "VAE": vae,
    "two optimizers": two_rates,
}
