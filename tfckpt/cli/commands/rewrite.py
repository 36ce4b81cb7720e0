"""`tfckpt rewrite`: a new checkpoint made of an old one, by a policy or by flags.

A plan with errors writes nothing. Values pass through one at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import Misuse
from tfckpt.cli.arguments.selection_flags import opened, selected, tell
from tfckpt.cli.output.progress import progress
from tfckpt.manager.rewriting import Reader, rewrite
from tfckpt.stored.commits.write_checkpoint import refuse_taken
from tfckpt.stored.io.files import LOCAL, absolute

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Given

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)(?:i?B)?")


def run(given: Given) -> int:
    """Write the checkpoint; 1 where the plan has errors."""
    source, target = given.two("the checkpoint, and the prefix of the new one")
    limit = _bytes(given.text("shard_size"))
    refuse_taken(absolute(target), LOCAL)  # before anything is read
    with opened(given, source) as stored, progress(target) as advance:
        plan = selected(given, stored)
        reader = Reader(stored, plan, advance)
        files = list(rewrite(reader, plan, target, limit).files) if plan.ok else []
    return tell(given, plan, target, files)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if (match := _SIZE.fullmatch(text)) is None:
        raise Misuse(f"--shard_size {text!r} is no size; 500M and 2G are some")
    return int(match[1]) * _UNITS[match[2]]
