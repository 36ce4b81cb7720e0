"""How much memory this process may still take, as far as the system says.

The least of three limits: what the machine has available (proc_meminfo(5)), what the control groups
of the process leave (memory.max and memory.current of version 2, memory.limit_in_bytes and
memory.usage_in_bytes of version 1; files that the kernel can drop from its cache do not count), and
what setrlimit(2) leaves. Linux alone says all three; elsewhere the answer is None.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Hierarchy(NamedTuple):
    """Where a version of control groups has its groups, and the names of their files."""

    mount: str
    limit: str
    usage: str
    cache: str


_VERSION_1 = _Hierarchy(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)
_VERSION_2 = _Hierarchy("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")


def available_memory(root: str = "/") -> int | None:
    """Bytes that can still be taken; None if the system does not say.

    ``root`` is the directory that holds ``proc`` and ``sys``.
    """
    machine = _field(Path(root, "proc/meminfo"), "MemAvailable:")
    if machine is None:
        return None
    return max(0, min([machine << 10, *_left_by_groups(Path(root)), *_left_by_limits(Path(root))]))


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each control group of the process, and each around it, leaves."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        of = _VERSION_1 if controllers else _VERSION_2
        # In a container the path may be that of the host: the group itself is the mount then.
        mount = root / of.mount
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):
                with contextlib.suppress(ValueError):  # no limit: "max", or no such file
                    cached = _field(folder / "memory.stat", of.cache) or 0
                    used = int(_text(folder / of.usage)) - cached
                    yield int(_text(folder / of.limit)) - used


def _left_by_limits(root: Path) -> Iterator[int]:
    """What the limits of the process on its address space and its data leave."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        soft, _ = resource.getrlimit(limit)
        taken = _field(root / "proc/self/status", used)
        if soft != resource.RLIM_INFINITY and taken is not None:
            yield soft - (taken << 10)


def _field(path: Path, name: str) -> int | None:
    """The number after a name that begins a line."""
    for line in _text(path).splitlines():
        if line.split()[:1] == [name]:
            return int(line.split()[1])
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
