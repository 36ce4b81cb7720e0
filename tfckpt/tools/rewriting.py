"""``tfckpt.rewrite``: a new checkpoint from an old one. ``tfckpt.convert``: other formats.

The format follows from the suffix of the new name. A plan with errors writes nothing. Values are
read and written one at a time, so memory is bounded by the largest.

`.weights.h5` is written by Keras itself, from a live model: its groups are named after the classes
of layers and its values are numbered, and a checkpoint records neither.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from tfckpt.core.dtypes import LostNumberError, cast, numpy_dtype
from tfckpt.core.inventory import Restored, Role
from tfckpt.core.selectors import exactly
from tfckpt.core.text import free_name, listed
from tfckpt.errors import RefusedError, UnsupportedCheckpointError
from tfckpt.planning.checks.step import ASSIGNED, Severity, Status
from tfckpt.planning.rewrite import structure
from tfckpt.policy import Config, Policy, Restore, Source
from tfckpt.stored.bundles.bundle import OPAQUE
from tfckpt.stored.bundles.keys import ATTRIBUTES, OBJECT_GRAPH, object_graph
from tfckpt.stored.commits import record_file
from tfckpt.stored.commits.commit import CheckpointValue, claim_name, write_values
from tfckpt.stored.commits.new_file import new_file, new_file_by_name, refuse_existing
from tfckpt.stored.formats.export import write_npz, write_safetensors
from tfckpt.stored.formats.graph_writer import graph_of_names, key_of, prune
from tfckpt.stored.io.files import LOCAL, absolute
from tfckpt.tools.find_checkpoint import find, path_of
from tfckpt.tools.inspection import silent
from tfckpt.tools.selection import (
    SelectedValues,
    misuse,
    open_source,
    plan_selection,
    policy_of,
    quoted,
)
from tfckpt.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Container, Iterator, Sequence

    import numpy as np

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan, Step
    from tfckpt.stored.bundles.bundle import Bundle
    from tfckpt.stored.commits.record_file import CommitRecord
    from tfckpt.stored.formats.checkpoint import StoredCheckpoint
    from tfckpt.tools.inspection import Progress

_WRITERS: dict[str, Callable[..., None]] = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
}
WEIGHTS = ".weights.h5"
# Suffixes of formats that convert cannot write; such a name is not taken for a prefix.
_UNSUPPORTED = frozenset(
    """
    .h5 .hdf5 .keras .npy .pt .pth .bin .pb .onnx .tflite .zip .json .index
    """.split()  # noqa: SIM905 (shorter than a list of strings)
)


class WrittenFiles(NamedTuple):
    """What was written, or was not: then the plan has errors."""

    path: str
    plan: Plan
    files: Sequence[str] = ()
    left_out: Sequence[str] = ()
    absent: Sequence[str] = ()
    rejected: Mapping[str, str] = {}
    used: str = ""


def rewrite(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[Mapping[str, str]] = (),
    drop_optimizer: bool = False,
    cast: str | Mapping[str, str] | None = None,
    average: Sequence[str | os.PathLike[str]] = (),
    policy: Policy | Mapping[str, Any] | None = None,
    shard_size: int | None = None,
    progress: Progress = silent,
) -> str:
    """Write a new TensorFlow checkpoint from an old one, as ``tfckpt rewrite`` does.

    The old one stays as it is. Does not import TensorFlow.

    Args:
        source: the path of a checkpoint in any format that tfckpt reads, or a directory of
            numbered checkpoints, of which the newest readable one is used.
        target: the prefix of the new one.
        include: selectors of new names; everything by default.
        exclude: selectors of new names that are left out.
        rename: rules as in a policy: ``[{"checkpoint": "model/old/**", "model": "model/new/**"}]``.
        drop_optimizer: whether to leave out optimizers.
        cast: a dtype for all floating-point weights and slots; or selector of the checkpoint's
            names → dtype, of which the last that applies wins; ``""`` for those of the former.
        average: other checkpoints of the same model; the mean of all is written.
        policy: a policy in place of ``include``, ``exclude``, ``rename`` and ``drop_optimizer``.
        shard_size: the largest size of a data file, in bytes.
        progress: as for :func:`tfckpt.inspect`.

    Returns:
        The path of the new checkpoint.

    Raises:
        CheckpointNotFoundError: there is no checkpoint.
        DamagedCheckpointError: there is one, but a value of it cannot be read.
        PolicyError: an argument is not valid.
        RefusedError: the plan has errors; nothing was written.
        SaveError: the target exists, or cannot be written.
        UnsupportedCheckpointError: the format or a value is not supported.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> half = tfckpt.rewrite(path, f"{path}-half", include=["model/**"], cast="float16")
    >>> [(e.name, e.dtype) for e in tfckpt.inspect(half).inventory.entries.values()]
    [('model/out/bias', 'float16'), ('model/out/kernel', 'float16')]
    """
    chosen = SelectedValues(include, exclude, rename, drop_optimizer, cast, average, policy)
    return _path(rewritten(path_of(source), path_of(target), chosen, shard_size, progress))


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    model: Any = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[Mapping[str, str]] = (),
    drop_optimizer: bool = False,
    cast: str | Mapping[str, str] | None = None,
    average: Sequence[str | os.PathLike[str]] = (),
    policy: Policy | Mapping[str, Any] | None = None,
    shard_size: int | None = None,
    progress: Progress = silent,
) -> str:
    """Write a checkpoint in another format, as ``tfckpt convert`` does.

    The suffix of the target decides: `.npz`, `.safetensors`, or `.weights.h5` of Keras; without
    one, a TensorFlow checkpoint as by :func:`tfckpt.rewrite`. Only `.weights.h5` needs TensorFlow.

    Args:
        source: as for :func:`tfckpt.rewrite`.
        target: the new file.
        model: for `.weights.h5`, a built model, into which the checkpoint is restored; or several
            objects by keyword in a dict. The model then decides what is written, and ``policy``
            what is restored.
        include: as for :func:`tfckpt.rewrite`, like all that follow; not for `.weights.h5`.
        exclude: the same.
        rename: the same.
        drop_optimizer: the same.
        cast: the same.
        average: the same.
        policy: the same; also for `.weights.h5`.
        shard_size: only for a TensorFlow checkpoint.
        progress: as for :func:`tfckpt.inspect`.

    Returns:
        The path of the new file.

    Raises:
        The errors of :func:`tfckpt.rewrite`, and for `.weights.h5` those of
        :func:`tfckpt.restore`.

    >>> import keras, numpy, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> path = tfckpt.Checkpoint(model=model).save(tempfile.mkdtemp() + "/ckpt")
    >>> arrays = numpy.load(tfckpt.convert(path, f"{path}.npz", include=["model/**"]))
    >>> arrays["model/out/kernel"].shape
    (4, 2)
    """
    chosen = SelectedValues(include, exclude, rename, drop_optimizer, cast, average, policy)
    objects = model if isinstance(model, Mapping) else {"model": model}
    build = None if model is None else lambda: objects
    return _path(
        converted(path_of(source), path_of(target), chosen, shard_size, progress, build=build)
    )


def _path(written: WrittenFiles) -> str:
    """The path of what was written; says what the commands print to standard error."""
    for reason in written.rejected.values():
        logging.warning("passed over: %s; using %s", reason, written.used)
    if not written.plan.ok:
        raise RefusedError(str(written.plan), plan=written.plan)
    for text in remarks(written):
        logging.warning("%s: %s", written.path, text)
    return written.path


def remarks(written: WrittenFiles) -> list[str]:
    """What a person should know of what was written."""
    suffix = Path(written.path.lower()).suffix
    return [
        f"{what}: {listed(names)}"
        for what, names in (
            (f"left out, because {suffix} can hold only tensors", written.left_out),
            ("not in the checkpoint; written with the model's own value", written.absent),
        )
        if names
    ]


def rewritten(
    source: str, target: str, selection: SelectedValues, shard_bytes: int | None, progress: Progress
) -> WrittenFiles:
    """Write the checkpoint, unless the plan has errors."""
    if shard_bytes is not None and (not isinstance(shard_bytes, int) or shard_bytes < 1):
        raise misuse(f"`shard_size` must be a number of bytes, found {shard_bytes!r}")
    claim_name(absolute(target), LOCAL)  # before anything is read
    stored, rejected = open_source(source, selection.average)
    with stored, progress(target) as advance:
        plan = plan_selection(selection, stored)
        reader = StepReader(stored, plan, advance)
        files = _write_plan(reader, plan, target, shard_bytes).files if plan.ok else ()
    return WrittenFiles(target, plan, files, rejected=rejected, used=stored.prefix)


def converted(
    source: str,
    target: str,
    selection: SelectedValues,
    shard_bytes: int | None,
    progress: Progress,
    *,
    build: Callable[[], Mapping[str, Any]] | None,
) -> WrittenFiles:
    """Write the file, unless the plan has errors; ``build`` makes objects for Keras's format."""
    suffix = Path(target.lower()).suffix
    if target.lower().endswith(WEIGHTS):
        return _to_weights(source, target, selection, shard_bytes, build)
    if build is not None:
        raise misuse(f"`model` is only for a new name that ends with {WEIGHTS}")
    if suffix in _UNSUPPORTED:
        known = ", ".join((*_WRITERS, WEIGHTS))
        raise misuse(f"cannot write {suffix}; use {known}, or a prefix for a TF2 checkpoint")
    if suffix not in _WRITERS:
        return rewritten(source, target, selection, shard_bytes, progress)
    if shard_bytes is not None:
        raise misuse("`shard_size` is only for TF2 checkpoints; other formats are one file")
    refuse_existing(target)  # before anything is read
    stored, rejected = open_source(source, selection.average)
    with stored, progress(target) as advance:
        plan = plan_selection(selection, stored)
        if not plan.ok:
            return WrittenFiles(target, plan, rejected=rejected, used=stored.prefix)
        plan, left_out = _tensors(plan, suffix)
        reader = StepReader(stored, plan, advance)
        steps = {step.name: step for step in plan.assignments}
        entries = [step.entry for step in plan.assignments]
        with new_file(target) as output:
            _WRITERS[suffix](output, entries, lambda e: reader.read(steps[e.name]), source)
    files = [Path(target).name]
    return WrittenFiles(target, plan, files, left_out, rejected=rejected, used=stored.prefix)


