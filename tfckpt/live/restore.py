"""One restore from top to bottom: choose, prepare, apply, report.

:func:`restore` is the way of everything but ``tfckpt.Checkpoint``, which leaves to TensorFlow what
comes to exist later, between :func:`prepare` and :func:`assign`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from absl import logging

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.inventory import Inventory, Origin, Role
from tfckpt.core.selectors import REGEX
from tfckpt.errors import CheckpointError, DamagedCheckpointError, RefusedError, RestoreError
from tfckpt.live import outputs
from tfckpt.live.adapt import plan_context
from tfckpt.live.addresses import addresses
from tfckpt.live.apply import Undo, apply, check_values
from tfckpt.live.building import build_models
from tfckpt.live.built_optimizers import build_optimizers, initial_values, replaced, settings_of
from tfckpt.live.inventory import Live, collect, ungraphed
from tfckpt.live.late import assigned_by_tensorflow, awaiting
from tfckpt.live.rebuild import Building, build_layers, check_built
from tfckpt.live.turns import live_objects
from tfckpt.live.variables import as_int
from tfckpt.live.vocabularies import derive_again
from tfckpt.live.workers import ALONE, Together, attempts
from tfckpt.planning import Plan, RestoreReport, Severity, make_plan, union_of
from tfckpt.planning.checks.optimizers import other_paths
from tfckpt.planning.suggestion import suggest
from tfckpt.stored.bundles.keys import OBJECT_GRAPH
from tfckpt.stored.commits.record_file import path_of
from tfckpt.stored.formats.open import StoredCheckpoint, open_checkpoint, refuse_absent
from tfckpt.stored.formats.roots import rename_heads
from tfckpt.stored.io.explain import KERAS_FILES
from tfckpt.stored.io.files import files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from tfckpt.live.lineage import Lineage
    from tfckpt.live.workers import Workers
    from tfckpt.policy import Policy

_SMALL = 64 << 20  # bytes; a larger restore lets Python collect garbage first
_DAMAGED_HINT = (
    "nothing was restored from it; copy the checkpoint again, or restore another one; "
    "`tfckpt verify` lists everything in it that is damaged"
)
TRAINING = "training"  # the keyword under which the state of a `fit` is saved
_VERIFY_LEVELS = ("none", "checksums", "values")


class RestoreSource(NamedTuple):
    """One checkpoint to restore from, as it was asked for.

    Attributes:
        path: of the checkpoint.
        policy: what may be restored of it.
        chosen: why ``select: best`` has chosen it.
        resumes: whether a run goes on from it, which asks for everything of both sides.
    """

    path: str
    policy: Policy
    chosen: str = ""
    resumes: bool = False


Candidates: TypeAlias = "Generator[tuple[Sequence[RestoreSource], Together], None, None]"
"""One transaction each: its sources, and the workers that carry it out together."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A restore that is ready to be carried out.

    Attributes:
        stored_by_path: the open checkpoints.
        settings: hyperparameters of the code that the plan replaces.
        objects: by keyword.
        waits: whether it is only checked, since a ``fit`` assigns the values later.
    """

    plan: Plan
    live: Live
    sources: Sequence[RestoreSource]
    stored_by_path: Mapping[str, StoredCheckpoint]
    settings: Mapping[str, Any]
    objects: Mapping[str, Any]
    waits: bool = False

    @property
    def stored(self) -> StoredCheckpoint:
        """The only checkpoint."""
        (stored,) = self.stored_by_path.values()
        return stored

    @property
    def policy(self) -> Policy:
        """The policy of the only checkpoint, as it was asked for."""
        (source,) = self.sources
        return source.policy

    @property
    def prefix(self) -> str | None:
        """The prefix of the only checkpoint; None if several are combined."""
        return None if len(self.sources) > 1 else self.stored.prefix

    def report(self, rejected: Sequence[str] = ()) -> RestoreReport:
        """The report, once the plan was carried out."""
        record = None if self.prefix is None else self.stored.record
        return RestoreReport(
            self.plan,
            ", ".join(dict.fromkeys(each.prefix for each in self.stored_by_path.values())),
            record.step if record else None,
            record.epoch if record else None,
            dict(record.metrics) if record else {},
            tuple(rejected),
            replaced=replaced(self.settings, self.live.variables),
            checker=None
            if record is None
            else outputs.checker(self.live, record.outputs, self.stored.prefix),
        )


def restore(
    candidates: Candidates,
    objects: Mapping[str, Any],
    training: Callable[[Prepared], Prepared],
    *,
    counter: Any = None,
    lineage: Lineage | None = None,
    rejected: Sequence[str] = (),
    only_plan: bool = False,
) -> RestoreReport:
    """Restore the first candidate that can be restored; the report of none has no path.

    A candidate that cannot be read, or does not match, is thrown into the generator, which raises
    or has another one.

    Args:
        candidates: what to try.
        objects: by keyword.
        training: says what a ``fit`` restores of a checkpoint, and when.
        counter: the ``save_counter`` of a run that goes on.
        lineage: of the checkpoint whose objects these are.
        rejected: why candidates were passed over, for the report.
        only_plan: assigns nothing, and refuses nothing.
    """
    for attempt in attempts(candidates):
        with attempt as (sources, workers), workers:
            continues = len(sources) == 1 and sources[0].policy.api == "restore"
            counted = {"save_counter": counter} if counter is not None and continues else {}
            opened = prepare(
                sources,
                {**objects, **counted},
                leave=TRAINING,
                workers=workers,
                only_plan=only_plan,
            )
            with opened as found:
                prepared, late = awaiting(training(found))
                if only_plan:
                    return prepared.report(rejected)
                refuse(prepared.plan)
                _check_step(prepared)
                if prepared.plan.training_state:
                    _check_iterators(prepared)
                if prepared.waits:
                    check(prepared, workers)
                else:
                    undo = assign(prepared, workers)
                    if late is not None:
                        with assigned_by_tensorflow(undo, prepared.stored.prefix):
                            late.read(prepared)
                    if lineage is not None:
                        lineage.add(prepared)
                return prepared.report(rejected)
    return RestoreReport(Plan("", "", ()), "", rejected=tuple(rejected))


def warn_of_fallback(rejected: Iterable[str], path: str) -> None:
    """Log why checkpoints were passed over, and which one is used in their place."""
    for reason in rejected:
        logging.warning("passed over: %s\n  using %s in its place", reason, path)


def only(source: RestoreSource, workers: Workers | None) -> Candidates:
    """One checkpoint, the same in all workers."""
    yield (source,), Together(workers)


@contextlib.contextmanager
def prepare(
    sources: Sequence[RestoreSource],
    objects: Mapping[str, Any],
    root: Any = None,
    *,
    leave: str = "",
    skip_slots: bool = False,
    workers: Together = ALONE,
    only_plan: bool = False,
) -> Iterator[Prepared]:
    """Open checkpoints and plan their restore; the files stay open inside the context.

    In this order: other threads wait; models with an input spec in the policy are built; the live
    values are named; the checkpoints are opened; the plan is made, and once more where layers or
    optimizers were built that the checkpoint has values for; unbuilt objects are refused. Several
    ``sources`` are one transaction. What was built is taken back if the body raises.

    ``leave`` is the keyword of training state, whose values are left in the checkpoint;
    ``skip_slots`` leaves optimizer slots out on both sides, as
    ``tf.train.CheckpointOptions.experimental_skip_slot_variables`` does.
    """
    given = {"model": root, **objects} if root is not None else objects
    with contextlib.ExitStack() as stack:
        stack.enter_context(live_objects())
        orders = any(source.path.endswith(KERAS_FILES) for source in sources)
        pause = stack.enter_context(contextlib.ExitStack())
        pause.enter_context(gc_paused())
        live = collect(objects, root, orders=orders)
        built = Building(partial(collect, objects, root), always=only_plan)
        stack.enter_context(built)
        if any(source.policy.build for source in sources):
            built.begins(live)
            for source in sources:
                build_models(given, source.policy.build)
            live = collect(objects, root, orders=orders)
        opened = {each.path: stack.enter_context(_open(each.path, live)) for each in sources}
        workers.exchange("opening")
        if not orders and any(each.inventory.by_position for each in opened.values()):
            orders = True
            live = collect(objects, root, orders=orders)
        planned = partial(_planned, sources, opened, leave=leave, skip_slots=skip_slots)
        walk = partial(collect, objects, root, orders=orders)
        plan, live = _with_built(live, opened, built, walk, planned)
        check_built(live, plan)
        for path, stored in opened.items():
            steps = (step for step in plan.assignments if step.origin in ("", path))
            refuse_absent(stored, [entry.key for step in steps for entry in step.reads])
        if plan.nbytes > _SMALL:
            pause.close()
        settings = settings_of(plan, live.variables)
        yield Prepared(plan, live, sources, opened, settings, objects)


def _with_built(
    live: Live,
    opened: Mapping[str, StoredCheckpoint],
    built: Building,
    walk: Callable[[], Live],
    planned: Callable[[Live], Plan],
) -> tuple[Plan, Live]:
    """The plan, and the live values, once what it has values for is built."""
    plan, records = planned(live), {path: stored.record for path, stored in opened.items()}
    recorded = {path: each.builds for path, each in records.items() if each and each.builds}
    if recorded and live.unbuilt:
        now = build_layers(plan, live, recorded, built, walk)
        if now is not live:
            plan, live = planned(now), now
    now = build_optimizers(plan, live, recorded, built, walk)
    return (plan, live) if now is live else (planned(now), now)


def _planned(
    sources: Sequence[RestoreSource],
    opened: Mapping[str, StoredCheckpoint],
    live: Live,
    *,
    leave: str,
    skip_slots: bool,
) -> Plan:
    plans = []
    for source in sources:
        stored = opened[source.path]
        policy = _effective_policy(source, stored, leave, alone=len(sources) == 1)
        stored_inventory = dataclasses.replace(stored.inventory, source=source.path)
        live_inventory = live.inventory
        if not stored.graph:
            live_inventory = ungraphed(live, stored_inventory).inventory
        if skip_slots:
            stored_inventory = _without_slots(stored_inventory)
            live_inventory = _without_slots(live_inventory)
        named = {_top(text) for text in _texts(policy)}
        moved = other_paths(stored_inventory, live_inventory).items()
        if heads := {old: new for old, new in moved if not {_top(old), _top(new)} & named}:
            stored_inventory = rename_heads(stored_inventory, heads)
        policy = as_named(policy, stored_inventory, live_inventory, partial(_printed, source.path))
        known = plan_context(policy) if policy.adapt else None
        plan = make_plan(policy, stored_inventory, live_inventory, known)
        search = partial(
            suggest, policy=policy, stored=stored_inventory, live=live_inventory, known=known
        )
        digests = stored.values.digest, source.policy.name, source.policy.digest
        plan = dataclasses.replace(
            plan,
            origins=(Origin(source.path, *digests),),
            suggest=search,
            chosen=source.chosen,
            policies=(source.policy,),
        )
        plans.append(plan)
    return union_of(plans) if len(plans) > 1 else plans[0]


def _open(path: str, live: Live) -> StoredCheckpoint:
    roots, bases, files = live.roots, live.weak_bases, files_of(path)
    with contextlib.ExitStack() as stack:
        known = partial(addresses, live)
        opened = open_checkpoint(path, roots=roots, bases=bases, addresses=known, files=files)
        stored = stack.enter_context(opened)
        refuse_absent(stored)
        if stored.record is None and files.exists(path_of(path)):
            logging.warning(
                "%s: its files were written over since tfckpt saved it, so they are restored as "
                "what they are, and its commit record is not used",
                path,
            )
        stack.pop_all()
    return stored


def _printed(path: str) -> Inventory:
    """The inventory that ``tfckpt inspect`` prints."""
    with open_checkpoint(path, files=files_of(path)) as stored:
        return stored.inventory


def _effective_policy(
    source: RestoreSource, stored: StoredCheckpoint, leave: str, *, alone: bool
) -> Policy:
    """The policy of a source; a combination of several checkpoints has no training state."""
    policy, update = source.policy, dict[str, Any]()
    state = stored.record.training if stored.record is not None else {}
    if state.get(leave) and any(n.startswith(f"{leave}/") for n in stored.inventory.entries):
        update["exclude_checkpoint"] = (*policy.exclude_checkpoint, f"{leave}/**")
    if not alone:
        update["training_state"] = ()
    if source.resumes:  # as if it were written in the policy
        update.update((key, getattr(policy, key)) for key in ("on_missing", "on_unexpected"))
    return policy.model_copy(update=update) if update else policy


def _without_slots(inventory: Inventory) -> Inventory:
    entries = {n: entry for n, entry in inventory.entries.items() if entry.role is not Role.SLOT}
    return dataclasses.replace(inventory, entries=entries)


def refuse(plan: Plan) -> None:
    """Raise if the plan has errors."""
    if not plan.ok:
        raise RefusedError(f"nothing was restored\n{plan}", plan=plan)


def permitted(prepared: Prepared, *, may_come: bool) -> Prepared:
    """Refuse a plan with errors; an empty restore is allowed if values may be created later."""
    if may_come and not prepared.plan.errors:
        return dataclasses.replace(prepared, plan=dataclasses.replace(prepared.plan, problems=()))
    refuse(prepared.plan)
    return prepared


def check(prepared: Prepared, workers: Together = ALONE) -> None:
    """Everything that :func:`assign` does before the first assignment; changes nothing."""
    with _ready(prepared, workers):
        check_values(prepared.plan, prepared.stored_by_path, prepared.live.variables, workers)


def assign(prepared: Prepared, workers: Together = ALONE, *, objects: bool = True) -> Undo:
    """Apply a plan, all of it or none of it."""
    plan, live, stored = prepared.plan, prepared.live, prepared.stored_by_path
    verify = max((each.policy.verify for each in prepared.sources), key=_VERIFY_LEVELS.index)
    with _ready(prepared, workers) as resets:
        others: dict[str, dict[str, Any]] = {}
        for step in plan.assignments if objects else ():
            if step.stored is not None and step.stored.shape is None:
                prefix = stored[step.origin or plan.source].prefix
                others.setdefault(prefix, {})[step.stored.key] = live.variables[step.name]
        undo = apply(
            plan,
            stored,
            live.variables,
            verify=verify,
            resets=resets,
            objects=others if objects else None,
            follow=partial(derive_again, live.deriving, live.models.values()),
            workers=workers,
        )
    for step in plan.assignments:
        if step.severity is Severity.WARN and step.entry.role is Role.ITERATOR:
            logging.warning("%s: %s: %s", plan.source, step.name, step.reason)
    return undo


@contextlib.contextmanager
def _ready(prepared: Prepared, workers: Together) -> Iterator[Mapping[str, Any]]:
    """The values of what is reset, of a plan without errors.

    Errors of the body about files name a value by its canonical name, not by its key.
    """
    plan = prepared.plan
    refuse(plan)
    workers.planned(plan)
    try:
        yield initial_values(plan, prepared.live) if plan.resets else {}
    except CheckpointError as error:
        names = {
            entry.key: entry.name
            for stored in prepared.stored_by_path.values()
            if error.path.startswith(stored.prefix)
            for entry in stored.inventory.entries.values()
        }
        if error.name not in names:
            raise
        damaged = isinstance(error, DamagedCheckpointError)
        raise error.named(names, _DAMAGED_HINT if damaged else "") from error


def _check_iterators(prepared: Prepared) -> None:
    """Compare the checksums of the object graph and of iterators: TensorFlow reads these later."""
    if (graph := prepared.stored.graph) is not None:
        states = (key for key, one in graph.entries.items() if one.dtype == "variant")
        graph.verify([OBJECT_GRAPH, *states])


def _check_step(prepared: Prepared) -> None:
    """Raise a RestoreError if the stored value of ``step`` is not an integer."""
    for step in prepared.plan.assignments:
        if step.name != "step" or step.stored is None or step.stored.shape is None:
            continue
        stored = prepared.stored_by_path[step.origin or prepared.plan.source]
        try:
            as_int(stored.values.read(step.stored.key))
        except CheckpointError:  # damaged: the one before is tried
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise RestoreError(
                f"{stored.prefix}: the stored value of `step` is not the number of a training "
                f"step: {error}",
                hint="exclude `step` in the policy, or restore another checkpoint",
            ) from None


_SELECTORS = ("include", "exclude", "exclude_checkpoint", "expect_missing", "expect_unexpected")
_WILD = frozenset("*?[")


def as_named(
    policy: Policy, stored: Inventory, live: Inventory, printed: Callable[[], Inventory]
) -> Policy:
    """The policy with the names that the values have beside these objects.

    ``printed`` opens the checkpoint without objects; it is called only if a selector needs it.
    """
    known = {name.partition("/")[0] for side in (stored, live) for name in side.entries}
    unknown = {_top(text) for text in _texts(policy)} - known - {""}
    if not unknown:
        return policy
    heads = {top: head for top, head in _heads(printed(), stored).items() if top in unknown}
    if not heads:
        return policy

    def renamed(text: str) -> str:
        head = heads.get(_top(text))
        return text if head is None else head + text[len(_top(text)) :]

    changed: dict[str, Any] = {
        field: tuple(map(renamed, getattr(policy, field)))
        for field in _SELECTORS
        if getattr(policy, field)
    }
    rules = (r.model_copy(update={"checkpoint": renamed(r.checkpoint)}) for r in policy.rename)
    changed = {field: value for field, value in changed.items() if value != getattr(policy, field)}
    return policy.model_copy(update={**changed, "rename": tuple(rules)})


def _texts(policy: Policy) -> Iterator[str]:
    for field in _SELECTORS:
        yield from getattr(policy, field)
    for rule in policy.rename:
        yield rule.checkpoint


def _top(text: str) -> str:
    """The first component of a selector, ``""`` if it may be several."""
    top = text.partition("/")[0]
    return "" if text.startswith(REGEX) or _WILD & set(top) else top


def _heads(printed: Inventory, stored: Inventory) -> Mapping[str, str]:
    """First component as printed → what the values below it begin with here."""
    names = {entry.key: entry.name for entry in stored.entries.values() if entry.key}
    found: dict[str, set[str]] = {}
    for entry in printed.entries.values():
        top, _, rest = entry.name.partition("/")
        name = names.get(entry.key, "")
        if rest and name.endswith(f"/{rest}"):
            found.setdefault(top, set()).add(name.removesuffix(f"/{rest}"))
    return {top: heads.pop() for top, heads in found.items() if len(heads) == 1}
