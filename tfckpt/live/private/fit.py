"""The loop of ``fit`` in Keras 3 and tf_keras: where it begins, what it calls, what it reads.

Keras 3 reads the model's ``_initial_epoch`` after ``on_train_begin``
(keras/src/backend/tensorflow/trainer.py), tf_keras calls its ``_training_state``
(tf_keras/src/engine/training.py). Whether they have done so shows in the epoch that they begin
with, which :class:`Start` checks.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

from tfckpt.core import versions
from tfckpt.live.private.tensorflow import changed, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

with needed("tensorflow"):
    from tensorflow.python.framework import op_callbacks


def _package(model: Any) -> str:
    return "keras" if is_keras3(model) else "tf_keras"


def is_keras3(model: Any) -> bool:
    return any(str(base.__module__).startswith("keras.") for base in type(model).__mro__)


# Where it begins


class _Epoch(int):
    """The epoch that Keras 3 begins one ``fit`` at; false in any other one."""

    source: Any

    def __bool__(self) -> bool:
        return sys._getframe(1).f_locals.get("epoch_iterator") is self.source


class _Counters:
    """Tells tf_keras the epoch and the step that one ``fit`` begins at."""

    def __init__(self, model: Any, epoch: int) -> None:
        self._epoch, self._source, self._model = epoch, _source(model), weakref.ref(model)

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        model = self._model()
        if model is None or _source(model) is not self._source:  # another `fit` after an error
            return initial_epoch, 0
        return max(initial_epoch, self._epoch), 0


class Start:
    """Has the running ``fit`` begin at an epoch; 0 leaves it to its caller."""

    def __init__(self, model: Any, epoch: int) -> None:
        self._model, self._epoch = model, epoch if _source(model) is not None else 0
        if not self._epoch:
            return
        if is_keras3(model):
            _ = model._initial_epoch  # raises where there is none
            model._initial_epoch = _Epoch(epoch)
            model._initial_epoch.source = _source(model)
        else:
            _ = model._training_state  # raises where there is none
            model._training_state = _Counters(model, epoch)

    def check(self, epoch: int) -> None:
        """In the first epoch."""
        if not self._epoch:
            return
        name = "_initial_epoch" if is_keras3(self._model) else "_training_state"
        setattr(self._model, name, None)
        if epoch < self._epoch:
            what = f"`fit` was asked to begin at epoch {self._epoch} and began at {epoch}"
            raise changed(_package(self._model), what)


def initial_epoch_of(model: Any) -> int | None:
    """The epoch that the caller of the running ``fit`` asked for; None outside of it."""
    frame = _frame(model, "fit")
    return None if frame is None else int(frame.f_locals["initial_epoch"])


# What it calls


def train_function(model: Any) -> Any:
    """The function that ``fit`` calls for each step; None before it is made."""
    return model.train_function


class SkippedStep:
    """Stands for the train function where a ``fit`` skips what was trained before.

    It calls ``step`` while its object exists, and else the model's own function.
    """

    def __init__(self, model: Any, step: Callable[[Any], Any]) -> None:
        self._step = weakref.WeakMethod(step)
        self.model, self.own = weakref.ref(model), own_train_function(model)
        vars(model)["train_function"] = self  # past the model's tracking of attributes

    def __call__(self, iterator: Any) -> Any:
        step = self._step()
        return self.give_back()(iterator) if step is None else step(iterator)

    def give_back(self) -> Any:
        """The model gets its own function back."""
        if (model := self.model()) is not None and train_function(model) is self:
            vars(model)["train_function"] = self.own
        return self.own


def own_train_function(model: Any) -> Any:
    """Keras's train function of the model, which is replaced when the model is compiled again."""
    function = train_function(model)
    return function.own if isinstance(function, SkippedStep) else function


def make_train_function(model: Any) -> Any:
    """Have Keras make it again, so that its step is traced with the values as they are now."""
    model.make_train_function(force=True)
    return own_train_function(model)


def trace(model: Any, iterator: Any) -> bool:
    """Trace the train function for an iterator or its spec; whether it is one that is traced.

    What Keras calls then is this trace. No batch is taken; initializers of new variables run.
    """
    for function in _traced(own_train_function(model)):
        if "iterator" in inspect.signature(function.python_function).parameters:
            function.get_concrete_function(iterator=iterator)
            return True
    return False


