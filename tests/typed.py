"""Uses every public call; `make test` lets mypy check it, as strictly as it can."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from absl import app

import tfckpt
import tfckpt.callbacks

CONFIG = tfckpt.flags.DEFINE_config("checkpoint", "a.yaml", "policy")


@tfckpt.register_adaptation("half")
def half(value: Any) -> Any:
    return value / 2


def main(argv: list[str]) -> None:
    model: Any = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    checkpoint = tfckpt.Checkpoint(model=model, step=tf.Variable(0))
    path: str = checkpoint.save("runs/a/ckpt", probe=None)
    checkpoint.write("runs/b/once")
    status = checkpoint.restore(path).assert_consumed().expect_partial()
    counts: dict[tfckpt.Status, int] = dict(status.report.counts)
    checkpoint.read(path).assert_existing_objects_matched()
    manager = tfckpt.CheckpointManager(
        checkpoint, "runs/a", 3, keep=[{"latest": 2}], on_saved=print
    )
    saved: str | None = manager.save(metrics={"loss": 1.0}, metadata={"a": 1})
    restored: str | None = manager.restore_or_initialize()
    best: str | None = manager.best
    manager.sync()
    report: tfckpt.RestoreReport = tfckpt.restore(path, model, exclude=["model/dense/bias"])
    names: list[str] = [step.name for step in report.plan.assignments]
    plan: tfckpt.Plan = tfckpt.plan(path, model, policy={"match": "name"})
    refused: bool = bool(plan.errors)
    suggestion = tfckpt.suggest(path, model)
    lines: str = str(suggestion) if suggestion is not None else ""
    run: tfckpt.Run = tfckpt.from_config(CONFIG.value, model, step=tf.Variable(0))
    run.restore()
    run.save_if_due(metrics={"loss": 1.0})
    run.sync()
    model.fit([1], [1], callbacks=[run.callback(), tfckpt.callbacks.resume(model, "runs/c")])
    for one in tfckpt.list_checkpoints("runs/a", keep=[{"latest": 1}]):
        print(one.number, one.state, one.metrics, one.delete)
    found = tfckpt.inspect(path)
    print(found.inventory.entries, found.record and found.record.step)
    print([each.ok for each in tfckpt.verify(path)])
    print(tfckpt.diff(path, path).same)
    print(tfckpt.inventory(model).entries)
    print(tfckpt.export(path, "a.npz"))
    print(tfckpt.report_page("runs/a", force=True))
    for each in tfckpt.checkpoints_iterator("runs/a", timeout=0):
        print(each)
    try:
        tfckpt.restore(path, model=model)
    except tfckpt.RefusedError as error:
        print(error.plan.errors, error.suggestion, error.hint)
    except tfckpt.PolicyError as error:
        print(error.file, error.problems)
    print(tfckpt.doctor())
    print(counts, saved, restored, best, names, refused, lines)


def misspelt() -> None:
    """Each is an error, and would be one here if it were none."""
    tfckpt.Chekpoint  # type: ignore[attr-defined]  # noqa: B018
    tfckpt.callback  # type: ignore[attr-defined]  # noqa: B018
    tfckpt.restore("a", 3).paths  # type: ignore[attr-defined]  # noqa: B018
    tfckpt.callbacks.resume(3, "a", save_best_only=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    app.run(main)
