"""The Keras callback, for Keras 3 and tf_keras: restores when ``fit`` begins, saves when due.

``fit`` restores the position within an epoch. The callback moves itself behind all others, so
that their saved state has seen the same batches and epochs as the model.

Keras does not call a callback when ``fit`` ends by an exception. The signal handlers are then
restored when the callback is garbage collected; until then a first signal only ends the process
when its grace time is over.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import TfckptError
from tfckpt.live.flavors import flavor_of
from tfckpt.live.private.tensorflow import naming_what_is_gone
from tfckpt.planning import Plan, RestoreReport
from tfckpt.policy.config import restores_its_own
from tfckpt.training import fit_checks
from tfckpt.training.best import load_best
from tfckpt.training.fit import Fit, list_of
from tfckpt.training.fits import directory_of, earlier, is_over, remember
from tfckpt.training.saves import Moment, scalars

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def callback_for(  # noqa: C901 (a class of short methods)
    run: Any, objects: Mapping[str, Any], verbose: int, *, start_over: bool
) -> Any:
    """The callback of a `Run`, for the Keras flavor of the first Keras object."""
    fit_checks.check_fit(objects)
    if _is_tf_keras(objects.values()):
        from tf_keras.callbacks import Callback
    else:
        from keras.callbacks import Callback

    say = _print if verbose else _keep_quiet
    warn = _print if verbose else logging.warning

    def now(logs: Any) -> Moment:
        return Moment(run.epoch, scalars(logs), run.training, run.metadata)

    class TrainingCheckpoint(Callback):  # type: ignore[misc]
        """Restores when training begins, saves when the config's ``manager.save`` says so."""

        _supports_tf_logs = (
            True  # so that tf_keras does not fetch the logs of each batch; only a save does
        )
        tfckpt_run = run

        @naming_what_is_gone
        def on_train_begin(self, logs: Any = None) -> None:
            fit_checks.check_trained(self.model, objects)
            _check_alone(self)
            where = directory_of(run)
            if text := _follows(run, self.model, where, start_over=start_over) or _beforehand(run):
                warn(text)
            if start_over and not run.fits.begun:
                say(_started_over(run))
            run.saves.claim()
            self._left_over = weakref.finalize(self, run.saves.watch())
            try:
                self._fit = Fit(self, run, objects, say, warn)
                self._fit.begin()
            except BaseException:
                self.refused()
                raise
            state = weakref.WeakMethod(self._fit.state)
            run.training = lambda: (state() or no_training)()  # noqa: PLW0108 (asked later)
            if where:
                remember(self.model, where, run)

        def refused(self) -> None:
            """Take back what a ``fit`` that does not begin has begun."""
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
                say(_saved(run.saves.after_batches(batches, now(logs)), self))

        @naming_what_is_gone
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._fit.epoch_ends()
            last = self.model.stop_training or epoch + 1 >= self.params["epochs"]
            run.epoch = epoch + 1
            say(_saved(run.saves.after_epoch(now(logs), last=last), self))

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
            if where := directory_of(run):
                is_over(self.model, where)

        def on_test_begin(self, logs: Any = None) -> None:
            if run.report is None and not run.fits.begun:
                warn(fit_checks.NOTHING_RESTORED)

        on_predict_begin = on_test_begin

        @naming_what_is_gone
        def on_test_end(self, logs: Any = None) -> None:
            if (fit := getattr(self, "_fit", None)) is not None:
                fit.validated()

    return TrainingCheckpoint()


def _check_alone(callback: Any) -> None:
    """Raise if another callback of the same ``fit`` has the same directory or run."""
    run, where = callback.tfckpt_run, directory_of(callback.tfckpt_run)
    for other in list_of(callback).callbacks:
        its = getattr(other, "tfckpt_run", None)
        if other is callback or its is None:
            continue
        if its is run or (where and where == directory_of(its)):
            raise TfckptError(
                "two callbacks of this `fit` "
                + (f"save into {where}" if where else "restore the same run"),
                hint="pass only one of them to `fit`",
            )


def _follows(run: Any, model: Any, where: str, *, start_over: bool) -> str:
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
    again = fit_checks.AGAIN.format(fit_checks.set_seed_of(model))
    return again if saved else fit_checks.AGAIN_WITHOUT_A_SAVE


def _beforehand(run: Any) -> str:
    """A warning about what has happened to the model since the restore or the last ``fit``."""
    if run.fits.interrupted:
        return fit_checks.INTERRUPTED
    restored = run.report is not None and run.report.path and not run.fits.begun
    return fit_checks.COMPILED_AGAIN if restored and run.saves.compiled_again else ""


def no_training() -> tuple[dict[str, Any], Any]:
    return {}, None


def _is_tf_keras(objects: Iterable[Any]) -> bool:
    flavor = next(filter(None, map(flavor_of, objects)), None)
    return flavor is not None and flavor.name == "tf_keras"


def _started_over(run: Any) -> str:
    if run.report is not None and run.report.path:
        raise TfckptError(
            f"start_over=True restores nothing, but {run.report.path} is restored already",
            hint="remove start_over=True, or the call of run.restore()",
        )
    said = "start_over: nothing is restored; training starts from the model's current values"
    run.report = RestoreReport(Plan("", "", ()), "", nothing=said)
    latest = run.manager.latest_checkpoint if run.manager else None
    return said + (f"; saves continue after {latest}" if latest else "")


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
