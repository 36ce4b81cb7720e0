"""What Keras's callbacks count in: a release that adds an attribute shows here."""

from __future__ import annotations

import dis
import inspect

from tfckpt.live.private import callbacks

NO_STATE = {
    # What a callback was given, what `fit` makes again as it begins, and what is the model's.
    "BackupAndRestore": "_batches_count _batches_seen_since_last_saving _current_epoch "
    "_last_batch_seen _initial_epoch _training_state",
    "CSVLogger": "append_header csv_file keys writer",
    "EarlyStopping": "best_weights",
    "ModelCheckpoint": "_write_filepath",
    "OrbaxCheckpoint": "_async_futures",
    "ProgbarLogger": "_called_in_fit _train_step _test_step _predict_step progbar seen "
    "stateful_metrics target",
    "ReduceLROnPlateau": "mode",
    "SidecarEvaluatorModelExport": "export_index",  # `fit` has no part in it
    "TensorBoard": "_batch_start_time _epoch_start_time _batch_trace_context _is_tracing "
    "_previous_epoch_iterations _prev_summary_state _profiler_started _should_trace "
    "_should_write_train_graph _start_batch _stop_batch _summary_module "
    "_train_accumulated_time metadata_path tensor_name",
}
OF_ALL = {"learning_rate", "min_delta", "monitor_op", "stop_training"}
SET_UP = {"__init__", "set_model", "set_params"}


def test_every_attribute_that_keras_counts_in_is_known(flavour) -> None:
    public = inspect.getmembers(flavour.callbacks, inspect.isclass)
    kinds = {k for _, k in public if issubclass(k, flavour.callbacks.Callback)}
    kinds -= {flavour.callbacks.Callback, flavour.callbacks.CallbackList}
    for kind in kinds:
        base = next(k.__name__ for k in kind.__mro__ if k.__name__ in callbacks.STATE)
        known = OF_ALL.union(callbacks.STATE[base])
        known.update(*(NO_STATE.get(name, "").split() for name in (base, kind.__name__)))
        for parent in kind.__mro__:
            for name, method in vars(parent).items():
                if inspect.isfunction(method) and name not in SET_UP:
                    code = dis.get_instructions(method)
                    stored = {each.argval for each in code if each.opname == "STORE_ATTR"}
                    assert stored <= known, (kind, name)
