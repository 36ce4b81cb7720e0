"""A call that is not meant so: objects at the wrong place, of the wrong kind, or none at all."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf
from mistakes.scene import digits, values, written

import tfckpt
import tfckpt.callbacks

RESTORE = "version: 1\nrestore: {directory: runs/digits}\n"


def stored(keras) -> list[np.ndarray]:
    """The weights as plain TensorFlow reads them."""
    model = digits(keras, optimizer=None)
    tf.train.Checkpoint(model=model).restore("runs/digits/ckpt-3").expect_partial()
    return values(model)


def test_17_a_model_without_its_keyword(keras, run3, model, told) -> None:
    with told() as seen:
        print(tfckpt.restore(written(RESTORE), model))
    seen.says("LOADED", "model/body/kernel")
    np.testing.assert_equal(values(model)[:4], stored(keras))


def test_18_a_model_without_its_keyword_for_a_run(keras, run3, model, told) -> None:
    with told() as seen:
        print(tfckpt.from_config(written(RESTORE), model).restore())
    seen.says("LOADED", "model/body/kernel")
    np.testing.assert_equal(values(model)[:4], stored(keras))


def test_19_no_model_at_all(run3, refused) -> None:
    with refused() as seen:
        tfckpt.restore(written(RESTORE))
    seen.says("no (model|object)", "model=model")
    assert len(seen.text.splitlines()) <= 4


def test_20_a_function_in_place_of_a_model(run3, keras, refused) -> None:
    def build() -> object:
        return digits(keras)

    with refused(error=ValueError) as seen:
        tfckpt.restore(written(RESTORE), model=build)
    seen.says("model", "function", r"build\(\)|call it|what it returns")
    seen.never_says("open an issue")


def test_26_a_save_that_no_manager_is_there_for(run3, model, refused) -> None:
    with refused(model, error=tfckpt.TfckptError) as seen:
        tfckpt.from_config(written(RESTORE), model=model).save()
    seen.says("`manager`", "add `manager: {directory: ")


def test_35_resume_without_a_directory(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume(model)
    seen.says("directory")


def test_36_the_word_of_model_checkpoint(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume(model, "runs/digits", save_best_only=True)
    seen.says("save_best_only", r"save_best\b")


def test_37_directory_and_model_the_other_way_round(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume("runs/digits", model)
    seen.says(r"resume\(model, |model.*first")


def test_38_a_save_freq_that_keras_does_not_know_either(model, refused) -> None:
    with refused(model, error=ValueError) as seen:
        tfckpt.callbacks.resume(model, "runs/digits", save_freq="batch")
    seen.says("save_freq", "epoch", "number")
    seen.never_says("the config mapping")


def test_64_a_number_in_place_of_a_variable(refused) -> None:
    with refused(error=ValueError) as seen:
        tfckpt.Checkpoint(step=7)
    seen.says("step", r"tf\.Variable\(7\)")


def test_64_a_number_that_is_set_later(refused) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with refused(error=ValueError) as seen:
        checkpoint.epoch = 7
    seen.says("epoch", r"tf\.Variable\(7\)")


def test_65_the_callbacks_after_nothing_but_import_tfckpt(monkeypatch, told) -> None:
    monkeypatch.delitem(sys.modules, "tfckpt.callbacks")
    monkeypatch.delattr(tfckpt, "callbacks")
    with told() as seen:
        print(tfckpt.callbacks.resume.__name__)
    seen.says("resume")
