"""A GAN, two models and two optimizers, that goes on exactly where it was killed.

The generator learns to draw points on a ring, the discriminator to tell them from real ones.
``RUN_DIR=/tmp/run python examples/loops/ring.py`` starts; the same line again resumes.
"""

from __future__ import annotations

from pathlib import Path

import keras
import tensorflow as tf
from ending import digest

import tfckpt

STEPS = 60
BATCH = 32
NOISE = 4
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "gan.yaml"


def ring() -> tf.data.Dataset:
    """Points near a circle, without end."""
    angles = tf.linspace(0.0, 6.28, 500)
    circle = tf.stack([tf.cos(angles), tf.sin(angles)], axis=1)
    return tf.data.Dataset.from_tensor_slices(circle).shuffle(500).repeat().batch(BATCH)


def network(inputs: int, outputs: int, name: str) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(32, activation="relu", name="hidden"),
            keras.layers.Dropout(0.1, name="dropout"),
            keras.layers.Dense(outputs, name="out"),
        ],
        name=name,
    )


def main() -> None:
    keras.utils.set_random_seed(0)
    generator = network(NOISE, 2, "generator")
    discriminator = network(2, 1, "discriminator")
    generator_optimizer = keras.optimizers.Adam(1e-3)
    generator_optimizer.build(generator.trainable_variables)
    discriminator_optimizer = keras.optimizers.Adam(1e-3)
    discriminator_optimizer.build(discriminator.trainable_variables)
    noise = tf.random.Generator.from_seed(1)
    step = tf.Variable(0, dtype=tf.int64)
    iterator = iter(ring())
    loss = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def train_step(real: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(persistent=True) as tape:
            drawn = generator(noise.normal([BATCH, NOISE]), training=True)
            is_drawn = discriminator(drawn, training=True)
            is_real = discriminator(real, training=True)
            generator_loss = loss(tf.ones_like(is_drawn), is_drawn)
            discriminator_loss = loss(tf.zeros_like(is_drawn), is_drawn) + loss(
                tf.ones_like(is_real), is_real
            )
        for optimizer, model, value in (
            (generator_optimizer, generator, generator_loss),
            (discriminator_optimizer, discriminator, discriminator_loss),
        ):
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        step.assign_add(1)
        return generator_loss, discriminator_loss

    run = tfckpt.from_config(
        CONFIG,
        generator=generator,
        discriminator=discriminator,
        generator_optimizer=generator_optimizer,
        discriminator_optimizer=discriminator_optimizer,
        noise=noise,
        step=step,
        iterator=iterator,
    )
    run.restore()
    print(f"begins after step {int(step)}")
    while int(step) < STEPS:
        generator_loss, discriminator_loss = train_step(next(iterator))
        run.save_if_due(
            metrics={"generator": float(generator_loss), "discriminator": float(discriminator_loss)}
        )
    run.save()
    run.sync()
    owners = (generator, discriminator, generator_optimizer, discriminator_optimizer)
    print(f"ends after step {int(step)} with {digest(*owners)}")


if __name__ == "__main__":
    main()
