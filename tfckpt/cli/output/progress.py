"""A bar on standard error, where a person looks at it, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from tfckpt.core.text import printable, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Advance = Callable[[int, int], None]

_SETTLED = 1.0  # seconds, before which a speed is that of a cache, or of nothing


@contextlib.contextmanager
def progress(path: str, place: str = "") -> Iterator[Advance]:
    """Gives what to call with the bytes that are done and those there are in all.

    There is a bar from the first call on: a checkpoint of which nothing has to be read has none.
    """
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Pace(ProgressColumn):
        def render(self, task: Task) -> Text:
            total = None if task.total is None else int(task.total)
            return Text(pace(int(task.completed), total, task.elapsed or 0.0, task.speed))

    name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        TextColumn(f"{place} {escape(printable(path))}".strip(), table_column=name),
        BarColumn(20),
        Pace(table_column=Column(no_wrap=True)),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True, expand=True)
    task = bar.add_task("", total=None)

    def advance(done: int, of: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=of)

    try:
        yield advance
    finally:
        bar.stop()


def pace(done: int, total: int | None, elapsed: float, speed: float | None) -> str:
    """How much is done, and once it has settled how fast and how long it will take.

    >>> pace(1 << 20, 5 << 30, 0.2, 5e12), pace(1 << 30, 5 << 30, 4.0, 256 << 20)
    ('1.0 MiB of 5.0 GiB', '1.0 GiB of 5.0 GiB, 256.0 MiB/s, 16 s left')
    """
    if total is None:
        return ""
    text = f"{size(done)} of {size(total)}"
    if elapsed < _SETTLED or not speed:
        return text
    seconds = round((total - done) / speed)
    left = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
    return f"{text}, {size(round(speed))}/s, {left} left"
