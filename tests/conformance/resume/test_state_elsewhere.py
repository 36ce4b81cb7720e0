"""State that neither the model nor its optimizer holds: a training that is stopped twice has it."""

from __future__ import annotations

import random

import keras
import pytest
from zoo.stopped import stopped_twice

# What the data draws from, and a state somewhere else.
EXACT = [
    ("augmented", "in_loss"),
    ("augmented_ahead", "in_schedule"),
    ("noisy", "in_regularizer"),
    ("noisy_shuffled", "in_constraint"),
    ("noisy_repeated", "by_itself"),
    ("nested", "by_mapping"),
    ("noisy_and_drawn", "by_cell"),
    ("arrays", "by_global"),
    ("weighted", "by_draw"),
    ("dataset", "teacher"),
    ("arrays", "counted"),
]


@pytest.mark.parametrize(("data", "state"), EXACT)
def test_it_comes_back(flavour, tmp_path, data, state) -> None:
    words = (data, state, "dense", "adam", "alone")
    verdict, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert verdict == "exact", said


def test_logs_that_depend_on_a_validation_before_are_no_secret(flavour, tmp_path) -> None:
    words = ("dataset", "counted", "norm", "adam", "alone", "validated_by_dataset", "twice")
    draw = random.Random(2)  # stops after a validation, within an epoch
    verdict, said = stopped_twice(flavour, words, str(tmp_path / "run"), draw)
    if flavour is keras:  # makes all metrics when it compiles
        assert verdict == "exact", said
    else:
        assert "only by the next validation, so the logs of this epoch are not exact" in said


def test_a_callback_that_counts_from_a_default_of_its_class_is_named(flavour, tmp_path) -> None:
    words = ("arrays", "by_class", "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert (
        "Moving is reset when training resumes (level): it has no get_state and set_state"
    ) in said


def test_functions_that_draw_for_several_elements_at_once_are_no_secret(flavour, tmp_path) -> None:
    words = ("at_once", "nothing", "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert (
        "a function of the dataset draws random numbers or counts, and num_parallel_calls runs it "
        "for several elements at once, in an order that changes from run to run: neither a "
        "resumed nor a repeated training is exact; remove num_parallel_calls, or call "
        "tf.config.experimental.enable_op_determinism()"
    ) in said
