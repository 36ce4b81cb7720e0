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


def transformer_of_six(k: Any) -> Made:
    """The tutorial's older form: masks by position."""

    def call(
        self: Any, source: Any, target: Any, padding: Any, look: Any, other: Any, training: bool
    ) -> Any:
        memory = self.encoder(self.table(source), padding, training=training)
        return self.final(self.decoder(self.table(target), memory, look, other))

    table = k.layers.Embedding(7, 4)
    parts = {"encoder": encoder_block(k), "decoder": decoder_block(k), "final": k.layers.Dense(7)}
    masks = {"padding": tf.ones((2, 4, 4)), "other": tf.ones((2, 3, 4)), "training": True}
    masks["look"] = tf.linalg.band_part(tf.ones((2, 3, 3)), -1, 0)
    return trained(k, model_of(k, call, table=table, **parts), IDS, IDS[:, :3], **masks)


def bert(k: Any) -> Made:
    """As KerasHub's layers: positions and gains of their own, a class token, pooled."""

    class Positions(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(name="positions", shape=shape[1:])
            super().build(shape)

        def call(self, x: Any) -> Any:
            return x + self.table

    def call(self: Any, inputs: Any, training: bool = False) -> Any:
        x = self.tokens(inputs["token_ids"]) + self.segments(inputs["segment_ids"])
        x = self.norm(self.positions(x))
        for number in range(2):
            x = getattr(self, f"transformer_layer_{number}")(x, training=training)
        return {"sequence_output": x, "pooled_output": self.pooled(x[:, 0])}

    model = model_of(
        k,
        call,
        tokens=k.layers.Embedding(7, 4),
        segments=k.layers.Embedding(2, 4),
        positions=Positions(),
        norm=k.layers.LayerNormalization(epsilon=1e-12),
        transformer_layer_0=encoder_block(k),
        transformer_layer_1=encoder_block(k),
        pooled=k.layers.Dense(4, activation="tanh"),
    )
    return trained(k, model, {"token_ids": IDS, "segment_ids": IDS * 0}, training=True)


def gpt(k: Any) -> Made:
    """As KerasHub's decoders: RMS norms, one table for both ends."""

    class Norm(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer="ones")
            self.built = True

        def call(self, x: Any) -> Any:
            return x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-6) * self.scale

    class Reversible(k.layers.Embedding):
        def call(self, x: Any, reverse: bool = False) -> Any:
            if not reverse:
                return super().call(x)
            return tf.matmul(x, tf.convert_to_tensor(self.embeddings), transpose_b=True)

    def call(self: Any, ids: Any) -> Any:
        x = self.token_embedding(ids)
        for layer in self.transformer_layers:
            x = layer(x)
        return self.token_embedding(self.layer_norm(x), reverse=True)

    def block() -> Any:
        def run(self: Any, x: Any) -> Any:
            y = self.norm(x)
            x = x + self.attend(y, y, use_causal_mask=True)
            return x + self.down(tf.nn.silu(self.gate(x)) * self.up(x))

        gates = dict(zip(("gate", "up", "down"), dense(k, 8, 8, 4, use_bias=False), strict=True))
        attend = k.layers.MultiHeadAttention(2, 2, use_bias=False)
        return model_of(k, run, k.layers.Layer, norm=Norm(), attend=attend, **gates)

    parts = {"transformer_layers": [block(), block()], "layer_norm": Norm()}
    return trained(k, model_of(k, call, token_embedding=Reversible(7, 4), **parts), IDS)


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


def unet(k: Any) -> Made:
    def call(self: Any, x: Any) -> Any:
        kept = [x := down(x) for down in self.downs]
        for up in self.ups:
            x = up(x)
            x = tf.concat([x, kept.pop(0)[:, : x.shape[1], : x.shape[2]]], -1)
        return self.last(x)

    conv, back = k.layers.Conv2D, k.layers.Conv2DTranspose
    parts = {
        "downs": [k.Sequential([conv(2, 3, 2, "same"), k.layers.BatchNormalization()])] * 1
        + [k.Sequential([conv(4, 3, 2, "same")])],
        "ups": [k.Sequential([back(2, 3, 2, "same")])],
        "last": conv(1, 1),
    }
    return trained(k, model_of(k, call, **parts), IMAGES)


