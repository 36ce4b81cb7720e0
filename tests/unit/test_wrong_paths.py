"""Paths that are not what was meant: the error says what is there, and what to write instead."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.formats.open import open_checkpoint

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


def refused(path: Any, error: type[CheckpointError] = CheckpointNotFoundError) -> str:
    with pytest.raises(error) as caught:
        open_checkpoint(str(path))
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001", ".meta", ".tfckpt.json"])
def test_one_file_of_a_checkpoint(here, suffix) -> None:
    message = refused(here / "run" / f"ckpt-1{suffix}")
    assert "is one file of a checkpoint" in message
    assert f"Use {str(here / 'run' / 'ckpt-1')!r}" in message


def test_a_directory_of_checkpoints(here) -> None:
    message = refused(here / "run")
    assert "is a directory" in message
    assert f"Use {str(here / 'run' / 'ckpt-1')!r}" in message


def test_a_directory_of_checkpoints_in_version_1(tmp_path) -> None:
    for name in ("model.ckpt-9", "model.ckpt-10"):
        (tmp_path / name).touch()
        (tmp_path / f"{name}.meta").touch()
    assert f"Use {str(tmp_path / 'model.ckpt-10')!r}" in refused(tmp_path)


def test_the_state_file(here) -> None:
    message = refused(here / "run" / "checkpoint")
    assert "is the state file" in message
    assert str(here / "run") in message


def test_the_parts_of_a_saved_model(here) -> None:
    model = here / "model"
    message = refused(model / "saved_model.pb")
    assert "is the graph of a SavedModel" in message
    assert f"Use the directory, {str(model)!r}" in message
    prefix = str(model / "variables" / "variables")
    assert f"Use {prefix!r}" in refused(model / "variables")
    for path in (model, f"{model}/", prefix):
        with open_checkpoint(str(path)) as stored:
            assert stored.kind == "saved_model"
            assert stored.values.read(stored.inventory.entries["v"].key).tolist() == [1.0, 2.0]


def test_a_saved_model_whose_variables_were_not_copied(here) -> None:
    shutil.rmtree(here / "model" / "variables")
    message = refused(here / "model", DamagedCheckpointError)
    assert "is a SavedModel without variables" in message
    assert "variables/variables.index" in message


@pytest.mark.parametrize("name", ["model.ckpt", "weights.h5", "ckpt-1.index"])
def test_the_pointers_of_git_lfs(here, name) -> None:
    path = here / "run" / name
    path.write_bytes(LFS)
    given = str(path).removesuffix(".index")
    assert "git lfs pull" in refused(given)


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
    message = refused(here / "run" / "ckpt-1")
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
    assert what in refused(path, error)


def test_nothing_at_all(here) -> None:
    assert "'ckpt-1'" in refused(here / "run" / "ckpt-2")
    assert "is not a directory" in refused(here / "absent" / "ckpt-1")
