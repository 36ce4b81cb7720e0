"""Commands, their flags, a parsed command line, and the error for a wrong one.

Named tuples instead of dataclasses: they are created at every start, and are faster to define.
"""

from __future__ import annotations

import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.errors import ARGUMENTS, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_NAME = re.compile(r"`(\w+)`")  # of an argument, in the message of a call


class Flag(NamedTuple):
    """A flag of one command."""

    name: str
    value: str
    help: str
    many: bool = False

    @property
    def default(self) -> bool | None:
        return None if self.value else False

    @property
    def usage(self) -> str:
        """The flag in a usage line.

        >>> Flag("keep", "RULE", "A rule.", many=True).usage
        '[--keep RULE]...'
        """
        text = f"[--{self.name} {self.value}]" if self.value else f"[--{self.name}]"
        return f"{text}..." if self.many else text


JSON = Flag("json", "", "Print one JSON document instead of text (schema: docs/cli.md).")


class Command(NamedTuple):
    """One command, for the table of commands and for its help."""

    name: str
    module: str
    positional: str
    summary: str
    details: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    has_json: bool = True

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        return (*self.flags, JSON) if self.has_json else self.flags


class Arguments(NamedTuple):
    """A parsed command line: positional arguments, and the value of each flag of the command."""

    positional: list[str]
    flags: Mapping[str, Any]

    @property
    def json(self) -> bool:
        return bool(self.flags.get("json"))

    def switch(self, flag: str) -> bool:
        return bool(self.flags[flag])

    def text(self, flag: str) -> str | None:
        value: str | None = self.flags[flag]
        return value

    def texts(self, flag: str) -> list[str]:
        """All values of a flag that can be repeated."""
        return list(self.flags[flag] or ())

    def single(self, expected: str) -> str:
        """The only positional argument.

        >>> Arguments(["runs/ckpt-1"], {}).single("a prefix")
        'runs/ckpt-1'
        """
        if len(self.positional) != 1:
            raise UsageError(f"expected one argument, {expected}; got {self._shown()}")
        return self.positional[0]

    def pair(self, expected: str) -> tuple[str, str]:
        """The two positional arguments."""
        if len(self.positional) != 2:
            raise UsageError(f"expected {expected}; got {self._shown()}")
        return self.positional[0], self.positional[1]

    def _shown(self) -> str:
        return " ".join(self.positional) or "none"


class UsageError(Exception):
    """The command line is wrong; only the message is shown."""

    command: str = ""


@contextlib.contextmanager
def usage_errors(arguments: Arguments) -> Iterator[None]:
    """Turn an error in the arguments of a call into one in the flags that they come from."""
    try:
        yield
    except PolicyError as error:
        if error.file != ARGUMENTS:
            raise
        texts = ("; ".join(filter(None, (one.message, one.hint))) for one in error.problems)
        raise UsageError(_NAME.sub(partial(_flag, arguments), "; ".join(texts))) from None


def _flag(arguments: Arguments, match: re.Match[str]) -> str:
    return f"--{match[1]}" if match[1] in arguments.flags else match[0]
