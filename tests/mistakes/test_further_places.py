"""Further ways to look where no checkpoint is: copied in part, above, below, of another tool."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mistakes.scene import digits, fit, written

import tfckpt
import tfckpt.callbacks


def restoring(source: str) -> str:
    return written(f"version: 1\nrestore: {{{source}}}\n")


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
