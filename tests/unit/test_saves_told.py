"""What is said, left out or refused when a checkpoint is saved."""

from __future__ import annotations

import datetime
import json
import os
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import X, Y, fit, saved

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable


def model_of(flavour: Any) -> Any:
    model = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(2, name="out")])
    model.compile("adam", "mse")
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    return model


def generated() -> Any:
    """An iterator that TensorFlow cannot save: over a Python generator."""
    numbers = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_types=tf.int32)
    return iter(numbers)


def record_of(path: str) -> dict[str, Any]:
    with open(f"{path}.tfckpt.json", "rb") as file:  # noqa: PTH123 (a path as text)
        record: dict[str, Any] = json.load(file)
    return record


def test_what_cannot_be_saved_fails_the_save_on_request(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0), iterator=generated())
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, on_unsavable="error")
    with pytest.raises(tfckpt.SaveError, match="iterator"):
        manager.save()
    assert tf.train.latest_checkpoint(str(tmp_path)) is None
    assert manager.checkpoints == []
    assert int(checkpoint.save_counter) == 0


def test_a_checkpoint_of_nothing_but_what_cannot_be_saved_is_refused(tmp_path) -> None:
    checkpoint = tfckpt.Checkpoint(iterator=generated())
    for error in (tfckpt.SaveError, tf.errors.FailedPreconditionError):
        with pytest.raises(error, match="iterator"):
            checkpoint.save(tmp_path / "ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def nonfinite_keys(flavour: Any) -> Any:
    model = model_of(flavour)
    kernel = model.get_layer("out").kernel
    kernel.assign(tf.constant([[1.0, np.nan], [0.0, np.inf], [1.0, 1.0]]))
    return model


@pytest.mark.parametrize(("how", "said"), [("warn", True), ("save", False)])
def test_values_that_are_not_finite_are_named(flavour, tmp_path, caplog, how, said) -> None:
    checkpoint = tfckpt.Checkpoint(model=nonfinite_keys(flavour))
    path = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, on_nonfinite=how).save()
    assert ("values are NaN or infinite: model/out/kernel" in caplog.text) is said
    assert record_of(path)["finite"] is False


def test_values_that_are_not_finite_are_refused_before_anything_is_written(tmp_path) -> None:
    model = nonfinite_keys(keras)
    manager = tfckpt.CheckpointManager(
        tfckpt.Checkpoint(model=model), tmp_path / "run", 1, on_nonfinite="refuse"
    )
    with pytest.raises(tfckpt.SaveError, match="model/out/kernel"):
        manager.save()
    assert manager.checkpoints == []
    model.set_weights([np.ones((3, 2)), np.ones(2)])
    assert manager.save().endswith("ckpt-1")


@pytest.mark.parametrize("rule", [{"newest": 3}, {"latest": 0}, {"best": 2}, {}, {"pin": "x"}])
def test_a_rule_that_is_none_is_refused(tmp_path, rule) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match="keep: "):
        tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=[rule])


@pytest.mark.parametrize("word", ["on_nonfinite", "on_unsavable", "if_busy"])
def test_a_word_that_means_nothing_is_refused(tmp_path, word) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with pytest.raises(ValueError, match=f"{word} must be .* found 'perhaps'"):
        tfckpt.CheckpointManager(checkpoint, tmp_path, None, **{word: "perhaps"})


@pytest.mark.parametrize("durable", [True, False])
def test_only_a_durable_save_waits_for_the_disk(tmp_path, monkeypatch, durable) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1, durable=durable)
    manager.save()  # which makes the lock, too
    synced = []
    genuine = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), genuine(fd)))
    manager.save()
    assert bool(synced) is durable


def test_a_manager_of_a_remote_directory(flavour) -> None:
    fsspec = pytest.importorskip("fsspec")
    model = model_of(flavour)
    checkpoint = tfckpt.Checkpoint(model=model)
    directory = f"memory://{flavour.__name__}/run"
    manager = tfckpt.CheckpointManager(checkpoint, directory, max_to_keep=2)
    paths = [manager.save() for _ in range(3)]
    assert manager.checkpoints == paths[1:] == [f"{directory}/ckpt-2", f"{directory}/ckpt-3"]
    found = fsspec.filesystem("memory").ls(directory, detail=False)
    names = {name.rpartition("/")[2].split(".")[0] for name in found}
    assert names == {"checkpoint", "ckpt-2", "ckpt-3"}
    weights = model.get_weights()
    model.set_weights([0 * w for w in weights])
    assert manager.restore_or_initialize() == paths[-1]
    for value, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(value, expected)


