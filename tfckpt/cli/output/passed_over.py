"""Says on standard error which checkpoints of a directory were passed over, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.core.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping


def print_rejected(rejected: Mapping[str, str], *used: str) -> None:
    """Print a reason for each newer checkpoint that could not be read, and what is used instead."""
    for reason in rejected.values():
        text = "\n".join(map(printable, reason.split("\n")))
        print(f"tfckpt: passed over: {text}", file=sys.stderr)
    if rejected:
        print(f"tfckpt: using {' and '.join(map(printable, used))}", file=sys.stderr)
