"""Room on a disk for a file whose size is known before it is written.

A file system that is asked once finds the room for a large file in one piece, and need not look for
more at every write: on ext4 that saves a quarter of the time. Where there is no disk behind the
file system (memory, another machine) nothing is asked: it would only cost. A disk that is full says
so before anything is written.

Python has no call for it: ``os.posix_fallocate`` changes the size at once, and where the file
system does not know how, it writes zeros.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from typing import Any

LARGE = 1 << 23
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of linux/falloc.h


def reserve(descriptor: int, nbytes: int) -> None:
    """Have the file system find the room for so many bytes of an open, empty file.

    Raises:
        OSError: there is not so much.
    """
    call = _fallocate() if nbytes >= LARGE else None
    if call is None or not os.major(os.fstat(descriptor).st_dev):
        return
    if call(descriptor, _KEEP_SIZE, 0, nbytes) and ctypes.get_errno() == errno.ENOSPC:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@functools.cache
def _fallocate() -> Any:
    """``fallocate(2)``, None where there is none."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return call