def _tensors(plan: Plan, suffix: str) -> tuple[Plan, list[str]]:
    """The plan without values that are not tensors (iterators, tables), and their names."""
    reason = f"not a tensor, and {suffix} can hold only tensors"
    steps = [
        step._replace(status=Status.EXCLUDED, reason=reason, severity=Severity.NOTE)
        if step.status in ASSIGNED and step.entry.shape is None
        else step
        for step in plan.steps
    ]
    objects = [new.name for old, new in zip(plan.steps, steps, strict=True) if new is not old]
    if objects and len(objects) == len(plan.assignments):
        raise misuse(f"no selected value is a tensor, and {suffix} can hold only tensors")
    return dataclasses.replace(plan, steps=tuple(steps)), objects


def _to_weights(
    source: str,
    target: str,
    selection: SelectedValues,
    shard_bytes: int | None,
    build: Callable[[], Mapping[str, Any]] | None,
) -> WrittenFiles:
    """Restore into the model, then call its `save_weights`."""
    if build is None:
        raise misuse(
            f"{WEIGHTS} needs `model`: its layout depends on the classes of layers and the order "
            "of variables, which the checkpoint lacks"
        )
    mixed = [*selection.rules, *(name for name in ("cast", "average") if getattr(selection, name))]
    if mixed := [*mixed, *["shard_size"] * (shard_bytes is not None)]:
        raise misuse(f"with `model`, the model decides what is written; remove {quoted(mixed)}")
    policy = policy_of(selection)
    refuse_existing(target)
    found = find(source)
    found.checkpoint.close()
    prefix = found.checkpoint.prefix
    from tfckpt.calls import plan as plan_restore
    from tfckpt.calls import restore

    objects = build()
    save = getattr(objects.get("model"), "save_weights", None)
    if save is None:
        raise misuse("`model` must be a Keras model, or a dict with one as 'model'")
    absent: list[str] = []
    if policy is None:
        # Further values in the checkpoint, and missing ones of an optimizer, are not errors.
        policy = Policy(name="convert", api="read", on_unexpected="ignore")
        plan = plan_restore(_restoring(prefix, policy), **objects)
        absent = [step.name for step in plan.steps if _lacks_optimizer(step)]
        policy = policy.model_copy(update={"expect_missing": tuple(map(exactly, absent))})
    report = restore(_restoring(prefix, policy), **objects)
    with new_file_by_name(target, WEIGHTS) as path:
        save(path)
    files = [Path(target).name]
    return WrittenFiles(target, report.plan, files, (), absent, found.rejected, prefix)