def test_a_name_right_below_the_scheme_has_no_directory_and_is_refused() -> None:
    with pytest.raises(ValueError, match="gs://bucket/ckpt"):
        tfckpt.Checkpoint(v=tf.Variable(1.0)).save("memory://ckpt")


def test_checkpoints_of_another_name_are_named_where_none_is_found(tmp_path, caplog) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    tfckpt.CheckpointManager(checkpoint, tmp_path, 1, checkpoint_name="model").save()
    assert tfckpt.CheckpointManager(checkpoint, tmp_path, 1).restore_or_initialize() is None
    assert f"no checkpoint named 'ckpt' to restore\n  {tmp_path} holds 'model-1'" in caplog.text
    assert "`checkpoint_name: model`" in caplog.text


BY_VAL_LOS = {"best": 1, "monitor": "val_los", "mode": "min"}


@pytest.fixture
def model(flavour) -> Callable[[], Any]:
    def build() -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
        model.compile("adam", "mse")
        return model

    return build


@pytest.fixture
def run(model, tmp_path) -> Callable[..., Any]:
    """``run(save={…}, keep=[…])``: a model and a run of one directory that only saves."""

    def build(*, restore: bool = False, **manager: Any) -> Any:
        where = {"directory": str(tmp_path / "run")}
        config: dict[str, Any] = {"version": 1}
        if manager:
            config["manager"] = {**where, **manager}
        if restore:
            config["restore"] = {**where, "if_none": "initialize"}
        trained = model()
        return trained, tfckpt.from_config(config, model=trained)

    return build


def warned(caplog: Any) -> str:
    return "\n".join(record.getMessage() for record in caplog.records)


def test_one_line_says_what_will_be_saved_before_the_first_step(run, tmp_path, capsys) -> None:
    keep = [{"latest": 3}, {"best": 2, "monitor": "loss", "mode": "min"}]
    trained, one = run(save={"every_epochs": 1, "every_steps": 100}, keep=keep)
    fit(trained, 1, one.callback())
    out = capsys.readouterr().out
    line = (
        f"saves to {tmp_path}/run after each epoch and every 100 steps; "
        "keeps the newest 3 and the best 2 by loss\n"
    )
    assert line in out
    assert out.index(line) < out.index("saved ckpt-1")
    fit(trained, 1, one.callback())
    assert "saves to" not in capsys.readouterr().out  # once


def test_every_trigger_and_every_rule_has_its_words(run, tmp_path, capsys) -> None:
    save = {"every_epochs": 2, "every_minutes": 1, "on_signal": ["SIGTERM", "SIGINT"]}
    keep = [{"latest": 1}, {"every_n_steps": 1000}, {"every_n_hours": 12}, {"pin": [4, 7]}]
    trained, one = run(save=save, keep=keep)
    fit(trained, 1, one.callback())
    assert (
        f"saves to {tmp_path}/run every 2 epochs, every minute and on SIGTERM or SIGINT; "
        "keeps the newest, one every 1,000 steps, one every 12 hours and ckpt-4 and ckpt-7\n"
    ) in capsys.readouterr().out
    trained, one = run(save={"every_steps": 1})
    fit(trained, 1, one.callback())
    assert f"saves to {tmp_path}/run after each step; keeps all\n" in capsys.readouterr().out


def test_validation_metrics_that_no_save_can_have_are_said(run, capsys) -> None:
    trained, one = run(save={"every_steps": 2}, keep=[{"latest": 1}, BY_VAL_LOS])
    fit(trained, 1, one.callback())
    assert (
        "no checkpoint will have 'val_los', which `best` compares: it is measured at the end of an "
        "epoch, when nothing is saved; add `every_epochs: 1`"
    ) in capsys.readouterr().out


