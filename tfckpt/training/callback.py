"""The Keras callback, for Keras 3 and tf_keras: restores when ``fit`` begins, saves when due.

``fit`` restores the position within an epoch. The callback moves itself behind all others, so
that their saved state has seen the same batches and epochs as the model.

Keras does not call a callback when ``fit`` ends by an exception. The signal handlers are then
restored when the callback is garbage collected; until then a first signal only ends the process
when its grace time is over.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.errors import TfckptError
from tfckpt.live.flavors import flavor_of
from tfckpt.live.private.tensorflow import naming_what_is_gone
from tfckpt.live.restore import TRAINING
from tfckpt.planning import Plan, RestoreReport, Status
from tfckpt.policy.config import restores_its_own
from tfckpt.stored.io.files import lies_in
from tfckpt.training.best import load_best
from tfckpt.training.fit import Fit, list_of
from tfckpt.training.fit_checks import check_fit, check_trained, set_seed_of
from tfckpt.training.fits import earlier, is_over, of_another_model, remember
from tfckpt.training.moment import scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.manager.checkpoint_manager import CheckpointManager
    from tfckpt.planning import Step
    from tfckpt.policy import Config
    from tfckpt.training.fits import Fits
    from tfckpt.training.resumption import Resumption
    from tfckpt.training.saves import Saves


class Resumable(Protocol):
    """What the callback needs of a run."""

    config: Config
    manager: CheckpointManager | None
    epoch: int
    report: RestoreReport | None
    resumption: Resumption | None
    fits: Fits
    training: Callable[[], tuple[dict[str, Any], Any]]
    saves: Saves

    def find(self, fit: int | None = None) -> tuple[RestoreReport, Resumption | None]: ...

    def restored(self, report: RestoreReport, resumption: Resumption | None) -> None: ...

    def follow(self, other: Any) -> None: ...

    def sync(self) -> None: ...

    def save_if_batch_due(self, batches: int, metrics: Mapping[str, float]) -> str | None: ...

    def save_if_epoch_due(
        self, epoch: int, metrics: Mapping[str, float], *, last: bool
    ) -> str | None: ...


_INTERRUPTED = (
    "the last `fit` of this callback was interrupted; this `fit` restores nothing and starts from "
    "the model's current values: to resume, create the model and the callback again"
)
_AGAIN = (
    "the last `fit` of this model was interrupted: this one resumes from the last save; that is "
    "exact if the dataset is created again, after {} if it is random"
)
_ONCE_MORE = (
    "another `fit` of this model: trains all its epochs, from the weights that the model has, as "
    "each later one does; to run a notebook cell again without training twice, create the model in "
    "that cell"
)
_AGAIN_WITHOUT_A_SAVE = (
    "the last `fit` of this model was interrupted before its first save, and the model keeps what "
    "it learned since: create the model again to start from scratch"
)
_OF_ANOTHER_MODEL = (
    "{} has the checkpoints of another model that this process has trained to the end: this model "
    "restores the weights and History of that one; use one directory per model, or start over with "
    "start_over=True"
)
_COMPILED_AGAIN = (
    "the model was compiled after the restore, so its new optimizer does not have the restored "
    "state; compile the model before the restore"
)
_NOTHING_RESTORED = (
    "nothing is restored: the callback restores when `fit` begins; before `evaluate` or `predict`, "
    "call tfckpt.restore(path, model), or run.restore()"
)


def callback_for(  # noqa: C901 (a class of short methods)
    run: Resumable, objects: Mapping[str, Any], verbose: int, *, start_over: bool
) -> Any:
    """The callback, for the Keras flavor of the first Keras object."""
    check_fit(objects)
    if _is_tf_keras(objects.values()):
        from tf_keras.callbacks import Callback
    else:
        from keras.callbacks import Callback

    say = _print if verbose else _keep_quiet
    warn = _print if verbose else logging.warning

    def end_of(fit: int, later: str) -> str | None:
        return run.manager._files.end_of_fit(fit, later) if run.manager is not None else None

    class TrainingCheckpoint(Callback):  # type: ignore[misc]
        """Restores when training begins, saves when the config's ``manager.save`` says so."""

        _supports_tf_logs = (
            True  # so that tf_keras does not fetch the logs of each batch; only a save does
        )
        tfckpt_run = run

        @naming_what_is_gone
        def on_train_begin(self, logs: Any = None) -> None:
            check_trained(self.model, objects)
            _check_alone(self)
            where = _directory(run)
            if text := _follows(run, self.model, where, start_over=start_over) or _beforehand(run):
                warn(text)
            if start_over and not run.fits.begun:
                say(_started_over(run))
            run.saves.claim()
            self._known = run.report is not None
            self._left_over = weakref.finalize(self, run.saves.watch())
            named = run.config.manager.callbacks if run.config.manager else {}
            try:
                self._fit = Fit(
                    self,
                    objects,
                    run.fits,
                    say,
                    named,
                    end_of=end_of,
                    on_resumed=self._on_resumed,
                    on_refused=self._on_refused,
                )
                self._fit.begin(self._find)
            except BaseException:
                self._on_refused()
                raise
            state = weakref.WeakMethod(self._fit.state)
            run.training = lambda: (state() or no_training)()  # noqa: PLW0108 (asked later)
            if where:
                remember(self.model, where, run)

        def _find(self) -> Resumption | None:
            fit = run.fits.begun
            if self._known:
                if run.resumption is not None and not fit:
                    run.resumption.keep()
                return run.resumption
            if run.resumption is not None:  # an earlier `fit` was passed over
                run.resumption.check(fit)
                return run.resumption
            if run.config.restore is None:
                return None
            (report, resumption), where = run.find(fit), _directory(run)
            if report.path and lies_in(report.path, where) and of_another_model(self.model, where):
                warn(_OF_ANOTHER_MODEL.format(where))
            if resumption is None or not resumption.waits(fit):
                run.restored(report, resumption)
            return resumption

        def _on_resumed(self, report: RestoreReport | None, resumed: Resumption | None) -> None:
            if not self._known:  # another `fit` of the same run continues from its current values
                if report is not None:
                    run.restored(report, resumed)
                say(_summary(run.report))
                if run.report is not None and (text := run.report.warnings):
                    warn(f"{run.report.path}: {text}")
            elif report is None and run.fits.begun == 2:  # the first that follows
                say(_ONCE_MORE)
            line, warnings = run.saves.outlook()
            say(line)
            for warning in warnings:
                warn(warning)
            run.resumption, run.saves.ahead = None, ""

        def _on_refused(self) -> None:
            run.training = no_training
            self._left_over()

        @naming_what_is_gone
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._fit.epoch_begins(epoch)
            if not self._fit.resuming:
                run.epoch = epoch

        @naming_what_is_gone
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._fit.batch_begins()

        @naming_what_is_gone
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            passed_over = self._fit.resuming
            self._fit.batch_ends(logs)
            if not passed_over:
                batches = self._fit.batches_of_last_call
                say(_saved(run.save_if_batch_due(batches, scalars(logs)), self))

        @naming_what_is_gone
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._fit.epoch_ends()
            last = self.model.stop_training or epoch + 1 >= self.params["epochs"]
            say(_saved(run.save_if_epoch_due(epoch + 1, scalars(logs), last=last), self))

        @naming_what_is_gone
        def on_train_end(self, logs: Any = None) -> None:
            if (later := self._fit.end()) is not None:
                run.resumption, run.saves.ahead = later, later.prefix
            run.sync()
            config = run.config.manager
            if later is None and config and run.manager and config.load_best_when_done:
                line, warning = load_best(config, run.manager, objects)
                say(line)
                if warning:
                    warn(warning)
            run.training = no_training
            self._left_over.detach()
            if where := _directory(run):
                is_over(self.model, where)

        def on_test_begin(self, logs: Any = None) -> None:
            if run.report is None and not run.fits.begun:
                warn(_NOTHING_RESTORED)

        on_predict_begin = on_test_begin

        @naming_what_is_gone
        def on_test_end(self, logs: Any = None) -> None:
            if (fit := getattr(self, "_fit", None)) is not None:
                fit.validated()

    return TrainingCheckpoint()


