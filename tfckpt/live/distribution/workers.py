"""The workers of a ``tf.distribute.MultiWorkerMirroredStrategy``, and the messages between them.

Every worker makes the same calls, and at some points all of them meet: each sends a message, and
one verdict holds for all. The verdict is a key in the key-value store of TensorFlow's coordination
service, which runs in the chief and which that strategy turns on. A key can be inserted only once,
so the first verdict wins. The chief inserts it when it has received all messages; a worker that
fails, times out or finds another one dead inserts a refusal, unless there is a verdict already.
Collectives do not work for this: one that a worker does not join hangs, and aborting one ends the
job. TensorFlow's own barrier holds Python's interpreter lock while it waits.

No wait is longer than ``PATIENCE``; the wait for the end of a save gets another second for every
10 MB. A dead worker is noticed after ``UNREACHABLE`` seconds. Under any other strategy (mirrored
variables of one machine, TPUs, and parameter servers, whose coordinator saves and restores alone)
this module is not used.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import (
    CheckpointNotFoundError,
    CoverageError,
    DamagedCheckpointError,
    InUseError,
    NotBuiltError,
    TfckptError,
    UnsupportedCheckpointError,
)
from tfckpt.live.private import runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 600.0
"""Seconds that a worker waits for the others."""
UNREACHABLE = 5.0
"""Seconds after which a worker that does not answer counts as dead."""
_SLOWEST = 10_000_000  # bytes that a save writes in a second
_POLL = 1.0
_LAST_WAIT = 10.0
_LONGEST = 20_000  # characters of an error
_RAISED_IN_ALL = (
    CheckpointNotFoundError,
    CoverageError,
    DamagedCheckpointError,
    InUseError,
    NotBuiltError,
    UnsupportedCheckpointError,
)


class Workers:
    """All workers, of which this process is one."""

    def __init__(self, extended: Any) -> None:
        self.index, self.count, resolver = runtime.worker_of(extended)
        jobs = [job for job in ("chief", "worker") if job in resolver]
        self._tasks = [
            f"/job:{job}/replica:0/task:{number}"
            for job in jobs
            for number in range(len(resolver[job]))
        ]
        self.meetings = 0
        self.awaited = False

    @property
    def chief(self) -> bool:
        """Whether this process decides, writes and deletes."""
        return self.index == 0

    def meet(
        self, what: str, message: Any, error_class: type[TfckptError], *, last: bool = False
    ) -> list[Any]:
        """Send a message, and return those of all workers, in the order of the workers."""
        key = self._next_key()
        with self._connection_errors(error_class):
            _put(f"{key}/{self.index}", [what, message])
            if self.chief:
                verdict = self._decide(key, self._collect(key, what))
            else:
                verdict = self._wait(f"{key}/verdict", 0, PATIENCE)
                if verdict is None:
                    text = (
                        f"the chief did not join the {what} of worker {self.index} within "
                        f"{PATIENCE:g} seconds; every worker must make the same calls"
                    )
                    verdict = self._decide(key, _refusal(text, self.index))
            if last or "refused" in verdict:
                self._wait_until_received(key)
        return self._messages(verdict, error_class)

    def fail(self, what: str, error: BaseException) -> None:
        """Make the meeting that the others join, or have joined, fail for all."""
        verdict = _refusal(f"{what}: {error}"[:_LONGEST], self.index, type(error).__name__)
        key = self._next_key()
        with contextlib.suppress(tf.errors.OpError):
            self._decide(key, verdict)
            self._wait_until_received(key)

    def _wait_until_received(self, key: str) -> None:
        """Have the chief wait briefly until all have received the verdict.

        The verdict is lost if the chief's process exits earlier.
        """
        if not self.chief:
            _put(f"{key}/received/{self.index}", True)
            return
        end = time.monotonic() + _LAST_WAIT
        with contextlib.suppress(tf.errors.OpError):
            for index in range(1, self.count):
                self._wait(f"{key}/received/{index}", index, end - time.monotonic())

    def send_outcome(self, message_key: str, error: BaseException | None) -> None:
        """The chief sends the outcome of its work."""
        kind, text = ("", "") if error is None else (type(error).__name__, str(error)[:_LONGEST])
        with contextlib.suppress(tf.errors.OpError):
            _put(f"{message_key}/outcome", [kind, text])
            self._wait_until_received(message_key)
            runtime.delete(message_key)

    def wait_for_outcome(
        self, message_key: str, what: str, error_class: type[TfckptError], nbytes: int
    ) -> None:
        """Wait for the outcome that the chief sends."""
        seconds = PATIENCE + nbytes / _SLOWEST
        with self._connection_errors(error_class):
            answer = self._wait(f"{message_key}/outcome", 0, seconds)
            if answer is None:
                raise error_class(
                    f"{what}: worker {self.index} received nothing from the chief in {seconds:g} s",
                    hint="check in the directory whether the checkpoint was written",
                )
            self._wait_until_received(message_key)
        kind, text = answer
        if kind:
            raise _remote_error(
                kind, f"the chief failed, so every worker fails: {text}", error_class
            )

    def message_key(self) -> str:
        """The key of the chief's next outcome; the same in all workers between two meetings."""
        return f"tfckpt/after/{self.meetings}"

    def _next_key(self) -> str:
        self.meetings += 1
        return f"tfckpt/{self.meetings}"

    def _collect(self, key: str, what: str) -> Any:
        received = []
        end = time.monotonic() + PATIENCE
        for index in range(self.count):
            message_key = f"{key}/{index}"
            try:
                found = self._wait(message_key, index, end - time.monotonic(), f"{key}/verdict")
            except _DeadError:
                return _refusal(f"worker {index} of {self.count} died before the {what}", index)
            if found is None:
                if (verdict := _get(f"{key}/verdict", 0)) is not None:
                    return verdict
                return _refusal(
                    f"worker {index} of {self.count} did not join the {what} within "
                    f"{PATIENCE:g} seconds; every worker must make the same calls",
                    index,
                )
            received.append(found)
        if self.meetings > 1:  # all have left that meeting
            runtime.delete(f"tfckpt/{self.meetings - 1}")
        for index, (came_for, _) in enumerate(received):
            if came_for != what:
                return _refusal(
                    f"worker {index} joined for the {came_for}, the chief for the "
                    f"{what}; every worker must make the same calls",
                    index,
                )
        return {"received": [message for _, message in received]}

    def _decide(self, key: str, verdict: Any) -> Any:
        """Insert a verdict; returns the one that holds, which may be an earlier one."""
        try:
            _put(f"{key}/verdict", verdict)
        except tf.errors.AlreadyExistsError:
            return self._wait(f"{key}/verdict", 0, PATIENCE)
        return verdict

    def _messages(self, verdict: Any, error_class: type[TfckptError]) -> list[Any]:
        if "received" in verdict:
            return list(verdict["received"])
        text, index, kind = verdict["refused"]
        who = "the chief" if index == 0 else f"worker {index}"
        text = f"{who} failed, so every worker fails: {text}" if kind else text
        raise _remote_error(kind, text, error_class)

    def _wait(self, message_key: str, worker: int, seconds: float, unless: str = "") -> Any:
        """The value that a worker puts; None after a timeout, or once ``unless`` exists."""
        end = time.monotonic() + seconds
        silent_since = None
        while True:
            left = end - time.monotonic()
            if (found := _get(message_key, min(max(left, 0.001), _POLL))) is not None:
                return found
            if left <= 0 or (unless and _get(unless, 0.001) is not None):
                return None
            now = time.monotonic()
            silent_since = None if self._answers(worker) else silent_since or now
            if silent_since is not None and now - silent_since >= UNREACHABLE:
                raise _DeadError(None, None, f"worker {worker} does not answer")

    def _answers(self, index: int) -> bool:
        try:
            runtime.check_health(self._tasks[index], int(_POLL * 1000))
        except tf.errors.OpError:
            return False
        return True

    @contextlib.contextmanager
    def _connection_errors(self, error_class: type[TfckptError]) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            raise error_class(
                f"worker {self.index} of {self.count} lost its connection to the chief or another "
                f"worker: {error}",
                hint="restart all workers; they resume from the last checkpoint",
            ) from error


class _DeadError(tf.errors.UnavailableError):  # type: ignore[misc]
    """A worker does not answer."""


def _refusal(text: str, index: int, kind: str = "") -> dict[str, Any]:
    return {"refused": [text, index, kind]}


def _remote_error(kind: str, text: str, error_class: type[TfckptError]) -> TfckptError:
    """The error of another worker, of the same class if callers may catch that."""
    return next((each for each in _RAISED_IN_ALL if each.__name__ == kind), error_class)(text)


def _put(message_key: str, value: Any) -> None:
    runtime.put(message_key, json.dumps(value))


def _get(message_key: str, seconds: float) -> Any:
    """The value of a key; None after a timeout."""
    try:
        text = runtime.get(message_key, max(int(seconds * 1000), 1))
    except tf.errors.DeadlineExceededError:
        return None
    return json.loads(text)
