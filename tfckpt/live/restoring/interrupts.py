"""Delays Ctrl-C during work that must not stop halfway."""

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
    """Raise KeyboardInterrupt after the body; a second Ctrl-C raises it at once.

    Only in the main thread, and only if Python's own handler is installed for SIGINT.
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