def _restoring(prefix: str, policy: Policy) -> Config:
    return Config(version=1, restore=Restore(first_of=(Source(path=prefix, policy=policy),)))


def _lacks_optimizer(step: Step) -> bool:
    roles = Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER
    return step.status is Status.MISSING and step.entry.role in roles


_HINT = "exclude it: --exclude with its name"
_PART = 1 << 20
_NUMBERED = re.compile(r".*-([0-9]{1,18})", re.DOTALL)


def _write_plan(
    reader: StepReader, plan: Plan, target: str, shard_bytes: int | None = None
) -> CommitRecord:
    """Write a new checkpoint from another.

    The plan is one of :func:`tfckpt.planning.rewrite.derive` without errors; ``target`` is the
    prefix of the new checkpoint; ``shard_bytes`` limits the size of a data file.
    """
    stored = reader.stored
    for step in plan.assignments:
        if step.entry.shape is not None and step.entry.dtype in OPAQUE:
            message = f"values of dtype {step.entry.dtype} can be read only by TensorFlow"
            raise UnsupportedCheckpointError(
                message, path=stored.prefix, name=step.source, hint=_HINT
            )
    bundle = stored.graph
    inventory = stored.members[0].inventory if stored.members else stored.inventory
    keys = _keys(plan, bundle.entries if bundle else {}, kept=bundle is not None)
    values = {
        keys[step.name]: reader.value(step, keys[step.name])
        for step in plan.assignments
        if step.entry.shape is not None
    }
    if bundle is not None:
        values = dict(_with_graph(bundle, inventory, plan, values))
    else:
        values[OBJECT_GRAPH] = _text(OBJECT_GRAPH, graph_of_names(keys).SerializeToString())

    before = stored.record.lineage if stored.record else ()
    counts = {status.value: count for status, count in plan.counts.items()}

    def describe(bundle: Bundle, _: None, files: tuple[str, ...]) -> CommitRecord:
        entries = [_written(step, keys[step.name], bundle) for step in plan.assignments]
        inventory = structure(stored.inventory, plan, entries, target)
        number = _NUMBERED.fullmatch(target)
        described = record_file.CommitRecord(
            number=int(number[1]) if number else 0,
            inventory=inventory,
            index_sha256=bundle.digest,
            created=record_file.now(),
            versions={"tfckpt": __version__},
            finite=reader.finite,
            files=files,
            lineage=(*before, Restored(plan.origins, counts)),
        )
        return _with_source_metadata(stored, plan, described)

    return write_values(target, list(values.values()), describe, shard_bytes=shard_bytes)


