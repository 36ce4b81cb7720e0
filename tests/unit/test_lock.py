from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.commits.writer_lock import LOCK_FILE, WriterLock

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def held_by_another(directory: Path, content: bytes) -> Iterator[None]:
    """The lock, taken as another process takes it: through an open file of its own."""
    with (directory / LOCK_FILE).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(content)
        file.flush()
        yield


def signed(**changes: Any) -> bytes:
    holder = {"pid": os.getpid(), "host": "far", "since": "2026-01-02T03:04:05+00:00"}
    return json.dumps({**holder, "command": "train.py", **changes}).encode() + b"\n"


def is_free(directory: Path) -> bool:
    with (directory / LOCK_FILE).open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "run"
    path.mkdir()
    yield path
    WriterLock(str(path)).release()


def test_the_first_call_takes_it_and_the_next_see_that_it_is_held(directory: Path) -> None:
    lock = WriterLock(str(directory))
    assert [lock.acquire(), lock.acquire()] == [True, False]
    assert not is_free(directory)
    lock.release()
    assert is_free(directory)
    assert lock.acquire()


def test_every_way_to_a_directory_leads_to_one_lock(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory.parent / "link").symlink_to("run")
    monkeypatch.chdir(directory.parent)
    assert WriterLock("link").acquire()
    assert not WriterLock("run").acquire()
    assert not WriterLock(f"{directory}/").acquire()


def test_of_many_threads_one_takes_it(directory: Path) -> None:
    start = threading.Barrier(8)
    results = []

    def save() -> None:
        start.wait()
        results.append(WriterLock(str(directory)).acquire())

    threads = [threading.Thread(target=save) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False] * 7 + [True]


def test_the_file_says_who_holds_it_without_the_arguments(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["jobs/train.py", "--password=secret"])
    WriterLock(str(directory)).acquire()
    content = json.loads((directory / LOCK_FILE).read_text())
    assert content["pid"] == os.getpid()
    assert content["host"] == socket.gethostname()
    assert content["command"] == "jobs/train.py"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([+-]\d\d:\d\d|Z)", content["since"])


def test_a_refusal_says_where_who_since_when_and_what_to_do(directory: Path) -> None:
    before = open_files()
    with (
        held_by_another(directory, signed(pid=4711)),
        pytest.raises(InUseError) as caught,
    ):
        WriterLock(str(directory)).acquire()
    message = str(caught.value)
    assert message.startswith(f"{directory}: another process saves into this directory")
    assert "process 4711 on 'far'" in message
    assert "'train.py'" in message
    assert "2026-01-0" in message
    assert "Save into another directory" in message
    assert open_files() == before
    assert WriterLock(str(directory)).acquire()  # the other is done


