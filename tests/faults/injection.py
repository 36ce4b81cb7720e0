"""Where a fault strikes: at the n-th call that changes files under one directory.

Two ways to get between a process and its files, with the same three methods. `Libc` sees what
Python and TensorFlow ask of libc, and needs a process that was started with `preload.c` before
it. `Seam` sees what tfckpt asks of its own file system interface, and needs nothing.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from tfckpt.stored.io.files import LocalFiles, LocalOutput

SOURCE = Path(__file__).with_name("preload.c")


class Mode(IntEnum):
    """What happens at the n-th call; the numbers are those of preload.c."""

    COUNT = 0  # nothing
    KILL_BEFORE = 1
    KILL_AFTER = 2
    TORN = 3  # half of it is written, then the process is killed; only calls that write count
    NO_SPACE = 4  # the disk is full; calls that delete do not count
    IO_ERROR = 5

    @property
    def kills(self) -> bool:
        return self in (Mode.KILL_BEFORE, Mode.KILL_AFTER, Mode.TORN)


@dataclasses.dataclass(frozen=True)
class Fault:
    """``n`` counts from 1; ``once`` or from then on for ever."""

    mode: Mode
    n: int
    once: bool = True

    def __str__(self) -> str:
        ever = "" if self.once or self.mode.kills else " from then on"
        return f"{self.mode.name} at call {self.n}{ever}"


def build_preload(directory: Path) -> tuple[Path | None, str]:
    """The library, or why there is none."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        return None, "faults below Python need Linux and a C compiler called `cc`"
    library = directory / "preload.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, SOURCE]
    built = subprocess.run(
        [*command, "-ldl"], capture_output=True, text=True, timeout=120, check=False
    )
    if built.returncode:
        return None, f"preload.c does not compile here: {built.stderr}"
    return library, ""


class Libc:
    """What preload.c catches. Only in a process that has it loaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_count.restype = ctypes.c_long

    def arm(self, directory: str, fault: Fault, log: int) -> None:
        """``log`` is a descriptor that is told of the fault before it strikes."""
        self._library.faults_arm(
            os.fsencode(os.path.realpath(directory)),
            ctypes.c_long(fault.n),
            int(fault.mode),
            int(fault.once),
            log,
        )

    def disarm(self) -> None:
        self._library.faults_disarm()

    def counts(self) -> dict[int, int]:
        """How many calls each mode could have struck."""
        return {mode: int(self._library.faults_count(int(mode))) for mode in Mode}


class Seam:
    """What goes through `LocalFiles`, be it the object that everybody shares or another."""

    CALLS = (
        *("create", "write_atomic", "lock", "rename", "remove", "remove_tree", "makedirs"),
        *("fsync", "fsync_dir", "link"),
    )
    OUTPUT_CALLS = ("write", "sync", "close")
    DELETE = ("remove", "remove_tree")
    TEAR = ("write_atomic", "remove_tree", "write")

    def __init__(self) -> None:
        self._calls = dict.fromkeys(Mode, 0)
        self._lock = threading.Lock()
        self._originals: list[tuple[type, str, Any]] = []

    def arm(self, directory: str, fault: Fault, log: int) -> None:
        self._root, self._fault, self._log = os.path.realpath(directory), fault, log
        self._calls = dict.fromkeys(Mode, 0)
        for owner, names in ((LocalFiles, self.CALLS), (LocalOutput, self.OUTPUT_CALLS)):
            for name in names:
                original = getattr(owner, name)
                self._originals.append((owner, name, original))
                setattr(owner, name, self._wrapped(name, original, owner))

    def disarm(self) -> None:
        while self._originals:
            setattr(*self._originals.pop())

    def counts(self) -> dict[int, int]:
        return dict(self._calls)

    def _wrapped(self, name: str, original: Any, owner: type) -> Any:
        def call(own: Any, *arguments: Any, **keywords: Any) -> Any:
            path = arguments[0] if owner is LocalFiles else own._file.name
            if owner is LocalOutput and own._file.closed:
                return original(own, *arguments)
            with self._lock:
                strikes = self._strikes(name, path)
            if not strikes:
                return original(own, *arguments, **keywords)
            os.write(self._log, f"fault {name} {path}\n".encode())
            if self._fault.mode is Mode.NO_SPACE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if self._fault.mode is Mode.IO_ERROR:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            if self._fault.mode is Mode.TORN:
                half(own, *arguments) if name == "write" else tear(name, *arguments)
            if self._fault.mode is Mode.KILL_AFTER:
                original(own, *arguments, **keywords)
            die()

        return call

    def _strikes(self, name: str, path: str) -> bool:
        fault = self._fault
        if not Path(os.path.realpath(path or ".")).is_relative_to(self._root):
            return False
        applicable = [mode for mode in Mode if self._is_applicable(mode, name)]
        for mode in applicable:
            self._calls[mode] += 1
        if fault.mode is Mode.COUNT or fault.mode not in applicable:
            return False
        now = self._calls[fault.mode]
        return now == fault.n or (not fault.once and now > fault.n)

    def _is_applicable(self, mode: Mode, name: str) -> bool:
        if mode is Mode.TORN:
            return name in self.TEAR
        return mode is not Mode.NO_SPACE or name not in self.DELETE


def half(output: Any, data: Any) -> None:
    """Write one half."""
    output._file.write(memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2])


def tear(name: str, path: str, data: bytes = b"") -> None:
    """Do one half of a call."""
    if name == "write_atomic":
        Path(f"{path}.0123abcd.tmp").write_bytes(data[: len(data) // 2])
    elif Path(path).is_dir():
        inside = sorted(Path(path).iterdir())
        for file in inside[: len(inside) // 2]:
            file.unlink()


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


BELOW = {"libc": Libc, "seam": Seam}
