"""How a call that reads values says how far it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

# Called with what is read, ``2/3 runs/digits/ckpt-5``; gives a function of bytes done and in total.
Progress: TypeAlias = Callable[[str], AbstractContextManager[Callable[[int, int], None]]]


@contextlib.contextmanager
def silent(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show nothing."""
    yield lambda done, total: None
