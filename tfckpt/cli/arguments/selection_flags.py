"""The selection flags and the summary of `rewrite` and `convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.text import printable, size
from tfckpt.planning.checks.step import Status
from tfckpt.policy import load_config
from tfckpt.tools.selection import SelectedValues

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.policy import Policy
    from tfckpt.tools.rewriting import WrittenFiles

_RULES = ("include", "exclude", "rename", "drop_optimizer")
_WORDS = {
    Status.LOADED: "unchanged",
    Status.RENAMED: "renamed",
    Status.CAST: "cast",
    Status.EXCLUDED: "left out",
}


def selection_of(arguments: Arguments) -> SelectedValues:
    """What the flags select."""
    renames = []
    for text in arguments.texts("rename"):
        old, equals, new = text.partition("=")
        if not equals:
            raise UsageError(f"--rename {text!r} is not OLD=NEW")
        renames.append({"checkpoint": old, "model": new})
    casts: dict[str, str] = {}
    for text in arguments.texts("cast"):
        selector, _, dtype = text.rpartition("=")
        casts.pop(selector, None)  # the last one wins
        casts[selector] = dtype
    return SelectedValues(
        arguments.texts("include"),
        arguments.texts("exclude"),
        renames,
        arguments.switch("drop_optimizer"),
        casts,
        arguments.texts("average"),
        _policy(arguments),
    )


def print_result(arguments: Arguments, written: WrittenFiles) -> int:
    """Print what was written, or the plan if it has errors; returns the exit status."""
    plan, target = written.plan, written.path
    entries = [step.entry for step in plan.assignments] if plan.ok else []
    nbytes = sum(entry.nbytes for entry in entries)
    if arguments.json:
        show_json(
            {
                "version": 1,
                "source": plan.source,
                "target": target,
                "written": plan.ok,
                "values": len(entries),
                "nbytes": nbytes,
                "files": list(written.files),
                "plan": plan.to_json(),
            }
        )
    elif plan.ok:
        for status, count in plan.counts.items():
            steps = [step for step in plan.steps if step.status is status]
            stored = sum(step.stored.nbytes for step in steps if step.stored)
            word = _WORDS.get(status, status.value.lower())
            print(f"  {word:<12}{count:>8,}  {size(stored):>12}")
        total = f"{len(entries):,} value{'s' * (len(entries) != 1)}, {size(nbytes)}"
        shards = f", in {len(written.files)} data files" if len(written.files) > 1 else ""
        print(f"{printable(target)}: {total}{shards}")
    else:
        print(plan)
    return 0 if plan.ok else 1


def _policy(arguments: Arguments) -> Policy | None:
    """The policy of --config and --policy; None without them."""
    if (file := arguments.text("config")) is None:
        if arguments.text("policy") is not None:
            raise UsageError("--policy needs --config, the file that has the policy")
        return None
    if arguments.flags.get("model") is None and (
        mixed := [f"--{flag}" for flag in _RULES if arguments.flags[flag]]
    ):
        raise UsageError(f"--config sets the rules; remove {', '.join(mixed)}")
    return _of_config(file, arguments.text("policy"))


def _of_config(file: str, name: str | None) -> Policy:
    policies = load_config(file).policies
    names = ", ".join(sorted(policies)) or "none"
    if name is None and len(policies) != 1:
        raise UsageError(f"--policy is required, because {file} has these policies: {names}")
    if name is not None and name not in policies:
        raise UsageError(f"{file} has no policy {name!r}; it has {names}")
    return policies[name] if name is not None else next(iter(policies.values()))
