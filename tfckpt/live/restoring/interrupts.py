"""Ctrl-C in the middle of what must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from absl import logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def interrupt_waits() -> Iterator[None]:
    """KeyboardInterrupt comes at the end, and for a second Ctrl-C at once.

    Where Python's own handler would raise it: in the main thread, unless somebody else handles
    SIGINT.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came = False

    def wait(*_: Any) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        logging.warning("interrupted: the restore ends first; press Ctrl-C again to stop at once")

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
