"""A checkpoint is looked for where none is: in another place, or among files of another one."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mistakes.scene import digits, fit, written
from zoo import command_line

import tfckpt
import tfckpt.callbacks


def restoring(source: str) -> str:
    return written(f"version: 1\nrestore: {{{source}}}\n")


def absolute(path: str) -> str:
    return str(Path(path).absolute())


def test_01_a_directory_that_is_one_letter_off(run3, model, refused) -> None:
    with refused(model, error=tfckpt.CheckpointNotFoundError) as seen:
        tfckpt.restore(restoring("directory: run/digits"), model=model)
    seen.says(absolute("run/digits"), "does not exist", "did you mean .*runs/digits")


def test_02_a_number_that_is_gone(run3, model, refused) -> None:
    with refused(model, error=tfckpt.CheckpointNotFoundError) as seen:
        tfckpt.restore(restoring("path: runs/digits/ckpt-99"), model=model)
    seen.says("runs/digits/ckpt-99", "ckpt-1.*ckpt-2.*ckpt-3")


def test_03_a_path_that_is_a_directory(run3, model, refused) -> None:
    with refused(model) as seen:
        tfckpt.restore(restoring("path: runs/digits"), model=model)
    seen.says("directory", "runs/digits/ckpt-3")


def test_04_a_directory_that_is_a_checkpoint(run3, model, refused) -> None:
    with refused(model) as seen:
        tfckpt.restore(restoring("directory: runs/digits/ckpt-3"), model=model)
    seen.says("is (one|a) checkpoint", "path: .?runs/digits/ckpt-3")


def test_05_a_path_to_one_file_of_a_checkpoint(run3, model, refused) -> None:
    with refused(model) as seen:
        tfckpt.restore(restoring("path: runs/digits/ckpt-3.index"), model=model)
    seen.says("one file of a checkpoint", "'runs/digits/ckpt-3'")


def test_24_a_checkpoint_where_a_config_is_expected(run3, model, told) -> None:
    with told() as seen:
        report = tfckpt.restore("runs/digits/ckpt-3", model=model)
        print(report)
    seen.says("runs/digits/ckpt-3", "LOADED")
    stored = tfckpt.Checkpoint(model=(twin := digits_of(model)))
    stored.restore("runs/digits/ckpt-3").expect_partial()
    for value, expected in zip(model.weights, twin.weights, strict=True):
        assert (value.numpy() == expected.numpy()).all()


def digits_of(model: Any) -> Any:
    import keras

    return digits(keras)


def test_25_a_directory_where_a_config_is_expected(run3, model, tries) -> None:
    with tries(model) as seen:
        print(tfckpt.restore("runs/digits", model=model))
    seen.says("runs/digits/ckpt-3")
    if seen.error is not None:
        assert seen.untouched
        seen.says("directory")


def test_33_latest_checkpoint_of_an_empty_place(keras, model, tries) -> None:
    import tensorflow as tf

    with tries(model) as seen:
        tfckpt.Checkpoint(model=model).restore(tf.train.latest_checkpoint("runs/digits"))
    assert seen.untouched
    seen.says("None", "latest_checkpoint|no checkpoint")


CONFIG_ONE_LETTER_OFF = """
version: 1
manager:
  directory: runs/digits
  save: {every_epochs: 1}
restore:
  directory: runs/digit
  if_none: initialize
