"""The saves of a run: when due, on a signal, and on request.

The directory is locked before the first step, so that an error that would fail the first save after
an hour fails the training before it begins. A message then says what will be saved.
"""

from __future__ import annotations

import contextlib
import signal
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from tfckpt.errors import SaveError, TfckptError
from tfckpt.live.flavors import is_optimizer
from tfckpt.live.inventory import is_model
from tfckpt.live.turns import in_turn
from tfckpt.live.variables import as_int
from tfckpt.live.workers import in_cluster, workers_among
from tfckpt.manager import remarks
from tfckpt.manager.signals import Signals
from tfckpt.manager.triggers import Triggers
from tfckpt.policy import Save
from tfckpt.stored.commits.record_file import CommitRecord
from tfckpt.training.best import export_weights
from tfckpt.training.resumption import attached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.checkpoint import Checkpoint
    from tfckpt.live.workers import Workers
    from tfckpt.manager.checkpoint_manager import CheckpointManager
    from tfckpt.policy import Manager

_CALLS = 100  # calls of save_if_due after which a `step` that never changed is reported


class Moment(NamedTuple):
    """What a record says of the moment of a save."""

    epoch: Any
    metrics: Mapping[str, float] | None
    training: Callable[[], tuple[dict[str, Any], Any]]
    metadata: Mapping[str, Any] | None = None
    probe: Any = None


