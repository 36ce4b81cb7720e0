"""`tfckpt`: one entry point for all commands, and what a shell needs to know of how they ended.

The commands are imported when they are called, since `inspect` is to answer before TensorFlow, rich
or pydantic would have been imported. Flags are absl's, in a set of their own: the module that
`plan --model` imports is somebody's training script, and its flags may have the same names.

Exit status: 0 all is well; 1 the checkpoint is damaged or absent, the config is wrong, or the
restore would be refused; 2 the command line makes no sense; 130 interrupted; 141 the reader of a
pipe went away.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import Arguments, UsageError
from tfckpt.cli.arguments.command_table import COMMANDS
from tfckpt.errors import TfckptError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from absl import flags

    from tfckpt.cli.arguments.command import Command

_HELP = ("--help", "-h", "help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: program name and arguments; ``sys.argv`` by default.

    Returns:
        The exit status.

    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Unicode is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(list(sys.argv if argv is None else argv))
        sys.stdout.flush()
    except UsageError as error:
        command = f"tfckpt {error.command}".rstrip()
        print(f"tfckpt: {_harmless(str(error))}\ntry: {command} --help", file=sys.stderr)
        return 2
    except TfckptError as error:
        print(f"tfckpt: {_harmless(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tfckpt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the interpreter flushes again at exit: https://docs.python.org/3/library/signal.html
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # of a disk or a directory that is not to be written
        print(f"tfckpt: {_harmless(str(error))}", file=sys.stderr)
        return 1
    return status


def _run(argv: list[str]) -> int:
    _, *words = argv
    command = _command(words)
    if command is None:
        from tfckpt.cli.arguments.usage import overview

        print(overview(COMMANDS))
        return 0
    try:
        return _call(command, words[command.name.count(" ") :])
    except UsageError as error:
        error.command = command.name
        raise


def _call(command: Command, words: list[str]) -> int:
    arguments = _parsed(command, words)
    if arguments is None:
        from tfckpt.cli.arguments.usage import of_command

        print(of_command(command))
        return 0
    module, _, name = command.module.partition(":")
    status: int = getattr(importlib.import_module(module), name or "run")(arguments)
    return status


def _parsed(command: Command, words: list[str]) -> Arguments | None:
    """What the command is given; None where it is asked for its help."""
    _, *rest = words
    if not any(word.startswith("-") for word in rest):  # no flags: to import them costs most
        return Arguments(rest, {flag.name: flag.default for flag in command.all_flags})
    from absl import flags

    values = _flags(command)
    try:
        _, *rest = values(words)
    except flags.Error as error:
        raise UsageError(str(error)) from None
    if values.help:
        return None
    return Arguments(rest, {flag.name: values[flag.name].value for flag in command.all_flags})


def _command(words: list[str]) -> Command | None:
    """The one that is called; None where it is the help of all."""
    if words and words[0] in _HELP:
        return None
    for command in COMMANDS:
        own = command.name.split()
        if words[: len(own)] == own:
            return command
    spoken = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if not spoken:
        raise UsageError("the command comes first" if words else "which command?")
    import difflib

    names = [command.name for command in COMMANDS]
    said = spoken[0]
    if group := [name for name in names if name.startswith(f"{said} ")]:
        said = " ".join(spoken[:2])
    known = group or [name.partition(" ")[0] for name in names]
    close = difflib.get_close_matches(said, known, 1, 0.8 if group else 0.65) or group
    meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UsageError(f"no command {said!r}{meant}")


def _flags(command: Command) -> flags.FlagValues:
    from absl import flags

    values = flags.FlagValues()
    values.set_gnu_getopt()
    for flag in command.all_flags:
        if not flag.value:
            flags.DEFINE_boolean(flag.name, flag.default, flag.help, flag_values=values)
        elif flag.many:
            flags.DEFINE_multi_string(flag.name, flag.default, flag.help, flag_values=values)
        else:
            flags.DEFINE_string(flag.name, flag.default, flag.help, flag_values=values)
    flags.DEFINE_boolean("help", False, "How to use it.", short_name="h", flag_values=values)
    return values


def _harmless(message: str) -> str:
    from tfckpt.core.text import printable  # only where something went wrong

    return "\n".join(map(printable, message.split("\n")))
