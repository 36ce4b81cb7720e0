"""`tfckpt doctor`: what a bug report needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.text import printable
from tfckpt.tools.doctor import doctor

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments


def run(arguments: Arguments) -> int:
    """Show versions, and what a directory holds."""
    if len(arguments.positional) > 1:
        raise UsageError("expected one directory, or none")
    found = doctor(next(iter(arguments.positional), None))
    if arguments.json:
        show_json({"version": 1, "facts": found.to_json()})
    else:
        print("\n".join(map(printable, str(found).splitlines())))
    return 0