class Saves:
    """When a run saves, and what happens if a save fails."""

    _workers: Workers | None = None

    def __init__(
        self,
        config: Manager | None,
        objects: Mapping[str, Any],
        checkpoint: Checkpoint,
        manager: CheckpointManager | None,
    ) -> None:
        self._config = config
        self._objects = objects
        self._checkpoint = checkpoint
        self._manager = manager
        when = config.save if config else Save()
        self._triggers = Triggers(when.every_steps, when.every_epochs, when.every_minutes)
        self._signals = Signals(when.on_signal, when.grace_seconds)
        self._ignores_failures = config is not None and config.on_save_error == "warn"
        self._waits = config is None or config.if_busy == "wait"
        self._saved_at: tuple[int | None, int] | None = None
        self.ahead = ""
        self._in_fit = self._announced = self._stepped = False
        self._restored_into: list[Any] = []
        self._calls, self._check_at = 0, -1
        self._first_step: int | None = None

    @property
    def abandon(self) -> Callable[[], None]:
        """Restores the signal handlers when nobody will call ``end``."""
        return self._signals.abandon

    def restored(self) -> None:
        """Count from the restored step."""
        self._triggers.restored(self._step())
        self._saved_at = None
        self.ahead = ""
        self._restored_into = [one and weakref.ref(one) for one in self._compiled()]

    @property
    def compiled_again(self) -> bool:
        """Whether a model has another optimizer than when it was restored."""
        pairs = zip(self._restored_into, self._compiled(), strict=False)
        return any((old and old()) is not new for old, new in pairs)

    def check_callback(self) -> None:
        """Raise if nothing would be saved in ``fit``, for a run that restores nothing either."""
        message, hint = remarks.nothing_saved(self._config)
        if message:
            what = "the callback would do nothing: the config restores nothing, and "
            raise TfckptError(what + message, hint=hint)

    def claim(self) -> None:
        """Before ``fit`` begins: raise what would fail at its first save."""
        self._in_fit = True
        if self._manager is not None and self._config and self._config.save.is_due_ever:
            self._counted()
            self._manager.claim()

    def watch(self) -> Callable[[], None]:
        """Training begins: count minutes and handle signals; returns :attr:`abandon`."""
        self._triggers.begin(self._counted())
        self._signals.install()
        return self.abandon

    def outlook(self) -> tuple[str, list[str]]:
        """A message and warnings before the first step about what will be saved; only once."""
        announced, self._announced = self._announced, True
        if announced:
            return "", []
        message, hint = remarks.nothing_saved(self._config)
        if message or self._config is None or self._manager is None:
            return "", [f"{message}; {hint}"]
        warnings = [*remarks.out_of_reach(self._config)] if self._in_fit else []
        warnings += self._manager._files.beside()
        return remarks.outlook(self._config), warnings

    def now(self, moment: Moment) -> str:
        """Save now."""
        path = self._save(moment, wait=True)
        assert path is not None, "a save that waits is never skipped"  # noqa: S101
        return path

    def after_step(self, steps: int | None, moment: Moment) -> str | None:
        """Save if one is due after a step."""
        if not self._stepped:
            self._begin()
        self._calls += 1
        if self._calls == self._check_at:
            self._check_counting()
        taken = None if "step" in self._objects else steps
        step = self._counted() if self._triggers.step_matters(taken) else None
        return self._at_boundary(self._triggers.at_step(step), moment)

    def after_batches(self, batches: int, moment: Moment) -> str | None:
        """Save if one is due after batches of ``fit``.

        Batches count as steps unless ``step`` was passed: an optimizer that accumulates gradients
        does not count each, and a custom ``train_step`` may not use the model's optimizer.
        """
        if "step" in self._objects:
            return self.after_step(None, moment)
        if not self._stepped:
            self._begin()
        return self._at_boundary(self._triggers.at_batches(batches), moment)

    def after_epoch(self, moment: Moment, *, last: bool) -> str | None:
        """Save if one is due at the end of an epoch, or of the ``last`` one what is not saved."""
        return self._at_boundary(self._triggers.at_epoch(moment.epoch, last=last), moment)

    def end(self, moment: Moment) -> None:
        """Training is over or pauses."""
        if self._manager is None:
            return
        try:
            with self._failure_allowed():
                self._wait()
            _, received = self._agreed()
            if received:
                self._save_for(received, moment)
        except BaseException:
            self._signals.abandon()
            raise
        self._signals.leave()

    def _begin(self) -> None:
        """After the first step, when every variable exists."""
        message, hint = ("", "") if self._in_fit else remarks.never_due(self._config)
        if message:
            raise TfckptError(message, hint=hint)
        if self._manager is not None and self._config and self._config.save.is_due_ever:
            self._manager.claim()
            line, warnings = self.outlook()
            if line:
                logging.info("%s", line)
            if not self._in_fit and self._config.save.every_epochs is not None:
                warnings.append(
                    "`every_epochs` counts only in `fit`; in a loop, call run.save(epoch=…) at "
                    "the end of an epoch"
                )
            for warning in warnings:
                logging.warning("%s", warning)
        self._stepped = True
        every = self._triggers.every_steps
        if "step" in self._objects and every is not None:
            self._first_step, self._check_at = self._step(), max(_CALLS, every)

    def _check_counting(self) -> None:
        """Warn if the caller's ``step`` never changes, so that no save is ever due."""
        if self._first_step is not None and self._step() == self._first_step:
            logging.warning(
                "`step` is %s after %s calls of run.save_if_due(), so `every_steps` never saves; "
                "call step.assign_add(1) after each step",
                self._first_step,
                self._calls,
            )

    def _at_boundary(self, due: bool, moment: Moment) -> str | None:
        """Between two steps: save if due or on a signal, which is then passed on."""
        self._signals.install()
        due, received = self._agreed(due)
        path = None
        if due and not received:
            with self._failure_allowed():
                self._resolve()
            with self._failure_allowed():
                path = self._save(moment, wait=False)
            if self._workers is None:
                received = self._signals.received  # meanwhile
        if received:
            path = self._save_for(received, moment) or path
            self._signals.leave()
            self._signals.install()
        return path

    def _agreed(self, due: bool = False) -> tuple[bool, tuple[signal.Signals, ...]]:
        """Whether a save is due, and which signals were received, on any of several workers.

        A signal that arrives after this exchange waits for the next step.
        """
        received = self._signals.received
        if not in_cluster() or not (self._triggers.by_the_clock or self._signals.watching):
            return due, received
        if (workers := self._workers or workers_among(self._objects)) is None:
            return due, received
        self._workers = workers
        own = [due, [number.name for number in received]]
        all_workers = workers.exchange("end of a step", own, raises=SaveError)
        names = dict.fromkeys(name for _, theirs in all_workers for name in theirs)
        self._signals.received_elsewhere(names)
        return any(other for other, _ in all_workers), tuple(signal.Signals[name] for name in names)

    def _save_for(self, received: Sequence[signal.Signals], moment: Moment) -> str | None:
        """Save to disk because of a signal, unless this step is saved already."""
        path = None
        try:
            with self._failure_allowed():
                self._wait()
        finally:  # save even if the previous one failed
            if not self._is_saved(moment):
                with self._failure_allowed():
                    path = self._save(moment, wait=True)
        names = ", ".join(each.name for each in received)
        newest = self.writer.latest_checkpoint
        if self._is_saved(moment):
            logging.warning("%s: saved %s", names, newest)
        else:
            logging.warning("%s: not saved; the newest checkpoint is %s", names, newest)
        return path

    def _is_saved(self, moment: Moment) -> bool:
        at = (self._step(), as_int(moment.epoch))
        return at[0] is not None and self._saved_at == at

    @contextlib.contextmanager
    def _failure_allowed(self) -> Iterator[None]:
        """Turn a SaveError of the body into a warning if ``on_save_error`` is ``warn``."""
        try:
            yield
        except SaveError as error:
            if not self._ignores_failures:
                raise
            self._triggers.saved(self._step())  # so it is not retried before the next one is due
            logging.warning("a save failed; the training continues without it: %s", error)

    def _resolve(self) -> None:
        """With ``on_save_error: warn``, a failed background save must not fail the next one."""
        background = self._checkpoint._background
        if self._ignores_failures and (self._waits or not background.busy):
            background.finish()

    def _wait(self) -> None:
        try:
            self.writer.sync()
        except BaseException:
            self._saved_at = None
            raise

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return self._checkpoint._turn()

    @in_turn
    def _save(self, moment: Moment, *, wait: bool) -> str | None:
        manager = self.writer
        if self.ahead:
            logging.warning("not saved: the next `fit` resumes from %s", self.ahead)
            return self.ahead
        step, self._saved_at = self._step(), None
        if wait:
            manager.sync()  # else it might be skipped
        training, held = moment.training()
        metrics, metadata = moment.metrics or {}, moment.metadata or {}
        record = CommitRecord(
            step=step, epoch=moment.epoch, metrics=metrics, metadata=metadata, training=training
        )
        if not self._export(metrics, wait=wait):
            return None
        with attached(self._checkpoint, held):
            path = manager.save_as(record, probe=moment.probe)
        if path is None:
            return None
        if wait:
            manager.sync()
        self._saved_at = (step, as_int(moment.epoch))
        self._triggers.saved(step)
        return path

    def _export(self, metrics: Mapping[str, float], *, wait: bool) -> bool:
        """Write the weights as ``export`` says; returns whether the save goes on."""
        if self._config is None or not self._config.export.weights_h5:
            return True
        if self._checkpoint._background.busy and not (wait or self._waits):
            return False
        self.writer.sync()  # the last save may be the best
        if (workers := self._checkpoint._workers()) is None or workers.chief:
            export_weights(self._config, self.writer, self._objects, metrics)
        return True

    @property
    def writer(self) -> CheckpointManager:
        """The manager."""
        if self._manager is None:
            raise TfckptError(
                "the config has no `manager` section, so there is nowhere to save",
                hint="add `manager: {directory: …}`",
            )
        return self._manager

    def _compiled(self) -> list[Any]:
        return [getattr(obj, "optimizer", None) for obj in self._objects.values()]

    def _step(self) -> int | None:
        return step_of(self._objects)

    def _counted(self) -> int | None:
        step = self._step()
        if step is None and self._triggers.every_steps is not None:
            raise TfckptError(
                "`every_steps` is set, but none of the objects counts steps",
                hint="pass the optimizer, a compiled model, or a variable as `step`",
            )
        return step


