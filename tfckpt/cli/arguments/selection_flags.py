"""The source, the selection flags and the summary of `rewrite` and `convert`.

Their plan is a restore plan whose target is the new checkpoint (:mod:`tfckpt.planning.rewrite`).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import files_of, find, print_rejected
from tfckpt.cli.arguments.json_document import show_json
from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import Origin, Role
from tfckpt.core.selectors import Selector
from tfckpt.core.text import printable, size
from tfckpt.errors import PolicyError, Problem
from tfckpt.planning.checks.step import Status
from tfckpt.planning.rewrite import derive
from tfckpt.policy import Policy, load_config
from tfckpt.policy.policy import OptimizerRules
from tfckpt.stored.average import Average, AveragedValues, open_average

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint

SELECTION_FLAGS = ("include", "exclude", "rename", "drop_optimizer")
_FLOATS = ("float", "bfloat")
_WORDS = {
    Status.LOADED: "unchanged",
    Status.RENAMED: "renamed",
    Status.CAST: "cast",
    Status.EXCLUDED: "left out",
}


def open_source(arguments: Arguments, source: str) -> StoredCheckpoint:
    """The source, or its average with the checkpoints of --average.

    Raises:
        CheckpointError: one does not exist, cannot be read, or has other weights.
    """
    found = find(source)
    print_rejected(found)
    others = arguments.texts("average")
    if not others:
        return found.checkpoint
    paths = [found.checkpoint.prefix]
    found.checkpoint.close()
    for path in others:
        other = find(path)
        other.checkpoint.close()
        print_rejected(other)
        paths.append(other.checkpoint.prefix)
    return open_average(Average(tuple(paths)), roots=None, bases=(), files=files_of)


def plan_selection(arguments: Arguments, stored: StoredCheckpoint) -> Plan:
    """The plan of what the flags select from a checkpoint.

    Raises:
        UsageError: the flags contradict each other, or one is not valid.
        PolicyError: the config is not valid, or its policy needs a model.
    """
    casts = [_CastFlag(text) for text in arguments.texts("cast")]
    policy = _policy(arguments, stored.inventory)
    for key, unset in (("adapt", ()), ("ema", "ignore")):
        if getattr(policy, key) != unset:
            message = f"{key}: needs a model, which rewrite and convert do not have"
            hint = f"restore into the model and save it, or use a policy without `{key}`"
            raise PolicyError(policy.file, [Problem(message, *policy.where(key), hint)])
    if casts:
        policy = policy.model_copy(update={"on_dtype_mismatch": "cast"})
    plan = derive(policy, stored.inventory, partial(_dtype, casts))
    for cast in casts:
        if not cast.used:
            raise UsageError(f"--cast {cast.text} matches no value")
    values = stored.values
    shares = values.shares if isinstance(values, AveragedValues) else ()
    origin = Origin(stored.prefix, values.digest, policy.name, policy.digest, shares)
    return dataclasses.replace(plan, origins=(origin,))


def print_result(arguments: Arguments, plan: Plan, target: str, files: list[str]) -> int:
    """Print what was written, or the plan if it has errors; returns the exit status."""
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
                "files": files,
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
        shards = f", in {len(files)} data files" if len(files) > 1 else ""
        print(f"{printable(target)}: {total}{shards}")
    else:
        print(plan)
    return 0 if plan.ok else 1


def policy_of(arguments: Arguments) -> Policy | None:
    """The policy of --config and --policy; None without them.

    Raises:
        UsageError: there is no such policy, or selection flags are used as well.
        PolicyError: the config is not valid.
    """
    if (file := arguments.text("config")) is None:
        if arguments.text("policy") is not None:
            raise UsageError("--policy needs --config, the file that has the policy")
        return None
    if mixed := [f"--{flag}" for flag in SELECTION_FLAGS if arguments.flags[flag]]:
        raise UsageError(f"--config sets the rules; remove {', '.join(mixed)}")
    return _of_config(file, arguments.text("policy"))


def _policy(arguments: Arguments, stored: Inventory) -> Policy:
    if (policy := policy_of(arguments)) is not None:
        return policy
    renames = []
    for text in arguments.texts("rename"):
        old, equals, new = text.partition("=")
        if not equals:
            raise UsageError(f"--rename {text!r} is not OLD=NEW")
        renames.append({"checkpoint": old, "model": new})
    rules: dict[str, Any] = {"rename": renames, "exclude": arguments.texts("exclude")}
    if include := arguments.texts("include"):
        rules["include"] = include
    if arguments.switch("drop_optimizer"):
        rules["exclude_checkpoint"] = _optimizer_selectors(stored)
        rules["optimizer"] = OptimizerRules(
            slots="reset", iterations="reset", hyperparameters="config"
        )
    try:
        return Policy(name="rewrite", **rules)
    except PolicyError as error:
        raise UsageError("; ".join(problem.message for problem in error.problems)) from None


def _of_config(file: str, name: str | None) -> Policy:
    policies = load_config(file).policies
    names = ", ".join(sorted(policies)) or "none"
    if name is None and len(policies) != 1:
        raise UsageError(f"--policy is required, because {file} has these policies: {names}")
    if name is not None and name not in policies:
        raise UsageError(f"{file} has no policy {name!r}; it has {names}")
    return policies[name] if name is not None else next(iter(policies.values()))


def _optimizer_selectors(stored: Inventory) -> list[str]:
    """Selectors of all values below an optimizer."""
    return [
        f"{path}/**"
        for path in sorted(stored.optimizers)
        if any(name.startswith(f"{path}/") for name in stored.entries)
    ]


class _CastFlag:
    """``DTYPE`` for all floating-point weights and slots, ``GLOB=DTYPE`` for what GLOB selects.

    >>> _CastFlag("model/**=float16").dtype
    'float16'
    """

    def __init__(self, text: str) -> None:
        selector, _, self.dtype = text.rpartition("=")
        self.text = text
        self.used = False
        if ITEM_BYTES.get(self.dtype) is None:
            raise UsageError(f"--cast {text}: {self.dtype!r} is not a dtype; use e.g. float16")
        try:
            self._selector = Selector(selector) if selector else None
        except ValueError as error:
            raise UsageError(f"--cast {text}: {error}") from None

    def applies(self, entry: Entry) -> bool:
        if self._selector is not None:
            applies = entry.shape is not None and self._selector.matches(entry.name)
        else:
            applies = entry.role in (Role.WEIGHT, Role.SLOT) and entry.dtype.startswith(_FLOATS)
        self.used = self.used or applies
        return applies


def _dtype(casts: Sequence[_CastFlag], entry: Entry) -> str:
    """The dtype of a value in the new checkpoint; the last flag that applies to it wins."""
    dtypes = [cast.dtype for cast in casts if cast.applies(entry)]
    return dtypes[-1] if dtypes else entry.dtype
