"""What tfckpt puts between Keras's ``fit`` and a model, and takes away again.

Where ``fit`` begins is reset in its first epoch, so that the next one starts where its caller says,
even if this one is interrupted.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from tfckpt.errors import NotBuiltError, RefusedError, TfckptError
from tfckpt.live.building.build import build_by_step
from tfckpt.live.private import fit
from tfckpt.live.variables.flavors import has_own_step
from tfckpt.live.variables.variables import as_int

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Hook:
    """Replaces a function of the model while the owner of ``method`` exists; then calls ``own``."""

    def __init__(self, method: Callable[..., Any], own: Callable[..., Any]) -> None:
        self._method = weakref.WeakMethod(method)
        self.own = own

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        method = self._method()
        return (self.own if method is None else method)(*arguments, **keywords)


class Functions:
    """Replaces functions that Keras calls on a model in ``fit``."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.train = own_train_function(model)
        self._hook: Hook | None = None
        self.evaluate()

    def train_by(self, step: Callable[[Any], Any]) -> None:
        """Call a method of another object for each step."""
        self._hook = Hook(step, self.train)
        fit.set_train_function(self._model, self._hook)

    def renew(self) -> None:
        """Call it for each step of a function, too, that a callback has had Keras make since."""
        now = fit.train_function(self._model)
        if self._hook is not None and now is not None and not isinstance(now, Hook):
            self.train = self._hook.own = now
            fit.set_train_function(self._model, self._hook)

    @property
    def replaced(self) -> bool:
        """Whether another callback of tfckpt's has the steps of this ``fit``."""
        now = getattr(self._model, "train_function", None)
        return isinstance(now, Hook) and now is not self._hook

    def evaluate_nothing(self) -> None:
        """Skip the evaluation after each epoch."""
        fit.set_evaluates(self._model, Hook(self._never, fit.evaluates(self._model)))

    def evaluate(self) -> None:
        """Evaluate as Keras does."""
        fit.set_evaluates(self._model, None)

    def give_back(self) -> None:
        """Restore the model's own functions."""
        fit.set_train_function(self._model, self.train)
        self.evaluate()
        fit.give_start_back(self._model)

    def _never(self, *_: Any) -> bool:
        return False


def own_train_function(model: Any) -> Any:
    """Keras's train function of the model, which is replaced when the model is compiled again."""
    function = fit.train_function(model)
    return function.own if isinstance(function, Hook) else function  # left by a `fit` that failed


def batches_of_a_call(model: Any) -> int:
    """How many batches one call of the train function takes."""
    steps = fit.steps_per_execution(model)
    return 1 if steps is None else as_int(steps)  # a variable in tf_keras


def list_of(callback: Any) -> Any:
    """Keras's CallbackList, found in the call stack."""
    if (found := fit.list_of(callback)) is None:
        raise TfckptError(
            "the callback was not called by Keras's CallbackList",
            hint="pass it to `fit`, or put it into a CallbackList with the others",
        )
    return found


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
    except (NotBuiltError, RefusedError) as error:
        own = has_own_step(model) or isinstance(error, NotBuiltError)
        if (spec := _batch_spec(model)) is None or not own:
            raise
        build_by_step(model, spec)
        return find()


def _batch_spec(model: Any) -> Any:
    """The ``element_spec`` of the running ``fit``; None if unknown."""
    return getattr(fit.dataset_of(model), "element_spec", None)
