"""`tfckpt rewrite`: a new checkpoint made of an old one, by a policy or by flags.

A plan with errors writes nothing. Values pass through one at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfckpt.cli.command import Misuse
from tfckpt.cli.document import show_json
from tfckpt.cli.finding import find, passed_over
from tfckpt.cli.selection import selected
from tfckpt.cli.writing import rewrite
from tfckpt.planning.plan import Status
from tfckpt.planning.text import printable, size
from tfckpt.stored.checkpoint_writer import refuse_taken
from tfckpt.stored.files import LOCAL, absolute

if TYPE_CHECKING:
    from tfckpt.cli.command import Given
    from tfckpt.planning import Plan
    from tfckpt.stored.record import CommitRecord

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)(?:i?B)?")


def run(given: Given) -> int:
    """Write the checkpoint; 1 where the plan has errors."""
    source, target = given.two("the checkpoint, and the prefix of the new one")
    limit = _bytes(given.text("shard_size"))
    refuse_taken(absolute(target), LOCAL)  # before anything is read
    found = find(source)
    with found.checkpoint as stored:
        passed_over(found)
        plan = selected(given, stored.inventory)
        record = rewrite(stored, plan, target, limit) if plan.ok else None
    if given.json:
        show_json(_document(plan, target, record))
    else:
        _print(plan, target, record)
    return 0 if plan.ok else 1


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if (match := _SIZE.fullmatch(text)) is None:
        raise Misuse(f"--shard_size {text!r} is no size; 500M and 2G are some")
    return int(match[1]) * _UNITS[match[2]]


def _document(plan: Plan, target: str, record: CommitRecord | None) -> dict[str, Any]:
    entries = record.inventory.entries.values() if record else ()
    return {
        "version": 1,
        "source": plan.source,
        "target": target,
        "written": record is not None,
        "values": len(entries),
        "nbytes": sum(entry.nbytes for entry in entries),
        "files": list(record.files) if record else [],
        "plan": plan.to_json(),
    }


def _print(plan: Plan, target: str, record: CommitRecord | None) -> None:
    if record is None:
        print(plan)
        return
    for status, count in plan.counts.items():
        print(f"  {_WORDS[status]:<12}{count:>8,}  {size(_size(plan, status)):>12}")
    entries = record.inventory.entries.values()
    files = f"{len(record.files)} data file{'s' * (len(record.files) != 1)}"
    total = size(sum(entry.nbytes for entry in entries))
    print(f"{printable(target)}: {len(entries):,} values, {total}, in {files}")


_WORDS = {
    Status.LOADED: "as it was",
    Status.RENAMED: "renamed",
    Status.CAST: "cast",
    Status.EXCLUDED: "left out",
}


def _size(plan: Plan, status: Status) -> int:
    return sum(s.stored.nbytes for s in plan.steps if s.status is status and s.stored)
