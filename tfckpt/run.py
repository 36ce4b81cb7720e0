"""A run by config: restore at the start, save when due, and the callback that does both.

``from_config`` ties live objects to what a YAML file declares; ``restore`` and ``plan`` are the
same for once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.callbacks import callback_for
from tfckpt.errors import TfckptError
from tfckpt.live.checkpoint import Checkpoint
from tfckpt.live.inventory import collect
from tfckpt.live.restore import carry_out, prepare
from tfckpt.live.save import About
from tfckpt.live.variables import as_int
from tfckpt.manager.checkpoint_manager import CheckpointManager
from tfckpt.manager.sources import first_readable
from tfckpt.planning import Plan, RestoreReport
from tfckpt.policy import Config, load_config

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from tfckpt.policy import Policy
    from tfckpt.records import Inventory


class Run:
    """Live objects and a config.

    Attributes:
        config: what was declared.
        checkpoint: of the objects.
        manager: of the config's ``manager`` section, None without one.
        report: of the last ``restore``.
        epoch: epochs finished, as the last restore, save or ``fit`` knew.
    """

    def __init__(self, config: Config, objects: Mapping[str, Any]) -> None:
        self.config = config
        self.checkpoint = Checkpoint(**objects)
        self.manager: CheckpointManager | None = None
        if config.manager is not None:
            self.manager = CheckpointManager(
                self.checkpoint,
                config.manager.directory,
                max_to_keep=config.manager.latest,
                checkpoint_name=config.manager.checkpoint_name,
            )
        self.report: RestoreReport | None = None
        self.epoch = 0
        self._objects = dict(objects)
        if "step" in objects:
            _check_step(objects["step"])
        self._last_step: int | None = None
        self._resume_at = 0

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
        _ = self.checkpoint.save_counter  # so that it is restored, too
        found = first_readable(self.config, self._attempt_restore)
        report = found.result or RestoreReport(Plan("", "", ()), "", rejected=found.rejected)
        assert isinstance(report, RestoreReport)  # noqa: S101 (narrows the type)
        self.report = report
        self._last_step = self._step()
        return report

    def plan(self) -> Plan:
        """What ``restore`` would do; assigns nothing.

        Raises:
            CheckpointNotFoundError: no source holds a checkpoint.
            DamagedCheckpointError: a source holds only damaged ones.
            NotBuiltError: a model has no variables yet.
            RestoreError: the config has no ``restore`` section.
        """
        _ = self.checkpoint.save_counter
        found = first_readable(self.config, self._attempt_plan)
        for reason in found.rejected:
            logging.warning("passed over: %s", reason)
        plan = found.result or Plan("", "", ())
        assert isinstance(plan, Plan)  # noqa: S101 (narrows the type)
        return plan

    def begin(self) -> RestoreReport | None:
        """What the callback does first: ``restore``, or nothing where the config only saves."""
        if self.config.restore is not None:
            return self.restore()
        if self._last_step is None:
            self._last_step = self._step()
        return None

    def _attempt_restore(
        self, prefix: str, policy: Policy, rejected: tuple[str, ...]
    ) -> RestoreReport:
        with prepare(prefix, policy, self._given(policy)) as prepared:
            carry_out(prepared)
            report = prepared.report(rejected)
        resumes = policy.api == "restore" and "epoch" in policy.training_state
        self.epoch = self._resume_at = report.epoch or 0 if resumes else 0
        return report

    def take_epoch(self) -> int:
        """The epoch at which training resumes: once after a restore, 0 from then on."""
        epoch, self._resume_at = self._resume_at, 0
        return epoch

    def _attempt_plan(self, prefix: str, policy: Policy, rejected: tuple[str, ...]) -> Plan:
        with prepare(prefix, policy, self._given(policy)) as prepared:
            return prepared.plan

    def _given(self, policy: Policy) -> dict[str, Any]:
        given = dict(self._objects)
        if policy.api == "restore":
            given["save_counter"] = self.checkpoint.save_counter
        return given

    def save(self, *, epoch: int | None = None, metrics: Mapping[str, float] | None = None) -> str:
        """Save now.

        Args:
            epoch: epochs finished.
            metrics: measured at this step, for the commit record; finite, or NaN.

        Returns:
            The path; the checkpoint is complete and on disk.

        Raises:
            SaveError: it failed, or a number is none; no file of it is left.
            TfckptError: the config has no ``manager`` section.
        """
        if self.manager is None:
            raise TfckptError(
                "the config has no `manager` section, so there is nowhere to save",
                hint="add `manager: {directory: …}`",
            )
        epoch = self.epoch if epoch is None else epoch
        step = self._step()
        path = self.manager.save(about=About(step=step, epoch=epoch, metrics=metrics or {}))
        assert path is not None, "no interval holds this save back"  # noqa: S101
        self._last_step, self.epoch = step, as_int(epoch)
        return path

    def save_if_due(self, *, metrics: Mapping[str, float] | None = None) -> str | None:
        """Save if ``manager.save.every_steps`` steps have passed since the last save.

        A step is counted by the object given as ``step``, else by the optimizer's iterations.

        Returns:
            The path, None where no save was due.
        """
        every = self.config.manager.save.every_steps if self.config.manager else None
        step = self._step() if every else None
        if every is None or step is None:
            return None
        if self._last_step is None:
            self._last_step = 0
        return self.save(metrics=metrics) if step - self._last_step >= every else None

    def save_if_epoch_due(self, epoch: int, metrics: Mapping[str, float]) -> str | None:
        """Save if ``manager.save.every_epochs`` divides the number of epochs finished."""
        self.epoch = epoch
        every = self.config.manager.save.every_epochs if self.config.manager else None
        return self.save(epoch=epoch, metrics=metrics) if every and epoch % every == 0 else None

    def callback(self, verbose: int = 1) -> Any:
        """A callback for ``fit``: restores when training begins, saves when due.

        Args:
            verbose: 0 is silent, 1 says a line for the restore and for each save.
        """
        return callback_for(self, self._objects.values(), verbose)

    def _step(self) -> int | None:
        counter = self._objects.get("step")
        if counter is not None:
            return as_int(counter)
        solvers = [
            o for o in (*self._objects.values(), *self._compiled()) if hasattr(o, "iterations")
        ]
        return as_int(solvers[0].iterations) if solvers else None

    def _compiled(self) -> list[Any]:
        return [getattr(obj, "optimizer", None) for obj in self._objects.values()]


def _check_step(counter: Any) -> None:
    try:
        as_int(counter)
    except (TypeError, ValueError, OverflowError) as error:
        raise TfckptError(
            f"`step` is to hold the number of the training step: {error}",
            hint="give an object that holds something else another keyword",
        ) from None


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
