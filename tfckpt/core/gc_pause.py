"""Pauses Python's garbage collector, which scans many small new objects again and again."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """No automatic collection; not for code that makes large arrays, which would wait for one.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()  # else the program, or another thread, has disabled it
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
