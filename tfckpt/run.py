"""A run by config: restore at the start, save when due or asked by a signal, in ``fit`` or a loop.

``from_config`` ties live objects to what a YAML file declares; ``restore`` and ``plan`` are the
same for once.
"""

from __future__ import annotations

import signal
import weakref
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import SaveError, TfckptError
from tfckpt.fitting.fits import Fits
from tfckpt.fitting.keras_callback import callback_for, no_training
from tfckpt.fitting.restoring import plan_first, restore_first
from tfckpt.fitting.resumption import Resumption, attached, check_keywords
from tfckpt.fitting.steps import check_step, step_of
from tfckpt.fitting.training_state import takes_up
from tfckpt.live.checkpoint import Checkpoint
from tfckpt.live.distribution import in_cluster, workers_among
from tfckpt.live.inventory import collect
from tfckpt.live.save import About
from tfckpt.live.variables import as_int
from tfckpt.manager.checkpoint_manager import CheckpointManager
from tfckpt.manager.signals import Signals
from tfckpt.manager.triggers import Triggers
from tfckpt.policy import Config, Save, load_config

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.live.restore import Choice
    from tfckpt.live.workers import Workers
    from tfckpt.planning import Plan, RestoreReport
    from tfckpt.records import Inventory


class Run:
    """Live objects and a config.

    Attributes:
        config: what was declared.
        checkpoint: of the objects.
        manager: of the config's ``manager`` section, None without one.
        report: of the last ``restore``.
        epoch: epochs finished, as the last restore, save or ``fit`` knew.
        resumption: of the last restore, until a ``fit`` has gone on from it.
        fits: the calls of ``fit`` that the callback has seen.
        training: what a save asks for the state of the ``fit`` that is running.
    """

    _workers: Workers | None = None

    def __init__(self, config: Config, objects: Mapping[str, Any]) -> None:
        self.config = config
        self.checkpoint = Checkpoint(**objects)
        self.manager: CheckpointManager | None = None
        if config.manager is not None:
            self.manager = CheckpointManager(
                self.checkpoint,
                config.manager.directory,
                max_to_keep=None,
                checkpoint_name=config.manager.checkpoint_name,
                keep=config.manager.rules,
                durable=config.manager.durable,
                enable_async=config.manager.enable_async,
                if_busy=config.manager.if_busy,
                on_nonfinite=config.manager.on_nonfinite,
                on_unsavable=config.manager.on_unsavable,
            )
        self.report: RestoreReport | None = None
        self.epoch = 0
        self._objects = dict(objects)
        if "step" in objects:
            check_step(objects["step"])
        self.resumption: Resumption | None = None
        self.fits = Fits()
        self.training: Callable[[], tuple[dict[str, Any], Any]] = no_training
        when = config.manager.save if config.manager else Save()
        self._triggers = Triggers(when.every_steps, when.every_epochs, when.every_minutes)
        self._signals = Signals(when.on_signal, when.grace_seconds)
        weakref.finalize(self, self._signals.abandon)
        self._saved_at: tuple[int | None, int] | None = None

    def restore(self) -> RestoreReport:
        """Restore by the config's ``restore`` section, completely or not at all.

        Returns:
            What was restored; its ``path`` is "" where there was none and the config permits that.

        Raises:
            CheckpointNotFoundError: no source holds a checkpoint.
            DamagedCheckpointError: a source holds only damaged ones.
            NotBuiltError: a model has no variables yet.
            RefusedError: the plan has errors.
            RestoreError: the config has no ``restore`` section.
        """
        report = self._restore()
        if report.replaced:
            logging.warning("%s: %s", report.path, report.replacements)
        return report

    def _restore(self) -> RestoreReport:
        _ = self.checkpoint.save_counter  # so that it is restored, too
        self.checkpoint._tfckpt_background.failure()  # what is being saved counts; sync raises it
        found = restore_first(self.config, self._objects, self._given)
        if (prepared := found.prepared) is not None:
            self.checkpoint._tfckpt_descent = self.checkpoint._tfckpt_descent.after(prepared)
            self.resumption = found.resumption
            self.epoch = found.resumption.epoch if found.resumption else 0
        self._triggers.restored(self._step())
        self._saved_at = None
        self.report = found.report
        return found.report

    def plan(self) -> Plan:
        """What ``restore`` would do; assigns nothing.

        Raises:
            CheckpointNotFoundError: no source holds a checkpoint.
            DamagedCheckpointError: a source holds only damaged ones.
            NotBuiltError: a model has no variables yet.
            RestoreError: the config has no ``restore`` section.
        """
        _ = self.checkpoint.save_counter
        self.checkpoint._tfckpt_background.failure()
        return plan_first(self.config, self._given)

    def begin(self) -> RestoreReport | None:
        """What the callback does first: ``restore``, or nothing where the config only saves."""
        return self._restore() if self.config.restore is not None else None

    def watch(self) -> Callable[[], None]:
        """Training begins: minutes count, and signals wait for a save.

        Returns:
            What gives the signals back where nobody is left to call ``sync``.

        Raises:
            TfckptError: ``on_signal`` is given, and this is not the main thread; or ``every_steps``
                is, and nothing given counts steps.
        """
        self._triggers.begin(self._counted())
        self._signals.install()
        return self._signals.abandon

    def _given(self, choices: Sequence[Choice]) -> dict[str, Any]:
        given = dict(self._objects)
        if takes_up(choices):
            given["save_counter"] = self.checkpoint.save_counter
        return given

    def save(self, *, epoch: int | None = None, metrics: Mapping[str, float] | None = None) -> str:
        """Save now; one that is being written in the background is waited for before.

        Args:
            epoch: epochs finished.
            metrics: measured at this step, for the commit record; finite, or NaN.

        Returns:
            The path; the checkpoint is complete and on disk.

        Raises:
            SaveError: it failed, or a number is none; no file of it is left.
            TfckptError: the config has no ``manager`` section.
        """
        path = self._save(self.epoch if epoch is None else epoch, metrics, wait=True)
        assert path is not None, "nothing holds back a save that waits"  # noqa: S101
        return path

    def save_if_due(
        self, *, metrics: Mapping[str, float] | None = None, steps: int | None = None
    ) -> str | None:
        """Save if ``manager.save`` says so: to be called after each step of a loop.

        A save is due ``every_steps`` steps after the last one, or after the step that was restored,
        and ``every_minutes`` minutes after the last one, or after the first call. A step is counted
        by the object given as ``step``, else by the optimizer's iterations. From the first call on,
        the signals of ``on_signal`` wait for the next one, which saves and then ends the process;
        when the loop is over, ``sync`` gives them back their meaning.

        Args:
            metrics: measured at this step, for the commit record.
            steps: how many were taken since the last call, at most, where that is known: the
                optimizer is then asked only when a save may be due.

        Returns:
            The path, None where no save was due, or where one was skipped since another is being
            written. With ``enable_async`` the checkpoint may still be being written.

        Raises:
            SaveError: it failed, or the last one did in the background.
            SystemExit: a signal has come, the checkpoint is on disk.
            KeyboardInterrupt: the same, for SIGINT.
            TfckptError: ``on_signal`` is given, and this is not the main thread; or ``every_steps``
                is, and nothing given counts steps.
        """
        taken = None if "step" in self._objects else steps
        step = self._counted() if self._triggers.step_matters(taken) else None
        return self._at_boundary(self._triggers.at_step(step), metrics)

    def save_if_epoch_due(self, epoch: int, metrics: Mapping[str, float]) -> str | None:
        """As ``save_if_due`` at the end of an epoch: if ``every_epochs`` divides their number."""
        self.epoch = epoch
        return self._at_boundary(self._triggers.at_epoch(epoch), metrics)

    def sync(self) -> None:
        """Training is over or pauses: wait for a save that is being written in the background.

        A loop calls it at its end; ``fit`` does so by the callback. The signals of ``on_signal``
        mean from then on what they meant before; one that came meanwhile ends the process now.

        Raises:
            SaveError: the save failed; no file of it is left.
            SystemExit: a signal has come, the checkpoint is on disk.
            KeyboardInterrupt: the same, for SIGINT.

        >>> import tempfile, tensorflow as tf, tfckpt
        >>> save = {"every_steps": 2, "on_signal": ["SIGTERM"]}
        >>> config = {"version": 1, "manager": {"directory": tempfile.mkdtemp(), "save": save}}
        >>> step = tf.Variable(0)
        >>> run = tfckpt.from_config(config, step=step)
        >>> for _ in range(4):
        ...     _ = step.assign_add(1)  # and train
        ...     _ = run.save_if_due()
        >>> run.sync()
        >>> [path[-6:] for path in run.manager.checkpoints]
        ['ckpt-1', 'ckpt-2']
        """
        if self.manager is None:
            return
        try:
            self._wait()
            _, received = self._together()
            if received:
                self._save_for(received, None)
        except BaseException:
            self._signals.abandon()
            raise
        self._signals.leave()

    def _at_boundary(self, due: bool, metrics: Mapping[str, float] | None) -> str | None:
        """Between two steps: save if due, and for a signal, which then means what it meant."""
        self._signals.install()
        due, received = self._together(due)
        path = None
        if due and not received:
            path = self._save(self.epoch, metrics, wait=False)
            if self._workers is None:
                received = self._signals.received  # meanwhile
        if received:
            path = self._save_for(received, metrics) or path
            self._signals.leave()
            self._signals.install()
        return path

    def _together(self, due: bool = False) -> tuple[bool, tuple[signal.Signals, ...]]:
        """Whether a save is due, and what signals have come: in one of several workers, so in all.

        One that comes after a worker has said what it has waits for the next boundary.
        """
        received = self._signals.received
        if not in_cluster() or not (self._triggers.by_the_clock or self._signals.watching):
            return due, received
        if (workers := self._workers or workers_among(self._objects)) is None:
            return due, received
        self._workers = workers
        said = [due, [one.name for one in received]]
        heard = workers.meet("end of a step", said, SaveError)
        names = dict.fromkeys(name for _, theirs in heard for name in theirs)
        self._signals.received_elsewhere(names)
        return any(other for other, _ in heard), tuple(signal.Signals[name] for name in names)

    def _save_for(
        self, received: Sequence[signal.Signals], metrics: Mapping[str, float] | None
    ) -> str | None:
        """What a signal asks for: a save on disk, unless this very step is there."""
        try:
            self._wait()
        finally:  # that an earlier one failed is no reason to lose this one
            step, path = self._step(), None
            if step is None or self._saved_at != (step, self.epoch):
                path = self._save(self.epoch, metrics, wait=True)
        names = ", ".join(each.name for each in received)
        logging.warning("%s: saved %s", names, self._writer().latest_checkpoint)
        return path

    def _wait(self) -> None:
        try:
            self._writer().sync()
        except BaseException:
            self._saved_at = None
            raise

    def _save(self, epoch: int, metrics: Mapping[str, float] | None, *, wait: bool) -> str | None:
        manager = self._writer()
        step, self._saved_at = self._step(), None
        if wait:
            manager.sync()  # else it might be skipped
        training, held = self.training()
        about = About(step=step, epoch=epoch, metrics=metrics or {}, training=training)
        with attached(self.checkpoint, held):
            path = manager.save(about=about)
        if path is None:
            return None
        if wait:
            manager.sync()
        self.epoch = as_int(epoch)
        self._saved_at = (step, self.epoch)
        self._triggers.saved(step)
        return path

    def _writer(self) -> CheckpointManager:
        if self.manager is None:
            raise TfckptError(
                "the config has no `manager` section, so there is nowhere to save",
                hint="add `manager: {directory: …}`",
            )
        return self.manager

    def callback(self, verbose: int = 1, *, start_over: bool = False) -> Any:
        """A callback for ``fit``: restores when training begins, saves when due or asked to.

        Args:
            verbose: 0 is silent, 1 says a line for the restore and for each save.
            start_over: restores nothing: training begins with the values that the model has, and
                saves go on with the next number.
        """
        check_keywords(self._objects)
        return callback_for(self, self._objects, verbose, start_over=start_over)

    def _step(self) -> int | None:
        return step_of(self._objects)

    def _counted(self) -> int | None:
        step = self._step()
        if step is None and self._triggers.every_steps is not None:
            raise TfckptError(
                "`every_steps` is declared, and nothing that was given counts steps",
                hint="give the optimizer, a compiled model, or a variable as `step`",
            )
        return step


