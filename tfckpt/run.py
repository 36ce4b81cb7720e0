"""A run by config: restores at the start, saves when due or on a signal, in ``fit`` or a loop.

``calls.from_config`` creates one.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from tfckpt.errors import TfckptError
from tfckpt.live import generators
from tfckpt.live.advice import PolicyCall, adding_call
from tfckpt.live.arguments import BY_CONFIG, check_arguments
from tfckpt.live.checkpoint import Checkpoint
from tfckpt.live.turns import in_turn
from tfckpt.live.variables import as_int
from tfckpt.live.workers import workers_among
from tfckpt.manager.checkpoint_manager import CheckpointManager
from tfckpt.training.callback import callback_for
from tfckpt.training.fits import Fits
from tfckpt.training.resumption import (
    Resumption,
    check_keywords,
    plan_from,
    restore_from,
    warn_of,
)
from tfckpt.training.saves import Moment, Saves, check_step

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from tfckpt.planning import Plan, RestoreReport
    from tfckpt.policy import Config


class Run:
    """A config, with the objects that it saves and restores.

    Attributes:
        config: the loaded config.
        checkpoint: of the objects.
        manager: of the config's ``manager`` section; None without one.
        report: of the last ``restore``.
        epoch: number of finished epochs, as of the last restore, save or ``fit``.
        resumption: of the last restore, until a ``fit`` has resumed from it.
        fits: the calls of ``fit`` that the callback has seen.
        training: returns the state of the running ``fit`` for a save.
        saves: decides when to save.
    """

    def __init__(self, config: Config, objects: Mapping[str, Any]) -> None:
        check_arguments(None, objects, BY_CONFIG)
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
                include=config.manager.include,
                api=config.manager.api,
                random_generators=False,  # of its own record
            )
        self.report: RestoreReport | None = None
        self.epoch = 0
        self._objects = dict(objects)
        if "step" in objects:
            check_step(objects["step"])
        self.resumption: Resumption | None = None
        self.call: PolicyCall | None = None  # with which somebody would pass a policy
        self.fits = Fits()
        self.training: Callable[[], tuple[dict[str, Any], Any]] = _generators
        self.metadata: Mapping[str, Any] | None = None  # of each save in `fit`
        self.saves = Saves(config.manager, self._objects, self.checkpoint, self.manager)
        weakref.finalize(self, self.saves.abandon)

    def __repr__(self) -> str:
        saves = self.config.manager and self.config.manager.directory
        return f"<Run of {', '.join(self._objects)}{f' in {saves}' if saves else ''}>"

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        return self.checkpoint._turn()

    @in_turn
    def restore(self) -> RestoreReport:
        """Restore by the config's ``restore`` section, completely or not at all.

        Returns:
            What was restored; its ``path`` is "" if there is no checkpoint and ``if_none`` is
            ``initialize``.

        Raises:
            CheckpointNotFoundError: no source has a checkpoint.
            DamagedCheckpointError: a source has only damaged checkpoints.
            NotBuiltError: a model has no variables yet.
            RefusedError: the plan has errors.
            RestoreError: the config has no ``restore`` section.
        """
        report, resumed = self.find()
        self.restored(report, resumed)
        alone = workers_among(self._objects) is None  # else each draws from its own generators
        if alone and resumed is not None and resumed.position is None:
            resumed.restore_generators()
        warn_of(report)
        return report

    @in_turn
    def find(self, fit: int | None = None) -> tuple[RestoreReport, Resumption | None]:
        """Restore; for a ``fit`` only check what it restores at the saved position."""
        checkpoint = self.checkpoint
        checkpoint._background.failure()  # waits; sync raises the error of a save
        lineage = checkpoint._lineage
        with adding_call(self.call):
            return restore_from(self.config, self._objects, self._counter, lineage, fit=fit)

    @property
    def _counter(self) -> Any:
        manager = self.config.manager
        return None if manager and manager.api == "write" else self.checkpoint.save_counter

    def restored(self, report: RestoreReport, resumption: Resumption | None) -> None:
        """Record what was restored."""
        if report.path:
            self.resumption = resumption
            self.epoch = resumption.epoch if resumption else 0
        self.saves.restored()
        self.report = report

    def follow(self, other: Run) -> None:
        """Continue another run of the same objects in the same directory."""
        self.fits, self.report, self.resumption = other.fits, other.report, other.resumption
        self.epoch, self.saves.ahead = other.epoch, other.saves.ahead
        self.checkpoint._lineage = other.checkpoint._lineage

    @in_turn
    def plan(self) -> Plan:
        """The plan that ``restore`` would carry out; assigns nothing.

        Raises:
            CheckpointNotFoundError: no source has a checkpoint.
            DamagedCheckpointError: a source has only damaged checkpoints.
            NotBuiltError: a model has no variables yet.
            RestoreError: the config has no ``restore`` section.
        """
        self.checkpoint._background.failure()
        return plan_from(self.config, self._objects, self._counter)

    def save(
        self,
        *,
        epoch: int | None = None,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        probe: Any = None,
    ) -> str:
        """Save now, after a save that is being written in the background.

        Args:
            epoch: number of finished epochs.
            metrics: measured at this step; ``keep: best`` compares them.
            metadata: anything else, as JSON values of at most 64 KiB; ``tfckpt inspect`` shows it.
            probe: a small batch, as for :meth:`tfckpt.Checkpoint.save`.

        Returns:
            The path; the checkpoint is complete and on disk.

        Raises:
            SaveError: the save failed, or ``epoch`` or a metric is not a valid number; no file of
                the save is left.
            TfckptError: the config has no ``manager`` section.
        """
        epoch = self.epoch if epoch is None else epoch
        path = self.saves.now(Moment(epoch, metrics, self.training, metadata, probe))
        self.epoch = as_int(epoch)
        return path

    def save_if_due(
        self,
        *,
        metrics: Mapping[str, float] | None = None,
        metadata: Mapping[str, Any] | None = None,
        steps: int | None = None,
    ) -> str | None:
        """Save if ``manager.save`` says so; call it after each step of a custom loop.

        A save is due ``every_steps`` steps after the last one or after the restored step, and
        ``every_minutes`` minutes after the last one or after the first call. Steps are read from
        the object passed as ``step``, else from the optimizer's iterations. From the first call on,
        a signal of ``on_signal`` waits for the next call, which saves and then ends the process;
        ``sync`` at the end of the loop restores the signals' previous handlers. The first call
        locks the directory, and raises if it is in use, cannot be written or has too little space.

        Args:
            metrics: measured at this step; ``keep: best`` compares them.
            metadata: anything else, as JSON values of at most 64 KiB.
            steps: maximum number of steps since the last call, if known: the optimizer is then read
                only when a save may be due.

        Returns:
            The path; None if no save was due, or if it was skipped because another is being
            written. With ``enable_async`` the checkpoint may still be being written.

        Raises:
            SaveError: the save failed, or the last one did in the background. With
                ``on_save_error: warn`` only the first call raises it.
            SystemExit: a signal was received; the checkpoint is on disk.
            KeyboardInterrupt: the same, for SIGINT.
            TfckptError: the config never makes a save due; or ``on_signal`` is set, but this is not
                the main thread; or ``every_steps`` is set, but no object counts steps.
        """
        moment = Moment(self.epoch, metrics, self.training, metadata)
        return self.saves.after_step(steps, moment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End a custom loop: :meth:`sync`, unless an exception ends it.

        >>> import tempfile, tensorflow as tf, tfckpt
        >>> config = {"directory": tempfile.mkdtemp(), "save": {"every_steps": 2}}
        >>> step = tf.Variable(0)
        >>> run = tfckpt.from_config({"version": 1, "manager": config}, step=step)
        >>> with run:
        ...     for _ in range(3):
        ...         _ = step.assign_add(1)  # and train
        ...         _ = run.save_if_due()
        >>> tfckpt.inspect(run.manager.latest_checkpoint).record.step
        2
        """
        if error is None:
            self.sync()
        else:
            self.saves.abandon()

    @property
    def best(self) -> str | None:
        """The path of the best checkpoint, by the first ``best`` rule; None if none is measured.

        Raises:
            TfckptError: no rule says by which metric, or the config has no ``manager`` section.
        """
        return self.saves.writer.best

    def sync(self) -> None:
        """Wait for a save in the background; call it when training is over or pauses.

        A custom loop calls it at its end; in ``fit`` the callback does. It restores the previous
        handlers of the signals of ``on_signal``; one that was received ends the process now.

        Raises:
            SaveError: the save failed; no file of it is left.
            SystemExit: a signal was received; the checkpoint is on disk.
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
        self.saves.end(Moment(self.epoch, None, self.training, self.metadata))

    def set_model(self, model: Any) -> NoReturn:
        """Called by Keras if the run itself is passed to ``fit`` as a callback.

        Raises:
            TfckptError: always.
        """
        raise TfckptError(
            "a run is not a callback", hint="pass callbacks=[run.callback()] to `fit`"
        )

    def callback(self, verbose: int = 1, *, start_over: bool = False) -> Any:
        """A callback for ``fit``: restores when training begins, saves when due or on a signal.

        Args:
            verbose: 0 prints nothing, 1 a line for the restore and for each save.
            start_over: restores nothing: training starts from the model's current values, and saves
                continue with the next number.

        Raises:
            TfckptError: the config has no ``restore`` section, and nothing would be saved.
        """
        check_keywords(self._objects)
        if not (self.config.restore and self.config.restore.first_of):
            self.saves.check_callback()
        return callback_for(self, self._objects, verbose, start_over=start_over)


def _generators() -> tuple[dict[str, Any], Any]:
    """The training state of a loop of one's own."""
    return {generators.KEY: generators.take()}, None
