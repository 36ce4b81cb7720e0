"""Runs a program, which may be killed as soon as it has printed a text.

Called by a fork server that has imported TensorFlow already, or by ``killed.py TEXT PROGRAM``.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import sys
import threading
from pathlib import Path


class Output:
    """A file of what is printed; the process is killed as soon as a text has come."""

    def __init__(self, path: str, last: str) -> None:
        self._file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._last = last

    def write(self, written: str) -> None:
        self._file.write(written)
        if self._last and self._last in written:
            self._file.write("\n")
            self._file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def flush(self) -> None:
        self._file.flush()


def run(
    words: list[str], directory: str, environment: dict[str, str], output: str, last: str
) -> int:
    """Its exit status; what it prints is in a file."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    sys.path[:0] = [directory]
    sys.stdout = Output(output, last)  # type: ignore[assignment]
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ended.code is not None
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stdout = sys.__stdout__
    return 0


if __name__ == "__main__":
    text, *program = sys.argv[1:]
    sys.exit(run(program, str(Path.cwd()), {**os.environ}, "/dev/stdout", text))
