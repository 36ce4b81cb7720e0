"""State that neither the model nor its optimizer holds: a training that is stopped twice has it."""

from __future__ import annotations

import random

import keras
import pytest
from zoo.stopped import stopped_twice

# What the data draws from, and a state somewhere else.
EXACT = [
    ("augmented", "nothing"),
    ("augmented_ahead", "nothing"),
    ("noisy", "by_class"),
    ("noisy_shuffled", "nothing"),
    ("noisy_repeated", "by_class"),
    ("nested", "nothing"),
    ("noisy_and_drawn", "counted"),
    ("arrays", "counted"),
    ("weighted", "nothing"),
]
# State that nobody saves: what holds it is named, so that it can be passed.
NAMED = {
    "in_loss": "calls of the loss is not saved: if training changes it, pass it by keyword: "
    "resume(model, directory, calls=calls)",
    "in_schedule": "calls of the schedule is not saved",
    "by_mapping": "weight of the loss is not saved",
    "teacher": "teacher of Averaging is not saved: if training changes it, pass it by keyword: "
    "resume(model, directory, teacher=teacher)",
}


@pytest.mark.parametrize(("data", "state"), EXACT)
def test_it_comes_back(flavour, tmp_path, data, state) -> None:
    words = (data, state, "dense", "adam", "alone")
    verdict, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert verdict == "exact", said


@pytest.mark.parametrize("state", NAMED)
def test_what_is_not_saved_is_named(flavour, tmp_path, state) -> None:
    words = ("arrays", state, "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert NAMED[state] in said


def test_logs_that_depend_on_a_validation_before_are_no_secret(flavour, tmp_path) -> None:
    words = ("dataset", "counted", "norm", "adam", "alone", "validated_by_dataset", "twice")
    draw = random.Random(2)  # stops after a validation, within an epoch
    verdict, said = stopped_twice(flavour, words, str(tmp_path / "run"), draw)
    if flavour is keras:  # makes all metrics when it compiles
        assert verdict == "exact", said
    else:
        assert "only by the next validation, so the logs of this epoch are not exact" in said


def test_functions_that_draw_for_several_elements_at_once_are_no_secret(flavour, tmp_path) -> None:
    words = ("at_once", "nothing", "dense", "adam", "alone")
    _, said = stopped_twice(flavour, words, str(tmp_path / "run"), random.Random(1))
    assert (
        "a function of the dataset draws random numbers or counts, and num_parallel_calls runs it "
        "for several elements at once, in an order that changes from run to run: neither a "
        "resumed nor a repeated training is exact; remove num_parallel_calls, or call "
        "tf.config.experimental.enable_op_determinism()"
    ) in said
