"""`tfckpt prune`: delete checkpoints that no rule keeps, as a manager with these rules would.

Checkpoints that tfckpt did not commit (see `adopt`) and damaged ones are never deleted. Damaged
ones do not count for a rule either: `latest=3` keeps the newest three that are not damaged.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import files_of
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.arguments.retention_flags import check_rules, rules_of
from tfckpt.cli.commands.listing import show_listing
from tfckpt.core.text import printable, size
from tfckpt.errors import CheckpointNotFoundError
from tfckpt.manager.directory import Directory
from tfckpt.manager.retention import decide
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.io.files import absolute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep
    from tfckpt.stored.inspection.listing import ListedCheckpoint


def run(arguments: Arguments) -> int:
    """Delete, or show what would be deleted; returns 1 if a checkpoint could not be deleted."""
    path, rules = arguments.single("a directory of checkpoints"), rules_of(arguments)
    if not rules:
        raise UsageError("prune needs retention rules: --keep or --config")
    name, yes = arguments.text("checkpoint_name"), arguments.switch("yes")
    found = listing(path, files_of(path))
    directory, decision = decide_for(path, found, rules, name)
    check_rules(path, rules, directory, found if arguments.texts("keep") else ())
    failed: dict[str, OSError] = {}
    if yes:
        directory.claim()  # also completes interrupted deletions
        found = listing(path, files_of(path))  # another process may have changed the directory
        directory, decision = decide_for(path, found, rules, directory.checkpoint_name)
        failed = directory.release(directory.checkpoints(), decision)
    freed = sum(
        checkpoint.nbytes
        for checkpoint in found
        if checkpoint.prefix in {*decision.delete} - {*failed}
    )
    if arguments.json:
        show_json(
            {
                "version": 1,
                "directory": path,
                "done": yes,
                "kept": {prefix: list(why) for prefix, why in decision.kept.items()},
                "delete": list(decision.delete),
                "failed": {prefix: str(error) for prefix, error in failed.items()},
                "nbytes": freed,
            }
        )
    else:
        _print(found, decision, freed, yes=yes)
    for prefix, error in failed.items():
        print(f"tfckpt: {printable(prefix)}: could not be deleted: {error}", file=sys.stderr)
    return 1 if failed else 0


def decide_for(
    path: str, found: Sequence[ListedCheckpoint], rules: Sequence[Keep], name: str | None
) -> tuple[Directory, Decision]:
    """The directory, and what the rules decide about its undamaged checkpoints.

    Raises:
        UsageError: the directory has checkpoints of several names, or none of that name.
        CheckpointNotFoundError: it has no checkpoint that tfckpt committed.
    """
    numbered = [one for one in found if one.state == "committed" and one.number is not None]
    names = sorted({_name(checkpoint) for checkpoint in numbered})
    if not names:
        message, hint = "has no checkpoint that tfckpt committed", ""
        if found:
            hint = f"run `tfckpt adopt {path}` to write commit records for those of TensorFlow"
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    if name is None and len(names) > 1:
        raise UsageError(
            f"{path} has checkpoints named {' and '.join(names)}; select one with --checkpoint_name"
        )
    if name is not None and name not in names:
        known = " and ".join(names)
        raise UsageError(f"{path} has no checkpoints named {name}; it has {known}")
    directory = Directory(path, name or names[0], files_of(path))
    undamaged = {checkpoint.prefix for checkpoint in found if not checkpoint.problem}
    saved = [
        checkpoint
        for checkpoint in directory.saved(directory.checkpoints())
        if checkpoint.prefix in undamaged
    ]
    began, preserved = directory.history()
    return directory, decide(saved, rules, anchor=began, preserved=preserved)


def _name(checkpoint: ListedCheckpoint) -> str:
    return absolute(checkpoint.prefix).rpartition("/")[2].rpartition("-")[0]


def _print(found: list[ListedCheckpoint], decision: Decision, freed: int, *, yes: bool) -> None:
    deleted = set(decision.delete)
    show_listing(
        [checkpoint for checkpoint in found if not (yes and checkpoint.prefix in deleted)], decision
    )
    count = f"{len(deleted)} checkpoint{'s' * (len(deleted) != 1)} ({size(freed)})"
    if not deleted:
        print("\nnothing to delete")
    elif yes:
        print(f"\ndeleted {count}:")
        print("\n".join(f"  {printable(prefix)}" for prefix in decision.delete))
    else:
        print(f"\n{count} would be deleted; use --yes to delete")
