"""Python's garbage collector, kept from walking what is just being made.

Ten thousand values are some hundred thousand objects, none of them garbage. The collector looks at
them again and again as they grow in number, and now and then at all else that the program holds.
"""

from __future__ import annotations

import contextlib
import gc
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_pauses: list[None] = []  # one for each thread that has turned it off


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No collection meanwhile, unless somebody asks for one; a decorator, too.

    For what makes many small objects and no large memory: what a program has just let go of may
    hold gigabytes, and is to be found before they are needed.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    if not gc.isenabled():  # by the program, or by whoever is to turn it on again
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
    """In a child no other thread goes on, nor turns it on again."""
    if _pauses:
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
