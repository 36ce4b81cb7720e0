"""File systems of a test's own: small, read-only, gone with the process that mounted them.

For a forked child that has run nothing yet: only the thread that asks gets the new namespace.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


class NotPermittedError(Exception):
    """Mounting is not permitted here; the message says what was tried."""


def own_mounts() -> None:
    """From now on, what this process mounts is seen by nobody else."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise NotPermittedError("no mount namespaces on this system")
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEWNS) and libc.unshare(_NEWNS | _NEWUSER):
        raise NotPermittedError(f"unshare: {os.strerror(ctypes.get_errno())}")
    if os.getuid() != user:  # in a user namespace of its own, where it is to be root
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _mount(libc, "none", "/", "", _REC | _PRIVATE, "")


def mount_small(place: str, options: str) -> None:
    """An empty file system in memory; ``options``: ``size=1m``, ``nr_inodes=40``."""
    _mount(ctypes.CDLL(None, use_errno=True), "tmpfs", place, "tmpfs", 0, options)


def make_read_only(place: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _mount(libc, place, place, "", _BIND, "")
    _mount(libc, place, place, "", _BIND | _REMOUNT | _RDONLY, "")


def _mount(libc: ctypes.CDLL, source: str, place: str, kind: str, flags: int, options: str) -> None:
    texts = [os.fsencode(text) for text in (source, place, kind)]
    if libc.mount(*texts, ctypes.c_ulong(flags), os.fsencode(options)):
        raise NotPermittedError(f"mount {place}: {os.strerror(ctypes.get_errno())}")
