"""What lies where a checkpoint was looked for, of files that their own tools wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import fit

import tfckpt
from tfckpt.stored.io.explain import Audience, is_checkpoint, look
from tfckpt.stored.io.files import LOCAL, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_a_training_that_backup_and_restore_kept_is_taken_up_as_it_says(
    flavour, model, stop
) -> None:
    trained = model()
    backup = flavour.callbacks.BackupAndRestore("runs")
    with pytest.raises(KeyboardInterrupt):
        fit(trained, 4, backup, stop(2, 0))
    said = lines("runs", Audience.TRAINING)
    assert "BackupAndRestore)" in said
    keras3 = flavour.__name__ == "keras"
    assert ("pass `initial_epoch=2` to `fit`" in said) == keras3
    call = said.split("`")[1]
    assert call.startswith("tfckpt.restore('runs/")
    fresh = model()
    fresh.optimizer.build(fresh.trainable_variables)
    exec(call, {"tfckpt": tfckpt, "model": fresh})
    for got, wanted in zip(fresh.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    assert int(fresh.optimizer.iterations) == int(trained.optimizer.iterations)


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


def test_tf_keras_weights_in_tensorflows_format() -> None:
    keras = pytest.importorskip("tf_keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.save_weights("runs/best")
    model.save_weights("more/w-01")
    assert "holds 'best'" in lines("runs")
    assert "write `restore: {path: runs/best}`" in lines("runs")
    assert "write `checkpoint_name: w`" in lines("more")


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


def test_a_checkpoint_and_a_file_are_no_directories() -> None:
    path = tfckpt.Checkpoint(v=tf.Variable(1.0)).save("runs/ckpt")
    assert "is a checkpoint, not a directory of checkpoints" in lines(path)
    assert f"write `restore: {{path: {path}}}`" in lines(path)
    touch("best file.keras")
    assert "is a file, not a directory of checkpoints" in lines("best file.keras")
    assert 'write `restore: {path: "best file.keras"}`' in lines("best file.keras")
    assert "`tfckpt inspect 'best file.keras'` shows it" in lines(
        "best file.keras", Audience.COMMAND
    )


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


def test_another_working_directory_on_either_side(tmp_path, monkeypatch) -> None:
    tfckpt.Checkpoint(v=tf.Variable(1.0)).save("project/runs/digits/ckpt")
    assert "'project/runs/digits'? It holds ckpt-1" in look("runs/digits", LOCAL).meant
    Path("project/notebooks/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "notebooks" / "deep")
    assert "'../../runs/digits'? It holds ckpt-1" in look("runs/digits", LOCAL).meant


def test_another_run_and_a_link_to_the_same_place_are_not_what_was_meant() -> None:
    for run in (1, 2):
        tfckpt.Checkpoint(v=tf.Variable(1.0)).save(f"runs/digits{run}/model")
    Path("runs/digits_a").symlink_to("digits1")
    assert look("runs/digits3", LOCAL).near == (("runs/digits_a", "model-1"),)
    assert look("runs/digits1", LOCAL).near == ()


def test_a_huge_directory_is_looked_into_in_part() -> None:
    names = [f"step_{number}" for number in range(30_000)]
    asked = []

    class Many(LocalFiles):
        def listdir(self, path: str) -> list[str]:
            asked.append(path)
            return names if path.endswith("runs") else []

    found = look("/elsewhere/runs", Many())
    assert found.state.endswith("and 29,995 more")
    assert len(asked) < 100


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


def test_names_that_do_harm_are_shown_escaped() -> None:
    touch("runs/\x1b[31m.keras")
    assert r"'\x1b[31m.keras'" in look("runs", LOCAL).state


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
