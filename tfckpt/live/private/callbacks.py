"""The attributes of Keras's callbacks that are no state of a training, by class.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21 (keras/src/callbacks/*.py and
tf_keras/src/callbacks.py).
"""

from __future__ import annotations

from typing import Any

# What a callback was given, what `fit` makes again as it begins, and what is the model's.
NO_STATE = {
    "BackupAndRestore": "_batches_count _batches_seen_since_last_saving _current_epoch "
    "_last_batch_seen _initial_epoch _training_state",
    "CSVLogger": "append_header csv_file keys writer",
    "ModelCheckpoint": "_write_filepath",
    "OrbaxCheckpoint": "_async_futures",
    "ProgbarLogger": "_called_in_fit _train_step _test_step _predict_step progbar seen "
    "stateful_metrics target",
    "ReduceLROnPlateau": "mode",
    "SidecarEvaluatorModelExport": "export_index",  # `fit` has no part in it
    "TensorBoard": "_batch_start_time _epoch_start_time _batch_trace_context _is_tracing "
    "_previous_epoch_iterations _prev_summary_state _profiler_started _should_trace "
    "_should_write_train_graph _start_batch _stop_batch _summary_module "
    "_train_accumulated_time _writers metadata_path tensor_name",
}
OF_ALL = frozenset(
    [
        "learning_rate",
        "min_delta",
        "monitor_op",
        "stop_training",
        "model",
        "_model",
        "params",
        "validation_data",
    ]
)


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