@pytest.mark.parametrize("manager", [{}, {"max_to_keep": 3}])
def test_a_callback_that_could_do_nothing_is_refused(run, manager) -> None:
    _, one = run(**manager)
    with pytest.raises(tfckpt.TfckptError, match="the callback would do nothing") as refused:
        one.callback()
    assert "no `restore` section, and nothing is saved" in str(refused.value)
    assert "every_epochs: 1" in str(refused.value)


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
    save = {"every_epochs": 1, "every_steps": 2}
    config = {"version": 1, "manager": {"directory": str(tmp_path), "save": save}}
    one = tfckpt.from_config(config, step=tf.Variable(0))
    for _ in range(2):
        one.save_if_due()
    assert warned(caplog).count("`every_epochs` counts only in `fit`") == 1


@pytest.mark.parametrize("same_run", [True, False])
def test_two_callbacks_of_one_directory_are_refused(run, tmp_path, same_run) -> None:
    trained, one = run(restore=True, save={"every_epochs": 1})
    fit(trained, 1, one.callback(verbose=0))
    trained, first = run(restore=True, save={"every_epochs": 1})
    second = first
    if not same_run:
        where = {"directory": str(tmp_path / "elsewhere" / ".." / "run")}
        (tmp_path / "elsewhere").mkdir()
        declared = {"version": 1, "manager": {**where, "save": {"every_epochs": 1}}}
        second = tfckpt.from_config(declared, model=trained)
    before = [variable.numpy() for variable in trained.variables]
    with pytest.raises(tfckpt.TfckptError, match="two callbacks of this `fit` save into") as it:
        fit(trained, 1, first.callback(verbose=0), second.callback(verbose=0))
    assert str(tmp_path / "run") in str(it.value)
    np.testing.assert_equal([variable.numpy() for variable in trained.variables], before)
    assert saved(first) == ["ckpt-1"]


def test_a_misspelt_metric_deletes_nothing_and_is_said_with_those_there_are(run, caplog) -> None:
    keep = [{"latest": 1}, BY_VAL_LOS]
    trained, one = run(save={"every_epochs": 1}, keep=keep)
    fit(trained, 3, one.callback(verbose=0), validation_data=(X, Y))
    assert saved(one) == ["ckpt-1", "ckpt-2", "ckpt-3"]
    assert one.manager.retention().kept[one.manager.checkpoints[0]] == (
        "no checkpoint has the metric 'val_los' yet",
    )
    said = (
        "nothing is deleted: no checkpoint has the metric 'val_los' yet; the checkpoints have loss "
        "and val_loss; did you mean 'val_loss'?"
    )
    assert warned(caplog).count(said) == 1


def test_metrics_that_nobody_gives_are_said_when_they_hold_something_back(tmp_path, caplog) -> None:
    keep = [{"latest": 2}, {"best": 1, "monitor": "val_loss", "mode": "min"}]
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=keep)
    for _ in range(2):
        manager.save()
    assert "val_loss" not in warned(caplog)
    for _ in range(2):
        manager.save()
    assert len(manager.checkpoints) == 4
    assert warned(caplog).count("save with `metrics={'val_loss': …}`") == 1


@pytest.mark.parametrize("validates", [True, False])
def test_the_default_metric_counts_only_where_it_comes(
    model, tmp_path, caplog, capsys, validates
) -> None:
    trained = model()
    callback = tfckpt.callbacks.resume(trained, tmp_path / "run", max_to_keep=1)
    more = {"validation_data": (X, Y)} if validates else {}
    history = trained.fit(X, Y, epochs=4, callbacks=[callback], verbose=0, **more)
    there = {path.stem for path in (tmp_path / "run").glob("*.index")}
    best = {f"ckpt-{1 + int(np.argmin(history.history['val_loss']))}"} if validates else set()
    assert there == {"ckpt-4"} | best
    assert "metric" not in warned(caplog)
    out = capsys.readouterr().out
    assert "keeps the newest and the best by val_loss, if it is measured\n" in out


def test_a_restart_without_a_restore_leaves_the_run_before_alone(
    run, capsys, caplog, tmp_path
) -> None:
    saves = {"save": {"every_epochs": 1}, "max_to_keep": 2}
    trained, first = run(**saves)
    fit(trained, 4, first.callback(verbose=0))
    assert saved(first) == ["ckpt-3", "ckpt-4"]
    trained, second = run(**saves)
    fit(trained, 3, second.callback())
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

    trained, third = run(restore=True, **saves)  # the new run is killed, and goes on from its own
    fit(trained, 9, third.callback())
    assert "does not resume" not in capsys.readouterr().out
    assert saved(third) == ["ckpt-3", "ckpt-4", "ckpt-12", "ckpt-13"]
    assert "does not resume" not in warned(caplog)


