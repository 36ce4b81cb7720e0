"""The Keras callback, in both flavours: restores when ``fit`` begins, saves when due or asked to.

The epoch is resumed as Keras's own BackupAndRestore does it: Keras 3 looks at the model's
``_initial_epoch`` after ``on_train_begin`` (keras/src/backend/tensorflow/trainer.py), tf_keras asks
its ``_training_state`` (tf_keras/src/engine/training.py). Both are put back with the first epoch,
so that the next ``fit`` starts where its caller says, be it that this one is interrupted.

Keras tells a callback nothing of a ``fit`` that ends by an exception. Signals that wait for a save
then get their handlers back when the callback is garbage; until then the first one does nothing but
end the process when its grace time is over.
"""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tfckpt.live.flavours import flavour_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.planning import RestoreReport
    from tfckpt.policy import Config


class Resumable(Protocol):
    """What the callback needs of a run."""

    config: Config
    epoch: int
    report: RestoreReport | None

    def begin(self) -> RestoreReport | None: ...

    def watch(self) -> Callable[[], None]: ...

    def sync(self) -> None: ...

    def take_epoch(self) -> int: ...

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


class _Resumption:
    """Tells a model at which epoch to begin, and takes it back."""

    def __init__(self, run: Resumable, *, tf_keras: bool) -> None:
        self._run = run
        self._tf_keras = tf_keras
        self._told: Any = None

    def begin(self, model: Any) -> None:
        if epoch := self._run.take_epoch():
            self._told = model
            self._tell(epoch)

    def end(self) -> None:
        if self._told is not None:
            self._tell(0)
            self._told = None

    def _tell(self, epoch: int) -> None:
        if self._tf_keras:
            self._told._training_state = _EpochToResume(epoch) if epoch else None
        else:
            self._told._initial_epoch = epoch or None


def callback_for(run: Resumable, objects: Iterable[Any], verbose: int) -> Any:
    """The callback, of the flavour of the first Keras object."""
    in_tf_keras = _is_tf_keras(objects)
    if in_tf_keras:
        from tf_keras.callbacks import Callback
    else:
        from keras.callbacks import Callback

    say = _print if verbose else _keep_quiet

    class TrainingCheckpoint(Callback):  # type: ignore[misc]
        """Restores when training begins, saves when the config's ``manager.save`` says so."""

        def __init__(self) -> None:
            super().__init__()
            self._resumed = _Resumption(run, tf_keras=in_tf_keras)

        def on_train_begin(self, logs: Any = None) -> None:
            if run.report is None:  # another `fit` of the same run goes on from where it is
                say(_summary(run.begin(), run.epoch))
            self._resumed.begin(self.model)
            self._left_over = weakref.finalize(self, run.watch())

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._resumed.end()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            say(_saved(run.save_if_due(metrics=logs), run.config))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            say(_saved(run.save_if_epoch_due(epoch + 1, logs or {}), run.config))

        def on_train_end(self, logs: Any = None) -> None:
            self._resumed.end()
            run.sync()
            self._left_over.detach()

    return TrainingCheckpoint()


def _is_tf_keras(objects: Iterable[Any]) -> bool:
    flavour = next((found for obj in objects if (found := flavour_of(obj))), None)
    return flavour is not None and flavour.name == "tf_keras"


def _summary(report: RestoreReport | None, epoch: int) -> str:
    if report is None:
        return "nothing is restored: the config has no `restore` section"
    passed_over = "".join(f"passed over: {reason}\n" for reason in report.rejected)
    if not report.path:
        return f"{passed_over}no checkpoint yet: training starts from the initial values"
    counts = ", ".join(f"{count} {status}" for status, count in report.counts.items())
    return f"{passed_over}restored {report.path} (epoch {epoch}): {counts}"


def _print(line: str) -> None:
    if line:
        print(line)


def _keep_quiet(line: str) -> None:
    pass


def _saved(path: str | None, config: Config) -> str:
    if path is None or config.manager is None:
        return ""
    name = Path(path).name
    return (
        f"\nsaving {name} in the background" if config.manager.enable_async else f"\nsaved {name}"
    )
