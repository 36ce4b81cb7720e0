"""TensorFlow Recommenders: two towers with an optimizer each, trained by `fit`, and an index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

tfrs = pytest.importorskip(
    "tensorflow_recommenders", reason="tensorflow-recommenders is not installed"
)

import tensorflow as tf
import tf_keras
from clients.exchange import (
    A_CALLBACK,
    WAYS,
    Program,
    assert_restored,
    assert_same,
    checksums,
    killing,
    resumed,
)
from tensorflow_recommenders.experimental.optimizers import composite_optimizer

import tfckpt

pytestmark = pytest.mark.long
EPOCHS, EVERY, KILLED = 3, 2, 7
FILMS = np.array([f"film {number}" for number in range(12)])
PEOPLE = np.array([f"person {number}" for number in range(8)])


def examples() -> tf.data.Dataset:
    draw = np.random.default_rng(0)
    seen = {"person": draw.choice(PEOPLE, 40), "film": draw.choice(FILMS, 40)}
    return tf.data.Dataset.from_tensor_slices(seen).batch(8)


class TwoTowers(tfrs.Model):
    def __init__(self) -> None:
        super().__init__()
        self.people, self.films = (
            tf_keras.Sequential(
                [
                    tf_keras.layers.StringLookup(vocabulary=words),
                    tf_keras.layers.Embedding(len(words) + 1, 4),
                ]
            )
            for words in (PEOPLE, FILMS)
        )
        self.people(PEOPLE[:1]), self.films(FILMS[:1])
        self.task = tfrs.tasks.Retrieval()

    def compute_loss(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.task(self.people(inputs["person"]), self.films(inputs["film"]))


def towers(seed: int) -> TwoTowers:
    tf_keras.utils.set_random_seed(seed)
    model = TwoTowers()
    legacy = tf_keras.optimizers.legacy
    model.compile(
        composite_optimizer.CompositeOptimizer(
            [
                (legacy.Adagrad(0.1), lambda: model.people.trainable_variables),
                (legacy.Adam(0.01), lambda: model.films.trainable_variables),
            ]
        )
    )
    return model


def variables(model: TwoTowers) -> list[tf.Variable]:
    each = (optimizer for optimizer, _ in model.optimizer._optimizers_and_vars)
    slots = [variable for optimizer in each for variable in optimizer.variables()]
    return [*model.variables, model.optimizer.iterations, *slots]


def build(seed: int) -> Program:
    model = towers(seed)
    batch = next(iter(examples()))
    return Program(
        {"model": model},
        lambda: variables(model),
        train=lambda: model.train_step(batch),
        output=lambda: model.people(PEOPLE) @ tf.transpose(model.films(FILMS)),
    )


def train(directory: str, stop: int | None) -> list[str]:
    model = towers(1)

    resume = tfckpt.callbacks.resume(model, directory, save_freq=EVERY, verbose=0)
    model.fit(examples(), epochs=EPOCHS, verbose=0, callbacks=[resume, killing(tf_keras, stop)])
    return checksums(variables(model))


def test_a_model_goes_to_tensorflow(tmp_path) -> None:
    assert_restored(build, tfckpt, tf.train, tmp_path)


def test_a_model_comes_from_tensorflow(tmp_path, outcome) -> None:
    """An optimizer that has only other optimizers is not known for one in TensorFlow's graph."""
    outcome("refused: not in the checkpoint; with one line: `rename` from `model/optimizer/**`")
    old, new = build(1), build(2)
    old.train(), new.train()
    path = tf.train.Checkpoint(**old.objects).save(str(tmp_path / "ckpt"))
    before = checksums(new.values())
    with pytest.raises(AssertionError, match="optimizer/Optimizer0/decay: not in the checkpoint"):
        tfckpt.Checkpoint(**new.objects).restore(path).assert_existing_objects_matched()
    assert checksums(new.values()) == before
    rule = {"checkpoint": "model/optimizer/**", "model": "optimizer/**"}
    tfckpt.restore(path, **new.objects, policy={"rename": [rule]})
    assert_same(new, old)


@WAYS
def test_an_index_is_exchanged_with_tensorflow(writer, reader, tmp_path) -> None:
    def index(model: TwoTowers) -> Any:
        found = tfrs.layers.factorized_top_k.BruteForce(model.people, k=3)
        found.index(model.films(FILMS), tf.constant(FILMS))
        found(PEOPLE)
        return found

    old, new = index(towers(1)), index(towers(2))
    path = writer.Checkpoint(index=old).save(str(tmp_path / "ckpt"))
    reader.Checkpoint(index=new).restore(path).assert_existing_objects_matched()
    for found, expected in zip(new(PEOPLE), old(PEOPLE), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


test_a_killed_fit_goes_on_exactly = resumed(__file__, KILLED, f"with one line: {A_CALLBACK}")
