"""Preemption: on a signal that asks the process to end, save once more after the step, then end.

The handlers only take note. After the save, the signal's previous handler applies. A Python handler
is called, and decides whether training continues. The default of SIGINT is KeyboardInterrupt; that
of the others becomes SystemExit with the exit status that a shell shows for the signal, so that
``finally`` blocks and ``atexit`` run. A signal that was ignored only saves. A second signal ends
the process at once, and so does the end of the grace time. A save that is killed leaves no
checkpoint, by the commit protocol.

Python runs its handlers between two instructions of the main thread, so a step that hangs in C++ is
not ended: the platform does that, and nothing that was saved is lost. A forked child behaves as if
there were no such handlers.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.errors import TfckptError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


class Signals:
    """The signals of ``manager.save.on_signal`` while training runs.

    >>> import signal
    >>> signals = Signals(["SIGTERM"], grace=25)
    >>> signals.install()
    >>> signals.received
    ()
    >>> signals.leave()
    >>> signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    True
    """

    def __init__(self, names: Iterable[str], grace: float) -> None:
        self._numbers = tuple(signal.Signals[name] for name in names)
        self._grace = grace
        self._previous: dict[signal.Signals, Any] = {}  # also when they are back
        self._received: list[signal.Signals] = []
        self._timer: threading.Timer | None = None
        self._process = os.getpid()
        self._abandoned = self._ends = False  # whether this process has received one that ends it
        self.watching = False

    @property
    def received(self) -> tuple[signal.Signals, ...]:
        """The signals that wait for the end of the step."""
        return tuple(self._received)

    def received_elsewhere(self, names: Iterable[str]) -> None:
        """Take signals that another worker of the same training has received."""
        for number in map(signal.Signals.__getitem__, names):
            if self.watching and number not in self._received:
                self._take(number)

    def install(self) -> None:
        """Install the handlers, unless they are installed or there are no signals to watch."""
        if not self._numbers:
            return
        if os.name != "posix" or not _in_main_thread():
            names = ", ".join(number.name for number in self._numbers)
            raise TfckptError(
                f"manager.save.on_signal: cannot handle {names}: Python handles signals only in "
                "the main thread, and tfckpt only on POSIX systems",
                hint="train in the main thread, or remove on_signal",
            )
        self._abandoned = False
        if not self.watching:
            self._previous = {number: _handler(number) for number in self._numbers}
            self._process, self.watching = os.getpid(), True
            for number in self._numbers:
                signal.signal(number, self._handle)

    def leave(self) -> None:
        """Restore the previous handlers, and pass them what was received."""
        if not self.watching or not _in_main_thread():
            self.abandon()
            return
        for number in self._end():
            previous = self._previous[number]
            if callable(previous):  # default_int_handler is one of them
                previous(number, sys._getframe())
            elif previous == signal.SIG_DFL:
                raise SystemExit(128 + number)

    def abandon(self) -> None:
        """Restore the previous handlers when no step will follow; from any thread.

        A signal that was received before ends the process when its grace time is over. Outside the
        main thread handlers cannot be restored: the next signal does that, and is then passed on.
        """
        self._abandoned = True
        if self.watching and not self._received and _in_main_thread():
            self._end()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._abandoned and not self._received:
            self._end()
        previous = self._previous[signal.Signals(number)]
        if self.watching and self._process == os.getpid():
            if self._ends and previous != signal.SIG_IGN:
                _end_process(number)  # a second one
            self._ends = previous != signal.SIG_IGN
            self._take(signal.Signals(number))
        elif callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            _end_process(number)

    def _take(self, number: signal.Signals) -> None:
        """Record a signal, which waits for the end of the step."""
        self._received.append(number)
        limit = ""
        if self._previous[number] != signal.SIG_IGN:
            limit = f", within {self._grace:g} s"
            if self._timer is None:
                self._timer = threading.Timer(self._grace, _end_process, [number])
                self._timer.daemon = True
                self._timer.start()
        text = f"{number.name} received: saving after this step{limit}"
        # In a thread of its own: what was interrupted may hold the lock of a log.
        threading.Thread(target=logging.warning, args=("%s", text), daemon=True).start()

    def _end(self) -> tuple[signal.Signals, ...]:
        """Restore the previous handlers; returns what was received."""
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:  # else a later handler replaced it
                signal.signal(number, _live_handler(number, previous))
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.watching, self._ends = None, False, False
        received, self._received = tuple(self._received), []
        return received


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handler(number: signal.Signals) -> Any:
    handler = signal.getsignal(number)
    if handler is None:
        raise TfckptError(
            f"manager.save.on_signal: {number.name} has a handler that Python did not install "
            "and could not restore",
            hint=f"remove {number.name} from on_signal",
        )
    return handler


def _live_handler(number: signal.Signals, handler: Any) -> Any:
    """The handler, or the one that it replaced if nobody watches it any more."""
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, Signals) and not owner.watching:
        return _live_handler(number, owner._previous[number])
    return handler


def _end_process(number: int) -> None:
    """End as by the signal's default, from any thread."""
    set_in_c = ctypes.CDLL(None).signal
    set_in_c.argtypes, set_in_c.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    set_in_c(number, None)  # SIG_DFL
    os.kill(os.getpid(), number)
    time.sleep(1)  # only process 1 of a container survives
    os._exit(128 + number)
