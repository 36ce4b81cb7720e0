"""`tfckpt`: the entry point of all commands, and their exit status.

A command is imported when it is called, so that `inspect` answers without importing TensorFlow,
rich or pydantic.

Exit status: 0 success; 1 a damaged or missing checkpoint, an invalid config, a refused restore, or
a difference found by `diff` or `check`; 2 a wrong command line, or a `check` that cannot say; 130
interrupted; 141 the reader of the output closed the pipe.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tfckpt.cli.parser import parsed
from tfckpt.cli.terminal import UsageError
from tfckpt.errors import TfckptError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, ``sys.argv`` by default, and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # do not fail on a terminal without Unicode
            stream.reconfigure(errors="backslashreplace")
    command = "tfckpt"
    try:
        arguments = parsed(list(sys.argv if argv is None else argv)[1:])
        command = f"tfckpt {arguments.command}"
        status = _run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        print(f"tfckpt: {_escaped(str(error))}", file=sys.stderr)
        print(f"try: {error.command or command} --help", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tfckpt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # the interpreter flushes again at exit: https://docs.python.org/3/library/signal.html
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (
        TfckptError,
        OSError,
    ) as error:  # such as a full disk
        print(f"tfckpt: {_escaped(str(error))}", file=sys.stderr)
        return 2 if command == "tfckpt check" else 1
    except SystemExit as ended:  # after --help and --version
        return int(ended.code or 0)
    return status


def _run(arguments: Namespace) -> int:
    if arguments.command == "report" or getattr(arguments, "html", None) is None:
        return _called(arguments)
    if arguments.json:
        raise UsageError("--html is for the text; leave out --json")
    from tfckpt.cli.terminal import as_html

    with as_html(arguments.html):
        return _called(arguments)


def _called(arguments: Namespace) -> int:
    if arguments.command == "inspect":
        from tfckpt.cli.inspect import inspect

        return inspect(arguments)
    if arguments.command == "plan":
        from tfckpt.cli.plan import plan

        return plan(arguments)
    if arguments.command == "check":
        from tfckpt.cli.plan import check

        return check(arguments)
    if arguments.command == "diff":
        from tfckpt.cli.inspect import diff

        return diff(arguments)
    from tfckpt.cli.commands import COMMANDS

    return COMMANDS[arguments.command](arguments)


def _escaped(message: str) -> str:
    from tfckpt.core.text import printable  # imported only for an error

    return "\n".join(map(printable, message.split("\n")))
