"""A process that has imported TensorFlow once and forks for every request.

A fresh process costs seconds of importing, so a thousand cases that may abort, hang or be killed
could not each have one. A process that has only imported, and has run no operation, may be forked:
its children start TensorFlow's runtime for themselves. That takes some tenths of a second.

Results and output go through unnamed temporary files, not through pipes, so that a child that dies
in the middle, writes a lot or leaves a child of its own behind blocks nobody. The end of a child is
its end (``waitpid``), not the end of what it writes.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from typing_extensions import Self

TESTS = Path(__file__).resolve().parent.parent
SHOWN = 100_000  # characters of a child's output, the last ones
POLL = 0.005  # seconds


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a request ended.

    Attributes:
        value: what the function returned, None where it did not.
        error: ``module.Type: message`` of what it raised (the traceback is in ``output``), or how
            the process ended otherwise; None where it returned.
        signal: the signal that ended the process, None where none did.
        timed_out: whether it was killed because its time was up.
        output: what it wrote to standard output and standard error.
    """

    value: Any
    error: str | None
    signal: int | None
    timed_out: bool
    output: str

    def result(self) -> Any:
        """The value, where there is one; everything that is known, where not."""
        assert (self.error, self.signal, self.timed_out) == (None, None, False), self
        return self.value

    def __str__(self) -> str:
        ended = f"signal {self.signal}, " if self.signal else ""
        ended += "timed out, " if self.timed_out else ""
        return f"{ended}error: {self.error}\n{self.output}"


def results(outcomes: Sequence[Outcome]) -> list[Any]:
    """The values of all; everything that is known of all, where one has none."""
    failed = [one for one in outcomes if one.error or one.signal or one.timed_out]
    assert not failed, "\n".join(f"{index}: {one}" for index, one in enumerate(outcomes))
    return [one.value for one in outcomes]


class ForkServer:
    """Runs functions, each in a forked child of one process that has imported already.

    Args:
        env: what to add to the environment of that process.
        preload: the modules that it imports; none of them may run a TensorFlow operation then.

    A function is ``"package.module:function"``, with ``tests`` on the path, or the pair of a
    ``.py`` file and the function's name. Its arguments and result are what JSON can hold.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        preload: Iterable[str] = ("tensorflow", "keras", "tfckpt"),
    ) -> None:
        path = os.pathsep.join(map(str, (TESTS.parent, TESTS, os.environ.get("PYTHONPATH", ""))))
        self._busy = threading.Lock()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zoo.forkserver", *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=TESTS.parent,
            env={**os.environ, **(env or {}), "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process, and with it the children that still run."""
        self._requests.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()
        self._log.close()

    def run(
        self, function: str | tuple[str | Path, str], *arguments: Any, timeout: float = 60.0
    ) -> Outcome:
        """Call one function in a child of its own."""
        return self.run_many([(function, *arguments)], workers=1, timeout=timeout)[0]

    def run_many(
        self, requests: Iterable[Sequence[Any]], *, workers: int = 2, timeout: float = 60.0
    ) -> list[Outcome]:
        """Call functions, ``workers`` of them at a time; each request is (function, *arguments).

        The outcomes are in the order of the requests.
        """
        waiting = [
            [number, what if isinstance(what, str) else [*map(str, what)], rest, timeout]
            for number, (what, *rest) in enumerate(requests)
        ]
        outcomes: list[Any] = [None] * len(waiting)
        waiting.reverse()
        flying = 0
        with self._busy:
            while waiting or flying:
                try:
                    while waiting and flying < workers:
                        self._requests.write(json.dumps(waiting.pop()).encode() + b"\n")
                        self._requests.flush()
                        flying += 1
                    number, fields = json.loads(self._replies.readline() or "gone")
                except (BrokenPipeError, ValueError):
                    self._log.seek(0)
                    said = self._log.read().decode(errors="replace")[-SHOWN:]
                    status = self._process.wait()
                    raise RuntimeError(f"the fork server ended with {status}:\n{said}") from None
                outcomes[number] = Outcome(**fields)
                flying -= 1
        return outcomes


# What follows runs in the server and its children.


@dataclasses.dataclass
class _Child:
    number: int
    pid: int
    deadline: float
    result: IO[bytes]
    output: IO[bytes]
    timed_out: bool = False

    def outcome(self, status: int) -> Outcome:
        code = os.waitstatus_to_exitcode(status)
        self.result.seek(0)
        self.output.seek(0)
        output = self.output.read().decode(errors="replace")[-SHOWN:]
        with self.result, self.output:
            if self.timed_out:
                return Outcome(None, "killed: its time was up", None, True, output)
            if code < 0:
                return Outcome(None, f"ended by signal {-code}", -code, False, output)
            if code:
                return Outcome(None, f"exited with status {code}", None, False, output)
            return Outcome(*json.loads(self.result.read()), None, False, output)


def _serve(preload: Sequence[str]) -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an import prints is no reply
    for name in preload:
        importlib.import_module(name)
        eager = sys.modules.get("tensorflow.python.eager.context")
        if eager is not None and getattr(eager.context(), "_initialized", False):
            sys.exit(f"importing {name} runs an operation: TensorFlow hangs in forked children")
    if "tfckpt" in preload:
        import tfckpt

        for name in tfckpt.__all__:  # loaded on first use: that would be in every child
            getattr(tfckpt, name)
    faulthandler.enable()
    children: list[_Child] = []
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], POLL if children else None)
        if readable:
            read = os.read(0, 1 << 16)
            if not read:
                break
            *lines, pending = (pending + read).split(b"\n")
            children += [_fork(*json.loads(line), replies) for line in lines]
        for child in list(children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                children.remove(child)
                fields = dataclasses.asdict(child.outcome(status))
                replies.write(json.dumps([child.number, fields]).encode() + b"\n")
                replies.flush()
            elif time.monotonic() > child.deadline and not child.timed_out:
                child.timed_out = True
                os.kill(child.pid, signal.SIGKILL)
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)


def _fork(
    number: int, function: Any, arguments: Sequence[Any], timeout: float, replies: IO[bytes]
) -> _Child:
    result, output = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    deadline = time.monotonic() + timeout
    pid = os.fork()
    if pid:
        return _Child(number, pid, deadline, result, output)
    try:
        replies.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        # A job that a shell has put into the background ignores it, and so do all its children.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            text = json.dumps([_find(function)(*arguments), None])
        except BaseException as caught:
            traceback.print_exc()
            text = json.dumps([None, "".join(traceback.format_exception_only(caught)).strip()])
        sys.stdout.flush()
        sys.stderr.flush()
        result.write(text.encode())
        result.flush()
        os._exit(0)
    finally:
        os._exit(70)  # never back into the loop of the server


def _find(function: str | list[str]) -> Any:
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)
    path, name = function
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


if __name__ == "__main__":
    _serve(sys.argv[1:])
    os._exit(0)  # TensorFlow's own end takes a second, and there is nothing to end