def test_a_run_that_goes_back_on_purpose_is_not_a_new_one(run, tmp_path, capsys) -> None:
    trained, first = run(save={"every_epochs": 1})
    fit(trained, 6, first.callback(verbose=0))
    where = {"directory": str(tmp_path / "run")}
    manager = {**where, "save": {"every_epochs": 1}, "max_to_keep": 1}
    restore = {"path": str(tmp_path / "run" / "ckpt-2")}
    config = {"version": 1, "manager": manager, "restore": restore}
    second = tfckpt.from_config(config, model=trained)
    fit(trained, 4, second.callback())
    assert "does not resume" not in capsys.readouterr().out
    assert saved(second) == ["ckpt-8"]


def test_a_manager_by_itself_deletes_only_what_its_run_has_saved(tmp_path, caplog) -> None:
    def manager(latest: int = 1) -> Any:
        checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
        return tfckpt.CheckpointManager(checkpoint, tmp_path, latest)

    def numbers(of: Any) -> list[int]:
        return [int(path.rpartition("-")[2]) for path in of.checkpoints]

    first = manager(2)
    for _ in range(4):
        first.save()
    second = manager()
    for _ in range(3):
        second.save()
    assert numbers(second) == [3, 4, 7]
    assert warned(caplog).count("never deletes; the newest of them is ckpt-4") == 1
    third = manager()
    third.restore_or_initialize()  # after a restart
    third.save()
    third.save()
    assert numbers(third) == [3, 4, 9]
    assert warned(caplog).count("never deletes") == 1


def test_saves_by_a_checkpoint_are_a_run_too(tmp_path) -> None:
    one = tfckpt.Checkpoint(v=tf.Variable(1.0))
    for _ in range(3):
        path = one.save(tmp_path / "ckpt")
    fresh = tfckpt.CheckpointManager(tfckpt.Checkpoint(v=tf.Variable(1.0)), tmp_path, 1)
    fresh.save()
    fresh.save()
    assert len(fresh.checkpoints) == 4
    own = tfckpt.CheckpointManager(one, tmp_path, 1)
    own.save()
    assert [name[-1] for name in own.checkpoints] == ["5", "6"]
    assert path not in own.checkpoints


def numbers(of: Any) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in of.checkpoints]


def manager_of(value: Any, where: Any, latest: int = 2) -> Any:
    return tfckpt.CheckpointManager(tfckpt.Checkpoint(v=value), where, latest)


def test_what_was_restored_in_place_of_damaged_ones_stays_while_they_are_there(tmp_path) -> None:
    value = tf.Variable(tf.range(100.0))
    first = manager_of(value, tmp_path, 3)
    for _ in range(5):
        first.save()
    for number in (4, 5):
        data = tmp_path / f"ckpt-{number}.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[-50] ^= 1
        data.write_bytes(content)
    again = manager_of(value, tmp_path, 3)
    assert again.restore_or_initialize().endswith("ckpt-3")
    again.save()
    assert numbers(again) == [3, 4, 5, 6]
    again.save()
    again.save()
    assert numbers(again)[-3:] == [6, 7, 8]


@pytest.mark.parametrize("by", ["tfckpt.restore", "another checkpoint"])
def test_a_manager_goes_on_with_the_run_that_its_objects_were_restored_from(tmp_path, by) -> None:
    for _ in range(4):
        value = tf.Variable(1.0)
        module = tf.Module()
        module.value = value
        if (tmp_path / "checkpoint").exists():
            newest = tf.train.latest_checkpoint(str(tmp_path))
            if by == "tfckpt.restore":
                tfckpt.restore(str(tmp_path), module, on_unexpected="ignore")
            else:
                tfckpt.Checkpoint(model=module).restore(newest)
        manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=module), tmp_path, 2)
        manager.save()
        manager.save()
    assert numbers(manager) == [7, 8]


