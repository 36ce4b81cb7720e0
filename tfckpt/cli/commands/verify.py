"""`tfckpt verify`: check every checksum of a checkpoint or of a directory."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.output.progress import progress
from tfckpt.core.text import collapse, one_line, printable, size, wrap
from tfckpt.tools.verification import verdicts

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.stored.inspection.verification import Verdict

_SHOWN = 20
_INDENT = "  "
_ALL = "--json shows all"


def run(arguments: Arguments) -> int:
    """Verify a checkpoint or all of a directory; returns 1 if any is damaged."""
    path = arguments.single("the path of a checkpoint or a directory of them")
    found = []
    for verdict in verdicts(path, quarantine=arguments.switch("quarantine"), progress=progress):
        found.append(verdict)
        if not arguments.json:
            _print(verdict)
    ok = all(verdict.ok for verdict in found)
    if arguments.json:
        checkpoints = [verdict.to_json() for verdict in found]
        show_json({"version": 1, "ok": ok, "checkpoints": checkpoints})
    return 0 if ok else 1


def _print(verdict: Verdict) -> None:
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
    if verdict.moved_to:
        print(f"{_INDENT}moved to {printable(verdict.moved_to)}")
    sys.stdout.flush()