class StepReader:
    """Reads the values of a plan in the dtypes that they are to have."""

    def __init__(
        self, stored: StoredCheckpoint, plan: Plan, advance: Callable[[int, int], None]
    ) -> None:
        self.stored = stored
        self.finite = True
        self._advance = advance
        self._total = plan.nbytes
        self._done = 0
        advance(self._done, self._total)

    def value(self, step: Step, key: str) -> CheckpointValue:
        return CheckpointValue(key, step.entry.nbytes, partial(self.read, step))

    def read(self, step: Step) -> np.ndarray:
        """The value, cast if the step says so."""
        entry = _stored(step)
        array = self.stored.values.read(entry.key)
        self._done += entry.nbytes
        self._advance(self._done, self._total)
        if step.status is Status.CAST:
            try:
                array = cast(array, numpy_dtype(step.entry.dtype))
            except LostNumberError as error:
                raise UnsupportedCheckpointError(
                    str(error),
                    path=self.stored.prefix,
                    name=step.source,
                    hint="exclude this value from the cast, or use a wider dtype",
                ) from None
        if entry.role in (Role.WEIGHT, Role.SLOT):
            self.finite = self.finite and _finite(array)
        return array


def _keys(plan: Plan, taken: Container[str], *, kept: bool) -> dict[str, str]:
    """New name → key: the source's if kept, each used once; else one made of the name."""
    keys: dict[str, str] = {}
    used = set[str]()

    def is_used(name: str) -> bool:
        return (key := key_of(name)) in taken or key in used

    for step in plan.assignments:
        key = _stored(step).key if kept else ""
        if not kept or key in used:
            key = key_of(free_name(step.name, is_used) if kept else step.name)
        keys[step.name] = key
        used.add(key)
    return keys