UNFINISHED = [
    b"",
    signed()[:-1],
    signed()[: len(signed()) // 2] + b"\n",
    b"\xff\n",
    b"[]\n",
    b"7\n",
    b"[" * 4000 + b"\n",
    signed(pid=True),
    signed(pid=-1),
    signed(pid=1 << 80),
    signed(pid="1"),
    signed(host=1),
    signed(since=None),
    signed(since="yesterday"),
    signed(since="0001-01-01T00:00:00+23:00"),
    signed(command=["train.py"]),
    signed(more=1),
    signed(command="x" * 5000),
]


@pytest.mark.parametrize("content", UNFINISHED, ids=range(len(UNFINISHED)))
def test_what_is_not_written_to_its_end_names_nobody(directory: Path, content: bytes) -> None:
    with (
        held_by_another(directory, content),
        pytest.raises(InUseError, match=r"into this directory: an unknown process\n"),
    ):
        WriterLock(str(directory)).acquire()


def test_one_that_has_just_taken_it_is_not_mistaken_for_the_dead_one_before(
    directory: Path,
) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    content = signed(pid=child, host=socket.gethostname())
    with held_by_another(directory, content), pytest.raises(InUseError, match="an unknown process"):
        WriterLock(str(directory)).acquire()


def test_what_a_terminal_would_obey_is_escaped(directory: Path) -> None:
    content = signed(command="\x1b[2J", host="\x07\n")
    with held_by_another(directory, content), pytest.raises(InUseError) as caught:
        WriterLock(str(directory)).acquire()
    assert not set("\x1b\x07") & set(str(caught.value))


def test_a_file_that_a_dead_process_left_is_taken_over(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="absl")
    (directory / LOCK_FILE).write_bytes(signed(pid=4711, command="x" * 1000))
    assert WriterLock(str(directory)).acquire()
    assert json.loads((directory / LOCK_FILE).read_text())["pid"] == os.getpid()
    (message,) = caplog.messages
    assert "the lock left by process 4711" in message


def test_one_that_was_released_was_nobodys(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="absl")
    lock = WriterLock(str(directory))
    lock.acquire()
    lock.release()
    lock.acquire()
    assert caplog.messages == []


def test_what_is_released_is_free_whoever_else_has_the_file_open(directory: Path) -> None:
    WriterLock(str(directory)).acquire()
    (descriptor,) = [
        int(link.name)
        for link in Path("/proc/self/fd").iterdir()
        if os.path.realpath(link) == str(directory / LOCK_FILE)
    ]
    copy = os.dup(descriptor)
    WriterLock(str(directory)).release()
    assert is_free(directory)
    os.close(copy)


def test_a_moved_directory_is_let_go_and_the_new_one_taken(directory: Path) -> None:
    lock = WriterLock(str(directory))
    lock.acquire()
    moved = directory.rename(directory.parent / "moved")
    assert not is_free(moved)
    with pytest.raises(SaveError, match="No such file or directory"):
        lock.acquire()
    assert is_free(moved)
    directory.mkdir()
    assert [lock.acquire(), lock.acquire()] == [True, False]


def test_a_process_goes_on_where_it_moved_its_directory(directory: Path) -> None:
    WriterLock(str(directory)).acquire()
    moved = directory.rename(directory.parent / "moved")
    directory.mkdir()
    assert [WriterLock(str(moved)).acquire() for _ in range(2)] == [True, False]
    assert WriterLock(str(directory)).acquire()
    assert not is_free(moved)
    assert not is_free(directory)
    WriterLock(str(moved)).release()
    assert is_free(moved)
    assert not is_free(directory)


def test_what_has_two_names_is_released_by_both(directory: Path) -> None:
    moved = directory.parent / "moved"
    WriterLock(str(directory)).acquire()
    directory.rename(moved)
    WriterLock(str(moved)).acquire()
    WriterLock(str(directory)).release()
    assert is_free(moved)
    with held_by_another(moved, signed()), pytest.raises(InUseError):
        WriterLock(str(moved)).acquire()


def test_where_the_directory_is_another_one_now_so_is_the_lock(directory: Path) -> None:
    link = directory.parent / "link"
    link.symlink_to("run")
    assert WriterLock(str(link)).acquire()
    other = directory.parent / "other"
    other.mkdir()
    link.unlink()
    link.symlink_to("other")
    assert WriterLock(str(link)).acquire()
    assert not is_free(other)
    WriterLock(str(link)).release()


def test_a_deleted_file_is_made_again(directory: Path) -> None:
    lock = WriterLock(str(directory))
    lock.acquire()
    (directory / LOCK_FILE).unlink()
    assert lock.acquire()
    assert not is_free(directory)


def test_a_deleted_file_that_another_process_made_again_is_the_others(directory: Path) -> None:
    lock = WriterLock(str(directory))
    lock.acquire()
    (directory / LOCK_FILE).unlink()
    with held_by_another(directory, signed()), pytest.raises(InUseError):
        lock.acquire()


def test_a_file_that_is_deleted_while_it_is_taken_is_not_taken_for_the_lock(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, deleted = fcntl.flock, []

    def late(descriptor: int, how: int) -> None:
        if not deleted:
            deleted.append((directory / LOCK_FILE).unlink())
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert WriterLock(str(directory)).acquire()
    monkeypatch.undo()
    assert not is_free(directory)


def test_one_that_is_always_deleted_is_given_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()
    monkeypatch.setattr(fcntl, "flock", lambda *_: (directory / LOCK_FILE).unlink())
    with pytest.raises(SaveError, match="keeps replacing this file"):
        WriterLock(str(directory)).acquire()
    assert open_files() == before


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_not_followed(directory: Path, *, there: bool) -> None:
    victim = directory.parent / "victim"
    if there:
        victim.write_text("precious")
    (directory / LOCK_FILE).symlink_to(victim)
    with pytest.raises(SaveError, match=re.escape(f"{directory}/{LOCK_FILE}: is not a regular")):
        WriterLock(str(directory)).acquire()
    assert victim.exists() == there
    assert not there or victim.read_text() == "precious"


def test_what_is_no_file_is_no_lock(directory: Path) -> None:
    before = open_files()
    for make in (Path.mkdir, os.mkfifo):
        make(directory / LOCK_FILE)
        with pytest.raises(SaveError, match="not a regular file"):
            WriterLock(str(directory)).acquire()
        with contextlib.suppress(OSError):
            (directory / LOCK_FILE).rmdir()
    assert open_files() == before


def test_a_missing_directory_is_a_failed_save(directory: Path) -> None:
    path = directory / "absent"
    with pytest.raises(SaveError, match=re.escape(f"{path}/{LOCK_FILE}: cannot be locked")):
        WriterLock(str(path)).acquire()
    path.write_text("")
    with pytest.raises(SaveError, match="Not a directory"):
        WriterLock(str(path)).acquire()


@pytest.mark.parametrize("code", ["ENOLCK", "ENOTSUP", "ENOSYS", "EINVAL"])
def test_a_file_system_without_locks_is_warned_of_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(getattr(errno, code), "not here")

    before = open_files()
    monkeypatch.setattr(fcntl, "flock", fail)
    assert [WriterLock(str(directory)).acquire() for _ in range(3)] == [True, False, False]
    (message,) = caplog.messages
    assert message.startswith(f"{directory}: the file system does not support locks (not here)")
    assert open_files() == before


def test_a_system_without_locks_is_warned_of_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    assert [WriterLock(str(directory)).acquire() for _ in range(3)] == [True, False, False]
    (message,) = caplog.messages
    assert message.startswith(f"{directory}: the file system does not support locks (the system")
    assert "make sure that only one process saves into this directory" in message
    WriterLock(str(directory)).release()


def test_a_failing_disk_is_a_failed_save(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = open_files()
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(SaveError, match=re.escape(f"{LOCK_FILE}: cannot be locked for saving: In")):
        WriterLock(str(directory)).acquire()
    assert open_files() == before
    monkeypatch.undo()
    assert WriterLock(str(directory)).acquire()


def test_a_full_disk_keeps_nobody_from_locking(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    assert WriterLock(str(directory)).acquire()
    monkeypatch.undo()
    assert not is_free(directory)
