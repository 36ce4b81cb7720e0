"""`tfckpt convert`: the values of a checkpoint in another format, told by how the new name ends.

`.weights.h5` is written by Keras itself, from a model that a script builds: its groups are named
after the classes of layers, and its values numbered, and a checkpoint tells neither.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.cli import rewrite
from tfckpt.cli.command import Misuse
from tfckpt.cli.finding import find, passed_over
from tfckpt.cli.progress import progress
from tfckpt.cli.selection import RULES, opened, selected, tell
from tfckpt.cli.writing import Reader
from tfckpt.stored.arrays import write_npz, write_safetensors
from tfckpt.stored.new_file import new_file, new_file_by_name, refuse_existing

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.cli.command import Given

_WRITERS: dict[str, Callable[..., None]] = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
}
_WEIGHTS = ".weights.h5"
# Ends of names that mean a format, and none that is written here.
_OTHERS = frozenset(
    """
    .h5 .hdf5 .keras .npy .pt .pth .bin .pb .onnx .tflite .zip .json .index
    """.split()  # noqa: SIM905 (words read better than a list of them)
)


def run(given: Given) -> int:
    """Write the file; 1 where the plan has errors."""
    source, target = given.two("the checkpoint, and the new file or prefix")
    suffix = Path(target.lower()).suffix
    if target.lower().endswith(_WEIGHTS):
        return _to_weights(given, source, target)
    if given.text("model") is not None:
        raise Misuse(f"--model is for a name that ends with {_WEIGHTS}")
    if suffix in _OTHERS:
        known = ", ".join((*_WRITERS, _WEIGHTS))
        raise Misuse(f"{suffix} is not written; {known} are, and a prefix for a checkpoint")
    if suffix not in _WRITERS:
        return rewrite.run(given)
    if given.text("shard_size") is not None:
        raise Misuse("--shard_size is for a checkpoint; other formats are one file")
    refuse_existing(target)  # before anything is read
    with opened(given, source) as stored, progress(target) as advance:
        plan = selected(given, stored)
        if plan.ok:
            reader = Reader(stored, plan, advance)
            steps = {step.name: step for step in plan.assignments}
            entries = [step.entry for step in plan.assignments]
            with new_file(target) as output:
                _WRITERS[suffix](output, entries, lambda e: reader.read(steps[e.name]), source)
    return tell(given, plan, target, [Path(target).name] if plan.ok else [])


def _to_weights(given: Given, source: str, target: str) -> int:
    """By a restore into the model, and Keras's own `save_weights`."""
    if (model := given.text("model")) is None:
        raise Misuse(
            f"{_WEIGHTS} is made of the classes of layers and the order of their variables, which "
            "the checkpoint does not tell; --model MODULE:CALLABLE builds a model that does"
        )
    if mixed := [
        f"--{flag}" for flag in (*RULES, "cast", "average", "shard_size") if given.flags[flag]
    ]:
        raise Misuse(f"the model says what is written, so leave out {', '.join(mixed)}")
    refuse_existing(target)
    import tfckpt
    from tfckpt.cli.objects import load_objects

    found = find(source)
    found.checkpoint.close()
    passed_over(found)
    with contextlib.redirect_stdout(sys.stderr):
        objects = load_objects(model)
        save = getattr(objects.get("model"), "save_weights", None)
        if save is None:
            raise Misuse(f"--model {model} returned no Keras model, alone or as 'model'")
        # What the checkpoint has besides, an optimizer's state for example, is no matter.
        policy = {"on_unexpected": "ignore"}
        place = {"path": found.checkpoint.prefix, "policy": policy}
        report = tfckpt.restore({"version": 1, "restore": place}, **objects)
        with new_file_by_name(target, _WEIGHTS) as path:
            save(path)
    return tell(given, report.plan, target, [Path(target).name])
