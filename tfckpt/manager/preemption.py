"""Preemption: on a signal that asks the process to end, save once more, then end.

The first signal is remembered until the current step is over. After it, a second signal ends the
process at once, and so does the end of the grace time, even if a step hangs in C++: Python runs its
signal handlers only between two instructions of the main thread, so a thread listens on
``signal.set_wakeup_fd`` and restores the default handlers in C. A save that is killed leaves no
checkpoint, by the commit protocol.

After the save, the signal's previous handler applies. A Python handler is called, and decides
whether training continues. The default of SIGINT is KeyboardInterrupt; that of the others becomes
SystemExit with the exit status that a shell shows for the signal, so that ``finally`` blocks and
``atexit`` run. A signal that was ignored only saves.

Limits: Python code that never releases the GIL also stops the listening thread. If asyncio uses the
wakeup descriptor, it keeps it, and a hanging step is not ended. Process 1 of a container, for which
the kernel ignores default handlers, is not ended by a second signal, only by the end of the grace
time. A forked child has the previous handlers.
"""

from __future__ import annotations

import contextlib
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
        self._watch: _Handlers | None = None

    @property
    def received(self) -> tuple[signal.Signals, ...]:
        """The signals that wait for the end of the step."""
        return () if self._watch is None or self._watch.ended else tuple(self._watch.received)

    @property
    def watching(self) -> bool:
        """Whether a signal would wait for the end of the step."""
        return self._watch is not None and not self._watch.ended

    def received_elsewhere(self, names: Iterable[str]) -> None:
        """Take signals that another worker of the same training has received."""
        watch = self._watch
        if watch is None or watch.ended:
            return
        for number in map(signal.Signals.__getitem__, names):
            if number not in watch.received:
                watch.take(number)

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
        if self._watch is None or self._watch.ended:
            self._watch = _Handlers(self._numbers, self._grace)
        self._watch.abandoned = False

    def leave(self) -> None:
        """Restore the previous handlers, and pass them what was received."""
        watch = self._watch
        if watch is None or not _in_main_thread():
            self.abandon()
            return
        self._watch = None
        watch.end()
        for number in watch.received:
            previous = watch.previous[number]
            if callable(previous):  # default_int_handler is one of them
                previous(number, sys._getframe())
            elif previous == signal.SIG_DFL:
                raise SystemExit(128 + number)

    def abandon(self) -> None:
        """Restore the previous handlers when no step will follow; from any thread.

        A signal that was received before ends the process when its grace time is over. Outside the
        main thread handlers cannot be restored: the next signal does that, and is then passed on.
        """
        watch = self._watch
        if watch is None or watch.received:
            return
        if not _in_main_thread():
            watch.abandoned = True
            return
        self._watch = None
        watch.end()
        for number in watch.received:  # at the last moment
            os.kill(os.getpid(), number)


class _Handlers:
    """One installation of handlers, from ``install`` to ``leave``."""

    def __init__(self, numbers: Iterable[signal.Signals], grace: float) -> None:
        self.previous = {number: _handler(number) for number in numbers}
        self.received: list[signal.Signals] = []
        self.ended = False
        self.abandoned = False
        self._grace = grace
        self._seen: set[int] = set()
        self._over = threading.Event()
        # A handler may interrupt `end` and call it.
        self._lock = threading.RLock()
        self._set_in_c = ctypes.CDLL(None).signal
        self._set_in_c.argtypes, self._set_in_c.restype = [ctypes.c_int, ctypes.c_void_p], None
        self._reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        threading.Thread(target=self._listen, name="tfckpt-signals", daemon=True).start()
        _active.append(self)
        _give_wakeup_to(self.writer)
        for number in self.previous:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.abandoned:
            self.end()
        if not self.ended:
            self.take(signal.Signals(number))
            return
        previous = self.previous[signal.Signals(number)]
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def take(self, number: signal.Signals) -> None:
        """Record a signal, which waits for the end of the step."""
        self.received.append(number)
        with contextlib.suppress(
            BlockingIOError
        ):  # the pipe is full, so the thread wakes up anyway
            os.write(self.writer, b"\0")  # in case the wakeup descriptor is not ours

    def _listen(self) -> None:
        while numbers := os.read(self._reader, 64):
            for number in numbers:
                if number == 0:
                    for received in tuple(self.received):
                        self._first(received)
                elif number in self.previous and signal.getsignal(number) == self._handle:
                    self._first(signal.Signals(number))
        os.close(self._reader)

    def _first(self, number: signal.Signals) -> None:
        with self._lock:
            if self.ended or number in self._seen:
                return
            self._seen.add(number)
            ends = self.previous[number] != signal.SIG_IGN
            for each, previous in self.previous.items() if ends else ():
                if previous != signal.SIG_IGN and signal.getsignal(each) == self._handle:
                    self._set_in_c(each, None)  # SIG_DFL
        limit = ""
        if ends:
            limit = f", within {self._grace:g} s"
            # In a thread of its own, since logging may block.
            threading.Thread(target=self._count_down, args=(number,), daemon=True).start()
        logging.warning("%s received: saving after this step%s", number.name, limit)

    def _count_down(self, number: signal.Signals) -> None:
        if self._over.wait(self._grace):
            return
        with self._lock:
            if not self.ended:
                os.kill(os.getpid(), number)
                time.sleep(1)  # only process 1 of a container survives
                os._exit(128 + number)

    def end(self) -> None:
        """Restore everything; call it in the main thread."""
        with self._lock:
            if self.ended:
                return
            self._put_back()
            self.ended = True
            _active.remove(self)
            _take_wakeup_from(self.writer)
            os.close(self.writer)  # which ends the listening thread
        self._over.set()

    def end_in_child(self) -> None:
        """The same after a fork, where threads are gone and locks may be held for ever."""
        self._put_back()
        self.ended = True
        _take_wakeup_from(self.writer)
        os.close(self.writer)
        os.close(self._reader)

    def _put_back(self) -> None:
        for number, previous in self.previous.items():
            if signal.getsignal(number) == self._handle:  # else a later handler replaced it
                signal.signal(number, _live_handler(number, previous))


_active: list[_Handlers] = []
"""Installed ones; the last has the wakeup descriptor."""


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
    """The handler, or the one it replaced if it belongs to an installation that has ended."""
    owner = getattr(handler, "__self__", None)
    if isinstance(owner, _Handlers) and owner.ended:
        return _live_handler(number, owner.previous[number])
    return handler


def _give_wakeup_to(writer: int) -> None:
    owner = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if owner not in {-1, *(watch.writer for watch in _active)}:
        signal.set_wakeup_fd(owner)


def _take_wakeup_from(writer: int) -> None:
    owner = signal.set_wakeup_fd(-1)
    if owner == writer and _active:
        signal.set_wakeup_fd(_active[-1].writer, warn_on_full_buffer=False)
    elif owner != writer:
        signal.set_wakeup_fd(owner)


class _Fork(threading.local):
    """Blocks signals around a fork: the child would write them into this process's pipe."""

    mask: Any = ()

    def before(self) -> None:
        numbers = {number for watch in _active for number in watch.previous}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def after_in_parent(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def after_in_child(self) -> None:
        while _active:
            _active.pop().end_in_child()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(
        before=_fork.before,
        after_in_parent=_fork.after_in_parent,
        after_in_child=_fork.after_in_child,
    )
