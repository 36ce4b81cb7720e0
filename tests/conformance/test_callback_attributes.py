"""What Keras's callbacks keep that is no state: none is said to be lost, or restored in vain."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tfckpt.training.callback_state import States

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
Y = X.sum(1, keepdims=True)
# What they need; those that `fit` has no part in, or that need another package, are left out.
GIVEN = {
    "BackupAndRestore": lambda path: [str(path / "backup")],
    "CSVLogger": lambda path: [str(path / "log.csv")],
    "LambdaCallback": lambda path: [],
    "LearningRateScheduler": lambda path: [lambda epoch: 0.1 / (1 + epoch)],
    "ModelCheckpoint": lambda path: [str(path / "{epoch}.weights.h5")],
    "TensorBoard": lambda path: [str(path / "board")],
}
LEFT_OUT = {"BaseLogger", "Callback", "CallbackList", "OrbaxCheckpoint", "RemoteMonitor"}
LEFT_OUT |= {"SidecarEvaluatorExport", "SidecarEvaluatorModelExport", "SwapEMAWeights"}
STATE = {
    "EarlyStopping": {"wait", "best", "best_epoch"},
    "History": {"epoch", "history"},
    "ModelCheckpoint": {"_current_epoch", "_last_batch_seen"},
    "ReduceLROnPlateau": {"wait", "best"},
    "TensorBoard": {"_train_step", "_global_train_batch"},
}


def kinds(keras):
    found = inspect.getmembers(keras.callbacks, inspect.isclass)
    return [name for name, kind in found if issubclass(kind, keras.callbacks.Callback)]


def test_what_keras_changes_on_its_own_callbacks_is_data(flavour, tmp_path):
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1)])
    model.compile("sgd", "mse")
    names = [name for name in kinds(flavour) if name not in LEFT_OUT]
    assert {*STATE} <= {*names}
    made = []
    for name in names:
        more = {"save_weights_only": True} if name == "ModelCheckpoint" else {}
        given = GIVEN.get(name, lambda _: [])(tmp_path)
        made.append(getattr(flavour.callbacks, name)(*given, **more))
    states = States(made)

    class Begin(flavour.callbacks.Callback):
        def on_train_begin(self, logs=None):
            states.begins()

        def on_epoch_end(self, epoch, logs=None):
            self.saved, _, self.lost = states.collect()

    last = Begin()
    try:
        model.fit(
            X, Y, epochs=4, verbose=0, callbacks=[*made, last], validation_data=(X, Y), batch_size=4
        )
    except (ImportError, AttributeError) as error:
        pytest.skip(f"a callback needs another package: {error}")
    assert last.lost == []
    changed = {name: {*one["attributes"]} for name, one in last.saved.items() if one["attributes"]}
    assert changed.keys() <= STATE.keys()
    for name, attributes in changed.items():
        assert attributes & STATE.get(name, attributes), name
