"""`tfckpt rewrite`, a new checkpoint made of an old one, and `tfckpt convert`, in another format.

A plan with errors writes nothing. Values pass through one at a time. How the new name ends tells
the format.

`.weights.h5` is written by Keras itself, from a model that a script builds: its groups are named
after the classes of layers, and its values numbered, and a checkpoint tells neither.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli.arguments.command import UsageError
from tfckpt.cli.arguments.find_checkpoint import find, passed_over
from tfckpt.cli.arguments.selection_flags import RULES, opened, policy_of, selected, tell
from tfckpt.cli.output.progress import progress
from tfckpt.core.inventory import Role
from tfckpt.core.selectors import exactly
from tfckpt.core.text import printable
from tfckpt.manager.rewriting import StepReader, rewrite
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status
from tfckpt.policy import Config, Policy, Restore, Source
from tfckpt.stored.commits.write_checkpoint import refuse_taken
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
_SHOWN = 5
# Ends of names that mean a format, and none that is written here.
_OTHERS = frozenset(
    """
    .h5 .hdf5 .keras .npy .pt .pth .bin .pb .onnx .tflite .zip .json .index
    """.split()  # noqa: SIM905 (words read better than a list of them)
)


def run(arguments: Arguments) -> int:
    """Write the checkpoint; 1 where the plan has errors."""
    source, target = arguments.pair("the checkpoint, and the prefix of the new one")
    limit = _bytes(arguments.text("shard_size"))
    refuse_taken(absolute(target), LOCAL)  # before anything is read
    with opened(arguments, source) as stored, progress(target) as advance:
        plan = selected(arguments, stored)
        reader = StepReader(stored, plan, advance)
        files = list(rewrite(reader, plan, target, limit).files) if plan.ok else []
    return tell(arguments, plan, target, files)


def _bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if (match := _SIZE.fullmatch(text)) is None:
        raise UsageError(f"--shard_size {text!r} is no size; 500M and 2G are some")
    return int(match[1]) * _UNITS[match[2]]


def run_convert(arguments: Arguments) -> int:
    """Write the file; 1 where the plan has errors."""
    source, target = arguments.pair("the checkpoint, and the new file or prefix")
    suffix = Path(target.lower()).suffix
    if target.lower().endswith(_WEIGHTS):
        return _to_weights(arguments, source, target)
    if arguments.text("model") is not None:
        raise UsageError(f"--model is for a name that ends with {_WEIGHTS}")
    if suffix in _OTHERS:
        known = ", ".join((*_WRITERS, _WEIGHTS))
        raise UsageError(f"{suffix} is not written; {known} are, and a prefix for a checkpoint")
    if suffix not in _WRITERS:
        return run(arguments)
    if arguments.text("shard_size") is not None:
        raise UsageError("--shard_size is for a checkpoint; other formats are one file")
    refuse_existing(target)  # before anything is read
    objects: list[str] = []
    with opened(arguments, source) as stored, progress(target) as advance:
        plan = selected(arguments, stored)
        if plan.ok:
            plan, objects = _tensors(plan, suffix)
            reader = StepReader(stored, plan, advance)
            steps = {step.name: step for step in plan.assignments}
            entries = [step.entry for step in plan.assignments]
            with new_file(target) as output:
                _WRITERS[suffix](output, entries, lambda e: reader.read(steps[e.name]), source)
    status = tell(arguments, plan, target, [Path(target).name] if plan.ok else [])
    _say(f"left out, since {suffix} holds nothing but tensors", objects)
    return status


def _tensors(plan: Plan, suffix: str) -> tuple[Plan, list[str]]:
    """The plan without what is no tensor (an iterator, a table), and the names of that.

    Raises:
        UsageError: nothing is left.
    """
    reason = f"no tensor, and {suffix} holds nothing else"
    steps = [
        step._replace(status=Status.EXCLUDED, reason=reason, severity=Severity.NOTE)
        if step.status in ASSIGNED and step.entry.shape is None
        else step
        for step in plan.steps
    ]
    objects = [new.name for old, new in zip(plan.steps, steps, strict=True) if new is not old]
    if objects and len(objects) == len(plan.assignments):
        raise UsageError(f"nothing that is selected is a tensor, and {suffix} holds nothing else")
    return dataclasses.replace(plan, steps=tuple(steps)), objects


def _say(what: str, found: Sequence[str]) -> None:
    """A line on standard error about values, where there are any."""
    if found:
        names = ", ".join(map(printable, found[:_SHOWN]))
        more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        print(f"tfckpt: {what}: {names}{more}", file=sys.stderr)


def _to_weights(arguments: Arguments, source: str, target: str) -> int:
    """By a restore into the model, and Keras's own `save_weights`."""
    if (model := arguments.text("model")) is None:
        raise UsageError(
            f"{_WEIGHTS} is made of the classes of layers and the order of their variables, which "
            "the checkpoint does not tell; --model MODULE:CALLABLE builds a model that does"
        )
    if mixed := [
        f"--{flag}" for flag in (*RULES, "cast", "average", "shard_size") if arguments.flags[flag]
    ]:
        raise UsageError(f"the model says what is written, so leave out {', '.join(mixed)}")
    policy = policy_of(arguments)
    refuse_existing(target)
    import tfckpt
    from tfckpt.cli.arguments.load_model import load_objects

    found = find(source)
    found.checkpoint.close()
    passed_over(found)
    absent: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):
        objects = load_objects(model)
        save = getattr(objects.get("model"), "save_weights", None)
        if save is None:
            raise UsageError(f"--model {model} returned no Keras model, alone or as 'model'")
        if policy is None:
            # What the checkpoint has besides is no matter, nor what it lacks of an optimizer.
            policy = Policy(name="convert", api="read", on_unexpected="ignore")
            plan = tfckpt.plan(_restoring(found.checkpoint.prefix, policy), **objects)
            absent = [step.name for step in plan.errors if _lacks_optimizer(step)]
            policy = policy.model_copy(update={"expect_missing": tuple(map(exactly, absent))})
        report = tfckpt.restore(_restoring(found.checkpoint.prefix, policy), **objects)
        with new_file_by_name(target, _WEIGHTS) as path:
            save(path)
    status = tell(arguments, report.plan, target, [Path(target).name])
    _say("not in the checkpoint, and written as the model has it", absent)
    return status


def _restoring(prefix: str, policy: Policy) -> Config:
    return Config(version=1, restore=Restore(first_of=(Source(path=prefix, policy=policy),)))


def _lacks_optimizer(step: Step) -> bool:
    roles = Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER
    return step.status is Status.MISSING and step.entry.role in roles
