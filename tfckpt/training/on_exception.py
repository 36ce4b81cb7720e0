"""An exception that ends a training: what is there is saved, if a restart can go on from it.

It can between two steps. A step that raises may have assigned part of its variables, also if its
data raised: while TensorFlow waits for a batch, it runs what does not need it, such as weight decay
and counters. Nothing is saved then.

Keras tells no callback of an exception, so the list of callbacks, the evaluation and the step are
watched. If a callback raises at the end of a batch or an epoch, those behind it are called first,
so that the state of all is of one moment. At a beginning, those before it were called too early:
nothing is saved then if one of them is not Keras's own, since it may have counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tfckpt.errors import TfckptError
from tfckpt.live.distribution.agreement import in_cluster
from tfckpt.live.private import fit
from tfckpt.training.fit_hooks import Hook, list_of
from tfckpt.training.moment import scalars
from tfckpt.training.undo import evaluating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfckpt.training.fit_loop import Loop
    from tfckpt.training.moment import Moment
    from tfckpt.training.saves import Saves

_BEGINS = ("on_epoch_begin", "on_train_batch_begin")
_ENDS = ("on_epoch_end", "on_train_batch_end")
_TESTS = ("on_test_begin", "on_test_batch_begin", "on_test_batch_end", "on_test_end")
_GENERAL = {"on_train_batch_begin": "on_batch_begin"}  # which the default calls


def save_after(saves: Saves, moment: Moment, error: BaseException) -> str:
    """Save because of an exception; returns a line that says what came of it."""
    if in_cluster():
        return _not_saved(saves, error, "not saved, since other workers do not take part")
    try:
        path = saves.once(moment)
    except BaseException as failure:
        return _not_saved(saves, error, f"not saved, because the save failed: {failure}")
    return f"{type(error).__name__}: saved {path}"


def in_a_step(saves: Saves, error: BaseException) -> str:
    """The line for an exception after which nothing is saved."""
    line = _not_saved(
        saves, error, "not saved, since the step that raised it may have changed part of the values"
    )
    if isinstance(error, KeyboardInterrupt):
        line += "; with `on_signal: [SIGINT]`, Ctrl-C saves at the end of the step"
    return line


def _not_saved(saves: Saves, error: BaseException, reason: str) -> str:
    line = f"{type(error).__name__}: {reason}"
    try:
        newest = saves.writer.latest_checkpoint
    except (TfckptError, OSError):  # the directory cannot be read
        return line
    return f"{line}; the newest checkpoint is {newest}" if newest else line


class Saving(Protocol):
    """What is needed of a run."""

    saves: Saves

    def save_after(
        self, error: BaseException, epoch: int | None, metrics: Mapping[str, float]
    ) -> str: ...


class ExceptionWatch:
    """Watches one ``fit``.

    Args:
        callback: tfckpt's.
        run: whose checkpoints are saved.
        loop: of the ``fit``.
        objects: of the run.
        say: prints a line.
    """

    def __init__(
        self,
        callback: Any,
        run: Saving,
        loop: Loop,
        objects: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        self._callback, self._run, self._loop = callback, run, loop
        self._objects, self._say = objects, say
        self._model, self._list = callback.model, list_of(callback)
        self._calling = False
        self._raiser: Any = None  # in an evaluation

    def begin(self) -> None:
        """Training begins."""
        for name in (*_BEGINS, *_ENDS):
            notify = getattr(self._list, name)
            setattr(self._list, name, partial(self._call, name, notify))
        for name in _TESTS:
            setattr(self._list, name, partial(self._call_in_test, getattr(self._list, name)))
        self._loop.failed_step = self._failed_step
        self._evaluation = Hook(self._evaluate, self._model.evaluate)
        fit.set_evaluation(self._model, self._evaluation)

    def end(self) -> None:
        """Training is over."""
        fit.set_evaluation(self._model, None)

    def _call(self, name: str, notify: Callable[..., Any], number: int, logs: Any = None) -> Any:
        """Call all callbacks."""
        turn = self._list.callbacks = _Turn(self._list.callbacks)
        self._calling = True
        try:
            return notify(number, logs)
        except BaseException as error:
            # tfckpt's own callback has said itself what it could not do.
            if turn.now is not self._callback and self._loop.trained and not self._loop.resuming:
                if name in _BEGINS:
                    self._save_unless(_called_too_early(turn.before, (name,)), error)
                else:
                    self._list.callbacks = [one for one in turn.behind if one is not self._callback]
                    ended = number + 1 if name == "on_epoch_end" else None
                    self._save_at_end(partial(notify, number, logs), ended, logs, error)
                    self._list.callbacks = list(turn)
            raise
        finally:
            self._calling = False

    def _save_at_end(
        self, call_others: Callable[[], Any], ended: int | None, logs: Any, error: BaseException
    ) -> None:
        """Save at the end of a batch, or of an epoch, which is then the so many-th that ended."""
        try:
            call_others()
            if ended is not None:
                self._loop.epoch_ends()
        except BaseException as other:
            text = f"not saved, since another callback raised {type(other).__name__}"
            self._end_with(_not_saved(self._run.saves, error, text))
        else:
            self._end_with(self._run.save_after(error, ended, scalars(logs)))

    def _call_in_test(self, notify: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        turn = self._list.callbacks = _Turn(self._list.callbacks)
        try:
            return notify(*arguments, **keywords)
        except BaseException:
            self._raiser = turn.now
            raise

    def _evaluate(self, *arguments: Any, **keywords: Any) -> Any:
        if self._calling or self._loop.resuming or not self._loop.trained:  # a callback evaluates
            return self._evaluation.own(*arguments, **keywords)
        try:
            with evaluating(self._model, self._objects):
                return self._evaluation.own(*arguments, **keywords)
        except BaseException as error:
            ours = (self._callback, self._raiser)
            others = [each for each in self._list.callbacks if not any(each is one for one in ours)]
            self._save_unless(_called_too_early(others, _TESTS), error)
            raise

    def _failed_step(self, error: BaseException) -> None:
        self._end_with(in_a_step(self._run.saves, error))

    def _save_unless(self, early: str, error: BaseException) -> None:
        if early:
            self._end_with(_not_saved(self._run.saves, error, f"not saved, since {early}"))
        else:
            self._end_with(self._run.save_after(error, None, {}))

    def _end_with(self, line: str) -> None:
        self.end()
        self._say(f"\n{line}")


class _Turn(list[Any]):
    """Callbacks that are called, and which of them it is."""

    _at = 0

    def __iter__(self) -> Iterator[Any]:
        outer = self._at
        for index in range(len(self)):
            self._at = index
            yield self[index]
        self._at = outer  # somebody else has iterated over it

    @property
    def now(self) -> Any:
        return self[self._at]

    @property
    def before(self) -> list[Any]:
        return self[: self._at]

    @property
    def behind(self) -> list[Any]:
        return self[self._at + 1 :]


def _called_too_early(callbacks: list[Any], names: tuple[str, ...]) -> str:
    """Which callbacks a restart would call a second time; "" if there are only Keras's own."""
    classes = [
        type(each).__name__
        for each in callbacks
        if not type(each).__module__.startswith(("keras.", "tf_keras."))
        and any(_overrides(each, name) for name in names)
    ]
    names_of = ", ".join(dict.fromkeys(classes))
    return f"a restart would call {names[0]} of {names_of} again" if classes else ""


def _overrides(callback: Any, name: str) -> bool:
    base = next(each for each in type(callback).__mro__ if each.__name__ == "Callback")
    both = filter(None, (name, _GENERAL.get(name)))
    return any(
        one in vars(callback) or getattr(type(callback), one) is not getattr(base, one)
        for one in both
    )
