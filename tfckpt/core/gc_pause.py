"""Pauses Python's garbage collector while many small objects are created.

Ten thousand values are some hundred thousand objects, none of them garbage. Without a pause, the
collector scans them again and again, and sometimes everything else that the program holds.
"""

from __future__ import annotations

import contextlib
import gc
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_pauses: list[None] = []  # one item for each thread that has disabled it


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Disable automatic garbage collection; a context manager or decorator.

    Only for code that creates many small objects and no large arrays: garbage that waits for the
    collector may hold gigabytes.

    >>> with gc_paused():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():  # by the program, or by a thread that will enable it again
        yield
        return
    _pauses.append(None)
    try:
        gc.disable()
        yield
    finally:
        gc.enable()
        _pauses.pop()


def _after_fork() -> None:
    """In a forked child, no other thread runs that could enable it again."""
    if _pauses:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
