"""What is said, left out or refused when a checkpoint is saved; which run a save belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import X, Y, fit, saved

import tfckpt
import tfckpt.callbacks

BY_VAL_LOS = {"best": 1, "monitor": "val_los", "mode": "min"}
BY_LOSS = [{"best": 1, "monitor": "loss", "mode": "min"}]


def module_of(**values: Any) -> Any:
    module = tf.Module()
    for name, value in values.items():
        setattr(module, name, tf.Variable(value))
    return module


def manager_of(where: Any, latest: int | None = 1, model: Any = None, **more: Any) -> Any:
    """A new manager, as of a new process."""
    checkpoint = tfckpt.Checkpoint(model=module_of(a=1.0) if model is None else model)
    return tfckpt.CheckpointManager(checkpoint, where, latest, **more)


def saves(manager: Any, times: int) -> Any:
    for _ in range(times):
        manager.save()
    return manager


def numbers(of: Any) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in of.checkpoints]


def warned(caplog: Any) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


# What cannot be saved, or should not


def test_what_cannot_be_saved_fails_the_save(tmp_path) -> None:
    numbers = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int32)
    iterator = iter(numbers)  # over a Python generator
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0), iterator=iterator)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, on_unsavable="error")
    with pytest.raises(tfckpt.SaveError, match="iterator"):
        manager.save()
    assert manager.checkpoints == []
    assert int(checkpoint.save_counter) == 0
    alone = tfckpt.Checkpoint(iterator=iterator)
    for error in (tfckpt.SaveError, tf.errors.FailedPreconditionError):
        with pytest.raises(error, match="iterator"):
            alone.save(tmp_path / "ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def test_values_that_are_not_finite_are_named_recorded_or_refused(tmp_path, caplog) -> None:
    model = module_of(out=[[1.0, np.nan], [0.0, np.inf]])
    for how in ("save", "warn"):
        caplog.clear()
        path = manager_of(tmp_path / how, model=model, on_nonfinite=how).save()
        assert ("values are NaN or infinite: model/out" in caplog.text) is (how == "warn")
        assert json.loads(Path(f"{path}.tfckpt.json").read_bytes())["finite"] is False
    manager = manager_of(tmp_path / "run", model=model, on_nonfinite="refuse")
    with pytest.raises(tfckpt.SaveError, match="model/out"):
        manager.save()
    assert manager.checkpoints == []
    model.out.assign(np.ones((2, 2)))
    assert manager.save().endswith("ckpt-1")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(({"keep": [rule]}, "keep: ") for rule in ({"newest": 3}, {"best": 2})),
        *(({word: "perhaps"}, f"{word} must be .* found") for word in ("on_unsavable", "if_busy")),
    ],
)
def test_an_argument_that_means_nothing_is_refused(tmp_path, given, says) -> None:
    with pytest.raises(ValueError, match=says):
        manager_of(tmp_path, None, **given)


def test_only_a_durable_save_waits_for_the_disk(tmp_path, monkeypatch) -> None:
    manager = saves(manager_of(tmp_path, durable=False), 1)
    monkeypatch.setattr(os, "fsync", lambda _: pytest.fail("it waits"))
    manager.save()


def test_a_store_without_a_directory_is_none() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(ValueError, match="gs://bucket/ckpt"):
        tfckpt.Checkpoint(v=tf.Variable(1.0)).save("memory://ckpt")


# What `fit` and a loop are told of their saves


@pytest.fixture
def run(tmp_path) -> Callable[..., Any]:
    """``run(save={…}, keep=[…])``: a model and a run of one directory that only saves."""

    def build(restore: str = "", **manager: Any) -> Any:
        where = {"directory": str(tmp_path / "run")}
        config: dict[str, Any] = {
            "version": 1,
            "manager": {**where, **manager},
            "restore": "none",
        }
        if restore:
            source = where if restore == "newest" else {"path": f"{tmp_path}/run/{restore}"}
            config["restore"] = {**source, "if_none": "initialize"}
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="a")])
        model.compile("adam", "mse", run_eagerly=True)
        return model, tfckpt.from_config(config, model=model)

    return build


SIGNALS = {"every_epochs": 2, "every_minutes": 1, "on_signal": ["SIGTERM", "SIGINT"]}
SAID: list[tuple[dict[str, Any], str]] = [
    (
        {"save": {"every_epochs": 1, "every_steps": 100}, "keep": [{"latest": 3}, BY_LOSS[0]]},
        "after each epoch and every 100 steps; keeps the newest 3 and the best by loss\n",
    ),
    (
        {
            "save": SIGNALS,
            "keep": [
                {"latest": 1},
                *({"every_n_steps": 1000}, {"every_n_hours": 12}, {"pin": [4, 7]}),
            ],
        },
        "every 2 epochs, every minute and on SIGTERM or SIGINT; "
        "keeps the newest, one every 1,000 steps, one every 12 hours and ckpt-4 and ckpt-7\n",
    ),
    ({"save": {"every_steps": 1}}, "after each step; keeps all\n"),
]


@pytest.mark.parametrize(("manager", "said"), SAID)
def test_one_line_says_what_will_be_saved_before_the_first_step(
    run, tmp_path, capsys, manager, said
) -> None:
    model, one = run(**manager)
    fit(model, 2, callback := one.callback())
    out = capsys.readouterr().out
    assert f"saves to {tmp_path}/run {said}" in out
    assert out.index("saves to") < out.index("saved ckpt-1")
    fit(model, 1, callback)
    assert "saves to" not in capsys.readouterr().out  # once


@pytest.mark.parametrize(
    ("manager", "says", "hint"),
    [
        (None, "no `manager` section", "manager: {directory"),
        ({}, "no `manager.save`", "save: {every_steps: 100}"),
        ({"save": {"every_epochs": 1}}, "only `every_epochs`", "run.save()"),
    ],
)
def test_a_loop_in_which_no_save_is_ever_due_is_refused(tmp_path, manager, says, hint) -> None:
    config: dict[str, Any] = {"version": 1}
    if manager is not None:
        config["manager"] = {"directory": str(tmp_path / "run"), **manager}
    one = tfckpt.from_config(config, step=tf.Variable(0))
    for _ in range(2):  # and it stays so
        with pytest.raises(tfckpt.TfckptError, match=r"save_if_due\(\)` would never save") as it:
            one.save_if_due()
        assert says in str(it.value)
        assert hint in str(it.value)
    assert not (tmp_path / "run").exists()


def test_a_loop_hears_of_epochs_that_nobody_counts(tmp_path, caplog) -> None:
    manager = {"directory": str(tmp_path), "save": {"every_epochs": 1, "every_steps": 2}}
    one = tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(0))
    for _ in range(2):
        one.save_if_due()
    assert warned(caplog).count("`every_epochs` counts only in `fit`") == 1


def test_two_callbacks_of_one_directory_are_refused_and_nothing_is_restored(run) -> None:
    model, one = run(save={"every_epochs": 1})
    fit(model, 1, one.callback(verbose=0))
    model, one = run("newest", save={"every_epochs": 1})
    before = model.get_weights()
    with pytest.raises(tfckpt.TfckptError, match="two callbacks of this `fit` save into"):
        fit(model, 1, one.callback(verbose=0), one.callback(verbose=0))
    np.testing.assert_equal(model.get_weights(), before)
    assert saved(one) == ["ckpt-1"]


def test_a_misspelt_metric_deletes_nothing_and_is_said_with_those_there_are(run, caplog) -> None:
    model, one = run(save={"every_epochs": 1}, keep=[{"latest": 1}, BY_VAL_LOS])
    fit(model, 3, one.callback(verbose=0), validation_data=(X, Y))
    assert saved(one) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    kept = one.manager.retention().kept[one.manager.checkpoints[0]]
    assert kept == ("no checkpoint has the metric 'val_los' yet",)
    said = (
        "nothing is deleted: no checkpoint has the metric 'val_los' yet; the checkpoints have loss "
        "and val_loss; did you mean 'val_loss'?"
    )
    assert warned(caplog).count(said) == 1


def test_metrics_that_nobody_gives_are_said_when_they_hold_something_back(tmp_path, caplog) -> None:
    manager = manager_of(tmp_path, None, keep=[{"latest": 2}, *BY_LOSS])
    saves(manager, 2)
    assert "metrics" not in warned(caplog)
    saves(manager, 2)
    assert numbers(manager) == [1, 2, 3, 4]
    assert warned(caplog).count("save with `metrics={'loss': …}`") == 1


@pytest.mark.parametrize("validates", [True, False])
def test_the_default_metric_counts_only_where_it_comes(
    run, tmp_path, caplog, capsys, validates
) -> None:
    model, _ = run()
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", max_to_keep=1)
    fit(model, 4, callback, **({"validation_data": (X, Y)} if validates else {}))
    there = {path.stem for path in (tmp_path / "run").glob("*.index")}
    losses = model.history.history.get("val_loss", [])
    assert there == {"ckpt-4"} | ({f"ckpt-{1 + int(np.argmin(losses))}"} if validates else set())
    assert "metric" not in warned(caplog)
    out = capsys.readouterr().out
    assert "keeps the newest and the best by val_loss, if it is measured\n" in out


# Runs: each deletes only what is its own


def test_a_restart_without_a_restore_leaves_the_run_before_alone(
    run, capsys, caplog, tmp_path
) -> None:
    manager = {"save": {"every_epochs": 1}, "max_to_keep": 2}
    model, first = run(**manager)
    fit(model, 4, first.callback(verbose=0))
    assert saved(first) == ["ckpt-3", "ckpt-4"]
    model, second = run(**manager)
    fit(model, 3, second.callback())
    said = (
        f"{tmp_path}/run has checkpoints of another run, which this run does not resume and never "
        "deletes; the newest of them is ckpt-4 (step 12); to go on with that run, restore from the "
        "directory before the first save\n"
    )
    out = capsys.readouterr().out
    assert out.count(said) == 1
    assert out.index(said) < out.index("saved ckpt-5")
    assert saved(second) == ["ckpt-3", "ckpt-4", "ckpt-6", "ckpt-7"]
    kept = second.manager.retention().kept
    assert kept[second.manager.checkpoints[0]] == ("of another run",)
    model, third = run("newest", **manager)  # the new run is killed, and goes on from its own
    fit(model, 5, third.callback())
    assert "does not resume" not in capsys.readouterr().out + warned(caplog)
    assert saved(third) == ["ckpt-3", "ckpt-4", "ckpt-8", "ckpt-9"]
    model, back = run("ckpt-8", **{**manager, "max_to_keep": 1})  # it goes back on purpose
    fit(model, 6, back.callback())
    assert "does not resume" not in capsys.readouterr().out
    assert saved(back)[:2] == ["ckpt-3", "ckpt-4"]
    assert "ckpt-9" not in saved(back)


def test_a_manager_by_itself_deletes_only_what_its_run_has_saved(tmp_path, caplog) -> None:
    saves(manager_of(tmp_path, 2), 4)
    second = saves(manager_of(tmp_path), 3)
    assert numbers(second) == [3, 4, 7]
    assert warned(caplog).count("never deletes; the newest of them is ckpt-4") == 1
    third = manager_of(tmp_path)
    third.restore_or_initialize()  # after a restart
    assert numbers(saves(third, 2)) == [3, 4, 9]
    assert warned(caplog).count("never deletes") == 1


def test_saves_by_a_checkpoint_are_a_run_too(tmp_path) -> None:
    one = tfckpt.Checkpoint(model=module_of(a=1.0))
    for _ in range(3):
        one.save(tmp_path / "ckpt")
    assert numbers(saves(manager_of(tmp_path), 2)) == [1, 2, 3, 5]
    assert numbers(saves(tfckpt.CheckpointManager(one, tmp_path, 1), 1)) == [5, 6]


def test_what_was_restored_in_place_of_damaged_ones_stays_while_they_are_there(tmp_path) -> None:
    saves(manager_of(tmp_path, 3, module_of(a=tf.range(100.0))), 5)
    for number in (4, 5):
        data = tmp_path / f"ckpt-{number}.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[-50] ^= 1
        data.write_bytes(content)
    again = manager_of(tmp_path, 3, module_of(a=tf.zeros(100)))
    assert again.restore_or_initialize().endswith("ckpt-3")
    assert numbers(saves(again, 1)) == [3, 4, 5, 6]
    assert numbers(saves(again, 2))[-3:] == [6, 7, 8]


# What is restored from a run of three into the objects of a manager; what is there after so many
# saves that keep one.


def by_itself(where: Any, checkpoint: Any) -> None:
    checkpoint.restore(f"{where}/ckpt-3")


def by_an_older_one(where: Any, checkpoint: Any) -> None:
    checkpoint.restore(f"{where}/ckpt-2")


def by_the_function(where: Any, checkpoint: Any) -> None:
    tfckpt.restore(f"{where}/ckpt-3", checkpoint.model, on_unexpected="ignore")


def by_another_checkpoint(where: Any, checkpoint: Any) -> None:
    tfckpt.Checkpoint(model=checkpoint.model).restore(f"{where}/ckpt-3")


def by_a_read(where: Any, checkpoint: Any) -> None:
    checkpoint.restore(f"{where}/ckpt-3")
    checkpoint.read(f"{where}/ckpt-1").expect_partial()


def by_what_is_undone(where: Any, checkpoint: Any) -> None:
    checkpoint.model.b = tf.Variable(0.0)
    status = checkpoint.restore(f"{where}/ckpt-2")
    with pytest.raises(AssertionError):
        status.assert_existing_objects_matched()


@pytest.mark.parametrize(
    ("restore", "there"),
    [
        (by_itself, [[4], [5]]),
        (by_an_older_one, [[2, 4], [5]]),  # which stays beside the first save
        (by_the_function, [[1, 2, 3, 4], [1, 2, 3, 5]]),
        (by_another_checkpoint, [[1, 2, 3, 4], [1, 2, 3, 5]]),
        (by_a_read, [[1, 2, 3, 4], [1, 2, 3, 5]]),
        (by_what_is_undone, [[1, 2, 3, 4], [1, 2, 3, 5]]),
    ],
)
def test_a_manager_goes_on_with_what_its_checkpoint_has_restored(tmp_path, restore, there) -> None:
    saves(manager_of(tmp_path, 3), 3)
    manager = manager_of(tmp_path, model=module_of(a=0.0))
    restore(tmp_path, manager.checkpoint)
    assert [numbers(saves(manager, 1)) for _ in range(2)] == there


def test_the_best_is_that_of_the_newest_run_wherever_it_is_asked(tmp_path) -> None:
    manager_of(tmp_path, None, keep=BY_LOSS).save(metrics={"loss": 0.1})
    other = manager_of(tmp_path, None, keep=BY_LOSS)
    assert other.best.endswith("ckpt-1")  # it has not begun a run
    for loss in (0.9, 0.5, 0.7):
        other.save(metrics={"loss": loss})
    assert numbers(other) == [1, 3, 4]
    report = tfckpt.restore(str(tmp_path), module_of(a=0.0), select="best", on_unexpected="ignore")
    assert report.path == other.best == f"{tmp_path}/ckpt-3"
    (marked,) = [one.prefix for one in tfckpt.list_checkpoints(tmp_path) if one.best_by]
    assert marked == other.best
