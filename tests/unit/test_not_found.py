"""Where no checkpoint is, or a part of it: what lies there, and what to write instead."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.fits import fit
from zoo.restores import same, stack

import tfckpt
import tfckpt.callbacks
from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint
from tfckpt.stored.io.explain import look
from tfckpt.stored.io.files import LOCAL


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(prefix: str) -> str:
    return tfckpt.Checkpoint(v=tf.Variable(1.0)).save(prefix)


def touch(*names: str, content: bytes = b"\0") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)


def lines(path: str) -> str:
    return "\n".join(look(path, LOCAL).lines)


def refused(**declared: Any) -> str:
    v = tf.Variable(7.0)
    with pytest.raises(tfckpt.CheckpointNotFoundError) as caught:
        tfckpt.restore({"version": 1, **declared}, v=v)
    assert float(v) == 7
    return str(caught.value)


def test_a_config_is_told_what_to_write(tmp_path) -> None:
    save("runs/digits/ckpt")
    restore = {"directory": "runs/digit"}
    *_, near, last = refused(manager={"directory": "runs/digit"}, restore=restore).split("\n")
    assert "did you mean 'runs/digits'" in near
    assert "first start of the run" in last  # offered last, and to the run itself
    assert "if_none: initialize" in last
    assert "if_none" not in refused(manager={"directory": "runs/new"}, restore=restore)
    written = Path("run.yaml")
    first_of = "restore: {first_of: [own, {path: zo/ckpt-1}]}"
    written.write_text(f"version: 1\nmanager: {{directory: runs/new}}\n{first_of}\n")
    with pytest.raises(tfckpt.CheckpointNotFoundError, match=r"^run\.yaml:3: no checkpoint") as one:
        tfckpt.restore("run.yaml", v=tf.Variable(7.0))
    assert "if_none" not in str(one.value)  # which would begin without the weights of the path
    touch("old/best.keras")
    said = refused(manager={"directory": "old"}, restore={"directory": "old"})
    assert "`restore: {first_of: [{directory: old}, {path: old/best.keras}]}`" in said
    Path("a").mkdir()
    save("b/other")
    sources = [{"directory": "a"}, {"all_of": [{"directory": "b"}, {"path": "c/best"}]}]
    said = refused(restore={"first_of": sources})
    assert f"{tmp_path}/a is empty" in said
    assert f"{tmp_path}/b holds 'other-1'" in said
    assert "to go on with it: `checkpoint_name: other`" in said
    assert f"{tmp_path}/c/best does not exist" in said


# what `restore` has beside `manager: {directory: runs/digits}` → what is noted
DIRECTORIES = {
    "{directory: runs/digit}": "restore.directory 'runs/digit' are nearly the same",
    "{directory: runs/digits/checkpoints}": "are nearly the same",
    "{first_of: [{path: zoo/a}, {directory: run/digits}]}": "restore.first_of 'run/digits' are nea",
    "{directory: ./runs/digits, checkpoint_name: model}": "is 'ckpt', but checkpoint_name of "
    "restore.directory './runs/digits' is 'model'",
    "{directory: zoo/a, if_none: initialize}": "does not restore from it: with if_none: "
    "initialize, every start begins",
    "{directory: runs/digits, if_none: initialize}": "",
    "{directory: ./runs//digits/, if_none: initialize}": "",
    "{first_of: [{directory: runs/digit}, {directory: runs/digits}]}": "",
    "{path: zoo/imagenet/ckpt-900}": "",
    "{directory: runs/digits0}": "",
    "{directory: runs/flowers}": "",
}


@pytest.mark.parametrize("restore", DIRECTORIES)
def test_policy_check_compares_the_directories(restore) -> None:
    manager = "{directory: runs/digits, save: {every_epochs: 1}}"
    text = f"version: 1\nmanager: {manager}\nrestore: {restore}\n"
    Path("t.yaml").write_text(text, encoding="utf-8")
    says, ended = DIRECTORIES[restore], run("policy", "check", "t.yaml")
    assert ended.status == 0
    assert ("\nnote: " in ended.out) == bool(says)
    assert says in ended.out
    (note,) = document("policy", "check", "t.yaml")["notes"] or [""]
    assert note in ended.out


# What lies there


def test_what_is_there_is_said(tmp_path) -> None:
    assert lines("runs/new") == f"{tmp_path}/runs/new does not exist"
    Path("runs/new").mkdir(parents=True)
    for _ in range(2):
        assert lines("runs/new") == f"{tmp_path}/runs/new is empty"
        assert not look("runs/new", LOCAL).notable
        touch("runs/new/.tfckpt.lock")
    touch(*(f"runs/new/{letter}.csv" for letter in "abcdefg"))
    assert "holds no checkpoint, but 'c.csv'" in lines("runs/new")
    assert lines("runs/new").endswith("'g.csv' and 2 more")
    assert look("runs/new", LOCAL).notable
    module = tf.Module()
    module.v = tf.Variable([1.0])
    tf.saved_model.save(module, "exports/one")
    assert "holds 'one' (SavedModel)" in lines("exports")
    assert "`restore: {first_of: [{directory: exports}, {path: exports/one}]}`" in lines("exports")
    said = lines("exports/one")
    assert "is a SavedModel, not a directory of checkpoints" in said
    assert "model)`, in a config `restore: {path: exports/one}`" in said
    # orbax/checkpoint/_src/metadata: each step is a directory with this file
    touch("orbax/3/_CHECKPOINT_METADATA", "orbax/12/_CHECKPOINT_METADATA")
    assert "holds '3', '12' (Orbax)" in lines("orbax")
    assert "tfckpt cannot read this format" in lines("orbax")
    # keras/src/callbacks/orbax_checkpoint.py: the state is the item `pytree` of a step
    touch("orbax/12/pytree/_METADATA")
    assert "`tfckpt.restore('orbax/12', model)`" in lines("orbax")
    assert "is a step of Keras's OrbaxCheckpoint, not a directory of" in lines("orbax/12")


@pytest.mark.parametrize("file", ["best.keras", "{epoch:02d}.weights.h5", "w-{epoch:02d}.h5"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_files_of_model_checkpoint_are_named_with_the_newest_to_begin_from(flavour, file) -> None:
    def model() -> Any:
        made = stack(flavour, flavour.layers.Dense(2), width=4)
        made.compile(flavour.optimizers.Adam(0.05), "mse", run_eagerly=True)
        return made

    only, trained = ".weights." in file, model()
    fit(trained, 2, flavour.callbacks.ModelCheckpoint(f"runs/{file}", save_weights_only=only))
    newest = file.format(epoch=2)
    said = lines("runs")
    assert f"{newest!r} (Keras's ModelCheckpoint or model.save)" in said
    assert f"to start from it: `tfckpt.restore('runs/{newest}', model)`" in said
    fresh = model()
    fresh.optimizer.build(fresh.trainable_variables)
    tfckpt.restore(f"runs/{newest}", fresh, include=["model/**"])
    same(fresh.weights, trained.weights)


def test_what_tf1_savers_wrote() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.get_variable("v", [2])
        session.run(value.initializer)
        for directory, version in (("one", 1), ("two", 2)):
            Path(directory).mkdir()
            saver = tf.compat.v1.train.Saver(write_version=version)
            for step in (90, 200):
                saver.save(session, f"{directory}/model.ckpt", global_step=step)
    said = lines("one")
    assert "holds 'model.ckpt-90', 'model.ckpt-200' (TF1's Saver, format version 1)\n" in said
    assert "`tfckpt inspect one/model.ckpt-200` shows how TensorFlow converts it" in said
    said = lines("two")
    assert "holds 'model.ckpt-90', 'model.ckpt-200' (TF1's Saver)\n" in said
    assert "to go on with it: `checkpoint_name: model.ckpt`; only to start from it: " in said


# Parts of checkpoints, and what is none

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
INDEX, MODEL = "run/ckpt-1.index", "model/saved_model.pb"
# what is done, the path, and what is said
SPOILED: list[tuple[Callable[[], Any], str, type[CheckpointError], list[str]]] = [
    (lambda: 0, "run/checkpoint", CheckpointNotFoundError, ["is the state file", "run"]),
    (lambda: 0, MODEL, CheckpointNotFoundError,
     ["is the graph of a SavedModel", "Use the directory, 'model'"]),
    (lambda: 0, "model/variables", CheckpointNotFoundError, ["Use 'model/variables/variables'"]),
    (lambda: shutil.rmtree("model/variables"), "model", DamagedCheckpointError,
     ["is a SavedModel without variables", "variables/variables.index"]),
    *((lambda name=name: touch(f"run/{name}", content=LFS), f"run/{name.removesuffix('.index')}",
       CheckpointNotFoundError, ["git lfs pull"])
      for name in ("model.ckpt", "weights.h5", "ckpt-1.index")),
    (Path(INDEX).unlink, "run/ckpt-1", CheckpointNotFoundError,
     ["the index file 'ckpt-1.index' is missing"]),
    (lambda: touch("run/w", content=b"\x1f\x8b\x08" + bytes(50)), "run/w",
     UnsupportedCheckpointError, ["gzip"]),
    *((lambda content=content: touch("run/w", content=content), "run/w", CheckpointNotFoundError,
       ["is not a file of a checkpoint"]) for content in (b"something else altogether", b"")),
]  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: Any) -> Path:
    """A directory with a checkpoint, and one with a SavedModel."""
    directory = tmp_path_factory.mktemp("written")
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    tf.train.Checkpoint(v=module.v).save(str(directory / "run" / "ckpt"))
    tf.saved_model.save(module, str(directory / "model"))
    return directory


@pytest.mark.parametrize("case", SPOILED, ids=range(len(SPOILED)))
def test_a_part_of_a_checkpoint_is_told_from_the_whole(written, case) -> None:
    shutil.copytree(written, ".", dirs_exist_ok=True)
    spoil, path, error, said = case
    spoil()
    with pytest.raises(error) as caught:
        open_checkpoint(path)
    assert not [each for each in said if each not in str(caught.value)]


def test_a_saved_model_is_opened_by_each_of_its_paths(written) -> None:
    for path in ("model", "model/", "model/variables/variables"):
        with open_checkpoint(f"{written}/{path}") as stored:
            assert stored.kind == "saved_model"
            assert stored.values.read(stored.inventory.entries["v"].key).tolist() == [1.0, 2.0]