def _check_alone(callback: Any) -> None:
    """Raise if another callback of the same ``fit`` has the same directory or run."""
    run, where = callback.tfckpt_run, _directory(callback.tfckpt_run)
    for other in list_of(callback).callbacks:
        its = getattr(other, "tfckpt_run", None)
        if other is callback or its is None:
            continue
        if its is run or (where and where == _directory(its)):
            raise TfckptError(
                "two callbacks of this `fit` "
                + (f"save into {where}" if where else "restore the same run"),
                hint="pass only one of them to `fit`",
            )


def _follows(run: Resumable, model: Any, where: str, *, start_over: bool) -> str:
    """Let this ``fit`` follow the last one of the model; returns a warning, or ""."""
    last = earlier(model, where) if where else None
    if last is None or not restores_its_own(run.config):
        return ""
    if start_over and last.run is not run:  # a run of its own, which deletes nothing of that one
        return ""
    if last.is_followed_by_another(model):
        if run.report is None and not run.fits.begun:  # with a callback of its own
            run.follow(last.run)
        return ""
    if start_over or not last.run.fits.interrupted:
        return ""
    run.follow(last.run)
    run.fits.again()
    run.report = run.resumption = None
    saved = run.manager is not None and run.manager.latest_checkpoint is not None
    return _AGAIN.format(set_seed_of(model)) if saved else _AGAIN_WITHOUT_A_SAVE


