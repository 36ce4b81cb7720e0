"""`tfckpt verify`: check every checksum of a checkpoint or of a directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.find_checkpoint import checkpoints_in, files_of, is_checkpoint
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import collapse, one_line, printable, size, wrap
from tfckpt.stored.inspection.verification import Fault, Verdict, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.stored.commits.discovery import Candidate

_SHOWN = 20
_INDENT = "  "
_ALL = "--json shows all"


def run(arguments: Arguments) -> int:
    """Verify a checkpoint or all of a directory; returns 1 if any is damaged."""
    path = arguments.single("the path of a checkpoint or a directory of them")
    moved: dict[str, str] = {}
    verdicts = []
    if arguments.switch("quarantine"):
        from tfckpt.stored.commits.recovery import sweep

        directory = os.path.split(path)[0] if is_checkpoint(path) else path
        with contextlib.suppress(OSError):  # an error only where a checkpoint is to be moved
            sweep(directory, files_of(path))
    for verdict in _verdicts(path):
        verdicts.append(verdict)
        if verdict.faults and verdict.damaged and arguments.switch("quarantine"):
            from tfckpt.stored.inspection.quarantine import quarantine

            moved[verdict.path] = quarantine(verdict.path, files_of(path))
        if not arguments.json:
            _print(verdict, moved.get(verdict.path))
    if arguments.json:
        show_json(_document(verdicts, moved))
    return 1 if any(verdict.faults for verdict in verdicts) else 0


def _verdicts(path: str) -> Iterator[Verdict]:
    found = checkpoints_in(path)
    paths = [one.prefix for one in found]
    if not is_checkpoint(path):
        from tfckpt.stored.inspection.listing import without_number

        paths += without_number(path, files_of(path))
    by_prefix = {one.prefix: one for one in found}
    for number, one in enumerate(paths or [path]):
        if one in by_prefix and (fault := _missing_index(by_prefix[one])):
            yield fault
            continue
        with progress(one, f"{number + 1}/{len(paths)}" if len(paths) > 1 else "") as advance:
            verdict = verify(one, files_of(path), advance)
        yield verdict


def _missing_index(candidate: Candidate) -> Verdict | None:
    """The verdict on a checkpoint that has no index, which needs no reading."""
    from tfckpt.stored.commits.discovery import CheckpointKind

    if candidate.kind not in (CheckpointKind.TORN, CheckpointKind.DAMAGED):
        return None
    message = "the index is missing: it was deleted, not copied, or never written"
    fault = Fault(f"{candidate.prefix}.index", "", message)
    return Verdict(candidate.prefix, "", 0, 0, (fault,))


def _print(verdict: Verdict, moved: str | None) -> None:
    failed = "damaged" if verdict.damaged else "unknown"
    result, count = failed if verdict.faults else "ok", f"{verdict.values:,} values"
    print(f"{result:<8}{count:>14}{size(verdict.nbytes):>12}  {printable(verdict.path)}")
    alike: dict[tuple[str, str], list[str]] = {}
    for fault in verdict.faults:
        alike.setdefault((fault.file, fault.message), []).append(printable(fault.name))
    shown = list(alike.items())[:_SHOWN]
    for (file, message), names in shown:
        blocks = [block.text for block in collapse(name for name in names if name)]
        if len(blocks) > _SHOWN:
            blocks[_SHOWN:] = [f"… and more values with this fault ({_ALL})"]
        for text in blocks:
            print(f"{_INDENT}{text}")
        reason = f"{printable(os.path.split(file)[1])}: {one_line(message)}"
        print("\n".join(wrap(reason, _INDENT * (2 if blocks else 1))))
    if len(alike) > len(shown):
        print(f"{_INDENT}… and more kinds of faults ({_ALL})")
    if moved:
        print(f"{_INDENT}moved to {printable(moved)}")
    sys.stdout.flush()


def _document(verdicts: list[Verdict], moved: dict[str, str]) -> dict[str, Any]:
    return {
        "version": 1,
        "ok": not any(verdict.faults for verdict in verdicts),
        "checkpoints": [
            {
                "path": verdict.path,
                "kind": verdict.kind or None,
                "ok": not verdict.faults,
                "values": verdict.values,
                "nbytes": verdict.nbytes,
                "faults": [dataclasses.asdict(fault) for fault in verdict.faults],
                "quarantine": moved.get(verdict.path),
            }
            for verdict in verdicts
        ],
    }
