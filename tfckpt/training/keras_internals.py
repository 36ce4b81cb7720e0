"""Private attributes of Keras 3 and tf_keras that resuming a ``fit`` reads and sets.

Keras 3 reads the model's ``_initial_epoch`` after ``on_train_begin``
(keras/src/backend/tensorflow/trainer.py), tf_keras calls its ``_training_state``
(tf_keras/src/engine/training.py). Both are reset in the first epoch, so that the next ``fit``
starts where its caller says, even if this one is interrupted.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from tfckpt.errors import NotBuiltError, TfckptError
from tfckpt.live.building.build import build_by_step
from tfckpt.live.variables.variables import as_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

_T = TypeVar("_T")


class Hook:
    """Replaces a function of the model while the owner of ``method`` exists; then calls ``own``."""

    def __init__(self, method: Callable[..., Any], own: Callable[..., Any]) -> None:
        self._method = weakref.WeakMethod(method)
        self.own = own

    def __call__(self, *arguments: Any) -> Any:
        method = self._method()
        return (self.own if method is None else method)(*arguments)


class Functions:
    """Replaces functions that Keras calls on a model in ``fit``."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.train = own_train_function(model)
        self.evaluate()

    def train_by(self, step: Callable[[Any], Any]) -> None:
        """Call a method of another object for each step."""
        vars(self._model)["train_function"] = Hook(step, self.train)

    def evaluate_nothing(self) -> None:
        """Skip the evaluation after each epoch."""
        vars(self._model)["_should_eval"] = Hook(self._never, self._model._should_eval)

    def evaluate(self) -> None:
        """Evaluate as Keras does."""
        vars(self._model).pop("_should_eval", None)

    def give_back(self) -> None:
        """Restore the model's own functions."""
        vars(self._model)["train_function"] = self.train
        self.evaluate()
        start_at(self._model, 0)

    def _never(self, *_: Any) -> bool:
        return False


def own_train_function(model: Any) -> Any:
    """Keras's train function of the model, which is replaced when the model is compiled again."""
    function = model.train_function
    return function.own if isinstance(function, Hook) else function  # left by a `fit` that failed


class _Start:
    """Tells tf_keras the epoch and the step to begin at."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        return max(initial_epoch, self._epoch), 0


def start_at(model: Any, epoch: int) -> None:
    """Begin at an epoch; 0 leaves it to the caller of ``fit``."""
    if hasattr(model, "_initial_epoch"):
        model._initial_epoch = epoch or None
    elif epoch:
        model._training_state = _Start(epoch)
    elif isinstance(getattr(model, "_training_state", None), _Start):
        model._training_state = None


def batches_of_a_call(model: Any) -> int:
    """How many batches one call of the train function takes."""
    steps = getattr(model, "steps_per_execution", None)
    if steps is None:
        steps = getattr(model, "_steps_per_execution", None)
    return 1 if steps is None else as_int(steps)  # a variable in tf_keras


def list_of(callback: Any) -> Any:
    """Keras's CallbackList, found in the call stack, since callbacks have no reference to it.

    Raises:
        TfckptError: something else has called the callback.
    """
    for local in _locals_of_callers():
        owner = local.get("self")
        if callback in getattr(owner, "callbacks", ()) and owner is not callback:
            return owner
    raise TfckptError(
        "the callback was not called by Keras's CallbackList",
        hint="pass it to `fit`, or put it into a CallbackList with the others",
    )


def before_first_epoch(callbacks: Any, function: Callable[[], None]) -> None:
    """Have a CallbackList call a function before the first ``on_epoch_begin``."""
    notify = callbacks.on_epoch_begin

    def call_and_notify(*args: Any, **kwargs: Any) -> None:
        callbacks.on_epoch_begin = notify
        function()
        notify(*args, **kwargs)

    callbacks.on_epoch_begin = call_and_notify


def with_variables(model: Any, find: Callable[[], _T]) -> _T:
    """The result of ``find``, after creating the variables of the first step if necessary."""
    try:
        return find()
    except NotBuiltError:
        if (spec := _batch_spec(model)) is None:
            raise
        build_by_step(model, spec)
        return find()


def _batch_spec(model: Any) -> Any:
    """The ``element_spec`` of the running ``fit``; None if unknown."""
    return getattr(dataset_of_fit(model), "element_spec", None)


def dataset_of_fit(model: Any) -> Any:
    """The dataset from which the running ``fit`` makes its iterators; None if unknown.

    Keras has created the dataset by then, reading a first batch if it has to.
    """
    for local in _locals_of_callers():
        if local.get("self") is model:
            dataset = getattr(local.get("epoch_iterator"), "_distributed_dataset", None)  # Keras 3
            if dataset is None:
                dataset = getattr(local.get("data_handler"), "_dataset", None)  # tf_keras
            if dataset is not None:
                return dataset
    return None


def next_iterator_of_fit(model: Any) -> Any:
    """The iterator that Keras 3 made for the next steps of the running ``fit``, or None."""
    for local in _locals_of_callers():
        if local.get("self") is model and "epoch_iterator" in local:
            return getattr(local["epoch_iterator"], "_current_iterator", None)
    return None


def _locals_of_callers() -> Iterator[Mapping[str, Any]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_locals
        frame = frame.f_back
