"""A bar on standard error, where a person looks at it, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from tfckpt.planning.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress(path: str, place: str = "") -> Iterator[Callable[[int, int], None]]:
    """Gives what to call with the bytes that are done and those there are in all."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn(f"{place} {escape(printable(path))}".strip()),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, of: bar.update(task, completed=done, total=of)
