"""The place of a training, as a record has it: what is not one is damage, whoever wrote it."""

from __future__ import annotations

import dataclasses
import json
import random

import numpy as np
import pytest

from tfckpt.errors import DamagedCheckpointError
from tfckpt.live import generators
from tfckpt.training.position import Position, position_in

PLACE = Position(
    fit=0,
    initial_epoch=0,
    epochs=4,
    epoch=1,
    calls=2,
    ended=False,
    passes=3,
    pulled=2,
    goes_on=False,
    validated=0,
    steps=None,
    steps_per_execution=1,
    inferred_steps=None,
    data="saved",
    source={},
    content="0c0ffee0",
    element="",
    global_seed=7,
    stopped=False,
    counter=None,
    logs={"loss": 0.5},
    generators={},
    first={},
    callbacks={},
    arrays=[],
)


def test_it_comes_back_from_json() -> None:
    assert position_in(json.loads(json.dumps(PLACE.to_json())), "ckpt-1") == PLACE
    assert position_in({}, "ckpt-1") is None


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Position)])
def test_what_is_none_is_damage(field: str) -> None:
    for wrong in (
        -1 if field != "global_seed" else "1",
        1.5,
        [1] if field == "logs" else {1: 2}.keys(),
    ):
        training = PLACE.to_json()
        training["fit"][field] = wrong
        with pytest.raises(DamagedCheckpointError, match=field):
            position_in(training, "ckpt-1")
    training = PLACE.to_json()
    del training["fit"][field]
    with pytest.raises(DamagedCheckpointError, match="not complete"):
        position_in(training, "ckpt-1")


def test_generators_of_the_process_go_on_where_they_were() -> None:
    import keras
    import tensorflow as tf
    from tensorflow.python.eager import context

    def draw() -> list[float]:
        return [
            random.random(),
            random.gauss(0, 1),
            float(np.random.normal()),
            float(tf.random.normal(())),
            float(keras.random.normal(())),
            float(tf.random.get_global_generator().normal(())),
        ]

    keras.utils.set_random_seed(5)
    draw()
    saved = json.loads(json.dumps(generators.take()))
    expected = draw()
    assert draw() != expected
    context.context().clear_kernel_cache()  # as in a new process
    generators.put(saved)
    assert draw() == expected


@pytest.mark.parametrize("bad", [{"python": [3, "AAAA", None]}, {"numpy": ["AAAA", 1, 0, 0.0]}])
def test_a_state_that_is_none_is_no_state(bad: dict) -> None:
    with pytest.raises((ValueError, TypeError)):
        generators.put(bad)
