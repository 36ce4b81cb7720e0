"""`tfckpt prune`: delete what no rule keeps, as a manager with these rules would.

What tfckpt did not commit is never deleted (`adopt` makes it tfckpt's), nor is what is damaged,
which does not count as one of those that a rule keeps either: the newest three that are sound stay,
whatever is newer and broken.
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
    """Show or do it; 1 where one could not be deleted."""
    path, rules = arguments.single("a directory of checkpoints"), rules_of(arguments)
    if not rules:
        raise UsageError("prune needs --keep or --config, which say what stays")
    name, yes = arguments.text("checkpoint_name"), arguments.switch("yes")
    found = listing(path, files_of(path))
    directory, decision = decide_for(path, found, rules, name)
    check_rules(path, rules, directory, found if arguments.texts("keep") else ())
    failed: dict[str, OSError] = {}
    if yes:
        directory.claim()  # which also finishes what was cut short
        found = listing(path, files_of(path))  # what another process did until now
        directory, decision = decide_for(path, found, rules, directory.checkpoint_name)
        failed = directory.release(directory.checkpoints(), decision)
    freed = sum(one.nbytes for one in found if one.prefix in {*decision.delete} - {*failed})
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
        print(f"tfckpt: {printable(prefix)}: is still there: {error}", file=sys.stderr)
    return 1 if failed else 0


def decide_for(
    path: str, found: Sequence[ListedCheckpoint], rules: Sequence[Keep], name: str | None
) -> tuple[Directory, Decision]:
    """The directory, and what the rules say of those in it that are sound.

    Raises:
        UsageError: it holds checkpoints of several names, or none of that name.
        CheckpointNotFoundError: it holds none that tfckpt committed.
    """
    names = sorted({_name(one) for one in found if one.state == "committed"})
    if not names:
        message, hint = "holds no checkpoint that tfckpt committed", ""
        if found:
            hint = f"`tfckpt adopt {path}` gives those of TensorFlow commit records."
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    if name is None and len(names) > 1:
        raise UsageError(f"{path} holds {' and '.join(names)}; --checkpoint_name says which")
    if name is not None and name not in names:
        raise UsageError(f"{path} holds {' and '.join(names)}, and nothing called {name}")
    directory = Directory(path, name or names[0], files_of(path))
    sound = {one.prefix for one in found if not one.problem}
    saved = [one for one in directory.saved(directory.checkpoints()) if one.prefix in sound]
    began, preserved = directory.history()
    return directory, decide(saved, rules, anchor=began, preserved=preserved)


def _name(one: ListedCheckpoint) -> str:
    return absolute(one.prefix).rpartition("/")[2].rpartition("-")[0]


def _print(found: list[ListedCheckpoint], decision: Decision, freed: int, *, yes: bool) -> None:
    gone = set(decision.delete)
    show_listing([one for one in found if not (yes and one.prefix in gone)], decision)
    many = f"{len(gone)} checkpoint{'s' * (len(gone) != 1)} ({size(freed)})"
    if not gone:
        print("\nnothing to delete")
    elif yes:
        print(f"\ndeleted {many}:")
        print("\n".join(f"  {printable(prefix)}" for prefix in decision.delete))
    else:
        print(f"\n{many} would be deleted; --yes does it")
