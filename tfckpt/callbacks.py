"""The Keras callback, in both flavours: restores when ``fit`` begins, saves when due.

The epoch is resumed as Keras's own BackupAndRestore does it: Keras 3 looks at the model's
``_initial_epoch`` after ``on_train_begin`` (keras/src/backend/tensorflow/trainer.py), tf_keras asks
its ``_training_state`` (tf_keras/src/engine/training.py). Both are put back when ``fit`` ends, so
that the next ``fit`` starts where its caller says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfckpt.live.flavours import flavour_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.planning import RestoreReport


class Resumable(Protocol):
    """What the callback needs of a run."""

    epoch: int
    report: RestoreReport | None

    def restore(self) -> RestoreReport: ...

    def save_if_due(self, *, metrics: Mapping[str, float] | None = None) -> str | None: ...

    def save_if_epoch_due(self, epoch: int, metrics: Mapping[str, float]) -> str | None: ...


class _EpochToResume:
    """What tf_keras asks for the epoch and the step to begin at."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        return max(initial_epoch, self._epoch), 0


def callback_for(run: Resumable, objects: Iterable[Any], verbose: int) -> Any:
    """The callback, of the flavour of the first Keras object."""
    flavour = next((found for obj in objects if (found := flavour_of(obj))), None)
    in_tf_keras = flavour is not None and flavour.name == "tf_keras"
    if in_tf_keras:
        from tf_keras.callbacks import Callback
    else:
        from keras.callbacks import Callback

    class TrainingCheckpoint(Callback):  # type: ignore[misc]
        """Restores when training begins, saves when the config's ``manager.save`` says so."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = False

        def on_train_begin(self, logs: Any = None) -> None:
            if self._resumed:  # another `fit` of the same run goes on from where it is
                return
            self._resumed = True
            report = run.report or run.restore()
            self._say(_summary(report, run.epoch))
            _resume_at(self.model, run.epoch, tf_keras=in_tf_keras)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._say(_saved(run.save_if_due(metrics=logs)))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._say(_saved(run.save_if_epoch_due(epoch + 1, logs or {})))

        def on_train_end(self, logs: Any = None) -> None:
            _resume_at(self.model, 0, tf_keras=in_tf_keras)

        def _say(self, line: str) -> None:
            if line and verbose:
                print(line)

    return TrainingCheckpoint()


def _resume_at(model: Any, epoch: int, *, tf_keras: bool) -> None:
    if tf_keras:
        model._training_state = _EpochToResume(epoch) if epoch else None
    else:
        model._initial_epoch = epoch or None


def _summary(report: RestoreReport, epoch: int) -> str:
    if not report.path:
        return "no checkpoint yet: training starts from the initial values"
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items())
    return f"restored {report.path} (epoch {epoch}): {counts}"


def _saved(path: str | None) -> str:
    return f"\nsaved {Path(path).name}" if path else ""
