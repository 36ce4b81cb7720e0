"""What stands in a directory: files, numbers, the state file, and what others left."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zoo.command_line import run

from tfckpt.errors import DamagedCheckpointError, SaveError, UnsupportedCheckpointError
from tfckpt.stored.bundles.write import BundleWriter
from tfckpt.stored.commits import commit
from tfckpt.stored.commits.discovery import Candidate, CheckpointKind, candidates, highest_number
from tfckpt.stored.io import preallocate
from tfckpt.stored.io.files import LOCAL, SCRATCH
from tfckpt.stored.io.messages import CheckpointState
from tfckpt.stored.io.state_file import parse_state, read_state, render

if TYPE_CHECKING:
    from pathlib import Path


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("directory")
    os.mkfifo(tmp_path / "fifo")
    for name, what in {
        "link": "a symbolic link to directory",
        "directory": "a directory",
        "fifo": "a special file",
    }.items():
        with pytest.raises(UnsupportedCheckpointError, match=what):
            LOCAL.open_read(str(tmp_path / name))


def test_nothing_is_written_through_a_link_or_over_a_directory(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "directory").mkdir()
    for name in ("link", "directory"):
        with pytest.raises(SaveError, match="nothing was written"):
            LOCAL.write_atomic(str(tmp_path / name), b"x")
    assert victim.read_bytes() == b"precious"
    assert {file.name for file in tmp_path.iterdir()} == {"victim", "link", "directory"}


def test_a_failed_write_leaves_the_old_content_and_no_debris(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    LOCAL.write_atomic(str(path), b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        LOCAL.write_atomic(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_content_is_synced_before_it_gets_its_name_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    seen = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    LOCAL.write_atomic(str(path), b"new")
    assert seen == [(False, False), (True, True)]


def test_what_is_written_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_bytes(b"")
    LOCAL.write_atomic(str(tmp_path / "file"), b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("size", [1 << 10, 1 << 23])
def test_room_that_was_asked_for_changes_nothing_of_the_file(tmp_path: Path, size: int) -> None:
    output = SCRATCH.create(str(tmp_path / "file"))
    output.reserve(size)
    assert (tmp_path / "file").stat().st_size == 0
    output.write(b"a" * size)
    output.close()
    assert (tmp_path / "file").read_bytes() == b"a" * size


def test_a_disk_that_has_not_so_much_room_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        ctypes.set_errno(errno.ENOSPC)
        return -1

    monkeypatch.setattr(preallocate, "_fallocate", lambda: full)
    monkeypatch.setattr(os, "major", lambda _: 8)
    output = SCRATCH.create(str(tmp_path / "file"))
    with pytest.raises(OSError, match="No space left"):
        output.reserve(1 << 40)
    output.close()


def touch(directory: Path, *names: str) -> None:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch()


def numbers(found: list[Candidate]) -> list[int]:
    return [one.number for one in found]


def test_newest_first_by_number_not_by_alphabet_or_time(tmp_path: Path) -> None:
    order = [2, 9, 10, 100, 11, 1]
    random.Random(3).shuffle(order)
    touch(tmp_path, *(f"ckpt-{number}.index" for number in order))
    assert numbers(candidates(str(tmp_path))) == [100, 11, 10, 9, 2, 1]


def test_one_that_lost_its_index_is_damaged_with_a_record_and_torn_without(tmp_path: Path) -> None:
    shard = "data-00000-of-00001"
    touch(tmp_path, "ckpt-1.index", f"ckpt-4.{shard}", "ckpt-5.tfckpt.json", "ckpt-6.index")
    touch(tmp_path, f"ckpt-7.{shard}", "ckpt-7.tfckpt.json", f"best-8.{shard}")
    assert candidates(str(tmp_path)) == [
        Candidate(7, f"{tmp_path}/ckpt-7", CheckpointKind.DAMAGED),
        Candidate(6, f"{tmp_path}/ckpt-6", CheckpointKind.FOREIGN),
        Candidate(4, f"{tmp_path}/ckpt-4", CheckpointKind.TORN),
        Candidate(1, f"{tmp_path}/ckpt-1", CheckpointKind.FOREIGN),
    ]


def test_what_is_being_saved_or_deleted_is_none(tmp_path: Path) -> None:
    data = "data-00000-of-00001"
    touch(tmp_path, f"ckpt-1.{data}", "ckpt-1.tfckpt.mark")
    touch(tmp_path, f"ckpt-2.{data}", "ckpt-2.tfckpt.mark", "ckpt-3.tfckpt.mark")
    assert candidates(str(tmp_path)) == []
    assert highest_number(str(tmp_path)) == 3
    touch(tmp_path, "ckpt-1.index")  # it is whole; plain TensorFlow may have taken its number
    assert numbers(candidates(str(tmp_path))) == [1]


def test_only_the_given_name_or_any(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-1.index", "best-2.index", "my-ckpt-3.index", "ckpt-1-4.index", "x.index")
    touch(tmp_path, "ckpt-.index", "ckpt-5.index.1a2b.tmp", "ckpt-٦.index")
    assert numbers(candidates(str(tmp_path))) == [1]
    assert numbers(candidates(str(tmp_path), "ckpt-1")) == [4]
    assert numbers(candidates(str(tmp_path), None)) == [4, 3, 2, 1]


@pytest.mark.parametrize(
    "name",
    [
        "ckpt-7.index",
        "ckpt-7.data-00000-of-00001",
        "ckpt-7.tfckpt.json",
        "ckpt-7.tfckpt.json.0a1b2c3d.tmp",
        "ckpt-7_temp",
        "ckpt-7",
        "ckpt-007.index",
    ],
)
def test_every_trace_of_a_number_counts_as_used(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "ckpt-3.index", name, "best-9.index", "ckpt-x-8.index")
    assert highest_number(str(tmp_path)) == 7


def test_a_number_too_long_for_a_save_counter_is_none(tmp_path: Path) -> None:
    touch(tmp_path, "ckpt-3.index", f"ckpt-{'9' * 20}.index")
    assert numbers(candidates(str(tmp_path))) == [3]
    assert highest_number(str(tmp_path)) == 3


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


text_format = pytest.importorskip("google.protobuf.text_format")


@pytest.fixture(scope="module")
def message() -> Any:
    """TensorFlow's message, empty; its module is private, its type is not."""
    tf = pytest.importorskip("tensorflow")
    from tensorflow.python.training import checkpoint_state_pb2  # noqa: F401

    return type(tf.compat.v1.train.generate_checkpoint_state_proto("d", "p"))


PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
TIMES = st.floats(allow_nan=False)


@st.composite
def states(draw: Any) -> Any:
    paths = draw(st.lists(PATHS, max_size=4))
    timed = draw(st.booleans())
    times = draw(st.lists(TIMES, min_size=len(paths), max_size=len(paths))) if timed else []
    last = draw(st.none() | TIMES)
    return CheckpointState(
        model_checkpoint_path=draw(PATHS),
        all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=last,
    )


def fields(state: Any) -> tuple[Any, ...]:
    return (
        state.model_checkpoint_path,
        list(state.all_model_checkpoint_paths),
        list(state.all_model_checkpoint_timestamps),
        state.last_preserved_timestamp or 0.0,
    )


@given(states())
def test_tensorflow_reads_what_is_rendered(message: Any, state: Any) -> None:
    rendered = render(
        state.model_checkpoint_path,
        state.all_model_checkpoint_paths,
        state.all_model_checkpoint_timestamps,
        state.last_preserved_timestamp,
    )
    read = text_format.Parse(rendered, message())
    assert fields(read) == fields(state)
    assert text_format.MessageToString(read).encode() == rendered


@given(states(), st.booleans())
def test_what_tensorflow_writes_is_read(message: Any, state: Any, raw: bool) -> None:
    written = message(
        model_checkpoint_path=state.model_checkpoint_path,
        all_model_checkpoint_paths=state.all_model_checkpoint_paths,
        all_model_checkpoint_timestamps=state.all_model_checkpoint_timestamps,
    )
    if state.last_preserved_timestamp:
        written.last_preserved_timestamp = state.last_preserved_timestamp
    text = text_format.MessageToString(written, as_utf8=raw)
    assert fields(parse_state(text.encode(), "checkpoint")) == fields(written)


DAMAGED = {
    "empty": b"",
    "only space": b" \n\n",
    "cut in a name": b'model_checkpoint_path: "a"\nall_mod',
    "cut after the name": b"model_checkpoint_path",
    "cut before the value": b"model_checkpoint_path: ",
    "cut in the value": b'\nmodel_checkpoint_path: "ckpt',
    "empty path": b'model_checkpoint_path: ""',
    "no newest": b'all_model_checkpoint_paths: "a"\n',
    "newest twice": b'model_checkpoint_path: "a"\nmodel_checkpoint_path: "b"',
    "unknown field": b'model_checkpoint_path: "a"\nmodel_path: "a"',
    "number for a path": b"model_checkpoint_path: 3",
    "path for a time": b'model_checkpoint_path: "a"\nlast_preserved_timestamp: "b"',
    "no number": b'model_checkpoint_path: "a"\nlast_preserved_timestamp: yes',
    "escape beyond Unicode": rb'model_checkpoint_path: "\U00110000"',
    "newline in a path": b'model_checkpoint_path: "a\nb"',
    "not UTF-8": b'model_checkpoint_path: "\xff"',
    "zero byte": rb'model_checkpoint_path: "a\000b"',
    "zeros, as after a crash": b"\0" * 40,
    "braces": b'model_checkpoint_path: "a"\n{ }',
    "times and paths differ in number": (
        b'model_checkpoint_path: "a"\nall_model_checkpoint_timestamps: 1.0'
    ),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_an_error_with_the_file(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text)
    with pytest.raises(DamagedCheckpointError) as caught:
        read_state(str(path))
    assert caught.value.path == str(path)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_damage(data: bytes) -> None:
    for text in (data, b'model_checkpoint_path: "a" ' + data):
        try:
            state = parse_state(text, "checkpoint")
        except DamagedCheckpointError:
            continue
        assert state.model_checkpoint_path


def test_an_absent_file_is_none_and_a_directory_is_an_error(tmp_path: Path) -> None:
    assert read_state(str(tmp_path / "checkpoint")) is None
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ValueError, match="a directory"):
        read_state(str(tmp_path / "checkpoint"))
