"""`tfckpt`: the entry point of all commands, and their exit status.

A command is imported when it is called, so that `inspect` answers without importing TensorFlow,
rich or pydantic. Flags are parsed by absl into a `FlagValues` of their own, because `plan --model`
imports a training script whose flags may have the same names.

Exit status: 0 success; 1 a damaged or missing checkpoint, an invalid config, a refused restore, or
a difference found by `diff`; 2 a wrong command line; 130 interrupted; 141 the reader of the output
closed the pipe.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import Arguments, UsageError
from tfckpt.cli.arguments.command_table import COMMANDS, INSTEAD
from tfckpt.errors import TfckptError
from tfckpt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from absl import flags

    from tfckpt.cli.arguments.command import Command

_HELP = ("--help", "-h", "help")
_VERSION = ("--version", "version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, ``sys.argv`` by default, and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # do not fail on a terminal without Unicode
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _run(list(sys.argv if argv is None else argv))
        sys.stdout.flush()
    except UsageError as error:
        command = f"tfckpt {error.command}".rstrip()
        print(f"tfckpt: {_escaped(str(error))}\ntry: {command} --help", file=sys.stderr)
        return 2
    except TfckptError as error:
        print(f"tfckpt: {_escaped(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tfckpt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the interpreter flushes again at exit: https://docs.python.org/3/library/signal.html
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a directory without write permission
        print(f"tfckpt: {_escaped(str(error))}", file=sys.stderr)
        return 1
    return status


def _run(argv: list[str]) -> int:
    _, *words = argv
    if words and words[0] in _VERSION:
        print(f"tfckpt {__version__}")
        return 0
    if helped := _asked_for_help(words):
        from tfckpt.cli.arguments.usage import overview

        print(overview(helped))
        return 0
    command = _command(words)
    try:
        return _call(command, words[command.name.count(" ") :])
    except UsageError as error:
        error.command = command.name
        raise


def _call(command: Command, words: list[str]) -> int:
    arguments = _parsed(command, words)
    if arguments is None:
        from tfckpt.cli.arguments.usage import command_help

        print(command_help(command))
        return 0
    module, _, name = command.module.partition(":")
    status: int = getattr(importlib.import_module(module), name or "run")(arguments)
    return status


def _parsed(command: Command, words: list[str]) -> Arguments | None:
    """The parsed command line; None for ``--help``."""
    _, *rest = words
    if not any(word.startswith("-") for word in rest):  # importing absl takes most of the time
        return Arguments(rest, {flag.name: flag.default for flag in command.all_flags})
    from absl import flags

    values = _flags(command)
    try:
        _, *rest = values([_with_underscores(word) for word in words])
    except flags.UnrecognizedFlagError as error:
        instead = INSTEAD.get(f"{command.name} --{error.flagname}")
        raise UsageError(f"{error}; {instead}" if instead else str(error)) from None
    except flags.Error as error:
        raise UsageError(str(error)) from None
    if values.help:
        return None
    return Arguments(rest, {flag.name: values[flag.name].value for flag in command.all_flags})


def _with_underscores(word: str) -> str:
    """A flag as it is called here, which many write with dashes: ``--drop-optimizer``."""
    if not word.startswith("--"):
        return word
    name, separator, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{separator}{value}"


def _asked_for_help(words: list[str]) -> list[Command]:
    """The commands that the help of `tfckpt`, or of `tfckpt policy`, is about; none for others."""
    if words and words[0] in _HELP:
        return list(COMMANDS)
    if words[1:2] and words[1] in _HELP:
        return [command for command in COMMANDS if command.name.startswith(f"{words[0]} ")]
    return []


def _command(words: list[str]) -> Command:
    for command in COMMANDS:
        name = command.name.split()
        if words[: len(name)] == name:
            return command
    leading = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if not leading:
        raise UsageError("flags must follow the command" if words else "a command is missing")
    from tfckpt.core.similar import near_words, question

    names = [command.name for command in COMMANDS]
    called = leading[0]
    if group := [name for name in names if name.startswith(f"{called} ")]:
        called = " ".join(leading[:2])
    known = group or [name.partition(" ")[0] for name in names]
    hint = question(near_words(called, known, 1, 0.8 if group else 0.65) or group)
    if called in INSTEAD:
        raise UsageError(f"unknown command {called!r}; {INSTEAD[called]}")
    raise UsageError(f"unknown command {called!r}{hint and f'; {hint}'}")


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
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=values)
    return values


def _escaped(message: str) -> str:
    from tfckpt.core.text import printable  # imported only for an error

    return "\n".join(map(printable, message.split("\n")))
