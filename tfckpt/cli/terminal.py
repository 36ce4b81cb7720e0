"""What a command prints: tables, one JSON document, a progress bar, and why it was called wrongly.

Results go to standard output, all else to standard error. At a terminal, a table is as wide as the
window and its heading is bold; rich is imported only there.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.core.tables import plain
from tfckpt.core.text import WIDTH, printable, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Advance = Callable[[int, int], None]

_WARM_UP = 1.0  # seconds; a speed measured earlier is that of a cache


class UsageError(Exception):
    """The command line is wrong; only the message is shown, and whose help says more."""

    def __init__(self, message: str, command: str = "") -> None:
        super().__init__(message)
        self.command = command


def show_json(document: dict[str, Any]) -> None:
    """Print a document; NaN and infinities, which JSON cannot express, become null."""
    print(json.dumps(_plain(document), indent=2))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def as_html(file: str) -> Iterator[None]:
    """Write what is printed within the block into a new file, as rich makes HTML of text."""
    from rich.console import Console
    from rich.text import Text

    from tfckpt.stored.commits.new_file import new_file

    with new_file(file) as output:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            yield
        console = Console(record=True, file=io.StringIO(), highlight=False)
        console.print(Text(printed.getvalue()), soft_wrap=True, end="")
        output.write(console.export_html().encode(errors="backslashreplace"))
    print(f"{printable(file)}: written")


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def columns() -> int:
    """The width of a line: that of the window, or 80 in a pipe."""
    if not is_terminal():
        return WIDTH
    import shutil

    return shutil.get_terminal_size().columns


def show(
    title: Sequence[str], rows: Sequence[Sequence[str]], *right: int, wraps: bool = False
) -> None:
    """Print a table whose first column is a name, with columns ``right`` right-aligned.

    ``wraps``: the last column is text that may take several lines.
    """
    head, *lines = plain([title, *rows], *right, wraps=wraps, width=columns())
    if is_terminal():
        from rich.console import Console
        from rich.text import Text

        Console(highlight=False, soft_wrap=True).print(Text(head, style="bold"))
    else:
        print(head)
    if lines:
        print("\n".join(lines))


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
