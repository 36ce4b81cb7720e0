"""Where no checkpoint is, or a part of it: what lies there, and what to write instead."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.fits import fit

import tfckpt
import tfckpt.callbacks
from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import Audience, is_checkpoint, look
from tfckpt.stored.io.files import LOCAL, LocalFiles

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


def lines(path: str, told: Audience = Audience.CONFIG) -> str:
    return "\n".join(look(path, LOCAL).lines(told))


def touch(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"\0")


@pytest.fixture
def model(flavour) -> Callable[[], Any]:
    def build() -> Any:
        flavour.utils.set_random_seed(3)
        model = flavour.Sequential(
            [flavour.Input((4,)), flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2)]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse")
        return model

    return build


def test_nothing_an_empty_directory_and_files_of_nobody(tmp_path) -> None:
    assert lines("runs/new") == f"{tmp_path}/runs/new does not exist"
    Path("runs/new").mkdir(parents=True)
    assert lines("runs/new") == f"{tmp_path}/runs/new is empty"
    assert not look("runs/new", LOCAL).notable
    touch("runs/new/.tfckpt.lock")
    assert lines("runs/new") == f"{tmp_path}/runs/new is empty"
    touch(*(f"runs/new/{letter}.csv" for letter in "abcdefg"))
    assert "holds no checkpoint, but 'c.csv'" in lines("runs/new")
    assert lines("runs/new").endswith("'g.csv' and 2 more")
    assert look("runs/new", LOCAL).notable


@pytest.mark.parametrize("file", ["best.keras", "{epoch:02d}.weights.h5", "w-{epoch:02d}.h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_of_model_checkpoint_are_named_with_the_newest_to_begin_from(
    flavour, model, file
) -> None:
    only = ".weights." in file
    trained = model()
    kept = flavour.callbacks.ModelCheckpoint(f"runs/{file}", save_weights_only=only)
    fit(trained, 2, kept)
    newest = file.format(epoch=2)
    said = lines("runs")
    assert f"{newest!r} (Keras's ModelCheckpoint or model.save)" in said
    assert f"write `restore: {{path: runs/{newest}}}`" in said
    fresh = model()
    fresh.optimizer.build(fresh.trainable_variables)
    tfckpt.restore(f"runs/{newest}", fresh, include=["model/**"])
    for got, wanted in zip(fresh.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())


def test_what_tf1_savers_wrote() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.get_variable("v", [2])
        session.run(value.initializer)
        for directory, version in (("one", 1), ("two", 2)):
            Path(directory).mkdir()
            saver = tf.compat.v1.train.Saver(write_version=version)
            for step in (90, 200):
                saver.save(session, f"{directory}/model.ckpt", global_step=step)
    for directory in ("one", "two"):
        said = lines(directory, Audience.COMMAND)
        assert "holds 'model.ckpt-90', 'model.ckpt-200' (TF1's Saver)\n" in said
        assert f"`tfckpt inspect {directory}/model.ckpt-200` shows it" in said
    assert "write `restore: {path: one/model.ckpt-200}`" in lines("one")
    assert "write `checkpoint_name: model.ckpt`" in lines("two")


def test_saved_models_below_and_instead_of_the_directory() -> None:
    module = tf.Module()
    module.v = tf.Variable([1.0])
    tf.saved_model.save(module, "runs/export")
    assert "holds 'export' (SavedModel)" in lines("runs")
    assert "write `restore: {path: runs/export}`" in lines("runs")
    assert "is a SavedModel, not a directory of checkpoints" in lines("runs/export")


def test_orbax_is_named_and_not_promised_to_be_read() -> None:
    """orbax/checkpoint/_src/metadata: each step is a directory with this file."""
    touch("runs/3/_CHECKPOINT_METADATA", "runs/12/_CHECKPOINT_METADATA")
    said = lines("runs")
    assert "holds '3', '12' (Orbax)" in said
    assert "tfckpt cannot read this format" in said


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("run/digits", "runs/digits"),
        ("runs/digit", "runs/digits"),
        ("runs/digits/checkpoints", "runs/digits"),
        ("runs", "runs/digits"),
        ("rnus/digits/ckpt-1", "runs/digits/ckpt-1"),
        ("zoo", None),
        ("runs/flowers", None),
    ],
)
def test_what_was_perhaps_meant(path, meant) -> None:
    tfckpt.Checkpoint(v=tf.Variable(1.0)).save("runs/digits/ckpt")
    found = look(path, LOCAL).meant
    assert found.startswith(f"did you mean {meant!r}?") if meant else not found


def test_a_store_that_refuses_a_look_around_is_no_error() -> None:
    touch("runs/digits_a/ckpt-1.index")

    class Refusing(LocalFiles):
        def exists(self, path: str) -> bool:
            if "digits_a" in path:
                raise PermissionError(path)
            return super().exists(path)

    assert look("runs/digits", LOCAL).near
    assert look("runs/digits", Refusing()).lines(Audience.CONFIG) == [
        f"{Path.cwd()}/runs/digits does not exist"
    ]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("ckpt-1", None, True),
        ("config", b"version: 1\n", False),
        ("checkpoint", b'model_checkpoint_path: "a"', True),
        ("lost.keras", None, True),
        ("odd", b"\x89HDF\r\n\x1a\n\0", True),
        ("ckpt-1.index", None, True),
        ("nowhere", None, False),
    ],
)
def test_a_path_is_a_checkpoint_or_not(name, content, expected) -> None:
    tfckpt.Checkpoint(v=tf.Variable(1.0)).save("ckpt")
    if content is not None:
        Path(name).write_bytes(content)
    assert is_checkpoint(name, LOCAL) is expected


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> Path:
    """A directory with a checkpoint, and one with a SavedModel."""
    directory = tmp_path_factory.mktemp("written")
    checkpoint = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]))
    checkpoint.save(str(directory / "run" / "ckpt"))
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    tf.saved_model.save(module, str(directory / "model"))
    return directory


@pytest.fixture
def here(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "here"))


def refused_path(path: Any, error: type[CheckpointError] = CheckpointNotFoundError) -> str:
    with pytest.raises(error) as caught:
        open_checkpoint(str(path))
    return str(caught.value)


def test_the_state_file(here) -> None:
    message = refused_path(here / "run" / "checkpoint")
    assert "is the state file" in message
    assert str(here / "run") in message


def test_the_parts_of_a_saved_model(here) -> None:
    model = here / "model"
    message = refused_path(model / "saved_model.pb")
    assert "is the graph of a SavedModel" in message
    assert f"Use the directory, {str(model)!r}" in message
    prefix = str(model / "variables" / "variables")
    assert f"Use {prefix!r}" in refused_path(model / "variables")
    for path in (model, f"{model}/", prefix):
        with open_checkpoint(str(path)) as stored:
            assert stored.kind == "saved_model"
            assert stored.values.read(stored.inventory.entries["v"].key).tolist() == [1.0, 2.0]


def test_a_saved_model_whose_variables_were_not_copied(here) -> None:
    shutil.rmtree(here / "model" / "variables")
    message = refused_path(here / "model", DamagedCheckpointError)
    assert "is a SavedModel without variables" in message
    assert "variables/variables.index" in message


@pytest.mark.parametrize("name", ["model.ckpt", "weights.h5", "ckpt-1.index"])
def test_the_pointers_of_git_lfs(here, name) -> None:
    path = here / "run" / name
    path.write_bytes(LFS)
    given = str(path).removesuffix(".index")
    assert "git lfs pull" in refused_path(given)


def test_data_that_is_a_pointer_or_absent_is_named_when_it_is_read(here) -> None:
    data = here / "run" / "ckpt-1.data-00000-of-00001"
    for spoil, said in (
        (lambda: data.write_bytes(LFS), "Git LFS pointer"),
        (data.unlink, "missing"),
    ):
        spoil()
        with open_checkpoint(str(here / "run" / "ckpt-1")) as stored:
            assert list(stored.values.missing_files) == [str(data)]
            key = next(e.key for e in stored.inventory.entries.values() if e.shape == (2,))
            with pytest.raises(
                DamagedCheckpointError, match=f"the data file is .*{said}"
            ) as caught:
                stored.values.verify([key])
            assert caught.value.path == str(data)


def test_an_index_that_was_not_copied(here) -> None:
    (here / "run" / "ckpt-1.index").unlink()
    message = refused_path(here / "run" / "ckpt-1")
    assert "the index file 'ckpt-1.index' is missing" in message


@pytest.mark.parametrize(
    ("content", "what", "error"),
    [
        (b"\x1f\x8b\x08" + bytes(50), "gzip", UnsupportedCheckpointError),
        (b"something else altogether", "is not a file of a checkpoint", CheckpointNotFoundError),
        (b"", "is not a file of a checkpoint", CheckpointNotFoundError),
    ],
)
def test_a_file_of_no_checkpoint(here, content, what, error) -> None:
    path = here / "run" / "weights"
    path.write_bytes(content)
    assert what in refused_path(path, error)
