"""The loop of ``fit`` in Keras 3 and tf_keras: where it begins, what it calls, what it reads.

Keras 3 reads the model's ``_initial_epoch`` after ``on_train_begin``
(keras/src/backend/tensorflow/trainer.py), tf_keras calls its ``_training_state``
(tf_keras/src/engine/training.py). Whether they have done so shows in the epoch that they begin
with, which ``training/fit_loop.py`` checks.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.live.private import versions
from tfckpt.live.private.parts import changed, required

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# tf_keras's and Keras 3's own counters, which are no variables of the model.
COUNTERS = ("_train_counter", "_test_counter", "_predict_counter", "_steps_per_execution")


def _package(model: Any) -> str:
    return "keras" if is_keras3(model) else "tf_keras"


def is_keras3(model: Any) -> bool:
    return any(str(base.__module__).startswith("keras.") for base in type(model).__mro__)


# Where it begins


class _Counters:
    """Tells tf_keras the epoch and the step to begin at."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        return max(initial_epoch, self._epoch), 0


class Start:
    """Has ``fit`` begin at an epoch; 0 leaves it to its caller."""

    def __init__(self, model: Any, epoch: int) -> None:
        self._model, self._epoch = model, epoch
        _start_at(model, epoch)

    def check(self, epoch: int) -> None:
        """In the first epoch; the next ``fit`` is left to its caller."""
        give_start_back(self._model)
        if epoch < self._epoch:
            what = f"`fit` was asked to begin at epoch {self._epoch} and began at {epoch}"
            raise changed(_package(self._model), what)


def give_start_back(model: Any) -> None:
    """Leave it to the caller of ``fit`` where it begins."""
    _start_at(model, 0)


def _start_at(model: Any, epoch: int) -> None:
    if is_keras3(model):
        required(model, "_initial_epoch")
        model._initial_epoch = epoch or None
    elif epoch:
        required(model, "_training_state")
        model._training_state = _Counters(epoch)
    elif isinstance(getattr(model, "_training_state", None), _Counters):
        model._training_state = None


# What it calls


def train_function(model: Any) -> Any:
    """The function that ``fit`` calls for each step; None before it is made."""
    return required(model, "train_function")


def set_train_function(model: Any, function: Any) -> None:
    vars(model)["train_function"] = function  # past the model's tracking of attributes


def definitions_of(function: Any) -> Iterator[Any]:
    """The graphs of a train function, as far as it was traced; none of an eager one.

    Keras 3 makes a function of Python that calls the traced one, which only its closure has.
    """
    waiting, seen = [function], set[int]()
    while waiting:
        each = waiting.pop()
        if (graphs := getattr(each, "_list_all_concrete_functions", None)) is not None:
            yield from (traced.graph.as_graph_def() for traced in graphs())
        elif id(each) not in seen and _is_of_trainer(each):
            seen.add(id(each))
            waiting += inspect.getclosurevars(each).nonlocals.values()


def not_called(model: Any) -> Exception:
    """The error for a batch that ends without a call of the function that was set."""
    return changed(_package(model), "`fit` has ended a batch without calling `train_function`")


def evaluates(model: Any) -> Any:
    """The model's own method that says whether an epoch ends with an evaluation."""
    return required(model, "_should_eval")


def set_evaluates(model: Any, function: Callable[..., Any] | None) -> None:
    """Ask another function; None for the model's own method."""
    if function is None:
        vars(model).pop("_should_eval", None)
    else:
        vars(model)["_should_eval"] = function


def steps_per_execution(model: Any) -> Any:
    """How many batches a call takes, a number or a variable; None if that is not set."""
    steps = getattr(model, "steps_per_execution", None)
    return getattr(model, "_steps_per_execution", None) if steps is None else steps


def step_counter(model: Any) -> Any:
    """The variable in which tf_keras counts steps; None in Keras 3."""
    return None if is_keras3(model) else required(model, "_train_counter")


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
    return required(found, "_distributed_dataset" if is_keras3(model) else "_dataset")


def next_iterator_of(model: Any) -> Any:
    """The iterator that Keras 3 made for the next steps of the running ``fit``, or None."""
    found = _source(model) if is_keras3(model) else None
    if found is None or "_current_iterator" in vars(found):
        return getattr(found, "_current_iterator", None)
    return _not_made(found)


def _not_made(source: Any) -> None:
    """Before Keras 3.11 there is none without ``steps_per_epoch``."""
    if versions.release(versions.installed("keras")) >= (3, 11):
        required(source, "_current_iterator")


def _source(model: Any) -> Any:
    """The object that makes the iterators of the running ``fit``; None outside of it."""
    name = "epoch_iterator" if is_keras3(model) else "data_handler"
    for frame in _callers():
        if frame.f_code.co_name == "fit" and _is_of_keras(frame):
            local = frame.f_locals
            if local.get("self") is model:
                if name not in local:
                    raise changed(_package(model), f"`fit` has no variable {name!r}")
                return local[name]
    return None


def list_of(callback: Any) -> Any:
    """Keras's CallbackList that has called a callback, which has no reference to it, or None."""
    for frame in _callers():
        owner = frame.f_locals.get("self")
        if callback in getattr(owner, "callbacks", ()) and owner is not callback:
            return owner
    return None


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