def _with_graph(
    bundle: Bundle, inventory: Inventory, plan: Plan, values: Mapping[str, CheckpointValue]
) -> Iterator[tuple[str, CheckpointValue]]:
    """All values that are not dropped, in the order of the source's files."""
    graph = object_graph(bundle)
    if any(node.registered_saver.name for node in graph.nodes):
        message = "has values of a registered saver, which only that saver can write"
        raise UnsupportedCheckpointError(message, path=bundle.prefix)
    taken = {_stored(step).name for step in plan.assignments}
    dropped = [entry for entry in inventory.entries.values() if entry.name not in taken]
    dropped_keys = {entry.key for entry in dropped}
    owners = {e.key.rpartition(ATTRIBUTES)[0] for e in dropped if e.shape is None} - {""}
    dropped_keys |= {key for key in bundle.entries if key.rpartition(ATTRIBUTES)[0] in owners}
    prune(graph, dropped_keys)
    rest = dict(values)
    for key, entry in sorted(bundle.entries.items(), key=lambda item: item[1][2:4]):
        written = rest.pop(key, None)
        if key == OBJECT_GRAPH:
            yield key, _text(key, graph.SerializeToString())
        elif written is not None:
            yield key, written
        elif key not in dropped_keys and entry.dtype in OPAQUE:  # the state of an iterator
            yield key, CheckpointValue(key, entry.nbytes, partial(bundle.read_raw, key), entry)
        elif key not in dropped_keys:
            yield key, CheckpointValue(key, entry.nbytes, partial(bundle.read, key))
    yield from rest.items()


def _stored(step: Step) -> Entry:
    assert step.stored is not None, "assignments have a stored value"  # noqa: S101 (narrows the type)
    return step.stored


def _text(key: str, content: bytes) -> CheckpointValue:
    import numpy as np

    return CheckpointValue(key, len(content), lambda: np.array(content, object))


def _written(step: Step, key: str, bundle: Bundle) -> Entry:
    """The entry of a value in the record."""
    stored = bundle.entries.get(key)
    nbytes, crc32c = (stored.nbytes, stored.crc32c) if stored else (0, None)
    if step.entry.shape is None:
        crc32c = None
    return step.entry._replace(key=key, nbytes=nbytes, crc32c=crc32c)


def _with_source_metadata(stored: StoredCheckpoint, plan: Plan, new: CommitRecord) -> CommitRecord:
    """The record with the source's metadata that is still true of the result."""
    old = stored.record
    if old is None:
        return new
    new = dataclasses.replace(new, step=old.step, epoch=old.epoch, outputs=old.outputs)
    whole = len(plan.assignments) == len(stored.inventory.entries)
    if Status.CAST in plan.counts or not whole:
        return new
    return dataclasses.replace(
        new, metrics=old.metrics, metadata=old.metadata, training=old.training
    )


def _finite(array: np.ndarray) -> bool:
    import numpy as np

    if array.dtype.hasobject or array.dtype.fields or array.dtype.kind in "biu":
        return True
    flat = array.reshape(-1)
    parts = (flat[start : start + _PART] for start in range(0, flat.size, _PART))
    return all(bool(np.isfinite(part).all()) for part in parts)