def residual(k: Any) -> Made:
    def block(units: int, project: bool) -> Any:
        def call(self: Any, x: Any, training: bool = False) -> Any:
            y = self.norm(self.conv(x), training=training)
            return tf.nn.relu(y + (self.project(x) if self.project is not None else x))

        conv = k.layers.Conv2D(units, 3, padding="same", use_bias=False)
        project_by = k.layers.Conv2D(units, 1) if project else None
        norm = k.layers.BatchNormalization()
        return model_of(k, call, conv=conv, norm=norm, project=project_by)

    def call(self: Any, x: Any, training: bool = False) -> Any:
        for stage in self.stages:
            x = stage(x, training=training)
        return self.head(tf.reduce_mean(x, (1, 2)))

    stages = [block(2, True), block(2, False), block(3, True)]
    return trained(
        k, model_of(k, call, stages=stages, head=k.layers.Dense(2)), IMAGES, training=True
    )


def experts(k: Any) -> Made:
    """A router over a dict of experts, one of which is never called."""

    def call(self: Any, x: Any) -> Any:
        weights = tf.nn.softmax(self.router(x))
        return sum(weights[:, i : i + 1] * self.experts[f"e{i}"](x) for i in range(2))

    experts = {f"e{i}": k.layers.Dense(2) for i in range(3)}
    return trained(k, model_of(k, call, router=k.layers.Dense(2), experts=experts), X)


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


def text_generation(k: Any) -> Made:
    """The tutorial's: a model that returns its states on demand."""

    def call(
        self: Any,
        ids: Any,
        states: Any = None,
        return_state: bool = False,
        training: bool = False,
    ) -> Any:
        x = self.embedding(ids, training=training)
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        return (x, states) if return_state else x

    gru = k.layers.GRU(3, return_sequences=True, return_state=True)
    parts = {"embedding": k.layers.Embedding(7, 4), "gru": gru, "dense": k.layers.Dense(7)}
    return trained(k, model_of(k, call, **parts), IDS, training=True)


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


def wasserstein(k: Any) -> Made:
    """Two steps of the critic for each of the generator."""
    generator, critic = k.Sequential(dense(k, 4, 3)), k.Sequential(dense(k, 4, 1))
    solvers = k.optimizers.RMSprop(0.01), k.optimizers.RMSprop(0.01)

    def step() -> None:
        for _ in range(2):
            with tf.GradientTape() as tape:
                fake = generator(X)
                with tf.GradientTape() as inner:
                    inner.watch(fake)
                    told = critic(fake)
                norm = tf.reduce_mean(inner.gradient(told, fake) ** 2)
                loss = tf.reduce_mean(told) - tf.reduce_mean(critic(X)) + norm
            descend(solvers[1], tape, loss, critic.trainable_variables)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(critic(generator(X)))
        descend(solvers[0], tape, loss, generator.trainable_variables)

    names = "generator", "critic", "generator_optimizer", "critic_optimizer"
    return Made(dict(zip(names, (generator, critic, *solvers), strict=True)), step)


def cycle_gan(k: Any) -> Made:
    """Three networks and three optimizers, each by keyword."""
    names = "there", "back", "judge"
    networks = {n: model_of(k, lambda self, x: self.out(x), out=k.layers.Dense(3)) for n in names}
    solvers = {f"{n}_optimizer": k.optimizers.Adam(0.05) for n in names}

    def step() -> None:
        with tf.GradientTape(persistent=True) as tape:
            cycled = networks["back"](networks["there"](X))
            loss = loss_of(cycled, networks["judge"](cycled))
        for name, network in networks.items():
            descend(solvers[f"{name}_optimizer"], tape, loss, network.trainable_variables)

    return Made(networks | solvers, step)


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


def teacher(k: Any) -> Made:
    """A student, and a teacher that follows it, never trained by gradients."""
    student, follows = (k.Sequential(dense(k, 4, 2)) for _ in range(2))
    optimizer = k.optimizers.SGD(0.05, momentum=0.9)

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(student(X) - follows(X[:, ::-1]))
        descend(optimizer, tape, loss, student.trainable_variables)
        for one, other in zip(follows.variables, student.variables, strict=True):
            one.assign(0.9 * one + 0.1 * other)

    return Made({"student": student, "teacher": follows, "optimizer": optimizer}, step)


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
    "transformer, six arguments": transformer_of_six,
    "BERT of KerasHub's kind": bert,
    "GPT of KerasHub's kind": gpt,
    "ViT": vision,
    "U-Net": unet,
    "ResNet": residual,
    "mixture of experts": experts,
    "NMT": translation,
    "text generation": text_generation,
    "DCGAN": dcgan,
    "DCGAN, not built": lambda k: dcgan(k, built=False),
    "GAN without call": gan_without_call,
    "WGAN": wasserstein,
    "CycleGAN": cycle_gan,
    "VAE": vae,
    "student, teacher": teacher,
    "two optimizers": two_rates,
}
