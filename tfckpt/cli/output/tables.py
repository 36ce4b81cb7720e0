"""Tables on standard output: as wide as the window at a terminal, where the heading is bold."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.core.tables import plain
from tfckpt.core.text import WIDTH

if TYPE_CHECKING:
    from collections.abc import Sequence


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
