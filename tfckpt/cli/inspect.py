"""`tfckpt inspect`: what a checkpoint holds, without TensorFlow.

Of a directory the newest checkpoint that can be read is shown, and those that were passed over are
named with what is wrong with them; so the command answers what a restore would find there. A
directory in which none can be read is an error, and not the same one as an empty directory.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.errors import CheckpointError, DamagedCheckpointError
from tfckpt.planning.text import printable, signature, size
from tfckpt.stored.artefact import KINDS
from tfckpt.stored.checkpoint import open_checkpoint
from tfckpt.stored.discover import candidates
from tfckpt.stored.files import LOCAL

if TYPE_CHECKING:
    from tfckpt.cli.command import Given
    from tfckpt.stored.checkpoint import StoredCheckpoint
    from tfckpt.stored.discover import Candidate


class _Found(NamedTuple):
    """The checkpoint to show; of a directory all that it holds, and why some could not be read."""

    checkpoint: StoredCheckpoint
    candidates: list[Candidate]
    rejected: dict[str, str]


def run(given: Given) -> int:
    """Show a checkpoint; 1 where part of it, or a newer one beside it, cannot be read."""
    found = _find(given.one("the prefix of a checkpoint or a directory of them"))
    with found.checkpoint:
        if given.json:
            print(json.dumps(_document(found), indent=2))
        else:
            _print(found)
        return 1 if found.rejected or found.checkpoint.values.missing_files else 0


def _find(path: str) -> _Found:
    choices = [] if LOCAL.exists(f"{path}.index") else candidates(path, None)
    if not choices:
        return _Found(open_checkpoint(path), [], {})
    rejected: dict[str, str] = {}
    for choice in choices:
        opened = _open(choice.prefix)
        if not isinstance(opened, CheckpointError):
            return _Found(opened, choices, rejected)
        rejected[choice.prefix] = str(opened)
    reasons = "\n  ".join(rejected.values())
    many = f"none of its {len(rejected)} checkpoints can be read"
    raise DamagedCheckpointError(f"{many}\n  {reasons}", path=path)


def _open(prefix: str) -> StoredCheckpoint | CheckpointError:
    try:
        return open_checkpoint(prefix)
    except CheckpointError as error:
        return error


def _tops(checkpoint: StoredCheckpoint) -> dict[str, tuple[int, int]]:
    """First component → how many values, how many bytes."""
    tops: dict[str, tuple[int, int]] = {}
    for entry in checkpoint.inventory.entries.values():
        top = entry.name.partition("/")[0]
        count, nbytes = tops.get(top, (0, 0))
        tops[top] = count + 1, nbytes + entry.nbytes
    return tops


def _print(found: _Found) -> None:
    from tfckpt.cli.tables import show

    checkpoint = found.checkpoint
    for candidate in found.candidates:
        reason = found.rejected.get(candidate.prefix)
        shown = "shown below" if candidate.prefix == checkpoint.prefix else ""
        row = candidate.prefix, candidate.kind.value, reason or shown
        print("  ".join(map(printable, row)).rstrip())
    if found.candidates:
        print()
    record = checkpoint.record
    about = [KINDS[checkpoint.kind]]
    if record is not None:
        about.extend(
            f"{word} {value}"
            for word, value in (("step", record.step), ("epoch", record.epoch))
            if value is not None
        )
    print(f"{printable(checkpoint.prefix)}: {', '.join(about)}\n")
    entries = checkpoint.inventory.entries.values()
    rows = [(e.name, e.role.value, signature(e), size(e.nbytes)) for e in entries]
    show(("name", "role", "type", "size"), rows, 3)
    tops = _tops(checkpoint)
    total = sum(count for count, _ in tops.values()), sum(nbytes for _, nbytes in tops.values())
    sums = [(top, f"{count:,}", size(nbytes)) for top, (count, nbytes) in tops.items()]
    print()
    show(("in all", "values", "size"), [*sums, ("", f"{total[0]:,}", size(total[1]))], 2)
    sys.stdout.flush()
    for shard in checkpoint.values.missing_files:
        print(f"tfckpt: {printable(shard)}: the file is missing", file=sys.stderr)


def _document(found: _Found) -> dict[str, Any]:
    checkpoint, record = found.checkpoint, found.checkpoint.record
    entries = checkpoint.inventory.entries.values()
    return {
        "version": 1,
        "prefix": checkpoint.prefix,
        "kind": checkpoint.kind,
        "step": record.step if record else None,
        "epoch": record.epoch if record else None,
        "metrics": dict(record.metrics) if record else {},
        "nbytes": sum(entry.nbytes for entry in entries),
        "totals": {
            top: {"values": count, "nbytes": nbytes}
            for top, (count, nbytes) in _tops(checkpoint).items()
        },
        "values": [
            {
                "name": entry.name,
                "role": entry.role.value,
                "dtype": entry.dtype,
                "shape": None if entry.shape is None else list(entry.shape),
                "nbytes": entry.nbytes,
                "key": entry.key,
            }
            for entry in entries
        ],
        "missing_shards": list(checkpoint.values.missing_files),
        "candidates": [
            {
                "prefix": candidate.prefix,
                "kind": candidate.kind.value,
                "rejected": found.rejected.get(candidate.prefix),
            }
            for candidate in found.candidates
        ],
    }