def _beforehand(run: Resumable) -> str:
    """A warning about what has happened to the model since the restore or the last ``fit``."""
    if run.fits.interrupted:
        return _INTERRUPTED
    restored = run.report is not None and run.report.path and not run.fits.begun
    return _COMPILED_AGAIN if restored and run.saves.compiled_again else ""


def _directory(run: Resumable) -> str:
    if run.config.manager is None:
        return ""
    path = run.config.manager.directory
    return path if "://" in path else os.path.realpath(path)


def no_training() -> tuple[dict[str, Any], Any]:
    return {}, None


def _is_tf_keras(objects: Iterable[Any]) -> bool:
    flavor = next(filter(None, map(flavor_of, objects)), None)
    return flavor is not None and flavor.name == "tf_keras"


def _started_over(run: Resumable) -> str:
    if run.report is not None and run.report.path:
        raise TfckptError(
            f"start_over=True restores nothing, but {run.report.path} is restored already",
            hint="remove start_over=True, or the call of run.restore()",
        )
    said = "start_over: nothing is restored; training starts from the model's current values"
    run.report = RestoreReport(Plan("", "", ()), "", nothing=said)
    latest = run.manager.latest_checkpoint if run.manager else None
    return said + (f"; saves continue after {latest}" if latest else "")


def _summary(report: RestoreReport | None) -> str:
    if report is None:
        return "nothing is restored: the config has no `restore` section"
    if not report.path:
        return str(report)
    counted = Counter(step.status for step in report.plan.steps if not _of_fit(step))
    counts = ", ".join(f"{counted[each]} {each}" for each in Status if counted[each])
    epoch = "" if report.epoch is None else f" (epoch {report.epoch})"
    chosen = f", {report.plan.chosen}" if report.plan.chosen else ""
    lines = f"restored {report.path}{epoch}{chosen}: {counts}", report.training, report.replacements
    return "\n".join(filter(None, lines))


def _of_fit(step: Step) -> bool:
    """Whether a line of the plan is of the training state, which has a sentence of its own."""
    made_later = step.entry.role is Role.METRIC and step.status is Status.UNEXPECTED
    return made_later or step.source.partition("/")[0] == TRAINING


def _print(line: str) -> None:
    if line:
        print(line, flush=True)  # a run that is killed loses no line


def _keep_quiet(line: str) -> None:
    pass


def _saved(path: str | None, callback: Any) -> str:
    """The line of a save, on a line of its own also below a progress bar of Keras."""
    if path is None:
        return ""
    below_a_bar = "" if (callback.params or {}).get("verbose") in {0, 2} else "\n"
    background = callback.tfckpt_run.config.manager.enable_async
    name = Path(path).name
    return f"{below_a_bar}{f'saving {name} in the background' if background else f'saved {name}'}"
