"""Help texts, generated from the table of commands."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from tfckpt.core.text import WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfckpt.cli.arguments.command import Command, Flag

_STATUS = (
    "exit status: 0 success; 1 difference found, restore refused, checkpoint\n"
    "  damaged or missing, config invalid; 2 wrong command line; 130 interrupted"
)


def overview(commands: Sequence[Command]) -> str:
    """The help of `tfckpt` itself: one line for each command."""
    width = max(len(command.name) for command in commands)
    lines = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in commands)
    examples = "\n".join(f"  tfckpt {command.examples[0]}" for command in commands)
    return (
        "usage: tfckpt COMMAND ... [--json]\n       tfckpt COMMAND --help\n"
        "       tfckpt --version\n\n"
        f"{lines}\n\nexamples:\n{examples}\n\n{_STATUS}"
    )


def usage(command: Command) -> str:
    """The usage lines of one command, without the leading ``usage:``.

    >>> from tfckpt.cli.arguments.command import Command
    >>> usage(Command("list", "", "DIR", "", "", ()))
    'tfckpt list DIR [--json]'
    """
    words = (flag.usage.replace(" ", "\0") for flag in command.all_flags)
    text = (
        " ".join((f"tfckpt\0{command.name}".replace(" ", "\0"), command.positional, *words))
        .replace("  ", " ")
        .strip()
    )
    indent = " " * (len(command.name) + 8)
    lines = textwrap.wrap(
        text, WIDTH - 7, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines).replace("\0", " ")


def command_help(command: Command) -> str:
    """The help of one command."""
    synopsis = textwrap.indent(usage(command), " " * 7).lstrip()
    parts = [f"usage: {synopsis}", "\n".join(_wrap(f"{command.summary} {command.details}"))]
    if command.all_flags:
        parts.append("\n".join(_flags(command.all_flags)))
    parts.append("\n".join(("examples:", *(f"  tfckpt {example}" for example in command.examples))))
    parts.append(_STATUS)
    return "\n\n".join(parts)


def _wrap(text: str, indent: str = "", head: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head or indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _flags(flags: Iterable[Flag]) -> Iterable[str]:
    for flag in flags:
        head = f"  --{flag.name} {flag.value}".rstrip()
        if len(head) > 20:
            yield head
            head = ""
        yield from _wrap(flag.help, " " * 22, f"{head:<22}")
