"""`tfckpt`: one entry point, three commands, and what a shell needs to know of how they ended.

The commands are imported when they are called, since `inspect` is to answer before TensorFlow, rich
or pydantic would have been imported. Flags are absl's, in a set of their own: the module that
`plan --model` imports is somebody's training script, and its flags may have the same names.

Exit status: 0 all is well; 1 the checkpoint is damaged or absent, the config is wrong, or the
restore would be refused; 2 the command line makes no sense; 130 interrupted; 141 the reader of a
pipe went away.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from absl import flags

from tfckpt.cli.command import Given, Misuse
from tfckpt.errors import TfckptError

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
usage: tfckpt inspect PREFIX|DIRECTORY [--json]
       tfckpt plan CONFIG --model MODULE:CALLABLE [--json]
       tfckpt policy check CONFIG [--json]

  inspect       What a checkpoint holds: canonical names, roles, types, sizes.
                Of a directory, the newest checkpoint that can be read.
                TensorFlow is not imported.
  plan          What restoring by a config would do to a model, value by value.
                CALLABLE returns the model, built, or a dict of keyword objects:
                {"model": model, "optimizer": optimizer}. Nothing is assigned.
  policy check  Whether a config means something; all that is wrong, with lines.

  --json        One JSON document instead of a table; docs/cli.md describes it.
  --model       Where the live objects come from, for plan.
  --help        This text.

examples:
  tfckpt inspect runs/flowers/checkpoints
  tfckpt inspect zoo/imagenet/ckpt-900 --json | jq .nbytes
  tfckpt plan configs/finetune.yaml --model train:build_model
  tfckpt policy check configs/finetune.yaml

exit status: 0 fine; 1 refused, damaged, absent or a wrong config; 2 misuse"""

_COMMANDS = {
    ("inspect",): "tfckpt.cli.inspect",
    ("plan",): "tfckpt.cli.plan",
    ("policy", "check"): "tfckpt.cli.check",
}


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
    except Misuse as error:
        print(f"tfckpt: {_harmless(str(error))}\ntry: tfckpt --help", file=sys.stderr)
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
    return status


def _run(argv: list[str]) -> int:
    values = _flags()
    try:
        _, *words = values(argv)
    except flags.Error as error:
        raise Misuse(str(error)) from None
    if values.help:
        print(USAGE)
        return 0
    for command, module in _COMMANDS.items():
        if tuple(words[: len(command)]) == command:
            given = Given(words[len(command) :], values.json, values.model)
            if values.model is not None and command != ("plan",):
                raise Misuse(f"{' '.join(command)} takes no --model")
            status: int = importlib.import_module(module).run(given)
            return status
    raise Misuse(f"no command {' '.join(words)!r}" if words else "which command?")


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    values.set_gnu_getopt()
    flags.DEFINE_boolean("json", False, "One JSON document.", flag_values=values)
    flags.DEFINE_string("model", None, "MODULE:CALLABLE.", flag_values=values)
    flags.DEFINE_boolean("help", False, "How to use it.", short_name="h", flag_values=values)
    return values


def _harmless(message: str) -> str:
    from tfckpt.planning.text import printable  # only where something went wrong

    return "\n".join(map(printable, message.split("\n")))