def from_config(config: str | os.PathLike[str] | Mapping[str, Any] | Config, **objects: Any) -> Run:
    """Tie live objects to a config.

    Args:
        config: a YAML file, the same as a mapping, or a ``Config``.
        **objects: by keyword, as for :class:`tfckpt.Checkpoint`.

    Raises:
        PolicyError: everything that is wrong with the config, each with its line.
        TfckptError: ``step`` holds no number.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> config = {"version": 1, "manager": {"directory": tempfile.mkdtemp()}}
    >>> run = tfckpt.from_config(config, model=model)
    >>> run.save(metrics={"val_loss": 0.5})[-6:]
    'ckpt-1'
    """
    return Run(load_config(config), objects)


def restore(
    config: str | os.PathLike[str] | Mapping[str, Any] | Config, **objects: Any
) -> RestoreReport:
    """Restore live objects by a config, once: see :meth:`Run.restore`."""
    return from_config(config, **objects).restore()


def plan(config: str | os.PathLike[str] | Mapping[str, Any] | Config, **objects: Any) -> Plan:
    """What :func:`restore` would do; assigns nothing: see :meth:`Run.plan`."""
    return from_config(config, **objects).plan()


def inventory(**objects: Any) -> Inventory:
    """The canonical names of live objects, as policies and reports use them.

    Raises:
        ValueError: an argument is not trackable.

    >>> import keras, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> list(tfckpt.inventory(model=model).entries)
    ['model/out/bias', 'model/out/kernel']
    """
    Checkpoint(**objects)  # takes what it can hold, and refuses the rest
    return collect(objects).inventory
