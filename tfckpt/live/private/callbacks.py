"""The attributes in which Keras's callbacks keep their state, by class.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21; releases lack some, which are skipped.
"""

from __future__ import annotations

from typing import Any

# keras/src/callbacks/*.py and tf_keras/src/callbacks.py; missing attributes are skipped.
STATE: dict[str, tuple[str, ...]] = {
    "BackupAndRestore": (),
    "BaseLogger": ("seen", "totals"),
    "CSVLogger": (),
    "EarlyStopping": ("wait", "stopped_epoch", "best", "best_epoch"),
    "History": ("epoch", "history"),
    "LambdaCallback": (),
    "LearningRateScheduler": (),
    "ModelCheckpoint": (
        "best",
        "epochs_since_last_save",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_current_epoch",
    ),
    "OrbaxCheckpoint": (
        "best",
        "_batches_seen_since_last_saving",
        "_last_batch_seen",
        "_total_batches_seen",
    ),
    "ProgbarLogger": (),
    "ReduceLROnPlateau": ("wait", "cooldown_counter", "best"),
    "RemoteMonitor": (),
    "SwapEMAWeights": ("_ema_weights_in_model",),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_train_step"),
    "TerminateOnNaN": (),
}
ARRAYS = {"EarlyStopping": "best_weights"}


def keep_best(callback: Any) -> None:
    """Keep `best` in the first epoch, when Keras 3.3 to 3.6 reset it as they resolve `mode`."""
    resolve = getattr(callback, "_set_monitor_op", None)
    if (
        resolve is None
        or "best" not in resolve.__code__.co_names
        or callback.monitor_op is not None
    ):
        return

    def resolve_and_keep() -> None:
        best = callback.best
        resolve()
        callback.best = best
        del callback._set_monitor_op

    callback._set_monitor_op = resolve_and_keep
