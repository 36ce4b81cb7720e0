"""A run by config: restore at the start, save when due or asked by a signal, in ``fit`` or a loop.

It ties live objects to what a YAML file declares; how one is made, and what restores without one,
is in ``calls``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from tfckpt.errors import TfckptError
from tfckpt.live.checkpoint import Checkpoint
from tfckpt.live.saving.background import in_turn
from tfckpt.live.variables.variables import as_int
from tfckpt.manager.checkpoint_manager import CheckpointManager
from tfckpt.training.callback import callback_for, no_training
from tfckpt.training.restore_by_config import plan_first, restore_first, warn_of
from tfckpt.training.saves import Moment, Saves
from tfckpt.training.state.fits import Fits
from tfckpt.training.state.resumption import Restoration, Resumption, check_keywords
from tfckpt.training.state.training_state import takes_up
from tfckpt.training.steps import check_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfckpt.live.restoring.restore import Choice
    from tfckpt.planning import Plan, RestoreReport
    from tfckpt.policy import Config


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
        saves: when it saves, and how.
    """

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
        self.saves = Saves(config.manager, self._objects, self.checkpoint, self.manager)
        weakref.finalize(self, self.saves.abandon)

    @in_turn("checkpoint._tfckpt_background")
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
        found = self.find()
        self.restored(found)
        warn_of(found.report)
        return found.report

    @in_turn("checkpoint._tfckpt_background")
    def find(self, fit: int | None = None) -> Restoration:
        """Restore; or for a ``fit`` only check what it will restore, when it is at its place."""
        _ = self.checkpoint.save_counter  # so that it is restored, too
        self.checkpoint._tfckpt_background.failure()  # what is being saved counts; sync raises it
        return restore_first(self.config, self._objects, self._given, fit)

    def restored(self, found: Restoration) -> None:
        """The run goes on from what was restored."""
        if (prepared := found.prepared) is not None:
            self.checkpoint._tfckpt_lineage = self.checkpoint._tfckpt_lineage.after(prepared)
            self.resumption = found.resumption
            self.epoch = found.resumption.epoch if found.resumption else 0
        self.saves.restored()
        self.report = found.report

    def follow(self, other: Run) -> None:
        """It goes on where another run of the same objects has come to, in the same directory."""
        self.fits, self.report = other.fits, other.report
        self.checkpoint._tfckpt_lineage = other.checkpoint._tfckpt_lineage

    @in_turn("checkpoint._tfckpt_background")
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
        epoch = self.epoch if epoch is None else epoch
        path = self.saves.now(Moment(epoch, metrics, self.training))
        self.epoch = as_int(epoch)
        return path

    def save_if_due(
        self, *, metrics: Mapping[str, float] | None = None, steps: int | None = None
    ) -> str | None:
        """Save if ``manager.save`` says so: to be called after each step of a loop.

        A save is due ``every_steps`` steps after the last one, or after the step that was restored,
        and ``every_minutes`` minutes after the last one, or after the first call. A step is counted
        by the object given as ``step``, else by the optimizer's iterations. From the first call on,
        the signals of ``on_signal`` wait for the next one, which saves and then ends the process;
        when the loop is over, ``sync`` gives them back their meaning. The first call claims the
        directory: one that is in use, cannot be written or has no room is refused there.

        Args:
            metrics: measured at this step, for the commit record.
            steps: how many were taken since the last call, at most, where that is known: the
                optimizer is then asked only when a save may be due.

        Returns:
            The path, None where no save was due, or where one was skipped since another is being
            written. With ``enable_async`` the checkpoint may still be being written.

        Raises:
            SaveError: it failed, or the last one did in the background; not where ``on_save_error``
                is ``warn``, and not the first call.
            SystemExit: a signal has come, the checkpoint is on disk.
            KeyboardInterrupt: the same, for SIGINT.
            TfckptError: nothing in the config ever makes a save due; or ``on_signal`` is given, and
                this is not the main thread; or ``every_steps`` is, and nothing counts steps.
        """
        return self.saves.after_step(steps, Moment(self.epoch, metrics, self.training))

    def save_if_batch_due(self, batches: int, metrics: Mapping[str, float]) -> str | None:
        """As ``save_if_due`` in ``fit``, where batches count, unless ``step`` was given."""
        return self.saves.after_batches(batches, Moment(self.epoch, metrics, self.training))

    def save_if_epoch_due(self, epoch: int, metrics: Mapping[str, float]) -> str | None:
        """As ``save_if_due`` at the end of an epoch: if ``every_epochs`` divides their number."""
        self.epoch = epoch
        return self.saves.after_epoch(Moment(epoch, metrics, self.training))

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
        self.saves.end(Moment(self.epoch, None, self.training))

    def set_model(self, model: Any) -> NoReturn:
        """What Keras calls where the run itself is given to ``fit``.

        Raises:
            TfckptError: always.
        """
        raise TfckptError(
            "a run is not a callback", hint="pass callbacks=[run.callback()] to `fit`"
        )

    def callback(self, verbose: int = 1, *, start_over: bool = False) -> Any:
        """A callback for ``fit``: restores when training begins, saves when due or asked to.

        Args:
            verbose: 0 is silent, 1 says a line for the restore and for each save.
            start_over: restores nothing: training begins with the values that the model has, and
                saves go on with the next number.

        Raises:
            TfckptError: the config has no ``restore`` section, and nothing is to be saved.
        """
        check_keywords(self._objects)
        if self.config.restore is None:
            self.saves.check_callback()
        return callback_for(self, self._objects, verbose, start_over=start_over)
