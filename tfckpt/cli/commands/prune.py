"""`tfckpt prune`: delete checkpoints that no rule keeps, as a manager with these rules would.

Checkpoints that other software wrote and damaged ones are never deleted. Damaged
ones do not count for a rule either: `latest=3` keeps the newest three that are not damaged.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError, usage_errors
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.cli.arguments.retention_flags import check_rules, rules_of
from tfckpt.cli.commands.listing import show_listing
from tfckpt.core.text import printable, size
from tfckpt.stored.inspection.listing import listing
from tfckpt.tools.find_checkpoint import files_of
from tfckpt.tools.listing import undamaged_of, with_best, with_decision

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.manager.retention import Decision
    from tfckpt.stored.inspection.listing import ListedCheckpoint


def run(arguments: Arguments) -> int:
    """Delete, or show what would be deleted; returns 1 if a checkpoint could not be deleted."""
    path, rules = arguments.single("a directory of checkpoints"), rules_of(arguments)
    if not rules:
        raise UsageError("prune needs retention rules: --keep or --config")
    name, yes = arguments.text("checkpoint_name"), arguments.switch("yes")
    found = listing(path, files_of(path))
    with usage_errors(arguments):
        undamaged = undamaged_of(path, found, name)
        directory, decision = undamaged.directory, undamaged.decide(rules)
    check_rules(path, rules, directory, found if arguments.texts("keep") else ())
    failed: dict[str, OSError] = {}
    if yes:
        directory.claim()  # also completes interrupted deletions
        found = listing(path, files_of(path))  # another process may have changed the directory
        undamaged = undamaged_of(path, found, directory.checkpoint_name)
        directory, decision = undamaged.directory, undamaged.decide(rules)
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


def _print(found: list[ListedCheckpoint], decision: Decision, freed: int, *, yes: bool) -> None:
    deleted = set(decision.delete)
    shown = [one for one in found if not (yes and one.prefix in deleted)]
    show_listing(with_decision(with_best(shown), decision))
    count = f"{len(deleted)} checkpoint{'s' * (len(deleted) != 1)} ({size(freed)})"
    if not deleted:
        print("\nnothing to delete")
    elif yes:
        print(f"\ndeleted {count}:")
        print("\n".join(f"  {printable(prefix)}" for prefix in decision.delete))
    else:
        print(f"\n{count} would be deleted; use --yes to delete")