class EagerOperations:
    """Operations that run eagerly until :meth:`end`: their types, and their seeds if they draw."""

    def __init__(self) -> None:
        self._found = found = set[tuple[str, Any, Any]]()

        def note(kind: Any, inputs: Any, attrs: Any, *more: Any, **named: Any) -> None:
            name = kind.decode() if isinstance(kind, bytes) else str(kind)
            given = dict(zip(attrs[::2], attrs[1::2], strict=False)) if attrs else {}
            one, two = (given.get(key) for key in ("seed", "seed2"))  # of a graph: messages
            found.add((name, getattr(one, "i", one), getattr(two, "i", two)))

        op_callbacks.add_op_callback(note)
        # Also where an error ends the step.
        self._remove = weakref.finalize(self, op_callbacks.remove_op_callback, note)

    def end(self) -> set[tuple[str, Any, Any]]:
        self._remove()
        return self._found


def graphs_of(function: Any) -> list[Any]:
    """The graphs of a train function, as far as it was traced; none of an eager one."""
    of_each = (traced._list_all_concrete_functions() for traced in _traced(function))
    return [each.graph for found in of_each for each in found]


def _traced(function: Any) -> Iterator[Any]:
    """What is traced: Keras 3 makes a function of Python that calls it, in its closure."""
    waiting, seen = [function], set[int]()
    while waiting:
        each = waiting.pop()
        if hasattr(each, "_list_all_concrete_functions"):
            yield each
        elif id(each) not in seen and _is_of_trainer(each):
            seen.add(id(each))
            waiting += inspect.getclosurevars(each).nonlocals.values()


def not_called(model: Any) -> Exception:
    """The error for a batch that ends without a call of the function that was set."""
    return changed(_package(model), "`fit` has ended a batch without calling `train_function`")


def steps_per_execution(model: Any) -> Any:
    """How many batches a call takes, a number or a variable; None if that is not set."""
    steps = getattr(model, "steps_per_execution", None)
    return getattr(model, "_steps_per_execution", None) if steps is None else steps


def step_counter(model: Any) -> Any:
    """The variable in which tf_keras counts steps; None in Keras 3."""
    return None if is_keras3(model) else model._train_counter


def steps_counted(model: Any) -> int | None:
    """What it has counted."""
    counter = step_counter(model)
    return None if counter is None else int(counter.numpy())


def set_steps_counted(model: Any, steps: int | None) -> None:
    counter = step_counter(model)
    if counter is not None and steps is not None:
        counter.assign(steps)


def ends_by_epochs(model: Any) -> bool:
    """Whether ``fit`` turns arrays into one dataset of all its epochs, as tf_keras does."""
    return not is_keras3(model)


# What it reads


def dataset_of(model: Any) -> Any:
    """The dataset from which the running ``fit`` makes its iterators; None outside of it.

    Keras has created the dataset by then, reading a first batch if it has to.
    """
    if (found := _source(model)) is None:
        return None
    return found._distributed_dataset if is_keras3(model) else found._dataset


def next_iterator_of(model: Any) -> Any:
    """The iterator that Keras 3 made for the next steps of the running ``fit``, or None."""
    found = _source(model) if is_keras3(model) else None
    if found is None or "_current_iterator" in vars(found):
        return getattr(found, "_current_iterator", None)
    return _not_made(found)


def _not_made(source: Any) -> None:
    """Before Keras 3.11 there is none without ``steps_per_epoch``."""
    if versions.release(versions.installed("keras")) >= (3, 11):
        _ = source._current_iterator  # raises where there is none


def iterator_of(model: Any) -> Any:
    """The iterator that the running ``fit`` gives to the train function; None outside of it."""
    frame = _frame(model, "fit")
    return None if frame is None else frame.f_locals.get("iterator")


def validation_data_of(model: Any) -> Any:
    """What the running ``fit`` evaluates with, or None."""
    frame = _frame(model, "fit")
    return None if frame is None else frame.f_locals.get("val_x")


