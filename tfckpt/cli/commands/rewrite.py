"""`tfckpt rewrite`: a new checkpoint from an old one. `tfckpt convert`: other formats."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError, usage_errors
from tfckpt.cli.arguments.selection_flags import print_result, selection_of
from tfckpt.cli.output.progress import print_rejected, progress
from tfckpt.core.text import printable
from tfckpt.tools.rewriting import converted, remarks, rewritten

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.tools.rewriting import WrittenFiles

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)(?:i?B)?")


def run(arguments: Arguments) -> int:
    """Write the checkpoint; returns 1 if the plan has errors."""
    source, target = arguments.pair("a checkpoint and the prefix of the new one")
    limit = _bytes(arguments.text("shard_size"))
    with usage_errors(arguments):
        written = rewritten(source, target, selection_of(arguments), limit, progress)
    return _ended(arguments, written)


def run_convert(arguments: Arguments) -> int:
    """Write the file; returns 1 if the plan has errors."""
    source, target = arguments.pair("a checkpoint and the new file or prefix")
    limit, model = _bytes(arguments.text("shard_size")), arguments.text("model")
    build = None if model is None else _builder(model)
    to_standard_error = contextlib.redirect_stdout(sys.stderr)  # what the model's code prints
    with usage_errors(arguments), contextlib.nullcontext() if model is None else to_standard_error:
        chosen = selection_of(arguments)
        written = converted(source, target, chosen, limit, progress, build=build)
    return _ended(arguments, written)


def _builder(target: str) -> Callable[[], dict[str, Any]]:
    def build() -> dict[str, Any]:
        from tfckpt.cli.arguments.load_model import load_objects

        return load_objects(target)

    return build


def _ended(arguments: Arguments, written: WrittenFiles) -> int:
    print_rejected(written.rejected, written.used)
    status = print_result(arguments, written)
    if written.plan.ok:
        for text in remarks(written):
            print(f"tfckpt: {printable(text)}", file=sys.stderr)
    return status


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if (match := _SIZE.fullmatch(text)) is None:
        raise UsageError(f"--shard_size {text!r} is not a valid size; use e.g. 500M or 2G")
    return int(match[1]) * _UNITS[match[2]]
