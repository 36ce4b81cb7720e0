"""What goes to standard error: a progress bar at a terminal, and what was passed over and why."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from tfckpt.core.text import printable, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Advance = Callable[[int, int], None]

_WARM_UP = 1.0  # seconds; a speed measured earlier is that of a cache


@contextlib.contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Yield a function to call with the bytes done and the bytes in total.

    The bar appears at the first call, so that there is none if nothing has to be read.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class SpeedColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            total = None if task.total is None else int(task.total)
            return Text(
                amount_and_speed(int(task.completed), total, task.elapsed or 0.0, task.speed)
            )

    name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn(escape(printable(what)), table_column=name),
        BarColumn(20),
        SpeedColumn(table_column=Column(no_wrap=True)),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
    task = bar.add_task("", total=None)

    def advance(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        bar.stop()


def amount_and_speed(done: int, total: int | None, elapsed: float, speed: float | None) -> str:
    """The bytes done and, after a second, the speed and the time left.

    >>> amount_and_speed(1 << 20, 5 << 30, 0.2, 5e12)
    '1.0 MiB of 5.0 GiB'
    >>> amount_and_speed(1 << 30, 5 << 30, 4.0, 256 << 20)
    '1.0 GiB of 5.0 GiB, 256.0 MiB/s, 16 s left'
    """
    if total is None:
        return ""
    text = f"{size(done)} of {size(total)}"
    if elapsed < _WARM_UP or not speed:
        return text
    seconds = round((total - done) / speed)
    left = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return f"{text}, {size(round(speed))}/s, {left} left"


def print_rejected(rejected: Mapping[str, str], *used: str) -> None:
    """Print a reason for each newer checkpoint that could not be read, and what is used instead."""
    for reason in rejected.values():
        text = "\n".join(map(printable, reason.split("\n")))
        print(f"tfckpt: passed over: {text}", file=sys.stderr)
    if rejected:
        print(f"tfckpt: using {' and '.join(map(printable, used))}", file=sys.stderr)
