"""The lock between real processes: who holds it, who dies, who inherits it.

Each process does what it is told, a word a line, and answers on standard output, so that nothing is
left to timing; each ends after a minute.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tfckpt.errors import InUseError, SaveError
from tfckpt.stored.commits.writer_lock import LOCK_FILE, WriterLock

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT = 60
CODE = """
import os, signal, subprocess, sys
signal.alarm(60)
from tfckpt.errors import SaveError
from tfckpt.stored.commits.writer_lock import WriterLock

def acquire():
    try:
        return WriterLock(sys.argv[1]).acquire()
    except SaveError as error:
        return type(error).__name__ + " " + str(error).replace("\\n", " ")

def release():
    return WriterLock(sys.argv[1]).release()

def fork():
    begun, begins = os.pipe()
    if not (child := os.fork()):
        os.write(begins, b"!")
        signal.pause()
    os.read(begun, 1)  # until then its copy of the lock is open
    return child

def spawn():
    code = "import signal; signal.pause()"
    return subprocess.Popen([sys.executable, "-c", code], close_fds=False).pid

def acquire_in_child():
    if not (child := os.fork()):
        print(acquire(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    return "ended"

while word := sys.stdin.readline().strip():
    print(globals()[word](), flush=True)
"""


class Process(subprocess.Popen[str]):
    """A process that does what it is told in a directory."""

    stdin: IO[str]
    stdout: IO[str]

    def __init__(self, directory: Path) -> None:
        command, pipe = [sys.executable, "-c", CODE, str(directory)], subprocess.PIPE
        super().__init__(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=PROJECT)

    def begin(self, word: str) -> None:
        self.stdin.write(f"{word}\n")

    def answer(self) -> str:
        line = self.stdout.readline().rstrip()
        assert line, "it has ended"
        return line

    def does(self, word: str) -> str:
        self.begin(word)
        return self.answer()

    def end(self) -> None:
        """Let it come to its end by itself."""
        with contextlib.suppress(BrokenPipeError):
            self.communicate(timeout=TIMEOUT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    with contextlib.ExitStack() as stack:

        def begin() -> Process:
            process = Process(tmp_path)
            stack.callback(process.end)
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def other(start) -> Process:
    return start()


def test_of_processes_that_begin_together_one_takes_it(start, tmp_path) -> None:
    processes = [start() for _ in range(4)]
    for process in processes:
        process.begin("acquire")
    answers = [process.answer() for process in processes]
    (first,) = [p for p, answer in zip(processes, answers, strict=True) if answer == "True"]
    for answer in answers:
        known = f"process {first.pid} " in answer or "an unknown process" in answer
        assert answer == "True" or known
    second, third, fourth = (process for process in processes if process is not first)
    answer = second.does("acquire")
    assert answer.startswith(f"InUseError {tmp_path}: another process saves into this directory")
    assert f"process {first.pid} on {socket.gethostname()!r}" in answer
    with pytest.raises(InUseError, match=f"process {first.pid} "):
        WriterLock(str(tmp_path)).acquire()
    first.end()
    assert second.does("acquire") == "True"
    assert f"process {second.pid} " in third.does("acquire")
    second.kill()
    second.wait(TIMEOUT)
    assert third.does("acquire") == "True"
    assert third.does("acquire") == "False"  # it has it already
    third.does("release")
    assert fourth.does("acquire") == "True"
    fourth.kill()
    fourth.wait(TIMEOUT)
    assert WriterLock(str(tmp_path)).acquire()
    WriterLock(str(tmp_path)).release()


@pytest.mark.parametrize("word", ["fork", "spawn"])
def test_a_child_that_outlives_its_killed_parent_holds_nothing(start, other, word) -> None:
    parent = start()
    assert parent.does("acquire") == "True"
    child = int(parent.does(word))
    try:
        assert f"process {parent.pid} " in other.does("acquire")
        parent.kill()
        parent.wait(TIMEOUT)
        os.kill(child, 0)  # it is still there
        assert other.does("acquire") == "True"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_does_not_hold_what_its_parent_holds_and_its_end_frees_nothing(
    start, other
) -> None:
    parent = start()
    assert parent.does("acquire") == "True"
    assert f"process {parent.pid} " in parent.does("acquire_in_child")
    assert parent.answer() == "ended"
    assert parent.does("acquire") == "False"
    assert f"process {parent.pid} " in other.does("acquire")
    child = int(parent.does("fork"))
    try:
        parent.does("release")
        assert other.does("acquire") == "True"  # although the child lives
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_fork_at_any_moment_of_another_thread_inherits_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    directories = [tmp_path / name for name in "abc"]

    def turn(directory: Path) -> None:
        while not stop.is_set():
            WriterLock(str(directory)).acquire()
            WriterLock(str(directory)).release()

    for directory in directories:
        directory.mkdir()
    threads = [threading.Thread(target=turn, args=[path]) for path in directories]
    WriterLock(str(tmp_path)).acquire()
    for thread in threads:
        thread.start()
    statuses = []
    try:
        for _ in range(50):
            child = os.fork()
            if not child:
                os._exit(inherited())
            statuses.append(os.waitpid(child, 0)[1])
        assert not WriterLock(str(tmp_path)).acquire()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        WriterLock(str(tmp_path)).release()
    assert statuses == [0] * 50


def inherited() -> int:
    """How many open files of this process are locks."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += LOCK_FILE in os.fspath(link.readlink())
    return found


def test_a_directory_that_cannot_be_written_is_a_failed_save(tmp_path, monkeypatch) -> None:
    def denied(path: str, *_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", denied)
    text = f"{tmp_path / LOCK_FILE}: cannot be locked for saving: Permission denied"
    with pytest.raises(SaveError, match=re.escape(text)) as refused:
        WriterLock(str(tmp_path)).acquire()
    assert "needs write permission" in str(refused.value)