def test_the_best_of_a_run_is_its_own(tmp_path) -> None:
    keep = [{"best": 1, "monitor": "loss", "mode": "min"}]

    def manager() -> Any:
        checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
        return tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=keep)

    manager().save(metrics={"loss": 0.1})
    other = manager()
    assert other.best.endswith("ckpt-1")  # it has not begun a run
    for loss in (0.9, 0.5, 0.7):
        other.save(metrics={"loss": loss})
    assert other.best.endswith("ckpt-3")
    assert numbers(other) == [1, 3, 4]


def test_what_every_n_hours_has_kept_stays_with_its_run(tmp_path, monkeypatch) -> None:
    from tfckpt.stored.commits import record_file

    clock = [datetime.datetime(2025, 1, 31, tzinfo=datetime.timezone.utc)]
    monkeypatch.setattr(record_file, "now", lambda: f"{clock[0].isoformat()}")
    keep = [{"every_n_hours": 1}, {"latest": 1}]

    def manager(rules: Any) -> Any:
        checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
        return tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=rules)

    first = manager(keep)
    for _ in range(4):
        clock[0] += datetime.timedelta(hours=2)
        first.save()
    assert numbers(first) == [1, 2, 3, 4]
    second = manager([{"latest": 1}])
    second.save()  # of another run
    second.checkpoint.restore(f"{tmp_path}/ckpt-4")
    second.save()
    assert numbers(second) == [1, 2, 3, 5, 6]


def module_of(**values: float) -> Any:
    module = tf.Module()
    for name, value in values.items():
        setattr(module, name, tf.Variable(value))
    return module


def three(tmp_path: Any) -> Any:
    module = module_of(a=1.0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=module), tmp_path, 3)
    for _ in range(3):
        manager.save()
    return module


def test_a_restore_that_was_undone_begins_no_deletion(tmp_path) -> None:
    three(tmp_path)
    checkpoint = tfckpt.Checkpoint(model=module_of(a=0.0, b=0.0))
    with pytest.raises(AssertionError):
        checkpoint.restore(f"{tmp_path}/ckpt-2").assert_existing_objects_matched()
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1)
    manager.save()
    assert numbers(manager) == [1, 2, 3, 4]


def test_what_is_only_read_is_not_gone_on_with(tmp_path) -> None:
    module = three(tmp_path)
    checkpoint = tfckpt.Checkpoint(model=module)
    manager = tfckpt.CheckpointManager(checkpoint, tmp_path, 1)
    manager.restore_or_initialize()
    checkpoint.read(f"{tmp_path}/ckpt-1").expect_partial()
    manager.save()
    assert numbers(manager) == [1, 2, 3, 4]


def test_another_model_beside_a_shared_step_is_another_run(flavour, tmp_path) -> None:
    def model() -> Any:
        return flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1, name="out")])

    step, first = tf.Variable(0), model()
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=first, step=step), tmp_path, 3)
    for _ in range(3):
        path = manager.save()
    tfckpt.restore(path, model=first, step=step)
    other = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model(), step=step), tmp_path, 1)
    other.save()
    assert numbers(other) == [1, 2, 3, 4]
    own = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=first, step=step), tmp_path, 1)
    own.save()
    assert numbers(own) == [4, 5]


def test_what_a_call_restored_stays_while_newer_ones_are_there(tmp_path) -> None:
    module = three(tmp_path)
    tfckpt.restore(f"{tmp_path}/ckpt-2", module, on_unexpected="ignore")
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=module), tmp_path, 2)
    manager.save()
    assert numbers(manager) == [2, 3, 4]
    manager.save()
    manager.save()
    assert numbers(manager) == [5, 6]


def test_the_best_is_that_of_the_newest_run_wherever_it_is_asked(tmp_path) -> None:
    keep = [{"best": 1, "monitor": "loss", "mode": "min"}]
    for losses in ((0.1, 0.2), (0.9, 0.5, 0.7)):
        module = module_of(a=losses[0])
        checkpoint = tfckpt.Checkpoint(model=module)
        manager = tfckpt.CheckpointManager(checkpoint, tmp_path, None, keep=keep)
        for loss in losses:
            module.a.assign(loss)
            manager.save(metrics={"loss": loss})
    report = tfckpt.restore(str(tmp_path), module_of(a=0.0), select="best", on_unexpected="ignore")
    assert report.path == manager.best == f"{tmp_path}/ckpt-4"
    (marked,) = [one.prefix for one in tfckpt.list_checkpoints(tmp_path) if one.best_by]
    assert marked == manager.best
