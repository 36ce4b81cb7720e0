"""What every command is given, and the one error that is the user's."""

from __future__ import annotations

from typing import NamedTuple


class Given(NamedTuple):
    """The command line, parsed: arguments after the command, and flags."""

    arguments: list[str]
    json: bool
    model: str | None

    def one(self, what: str) -> str:
        """The only argument of a command.

        >>> Given(["runs/ckpt-1"], False, None).one("a prefix")
        'runs/ckpt-1'
        """
        if len(self.arguments) != 1:
            given = " ".join(self.arguments) or "nothing"
            raise Misuse(f"give one argument, {what}; got {given}")
        return self.arguments[0]


class Misuse(Exception):  # noqa: N818 (what the user did, in their words)
    """The command line makes no sense; the message is all that is shown."""
