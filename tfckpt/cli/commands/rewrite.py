"""`tfckpt rewrite` makes a new checkpoint from an old one; `tfckpt convert` writes other formats.

The format follows from the suffix of the new name. A plan with errors writes nothing. Values are
read and written one at a time, so memory is bounded by the largest.

`.weights.h5` is written by Keras itself, from a model that a script builds: its groups are named
after the classes of layers and its values are numbered, and a checkpoint records neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import find, print_rejected
from tfckpt.cli.arguments.selection_flags import (
    SELECTION_FLAGS,
    open_source,
    plan_selection,
    policy_of,
    print_result,
)
from tfckpt.cli.output.progress import progress
from tfckpt.core.inventory import Role
from tfckpt.core.selectors import exactly
from tfckpt.core.text import all_printable, listed
from tfckpt.manager.rewriting import StepReader, rewrite
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status
from tfckpt.policy import Config, Policy, Restore, Source
from tfckpt.stored.commits.write_checkpoint import claim_name
from tfckpt.stored.formats.export import write_npz, write_safetensors
from tfckpt.stored.io.files import LOCAL, absolute
from tfckpt.stored.io.new_file import new_file, new_file_by_name, refuse_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfckpt.cli.arguments.command import Arguments
    from tfckpt.planning import Plan, Step

_WRITERS: dict[str, Callable[..., None]] = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
}
_WEIGHTS = ".weights.h5"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)(?:i?B)?")
# Suffixes of formats that convert cannot write; such a name is not taken for a prefix.
_UNSUPPORTED = frozenset(
    """
    .h5 .hdf5 .keras .npy .pt .pth .bin .pb .onnx .tflite .zip .json .index
    """.split()  # noqa: SIM905 (shorter than a list of strings)
)


def run(arguments: Arguments) -> int:
    """Write the checkpoint; returns 1 if the plan has errors."""
    source, target = arguments.pair("a checkpoint and the prefix of the new one")
    limit = _bytes(arguments.text("shard_size"))
    claim_name(absolute(target), LOCAL)  # before anything is read
    with open_source(arguments, source) as stored, progress(target) as advance:
        plan = plan_selection(arguments, stored)
        reader = StepReader(stored, plan, advance)
        files = list(rewrite(reader, plan, target, limit).files) if plan.ok else []
    return print_result(arguments, plan, target, files)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if (match := _SIZE.fullmatch(text)) is None:
        raise UsageError(f"--shard_size {text!r} is not a valid size; use e.g. 500M or 2G")
    return int(match[1]) * _UNITS[match[2]]


def run_convert(arguments: Arguments) -> int:
    """Write the file; returns 1 if the plan has errors."""
    source, target = arguments.pair("a checkpoint and the new file or prefix")
    suffix = Path(target.lower()).suffix
    if target.lower().endswith(_WEIGHTS):
        return _to_weights(arguments, source, target)
    if arguments.text("model") is not None:
        raise UsageError(f"--model is only for a new name that ends with {_WEIGHTS}")
    if suffix in _UNSUPPORTED:
        known = ", ".join((*_WRITERS, _WEIGHTS))
        raise UsageError(f"cannot write {suffix}; use {known}, or a prefix for a TF2 checkpoint")
    if suffix not in _WRITERS:
        return run(arguments)
    if arguments.text("shard_size") is not None:
        raise UsageError("--shard_size is only for TF2 checkpoints; other formats are one file")
    refuse_existing(target)  # before anything is read
    objects: list[str] = []
    with open_source(arguments, source) as stored, progress(target) as advance:
        plan = plan_selection(arguments, stored)
        if plan.ok:
            plan, objects = _tensors(plan, suffix)
            reader = StepReader(stored, plan, advance)
            steps = {step.name: step for step in plan.assignments}
            entries = [step.entry for step in plan.assignments]
            with new_file(target) as output:
                _WRITERS[suffix](output, entries, lambda e: reader.read(steps[e.name]), source)
    status = print_result(arguments, plan, target, [Path(target).name] if plan.ok else [])
    _print_names(f"left out, because {suffix} can hold only tensors", objects)
    return status


def _tensors(plan: Plan, suffix: str) -> tuple[Plan, list[str]]:
    """The plan without values that are not tensors (iterators, tables), and their names.

    Raises:
        UsageError: nothing is left.
    """
    reason = f"not a tensor, and {suffix} can hold only tensors"
    steps = [
        step._replace(status=Status.EXCLUDED, reason=reason, severity=Severity.NOTE)
        if step.status in ASSIGNED and step.entry.shape is None
        else step
        for step in plan.steps
    ]
    objects = [new.name for old, new in zip(plan.steps, steps, strict=True) if new is not old]
    if objects and len(objects) == len(plan.assignments):
        raise UsageError(f"no selected value is a tensor, and {suffix} can hold only tensors")
    return dataclasses.replace(plan, steps=tuple(steps)), objects


def _print_names(message: str, names: Sequence[str]) -> None:
    """Print a message with names to standard error, unless there are none."""
    if names:
        print(f"tfckpt: {message}: {listed(all_printable(names))}", file=sys.stderr)


def _to_weights(arguments: Arguments, source: str, target: str) -> int:
    """Restore into the model, then call its `save_weights`."""
    if (model := arguments.text("model")) is None:
        raise UsageError(
            f"{_WEIGHTS} needs --model MODULE:CALLABLE, which builds the model: its layout depends "
            "on the classes of layers and the order of variables, which the checkpoint lacks"
        )
    if mixed := [
        f"--{flag}"
        for flag in (*SELECTION_FLAGS, "cast", "average", "shard_size")
        if arguments.flags[flag]
    ]:
        raise UsageError(
            f"with --model, the model decides what is written; remove {', '.join(mixed)}"
        )
    policy = policy_of(arguments)
    refuse_existing(target)
    import tfckpt
    from tfckpt.cli.arguments.load_model import load_objects

    found = find(source)
    found.checkpoint.close()
    print_rejected(found)
    absent: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):
        objects = load_objects(model)
        save = getattr(objects.get("model"), "save_weights", None)
        if save is None:
            raise UsageError(
                f"--model {model} must return a Keras model, or a dict with one as 'model'"
            )
        if policy is None:
            # Further values in the checkpoint, and missing ones of an optimizer, are not errors.
            policy = Policy(name="convert", api="read", on_unexpected="ignore")
            plan = tfckpt.plan(_restoring(found.checkpoint.prefix, policy), **objects)
            absent = [step.name for step in plan.errors if _lacks_optimizer(step)]
            policy = policy.model_copy(update={"expect_missing": tuple(map(exactly, absent))})
        report = tfckpt.restore(_restoring(found.checkpoint.prefix, policy), **objects)
        with new_file_by_name(target, _WEIGHTS) as path:
            save(path)
    status = print_result(arguments, report.plan, target, [Path(target).name])
    _print_names("not in the checkpoint; written with the model's own value", absent)
    return status


def _restoring(prefix: str, policy: Policy) -> Config:
    return Config(version=1, restore=Restore(first_of=(Source(path=prefix, policy=policy),)))


def _lacks_optimizer(step: Step) -> bool:
    roles = Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER
    return step.status is Status.MISSING and step.entry.role in roles
