"""What is removed of what others left in a directory, and what is not."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from zoo.command_line import run

from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits import commit
from tfckpt.stored.io.files import LOCAL

if TYPE_CHECKING:
    from pathlib import Path

SAVES = """
import sys
from tfckpt.stored.commits.commit import write_checkpoint
from tfckpt.stored.io.files import LOCAL
def write(taken):
    LOCAL.create(sys.argv[1] + "/slim-1.data-00000-of-00001").close()
    print("begun", flush=True)
    sys.stdin.read()
write_checkpoint(sys.argv[1] + "/slim-1", write, None)
"""
CONVERTS = """
import sys
from tfckpt.stored.commits.new_file import new_file
with new_file(sys.argv[1] + "/all.npz") as output:
    print("begun", flush=True)
    sys.stdin.read()
"""


def write(prefix: Path, value: float) -> None:
    with BundleWriter(str(prefix)) as writer:
        writer.add("v", np.full(4, value, np.float32))
        writer.finish()


def names(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()} - {".tfckpt.lock"}


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked")
@pytest.mark.parametrize(("script", "name"), [(SAVES, "slim-1."), (CONVERTS, "all.npz.tfckpt.")])
def test_what_a_process_leaves_is_removed_once_it_is_dead(
    script: str, name: str, tmp_path: Path
) -> None:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        commit.claim(str(tmp_path), "ckpt", LOCAL)
        left = names(tmp_path)
        assert len(left) == 2
        assert all(each.startswith(name) for each in left)
        writer.kill()
    assert names(tmp_path) == left
    commit.claim(str(tmp_path), "ckpt", LOCAL)
    assert not names(tmp_path)


def test_temporary_files_of_other_programs_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt.0a1b2c3d.tmp").write_text("half a line")
    (tmp_path / "build.0a1b2c3d.tmp").mkdir()
    (tmp_path / "build.0a1b2c3d.tmp" / "object.o").write_text("")
    before = names(tmp_path)
    commit.claim(str(tmp_path), "ckpt", LOCAL)
    write(tmp_path / "ckpt-1", 1)
    assert run("verify", tmp_path, "--quarantine").status == 0
    assert names(tmp_path) - {file.name for file in tmp_path.glob("ckpt-1.*")} == before


@pytest.mark.parametrize(
    "content",
    [b"", b"move  ../../away\n", b"move  \0\n", b"move  ..\n", b"move \n", b"\xff" * 9000],
)
def test_a_mark_of_a_move_costs_no_whole_checkpoint(content: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    directory.mkdir(parents=True)
    write(directory / "ckpt-1", 1)
    whole = {file.name: file.read_bytes() for file in directory.iterdir()}
    (directory / "ckpt-1.tfckpt.mark").write_bytes(content)
    commit.claim(str(directory), "ckpt", LOCAL)
    assert {name: (directory / name).read_bytes() for name in whole} == whole
    assert {file.name for file in tmp_path.iterdir()} == {"a"}
    assert {file.name for file in (tmp_path / "a").iterdir()} == {"b"}
