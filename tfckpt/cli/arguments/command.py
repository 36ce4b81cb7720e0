"""What a command is, what it is given, and the one error that is the user's.

Named tuples, as they are made at every start, and take less time for it than dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Flag(NamedTuple):
    """A flag of one command.

    Attributes:
        name: without its dashes.
        value: what is written after it, ``FILE``; ``""`` for a switch.
        help: one sentence.
        many: whether it may be given several times.
    """

    name: str
    value: str
    help: str
    many: bool = False

    @property
    def default(self) -> bool | None:
        """What is given where it is not written."""
        return None if self.value else False

    @property
    def usage(self) -> str:
        """As it stands in a usage line.

        >>> Flag("keep", "RULE", "A rule.", many=True).usage
        '[--keep RULE]...'
        """
        text = f"[--{self.name} {self.value}]" if self.value else f"[--{self.name}]"
        return f"{text}..." if self.many else text


JSON = Flag("json", "", "One JSON document instead of text; docs/cli.md has its schema.")


class Command(NamedTuple):
    """One command, as the table of them and its help have it.

    Attributes:
        name: its words, ``policy check``.
        module: where its ``run`` is, which takes a :class:`Given` and returns the exit status; of
            another name it is behind a colon.
        arguments: what follows the words, ``PATH|DIR``.
        summary: what it does, in half a line.
        about: the rest of its help.
        examples: command lines without the ``tfckpt`` before them.
        flags: its own, and ``--json`` unless ``has_json`` is false.
    """

    name: str
    module: str
    arguments: str
    summary: str
    about: str
    examples: tuple[str, ...]
    flags: tuple[Flag, ...] = ()
    has_json: bool = True

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        return (*self.flags, JSON) if self.has_json else self.flags


class Given(NamedTuple):
    """The command line, parsed: arguments after the command, and the flags of that command."""

    arguments: list[str]
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
        """Of a flag that may be given several times."""
        return list(self.flags[flag] or ())

    def one(self, what: str) -> str:
        """The only argument of a command.

        >>> Given(["runs/ckpt-1"], {}).one("a prefix")
        'runs/ckpt-1'
        """
        if len(self.arguments) != 1:
            raise Misuse(f"give one argument, {what}; got {self._shown()}")
        return self.arguments[0]

    def two(self, what: str) -> tuple[str, str]:
        """Both arguments of a command that has two."""
        if len(self.arguments) != 2:
            raise Misuse(f"give two arguments, {what}; got {self._shown()}")
        return self.arguments[0], self.arguments[1]

    def _shown(self) -> str:
        return " ".join(self.arguments) or "nothing"


class Misuse(Exception):  # noqa: N818 (what the user did, in their words)
    """The command line makes no sense; the message is all that is shown.

    Attributes:
        command: the one whose help says more.
    """

    command: str = ""
