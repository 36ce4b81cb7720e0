"""Where no checkpoint is found: what the error, the report, the log and ``fit`` say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.fits import fit, runs_of

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

START = "no checkpoint yet: training starts from the initial values"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def saved() -> Callable[[str], str]:
    def save(prefix: str) -> str:
        return tfckpt.Checkpoint(value=tf.Variable(1.0)).save(prefix)

    return save


def config(directory: str, **more: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"directory": directory, **more}}


def refused(declared: Any) -> str:
    value = tf.Variable(7.0)
    with pytest.raises(tfckpt.CheckpointNotFoundError) as caught:
        tfckpt.restore(declared, value=value)
    assert float(value) == 7
    return str(caught.value)


def test_the_error_says_where_and_what_was_perhaps_meant(saved, tmp_path) -> None:
    saved("runs/digits/ckpt")
    assert refused(config("run/digits")) == (
        f"no checkpoint in run/digits\n  {tmp_path}/run/digits does not exist\n"
        "  did you mean 'runs/digits'? It holds ckpt-1."
    )


def test_a_start_from_scratch_is_offered_last_and_to_the_run_itself(saved) -> None:
    saved("runs/digits/ckpt")
    own = {"manager": {"directory": "runs/digit"}, **config("runs/digit")}
    *_, near, last = refused(own).split("\n")
    assert "did you mean 'runs/digits'" in near
    assert "first start of the run" in last
    assert "if_none: initialize" in last
    assert "if_none" not in refused({"manager": {"directory": "runs/new"}, **config("runs/digit")})


def test_a_run_that_begins_from_keras_files_still_finds_its_own_checkpoints() -> None:
    Path("runs").mkdir()
    Path("runs/best.keras").write_bytes(b"\0")
    assert "write `restore: {path: runs/best.keras}`" in refused(config("runs"))
    said = refused({"manager": {"directory": "runs"}, **config("runs")})
    written = "{first_of: [{directory: runs}, {path: runs/best.keras}]}"
    assert f"write `restore: {written}`" in said


def test_a_prefix_is_not_a_directory(saved) -> None:
    path = saved("runs/digits/ckpt")
    said = refused(config(path))
    assert f"{Path(path).absolute()} is a checkpoint, not a directory of checkpoints" in said
    assert f"write `restore: {{path: {path}}}`" in said


def test_a_file_in_the_place_of_the_directory() -> None:
    Path("runs").write_text("", encoding="utf-8")
    value = tf.Variable(1.0)
    declared = {"manager": {"directory": "runs"}, **config("runs", if_none="initialize")}
    for call in (tfckpt.from_config, tfckpt.restore):
        with pytest.raises(tfckpt.CheckpointNotFoundError, match="runs: is a file, not a direct"):
            call(declared, value=value)
    with pytest.raises(tfckpt.CheckpointNotFoundError, match="use another directory"):
        tfckpt.CheckpointManager(tfckpt.Checkpoint(value=value), "runs", 3)


def test_a_path_with_nothing_there(saved) -> None:
    saved("zoo/imagenet/ckpt")
    said = refused({"version": 1, "restore": {"path": "zoo/imagnet/ckpt-1"}})
    assert "did you mean 'zoo/imagenet/ckpt-1'?" in said


def test_each_place_of_several_sources_is_named(saved, tmp_path) -> None:
    Path("a").mkdir()
    Path("b").mkdir()
    saved("b/other")
    sources = [{"directory": "a"}, {"all_of": [{"directory": "b"}, {"path": "c/best"}]}]
    said = refused({"version": 1, "restore": {"first_of": sources}})
    assert f"{tmp_path}/a is empty" in said
    assert f"{tmp_path}/b holds 'other-1'" in said
    assert "write `checkpoint_name: other`" in said
    assert f"{tmp_path}/c/best does not exist" in said


def test_the_report_and_the_log_of_a_loop_say_it(saved, tmp_path, caplog) -> None:
    saved("runs/digits/other")
    declared = config("runs/digits", if_none="initialize")
    report = tfckpt.restore(declared, value=tf.Variable(7.0))
    first, where, how = str(report).split("\n")
    assert first == START
    assert where == f"  {tmp_path}/runs/digits holds 'other-1'"
    assert "call `tfckpt.restore('runs/digits/other-1', model=model)`" in how
    assert report.to_json()["absent"] == [where.strip(), how.strip()]
    (record,) = (one for one in caplog.records if START in one.getMessage())
    assert record.levelname == "WARNING"
    assert record.getMessage() == str(report)


def test_a_plan_says_it(tmp_path, caplog) -> None:
    plan = tfckpt.plan(config("runs/digits", if_none="initialize"), value=tf.Variable(7.0))
    assert "no checkpoint found" in str(plan)
    assert f"{tmp_path}/runs/digits does not exist" in caplog.text


def test_fit_says_it_once_and_only_where_it_is_so(flavour, tmp_path, capsys, caplog) -> None:
    build = runs_of(flavour, tmp_path / "run")
    for starts in (True, False):
        model, resumed = build(every_epochs=1)
        fit(model, 2, resumed.callback())
        said = f"{START}\n  {tmp_path}/run is empty\n"  # claimed for the saves to come
        assert capsys.readouterr().out.count(said) == starts
    assert START not in caplog.text


def test_fit_from_another_working_directory(flavour, tmp_path, monkeypatch, capsys) -> None:
    def trained() -> None:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
        model.compile("sgd", "mse")
        fit(model, 1, tfckpt.callbacks.resume(model, "runs/digits"))

    trained()
    Path("notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    capsys.readouterr()
    trained()
    out = capsys.readouterr().out
    assert f"{tmp_path}/notebooks/runs/digits is empty" in out
    assert "did you mean '../runs/digits'? It holds ckpt-1." in out


def test_fit_beside_what_backup_and_restore_left(flavour, capsys) -> None:
    def model() -> Any:
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    fit(model(), 1, flavour.callbacks.BackupAndRestore("runs", delete_checkpoint=False))
    fresh = model()
    fit(fresh, 1, tfckpt.callbacks.resume(fresh, "runs"))
    out = capsys.readouterr().out
    assert START in out
    assert "BackupAndRestore" in out
    assert "to start from it, call `tfckpt.restore('runs/" in out


def test_the_manager_warns_of_all_but_a_new_directory(saved, tmp_path, caplog) -> None:
    def restored(directory: str) -> str:
        caplog.clear()
        checkpoint = tfckpt.Checkpoint(value=tf.Variable(1.0))
        manager = tfckpt.CheckpointManager(checkpoint, directory, 3)
        assert manager.restore_or_initialize() is None
        return str(caplog.text)

    assert not restored("new")
    saved("runs/digits/ckpt")
    assert "did you mean 'runs/digits'? It holds ckpt-1." in restored("runs/digit")
    Path("kept").mkdir()
    Path("kept/best.keras").write_bytes(b"\0")
    assert f"{tmp_path}/kept holds 'best.keras' (Keras's" in restored("kept")


MANAGER = {"directory": "runs/digits", "save": {"every_epochs": 1}}
APART = {
    "a letter": ({"directory": "runs/digit"}, "restore.directory 'runs/digit' are nearly the same"),
    "a level": ({"directory": "runs/digits/checkpoints"}, "are nearly the same"),
    "in a list": (
        {"first_of": [{"path": "zoo/a"}, {"directory": "run/digits"}]},
        "restore.first_of 'run/digits' are nearly the same",
    ),
    "the name": (
        {"directory": "./runs/digits", "checkpoint_name": "model"},
        "is 'ckpt', but checkpoint_name of restore.directory './runs/digits' is 'model'",
    ),
    "never its own": (
        {"directory": "zoo/a", "if_none": "initialize"},
        "does not restore from it: with if_none: initialize, every start begins",
    ),
}
TOGETHER = {
    "the same": {"directory": "runs/digits", "if_none": "initialize"},
    "spelt otherwise": {"directory": "./runs//digits/", "if_none": "initialize"},
    "one of several": {"first_of": [{"directory": "runs/digit"}, {"directory": "runs/digits"}]},
    "a fine-tune": {"path": "zoo/imagenet/ckpt-900"},
    "the run before": {"directory": "runs/digits0"},
    "another run": {"directory": "runs/flowers"},
}


@pytest.mark.parametrize("case", [*APART, *TOGETHER])
def test_policy_check_compares_the_directories(case) -> None:
    restore, says = APART[case] if case in APART else (TOGETHER[case], "")
    declared = {"version": 1, "manager": MANAGER, "restore": restore}
    Path("t.yaml").write_text(json.dumps(declared), encoding="utf-8")
    ended = run("policy", "check", "t.yaml")
    assert ended.status == 0
    assert ("\nnote: " in ended.out) == bool(says)
    assert says in ended.out
    (note,) = document("policy", "check", "t.yaml")["notes"] or [""]
    assert note in ended.out


def test_a_run_that_does_not_find_its_own_saves_is_told_when_it_begins(flavour, capsys) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
    model.compile("sgd", "mse")
    restore = {"directory": "runs/digit", "if_none": "initialize"}
    declared = {"version": 1, "manager": MANAGER, "restore": restore}
    fit(model, 1, tfckpt.from_config(declared, model).callback())
    out = capsys.readouterr().out
    assert (
        "manager.directory 'runs/digits' and restore.directory 'runs/digit' are nearly the same"
        in out
    )


def test_list_says_what_is_there_and_which_command_shows_it(saved, tmp_path) -> None:
    path = saved("runs/digits/ckpt")
    for wrong, says in (
        (path, f"{tmp_path}/{path} is a checkpoint, not a directory"),
        ("run/digits", "did you mean 'runs/digits'? It holds ckpt-1."),
        ("runs", "did you mean 'runs/digits'?"),
    ):
        ended = run("list", wrong)
        assert ended.status == 1
        assert says in ended.err
    assert f"`tfckpt inspect {path}` shows it" in run("list", path).err
    Path("best.keras").write_bytes(b"\0")
    assert "`tfckpt inspect best.keras` shows it" in run("list", "best.keras").err


def test_inspect_of_a_directory_of_keras_files_says_what_to_write() -> None:
    Path("kept").mkdir()
    Path("kept/01.keras").write_bytes(b"\0")
    Path("kept/02.keras").write_bytes(b"\0")
    assert "Use 'kept/02.keras'." in run("inspect", "kept").err
