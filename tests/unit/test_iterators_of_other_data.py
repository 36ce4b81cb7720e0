"""An iterator's place goes into the data set that it was saved with, or nowhere."""

from __future__ import annotations

import logging
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import tfckpt

RANGE = tf.data.Dataset.range
SLICES = tf.data.Dataset.from_tensor_slices


def generated() -> tf.data.Dataset:
    spec = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(10)), output_signature=spec)


def add_one(x: Any) -> Any:
    return x + 1


def times_ten(x: Any) -> Any:
    return x * 10


def step() -> dict[str, Any]:
    return {"step": tf.Variable(0)}


def model(k: Any):
    return lambda: {"model": k.Sequential([k.Input((2,)), k.layers.Dense(2, name="d")])}


def by_checkpoint(path: str, **objects: Any) -> Any:
    return tfckpt.Checkpoint(**objects).restore(path)


def by_policy(path: str, **objects: Any) -> Any:
    state = ["iterator", "epoch", "batch", "seeds", "callbacks"]
    return tfckpt.restore(path, policy={"training_state": state}, **objects)


WAYS = [(by_checkpoint, step), (by_checkpoint, model(tf_keras)), (by_policy, model(keras))]


@pytest.fixture
def save(tmp_path):
    """Three elements on."""

    def save(dataset: tf.data.Dataset, objects: dict[str, Any]) -> str:
        it = iter(dataset)
        for _ in range(3):
            next(it)
        return tfckpt.Checkpoint(it=it, **objects).save(tmp_path / "ckpt")

    return save


ELEMENTS = "elements in the checkpoint and"
OTHERS = [
    (RANGE(10), RANGE(100), f"has 10 {ELEMENTS} 100 elements in the model"),
    (RANGE(10), RANGE(10).repeat(), f"has 10 {ELEMENTS} infinitely many elements in the"),
    (RANGE(20).batch(2), RANGE(20).batch(4), f"10 {ELEMENTS} 5 elements"),
    (RANGE(10), SLICES(np.arange(10, dtype=np.int32)), "yields .*int64.* and .*int32"),
    (RANGE(10), RANGE(10).batch(1), r"yields .*shape=\(\).*shape=\(None,\)"),
]


def test_other_elements_are_refused(save) -> None:
    for number, (then, now, why) in enumerate(OTHERS):
        restore, beside = WAYS[number % 3]
        path, it = save(then, beside()), iter(now)
        first, second = next(iter(now)), next(iter(now.skip(1)))
        np.testing.assert_array_equal(next(it), first)
        with pytest.raises(tfckpt.RefusedError) as refused:
            restore(path, it=it, **beside())
        (step,) = refused.value.plan.errors
        assert step.name == "it"
        assert re.search(why, step.reason)
        assert "to start the data from the beginning" in step.hint
        np.testing.assert_array_equal(next(it), second)


# The data set then and now, where it is said that it was built from other data.
ANOTHER = [
    (RANGE(10).map(add_one), RANGE(10).map(times_ten)),
    (SLICES(np.arange(10)), SLICES(np.arange(10) * 7)),
    (RANGE(10), RANGE(50, 60)),
    (RANGE(10).shuffle(3), RANGE(10).shuffle(4)),
    (RANGE(10).cache().map(add_one), RANGE(10).cache().map(times_ten)),
    (RANGE(10).map(add_one).map(times_ten), RANGE(10).map(times_ten).map(add_one)),
    (RANGE(10).shuffle(3, 1), RANGE(10).shuffle(3, 1, reshuffle_each_iteration=False)),
]
SAME = [
    lambda: RANGE(10),
    lambda: RANGE(10).map(add_one).shuffle(3, seed=4).batch(2).prefetch(1),
    lambda: SLICES({"a": np.arange(10), "b": np.ones((10, 3))}).repeat(),
    lambda: RANGE(10).cache().shuffle(10, seed=1).batch(1),
    lambda: RANGE(10).cache().map(add_one),  # TensorFlow's fingerprint is new each time
    lambda: (
        RANGE(10).map(tf.range).bucket_by_sequence_length(tf.size, [3, 6], [2, 2, 2])  # so is that
    ),
    # of two functions, and more, it is one of several
    lambda: RANGE(10).map(add_one).map(times_ten),
    lambda: tf.data.Dataset.zip(RANGE(10).map(add_one), RANGE(10).map(times_ten)),
    lambda: RANGE(10).map(lambda x: tf.cond(x > 1, lambda: x + 1, lambda: x - 1)),
]


def test_another_pipeline_is_said_and_the_same_goes_on_without_a_word(save, caplog) -> None:
    said = "it: its dataset was built from other data or with other operations when it was saved"
    with caplog.at_level(logging.WARNING):
        for number, make in enumerate(SAME):
            restore, beside = WAYS[number % 3]
            path, it, expected = save(make(), beside()), iter(make()), iter(make())
            restore(path, it=it, **beside())
            for _ in range(3):
                next(expected)
            tf.nest.map_structure(np.testing.assert_array_equal, next(it), next(expected))
            assert "dataset" not in caplog.text
        for number, (then, now) in enumerate(ANOTHER):
            restore, beside = WAYS[number % 3]
            caplog.clear()
            restore(save(then, beside()), it=iter(now), **beside())
            assert said in caplog.text


@pytest.mark.parametrize(
    ("now", "why", "way"),
    [
        (lambda: RANGE(10).shuffle(5, seed=3), "does not fit its dataset", 0),
        (lambda: SLICES(np.arange(10)), "does not fit its dataset", 1),
        (generated, r"no variable was changed: (?!{{)", 2),  # its place cannot be saved
    ],
)
def test_what_does_not_take_the_place_goes_on(save, way, now, why) -> None:
    restore, beside = WAYS[way]

    def values() -> Any:
        held = objects["model"].get_weights() if "model" in objects else [objects["step"]]
        return [np.array(value).tolist() for value in held]

    path, objects, it = save(RANGE(10), beside()), beside(), iter(now())
    first, before = int(next(it)), values()
    with pytest.raises(tfckpt.RestoreError, match=why) as refused:
        restore(path, it=it, **objects)
    assert not isinstance(refused.value, (tf.errors.NotFoundError, FileNotFoundError))
    assert sorted(map(int, it)) == [n for n in range(10) if n != first]
    assert values() == before


def test_by_name_it_is_taken_all_the_same(save) -> None:
    path, it = save(RANGE(10), step()), iter(RANGE(100))
    policy = {"match": ["name"], "training_state": ["iterator", "epoch", "batch"]}
    tfckpt.restore(path, policy=policy, it=it, **step())
    assert next(it) == 3
