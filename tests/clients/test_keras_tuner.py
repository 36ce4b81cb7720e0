"""KerasTuner: a search that is killed in the middle of a trial, and the weights that it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from clients.exchange import WAYS, checksums, killing, resumed

import tfckpt

pytestmark = pytest.mark.long
NEEDS = "with one line in `HyperModel.fit`: `tfckpt.callbacks.resume(model, directory)`"
TRIALS, EPOCHS, EVERY, KILLED = 3, 2, 2, 11  # each trial has 8 steps: the second one is killed
X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
DATA = tf.data.Dataset.from_tensor_slices((X, X.sum(1))).batch(4)


class Hyper(keras_tuner.HyperModel):
    """Each trial resumes what a search that was killed had begun of it."""

    def __init__(self, directory: str, stop: int | None) -> None:
        super().__init__()
        self.runs = directory
        self.killing = killing(keras, stop)
        self.trained: list[Any] = []

    def build(self, hp: Any) -> Any:
        keras.utils.set_random_seed(1)
        units = hp.Choice("units", [2, 4, 8])
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=False)
        return model

    def fit(self, hp: Any, model: Any, *args: Any, callbacks: Any, **kwargs: Any) -> Any:
        directory = f"{self.runs}/run-{hp.get('units')}"
        resume = tfckpt.callbacks.resume(model, directory, save_freq=EVERY, verbose=0)
        history = model.fit(*args, callbacks=[*callbacks, resume, self.killing], **kwargs)
        self.trained.append([*model.variables, *model.optimizer.variables])
        return history


def search(directory: str, stop: int | None = None) -> Any:
    tuner = keras_tuner.RandomSearch(
        Hyper(directory, stop), "loss", TRIALS, seed=1, directory=directory, project_name="search"
    )
    tuner.search(DATA, epochs=EPOCHS, verbose=0)
    return tuner


def train(directory: str, stop: int | None) -> list[Any]:
    tuner = search(directory, stop)
    trained = [checksums(each) for each in tuner.hypermodel.trained]
    best = tuner.oracle.get_best_trials(TRIALS)
    return [trained[-1], [(each.hyperparameters.values, each.score) for each in best]]


def test_the_best_weights_of_a_search_are_restored(tmp_path) -> None:
    tuner = search(str(tmp_path))
    trial = tuner.oracle.get_best_trials()[0]
    (expected,) = tuner.get_best_models()
    (path,) = Path(tuner.get_trial_dir(trial.trial_id)).glob("*.weights.h5")
    model = tuner.hypermodel.build(trial.hyperparameters)
    tfckpt.restore(path, model=model, policy={"api": "read"})
    for found, value in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(found, value)


@WAYS
def test_a_tuned_model_is_exchanged_with_tensorflow(writer, reader, tmp_path) -> None:
    (old,) = search(str(tmp_path)).get_best_models()
    new = keras.models.clone_model(old)
    for model, steps in ((old, 1), (new, 2)):
        for _ in range(steps):
            model.train_on_batch(X, X.sum(1))
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    reader.Checkpoint(model=new).restore(path).assert_existing_objects_matched()
    found, expected = (checksums([*x.weights, *x.optimizer.variables]) for x in (new, old))
    assert found == expected


test_a_killed_search_goes_on_exactly = resumed(__file__, KILLED, NEEDS)