def validation_steps_of(model: Any) -> int | None:
    """How many batches the running ``fit`` reads for each evaluation; None for all."""
    frame = _frame(model, "fit")
    return None if frame is None else frame.f_locals.get("validation_steps")


def validation_goes_on(model: Any) -> bool:
    """Whether each evaluation begins where the last one ended: by steps, in Keras before 3.7."""
    given = validation_data_of(model) is not None and validation_steps_of(model) is not None
    old = versions.release(versions.installed("keras")) < (3, 7)
    return given and old and is_keras3(model)


def iterators_of_evaluation(model: Any) -> int:
    """How many iterators the evaluation that ends has made of its data."""
    if (frame := _frame(model, "evaluate")) is None:
        return 0
    if not is_keras3(model):
        return 1 + int(frame.f_locals["data_handler"]._adapter.should_recreate_iterator())
    following = getattr(frame.f_locals["epoch_iterator"], "_current_iterator", None)
    return 1 + (following is not None and following is not frame.f_locals.get("iterator"))


def goes_on(model: Any) -> bool:
    """Whether the running ``fit`` takes several epochs from one iterator."""
    if (found := _source(model)) is None:
        return False
    if is_keras3(model):
        return found.steps_per_epoch is not None
    return not found._adapter.should_recreate_iterator()


def batches_object_of(model: Any) -> Any:
    """The `PyDataset` or `Sequence` that makes the batches of the running ``fit``, or None."""
    adapter = getattr(_source(model), "data_adapter" if is_keras3(model) else "_adapter", None)
    return getattr(adapter, "py_dataset", getattr(adapter, "_keras_sequence", None))


def end_epoch(model: Any) -> None:
    """What tf_keras does with its data after callbacks have seen the end of an epoch."""
    if not is_keras3(model) and (found := _source(model)) is not None:
        found._adapter.on_epoch_end()


def inferred_steps(model: Any) -> int | None:
    """How many steps of an epoch tf_keras has seen of a dataset that does not say its size."""
    found = None if is_keras3(model) else _source(model)
    return None if found is None else found._inferred_steps


def count_steps_seen(model: Any, batches: int) -> None:
    """Batches that Keras 3 has taken from the current iterator in earlier epochs."""
    found = _source(model) if is_keras3(model) else None
    if found is not None and "_steps_seen" in vars(found):
        found._steps_seen += batches


def set_inferred_steps(model: Any, steps: int | None) -> None:
    found = None if is_keras3(model) else _source(model)
    if found is not None and steps is not None and found._inferred_steps is None:
        found._inferred_steps = steps


def _source(model: Any) -> Any:
    """The object that makes the iterators of the running ``fit``; None outside of it."""
    name = "epoch_iterator" if is_keras3(model) else "data_handler"
    if (frame := _frame(model, "fit")) is None:
        return None
    if name not in frame.f_locals:
        raise changed(_package(model), f"`fit` has no variable {name!r}")
    return frame.f_locals[name]


def _frame(model: Any, method: str) -> FrameType | None:
    """Of a running method of the model."""
    for frame in _callers():
        of_keras = frame.f_code.co_name == method and _is_of_keras(frame)
        if of_keras and frame.f_locals.get("self") is model:
            return frame
    return None


def list_of(callback: Any) -> Any:
    """Keras's CallbackList that has called a callback, which has no reference to it, or None."""
    for frame in _callers():
        owner = frame.f_locals.get("self")
        if callback in getattr(owner, "callbacks", ()) and owner is not callback:
            return owner
    return None


def in_callback(model: Any) -> bool:
    """Whether the running ``fit`` calls its callbacks now."""
    for frame in _callers():
        if _is_of_keras(frame):
            owner = frame.f_locals.get("self")
            if owner is model and frame.f_code.co_name == "fit":
                return False
            if hasattr(owner, "callbacks"):
                return True
    return False


def _is_of_trainer(function: Any) -> bool:
    of_keras = str(getattr(function, "__module__", "")).startswith(("keras.", "tensorflow."))
    return inspect.isfunction(function) and of_keras


def _is_of_keras(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(("keras.", "tf_keras."))


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


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
