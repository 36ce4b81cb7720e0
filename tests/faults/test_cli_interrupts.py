"""Ctrl-C at every change that a command makes to a directory: nothing is lost or half there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from zoo.command_line import document, run

import tfckpt
from tfckpt.stored.io.files import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGES = ("rename", "remove", "remove_tree", "write_atomic", "makedirs", "fsync_dir")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tensorflow as tf

    directory = tmp_path_factory.mktemp("saved")
    checkpoint = tfckpt.Checkpoint(a=tf.Variable(tf.range(9.0)))
    manager = tfckpt.CheckpointManager(checkpoint, directory, None)
    for _ in range(3):
        manager.save()
    return directory


def interrupted(monkeypatch: pytest.MonkeyPatch, at: int, *arguments: object) -> int:
    """Run a command and press Ctrl-C before its change number ``at``; the exit status."""
    left = [at]

    def pressing(name: str) -> Any:
        plain = getattr(LocalFiles, name)

        def change(*given: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return plain(*given)

        return change

    with monkeypatch.context() as patch:
        for name in CHANGES:
            patch.setattr(LocalFiles, name, pressing(name))
        return run(*arguments).status


def trials(source: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    for at in range(1, 100):
        directory = tmp_path / str(at)
        shutil.copytree(source, directory)
        yield at, directory
    pytest.fail("it never ends by itself")


def contents(directory: Path) -> list[bytes]:
    files = (f for f in directory.rglob("ckpt-*") if f.is_file() and f.suffix != ".mark")
    return sorted(file.read_bytes() for file in files)


def test_what_was_being_deleted_is_deleted_by_the_next(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at, directory in trials(saved, tmp_path):
        status = interrupted(monkeypatch, at, "prune", directory, "--keep", "latest=1", "--yes")
        assert document("verify", directory / "ckpt-3")["ok"] is True
        if status == 0:
            assert at > 4
            break
        assert status == 130
        assert run("prune", directory, "--keep", "latest=1", "--yes").status == 0
        assert {file.name.partition(".")[0] for file in directory.glob("ckpt-*")} == {"ckpt-3"}


def test_what_was_being_moved_is_nowhere_lost(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(saved, source)
    data = source / "ckpt-2.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    for at, directory in trials(source, tmp_path):
        status = interrupted(monkeypatch, at, "verify", directory, "--quarantine")
        assert contents(directory) == contents(source)
        if status == 1:
            assert at > 4
            break
        assert status == 130
        run("verify", directory, "--quarantine")
        assert contents(directory) == contents(source)
        assert run("verify", directory).status == 0
        assert not list(directory.glob("ckpt-2*"))
