"""Files that hold no training: the default policy takes them for what they are, and says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.variables import inner

import tfckpt


def recurrent(k: Any, *, stateful: bool) -> Any:
    model = k.Sequential(
        [
            k.layers.LSTM(3, stateful=stateful, return_sequences=True),
            k.layers.GRU(2, stateful=stateful),
            k.layers.Dense(2),
        ]
    )
    model(np.zeros((2, 5, 3), "float32"))
    return model


def written(model: Any, place: Any) -> str:
    """In TensorFlow's format, without a counter."""
    return str(tf.train.Checkpoint(model=model).write(str(place / "weights")))


def trained(model: Any) -> list[Any]:
    return list(model.trainable_weights)


@pytest.mark.parametrize("write", ["h5", "tensorflow", "export"])
def test_a_file_of_weights_needs_no_policy(write: str, flavour: Any, tmp_path: Any) -> None:
    """Nor does a stateful model miss the states of recurrent layers, which are no weights."""
    first, model = recurrent(flavour, stateful=False), recurrent(flavour, stateful=True)
    path = str(tmp_path / f"w.weights.{write}")
    if write == "h5":
        first.save_weights(path)
    elif write == "export":
        tf.saved_model.save(first, path)
    else:
        path = written(first, tmp_path)
    report = tfckpt.from_config({"version": 1, "restore": {"path": path}}, model).restore()
    pairs = zip(first.weights, trained(model), strict=True)
    assert all(np.array_equal(inner(a).numpy(), inner(b).numpy()) for a, b in pairs)
    said = [step.reason for step in report.plan.steps if step.name == "save_counter"]
    wanted = "taken as api: read, because the checkpoint counts no saves"
    assert said == ([] if write == "h5" else [wanted])  # a file of Keras has no counter ever
    states = [step for step in report.plan.steps if "/states/" in step.name]
    assert states
    assert {(str(step.status), str(step.entry.role)) for step in states} == {("MISSING", "state")}


def test_the_states_that_a_run_saved_are_restored(flavour: Any, tmp_path: Any) -> None:
    model = recurrent(flavour, stateful=True)
    model(np.ones((2, 5, 3), "float32"))
    kept = [inner(each).numpy() for each in model.layers[0].states]
    path = tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    model(np.full((2, 5, 3), 2, "float32"))
    tfckpt.restore(path, model)
    for state, value in zip(model.layers[0].states, kept, strict=True):
        np.testing.assert_array_equal(inner(state).numpy(), value)
    assert np.any(kept[0])


def test_a_policy_that_says_restore_wants_the_counter(flavour: Any, tmp_path: Any) -> None:
    model = recurrent(flavour, stateful=False)
    source = {"path": written(model, tmp_path), "policy": {"api": "restore"}}
    run = tfckpt.from_config({"version": 1, "restore": source}, model)
    with pytest.raises(tfckpt.RefusedError, match="its writer does not count"):
        run.restore()
