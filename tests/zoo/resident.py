"""How much memory this process holds, and held at most (proc_pid_status(5), `clear_refs`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CLEAR = Path("/proc/self/clear_refs")
MEASURED = pytest.mark.skipif(not os.access(CLEAR, os.W_OK), reason=f"no {CLEAR} to write to")


def status(field: str) -> int:
    """Bytes of a field such as ``VmSize:``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def resident() -> int:
    """The bytes in memory now; from here on the peak is counted."""
    CLEAR.write_text("5")
    return status("VmRSS:")


def peak() -> int:
    return status("VmHWM:")