def scalars(logs: Any) -> dict[str, float]:
    """The scalar metrics; ``keep: best`` cannot compare those per class."""
    return {name: value for name, value in (logs or {}).items() if not np.ndim(value)}


def step_of(objects: Mapping[str, Any]) -> int | None:
    """The value of ``step`` if passed, else the iterations of the first optimizer in use.

    A model whose ``train_step`` has its own optimizers is compiled with one that never steps.
    """
    if (counter := objects.get("step")) is not None:
        return as_int(counter)
    counts = (as_int(one.iterations) for one in optimizers_of(objects))
    if (first := next(counts, None)) is None:
        return None
    return first or next(filter(None, counts), 0)


def optimizers_of(objects: Mapping[str, Any]) -> list[Any]:
    """The optimizers among objects, of compiled models, and on attributes of models."""
    compiled = (getattr(obj, "optimizer", None) for obj in objects.values())
    of_models = (each for obj in objects.values() if is_model(obj) for each in vars(obj).values())
    candidates = (*objects.values(), *compiled, *filter(is_optimizer, of_models))
    return [one for one in candidates if hasattr(one, "iterations")]


def check_step(counter: Any) -> None:
    """Raise a TfckptError if ``step`` does not hold an integer."""
    try:
        as_int(counter)
    except (TypeError, ValueError, OverflowError) as error:
        raise TfckptError(
            f"`step` must hold the number of the training step: {error}",
            hint="pass an object that holds something else by another keyword",
        ) from None