"""


def test_43_save_and_restore_directories_that_differ_by_a_letter(run, flavour, told) -> None:
    model = digits(flavour)
    config = written(CONFIG_ONE_LETTER_OFF)
    with told() as seen:
        fit(model, tfckpt.from_config(config, model=model).callback(), epochs=1)
    seen.says(absolute("runs/digit") + r"\b(?!s)", "runs/digits", "did you mean|differ")


def test_43_policy_check_compares_the_two_directories(told) -> None:
    with told() as seen:
        seen.shows(command_line.run("policy", "check", written(CONFIG_ONE_LETTER_OFF)))
    seen.says("runs/digits", r"runs/digit\b", "manager.directory", "restore.*directory")


def test_53_a_directory_that_is_a_file(flavour, refused) -> None:
    Path("runs").write_text("", encoding="utf-8")
    model = digits(flavour)
    with refused(model) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs"))
    seen.says("runs", "is a file|not a directory", "another|remove|rename|choose")


def backup_and_restore(keras: Any) -> str:
    model = digits(keras)
    backup = keras.callbacks.BackupAndRestore("backup", delete_checkpoint=False)
    fit(model, backup, epochs=1)
    return "backup"


def model_checkpoint(keras: Any) -> str:
    model = digits(keras)
    fit(model, keras.callbacks.ModelCheckpoint("kept/{epoch:02d}.keras"), epochs=1)
    return "kept"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("saved", "by", "file"),
    [
        pytest.param(backup_and_restore, "BackupAndRestore", "", id="59 BackupAndRestore"),
        pytest.param(model_checkpoint, r"ModelCheckpoint|\.keras", r"01\.keras", id="60 .keras"),
    ],
)
def test_59_60_a_training_that_keras_has_saved(flavour, told, saved, by, file) -> None:
    directory = saved(flavour)
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, directory), epochs=1)
    seen.says("initial values|from scratch|new training", absolute(directory), by, file)
    seen.says("path:|restore|load")


def test_61_another_working_directory(run, flavour, told) -> None:
    Path("notebooks").mkdir()
    os.chdir("notebooks")
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/digits"), epochs=1)
    seen.says(absolute("runs/digits"), r"\.\./runs/digits|project/runs/digits")
    shutil.rmtree("runs")


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        ("~/runs/digits", [r"`~`", r"\$\{HOME\}/runs/digits"]),
        ("$HOME/runs/digits", [r"`\$`", r"\$\{HOME\}"]),
        ("'runs/digits '", ["'runs/digits '", "begins or ends with a space"]),
    ],
)
def test_what_only_a_shell_fills_in(flavour, refused, directory, words) -> None:
    model = digits(flavour)
    config = f"""
    version: 1
    manager: {{directory: {directory}, save: {{every_epochs: 1}}}}
    restore: {{directory: {directory}, if_none: initialize}}
    """
    with refused(model, error=tfckpt.PolicyError) as seen:
        tfckpt.from_config(written(config), model=model)
    seen.says(r"t\.yaml:2", *words)


@pytest.mark.parametrize("directory", ["runs", "runs/digits/checkpoints"])
def test_a_level_too_high_or_too_low(run, flavour, told, directory) -> None:
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, directory), epochs=1)
    seen.says(str(Path(directory).absolute()), "did you mean 'runs/digits'", "initial values")


def test_a_level_too_high_in_a_restore(run3, model, refused) -> None:
    with refused(model, error=tfckpt.CheckpointNotFoundError) as seen:
        tfckpt.restore(restoring("directory: runs"), model=model)
    seen.says("did you mean 'runs/digits'", r"ckpt-3")


def test_another_checkpoint_name_in_restore_than_in_manager(flavour, told) -> None:
    config = written(
        """
        version: 1
        manager: {directory: runs/a, checkpoint_name: model, save: {every_epochs: 1}}
        restore: {directory: runs/a, if_none: initialize}
        """
    )
    for _ in range(2):
        model = digits(flavour)
        with told() as seen:
            fit(model, tfckpt.from_config(config, model=model).callback(), epochs=1)
    seen.says("'model-1'", "checkpoint_name: model")


def test_the_best_one_is_asked_for_by_a_metric_that_none_has(run3, model, refused) -> None:
    with refused(model, error=tfckpt.CheckpointNotFoundError) as seen:
        tfckpt.restore(restoring("directory: runs/digits, select: best"), model=model)
    seen.says("select: best", "runs/digits", "no checkpoint has the metric 'val_loss'", "loss$")


def test_only_the_state_file_was_copied(run, flavour, told) -> None:
    for path in Path("runs/digits").glob("ckpt-*"):
        path.unlink()
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=1)
    seen.says("initial values", "ckpt-3", "copied|missing|lost|not there|are gone|is gone")


def test_the_index_files_were_not_copied(run, flavour, refused) -> None:
    for path in Path("runs/digits").glob("*.index"):
        path.unlink()
    model = digits(flavour)
    with refused(model, error=tfckpt.DamagedCheckpointError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=1)
    seen.says(r"ckpt-3\.index", "not copied")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def test_a_pointer_of_git_lfs_for_weights(model, refused) -> None:
    Path("w.weights.h5").write_text(POINTER, encoding="utf-8")
    with refused(model, error=tfckpt.CheckpointError) as seen:
        tfckpt.restore(restoring("path: w.weights.h5"), model=model)
    seen.says(r"w\.weights\.h5", "Git LFS pointer", "git lfs pull")


def test_a_pointer_of_git_lfs_for_a_data_file(run3, model, refused) -> None:
    for path in Path("runs/digits").glob("ckpt-3.data*"):
        path.write_text(POINTER, encoding="utf-8")
    with refused(model, error=tfckpt.CheckpointError) as seen:
        tfckpt.restore(restoring("path: runs/digits/ckpt-3"), model=model)
    seen.says(r"ckpt-3\.data-0000", "Git LFS pointer", "git lfs pull")


def test_a_data_file_that_was_not_copied(run3, model, refused) -> None:
    gone = sorted(Path("runs/digits").glob("ckpt-3.data*"))[-1]
    gone.unlink()
    with refused(model, error=tfckpt.CheckpointError) as seen:
        tfckpt.Checkpoint(model=model).restore("runs/digits/ckpt-3")
    seen.says(gone.name, "missing|not there|does not exist", "copy|copied|again|another")
    seen.never_says("rename")


def pytorch(path: str) -> None:
    with zipfile.ZipFile(path, "w") as file:  # as torch.save writes it
        file.writestr("archive/data.pkl", b"\x80\x02.")
        file.writestr("archive/version", "3")


def numpy(path: str) -> None:
    np.savez(path, kernel=np.zeros((8, 3)))


@pytest.mark.parametrize(
    ("path", "save", "writer"),
    [("model.pt", pytorch, "PyTorch"), ("weights.npz", numpy, "NumPy")],
)
def test_a_file_of_another_library(model, refused, path, save, writer) -> None:
    save(path)
    with refused(model, error=tfckpt.UnsupportedCheckpointError) as seen:
        tfckpt.restore(restoring(f"path: {path}"), model=model)
    seen.says(path, f"{writer} wrote it", "safetensors")


def test_a_directory_of_a_download(keras, model, refused) -> None:
    from safetensors.numpy import save_file

    Path("hub").mkdir()
    save_file({"model.head.bias": np.zeros(3, np.float32)}, "hub/model.safetensors")
    Path("hub/config.json").write_text("{}", encoding="utf-8")
    with refused(model, error=tfckpt.CheckpointNotFoundError) as seen:
        tfckpt.restore(restoring("directory: hub"), model=model)
    seen.says("path: hub/model.safetensors")


def test_a_run_directory_that_was_renamed(run, flavour, told) -> None:
    """A run directory is renamed; the program still has the old name."""
    shutil.move("runs/digits", "runs/digits_old")
    model: Any = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/digits"), epochs=1)
    seen.says("runs/digits (does not exist|is empty)", "did you mean 'runs/digits_old'")
