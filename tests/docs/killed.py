"""Runs a program that is killed as soon as it has printed a text: ``killed.py TEXT PROGRAM``."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path


class Killing:
    """The standard output, for as long as the text has not come."""

    def __init__(self, text: str) -> None:
        self._text, self._out = text, sys.stdout

    def write(self, written: str) -> None:
        self._out.write(written)
        if self._text in written:
            self._out.write("\n")
            self._out.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def flush(self) -> None:
        self._out.flush()


if __name__ == "__main__":
    last, program = sys.argv[1:]
    sys.path[0] = str(Path(program).resolve().parent)
    sys.stdout = Killing(last)  # type: ignore[assignment]
    runpy.run_path(program, run_name="__main__")
