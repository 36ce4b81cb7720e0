"""The lock between real processes: who holds it, who dies, who inherits it.

Each process runs a few lines that answer on standard output and wait on standard input, so that
nothing is left to timing; every wait ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfckpt.errors import InUseError
from tfckpt.stored.commits.writer_lock import LOCK_FILE, WriterLock

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
TIMEOUT = 60

BEGIN = """
import os, subprocess, sys
from tfckpt.errors import SaveError
from tfckpt.stored.commits.writer_lock import WriterLock

def acquire():
    try:
        print(WriterLock(sys.argv[1]).acquire(), flush=True)
    except SaveError as error:
        print(type(error).__name__, str(error).replace("\\n", " "), flush=True)
"""
HOLD = "acquire(); sys.stdin.readline()"
TRY = "acquire()"


class Process:
    """A process that runs the code, with a directory as its argument."""

    def __init__(self, code: str, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{BEGIN}\n{code}", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=PROJECT,
        )
        self.pid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):  # byte by byte: `select` does not see what is buffered
            ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
            assert ready, "no answer"
            byte = os.read(self.process.stdout.fileno(), 1)
            assert byte, "it has ended"
            line += byte
        return line.decode().rstrip()

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT)

    def end(self) -> None:
        """Let it come to its end, by itself and with what waits on its input."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate(timeout=TIMEOUT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    processes: list[Process] = []

    def begin(code: str) -> Process:
        processes.append(Process(code, tmp_path))
        return processes[-1]

    yield begin
    for process in processes:
        if process.process.poll() is None:
            process.kill()
        process.end()


def attempt(start) -> str:
    process = start(TRY)
    answer = process.line()
    process.end()
    return answer


def test_the_second_process_is_told_of_the_first_and_takes_over_at_its_end(
    start, tmp_path: Path
) -> None:
    first = start(HOLD)
    assert first.line() == "True"
    answer = attempt(start)
    assert answer.startswith(f"InUseError {tmp_path}: another process saves into this directory")
    assert f"process {first.pid} on {socket.gethostname()!r}" in answer
    first.tell()
    first.end()
    assert attempt(start) == "True"


def test_a_killed_process_holds_nothing(start) -> None:
    first = start(HOLD)
    assert first.line() == "True"
    assert attempt(start).startswith("InUseError")
    first.kill()
    assert attempt(start) == "True"


def test_of_processes_that_begin_together_one_takes_it(start) -> None:
    processes = [start("sys.stdin.readline(); acquire(); sys.stdin.readline()") for _ in range(4)]
    for process in processes:
        process.tell()
    answers = [process.line() for process in processes]
    (holder,) = [p for p, answer in zip(processes, answers, strict=True) if answer == "True"]
    for answer in answers:
        assert (
            answer == "True" or f"process {holder.pid} " in answer or "an unknown process" in answer
        )


# The child answers on the parent's output and lives until the input that both have ends.
FORK = """
acquire()
if not os.fork():
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""
SPAWN = """
acquire()
code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", code], close_fds=False)
sys.stdin.read()
"""


@pytest.mark.parametrize("code", [FORK, SPAWN], ids=["fork", "exec"])
def test_a_child_that_outlives_its_killed_parent_holds_nothing(start, code: str) -> None:
    parent = start(code)
    assert parent.line() == "True"
    child = int(parent.line())
    assert f"process {parent.pid} " in attempt(start)
    parent.kill()
    os.kill(child, 0)  # it is still there
    assert attempt(start) == "True"
    os.kill(child, 0)


def test_a_child_does_not_hold_what_its_parent_holds_and_its_end_frees_nothing(start) -> None:
    parent = start(
        """
acquire()
child = os.fork()
if not child:
    acquire()
    os._exit(0)
os.waitpid(child, 0)
acquire()
sys.stdin.read()
"""
    )
    assert parent.line() == "True"
    assert f"process {parent.pid} " in parent.line()
    assert parent.line() == "False"
    assert f"process {parent.pid} " in attempt(start)


def test_what_a_parent_releases_is_free_although_its_child_lives(start) -> None:
    parent = start(
        """
acquire()
end, of_the_parent = os.pipe()
if os.fork():
    sys.stdin.readline()
    WriterLock(sys.argv[1]).release()
    print("released", flush=True)
    sys.stdin.read()
else:  # which must not take the parent's line
    os.close(of_the_parent)
    os.read(end, 1)
"""
    )
    assert parent.line() == "True"
    parent.tell()
    assert parent.line() == "released"
    assert attempt(start) == "True"


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
        for _ in range(100):
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
    assert statuses == [0] * 100


def inherited() -> int:
    """How many open files of this process are locks."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += LOCK_FILE in os.fspath(link.readlink())
    return found


READ_ONLY = """
import pwd
if not os.getuid():
    nobody = pwd.getpwnam("nobody")
    os.chown(sys.argv[1], nobody.pw_uid, nobody.pw_gid)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
os.chmod(sys.argv[1], 0o555)
acquire()
os.chmod(sys.argv[1], 0o755)
"""


def test_a_directory_that_cannot_be_written_is_a_failed_save() -> None:
    directory = Path(tempfile.mkdtemp())  # whoever is nobody comes to no tmp_path of root
    try:
        process = Process(READ_ONLY, directory)
        answer = process.line()
        process.end()
        path = directory / LOCK_FILE
        assert answer.startswith(f"SaveError {path}: cannot be locked for saving: Permission")
        assert "needs write permission" in answer
        assert list(directory.iterdir()) == []
    finally:
        shutil.rmtree(directory)


def test_this_process_too_is_refused_and_takes_over(start, tmp_path: Path) -> None:
    first = start(HOLD)
    assert first.line() == "True"
    with pytest.raises(InUseError, match=f"process {first.pid} "):
        WriterLock(str(tmp_path)).acquire()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(TIMEOUT)
    assert WriterLock(str(tmp_path)).acquire()
    WriterLock(str(tmp_path)).release()
