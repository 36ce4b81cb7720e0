"""One restore from start to end: open, name, plan, apply.

``tfckpt.Checkpoint`` and the functions that take a config both use this module, so there is one
path from a checkpoint to live objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from absl import logging

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.inventory import Inventory, Origin, Role
from tfckpt.core.selectors import REGEX
from tfckpt.errors import CheckpointError, DamagedCheckpointError, RefusedError
from tfckpt.live import building, outputs
from tfckpt.live.adapt import plan_context
from tfckpt.live.apply import Undo, apply, check_values
from tfckpt.live.building import initial_values
from tfckpt.live.inventory import Live, collect, ungraphed
from tfckpt.live.optimizers import replaced, settings_of
from tfckpt.live.turns import live_objects
from tfckpt.live.vocabularies import derive_again
from tfckpt.live.workers import ALONE
from tfckpt.planning import Plan, RestoreReport, Severity, make_plan, union_of
from tfckpt.planning.suggestion import suggest
from tfckpt.stored.commits.record_file import path_of
from tfckpt.stored.formats.open import StoredCheckpoint, open_checkpoint, refuse_absent
from tfckpt.stored.io.explain import KERAS_FILES
from tfckpt.stored.io.files import files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfckpt.live.workers import Together
    from tfckpt.policy import Policy
    from tfckpt.stored.commits.record_file import CommitRecord

_SMALL = 64 << 20  # bytes; a larger restore lets Python collect garbage first
_DAMAGED_HINT = (
    "nothing was restored from it; copy the checkpoint again, or restore another one; "
    "`tfckpt verify` lists everything in it that is damaged"
)
_VERIFY_LEVELS = ("none", "checksums", "values")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One checkpoint to restore from.

    Attributes:
        leave: keywords of training state, whose values are left in the checkpoint.
        chosen: why ``select: best`` has chosen it.
        whole: whether everything of both sides is asked for, since a run goes on.
        state: what is restored of the training's state.
    """

    place: str
    policy: Policy
    leave: tuple[str, ...] = ()
    chosen: str = ""
    whole: bool = False
    state: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Part:
    """One open checkpoint of a restore, its name in the plan, and its policy."""

    source: str
    stored: StoredCheckpoint
    policy: Policy


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A restore that is ready to be carried out."""

    plan: Plan
    live: Live
    parts: tuple[Part, ...]
    settings: Mapping[str, Any]
    objects: Mapping[str, Any]

    @property
    def stored(self) -> StoredCheckpoint:
        """The only checkpoint."""
        (part,) = self.parts
        return part.stored

    @property
    def policy(self) -> Policy:
        """The policy of the only checkpoint."""
        (part,) = self.parts
        return part.policy

    @property
    def prefix(self) -> str | None:
        """The prefix of the only checkpoint; None if several are combined."""
        first, *others = self.parts
        return None if others else first.stored.prefix

    @property
    def record(self) -> CommitRecord | None:
        """The record of the only checkpoint; None if several are combined."""
        return None if self.prefix is None else self.stored.record

    def report(self, rejected: Sequence[str] = ()) -> RestoreReport:
        """The report, once the plan was carried out."""
        record = self.stored.record if len(self.parts) == 1 else None
        return RestoreReport(
            self.plan,
            ", ".join(dict.fromkeys(part.stored.prefix for part in self.parts)),
            record.step if record else None,
            record.epoch if record else None,
            dict(record.metrics) if record else {},
            tuple(rejected),
            replaced=replaced(self.settings, self.live.variables),
            checker=None
            if record is None
            else outputs.checker(self.live, record.outputs, self.stored.prefix),
        )


@contextlib.contextmanager
def prepare(
    choices: Sequence[Choice],
    objects: Mapping[str, Any],
    root: Any = None,
    *,
    skip_slots: bool = False,
    workers: Together = ALONE,
) -> Iterator[Prepared]:
    """Open checkpoints and plan their restore; the files stay open inside the context.

    In this order: other threads wait; models with an input spec in the policy are built; the live
    values are named; the checkpoints are opened; the plan is made, and once more where optimizers
    were built that the checkpoint has slots for; unbuilt objects are refused; the plan is compared
    with the policy's lock. Several ``choices`` are one transaction.

    ``skip_slots`` leaves optimizer slots out on both sides, as
    ``tf.train.CheckpointOptions.experimental_skip_slot_variables`` does.
    """
    given = {"model": root, **objects} if root is not None else objects
    with contextlib.ExitStack() as stack:
        stack.enter_context(live_objects())
        for choice in choices:
            building.build_models(given, choice.policy.build)
        orders = any(choice.place.endswith(KERAS_FILES) for choice in choices)
        pause = stack.enter_context(contextlib.ExitStack())
        pause.enter_context(gc_paused())
        live = collect(objects, root, orders=orders)
        opened = [stack.enter_context(_open(choice.place, live)) for choice in choices]
        workers.exchange("opening")
        if not orders and any(each.inventory.by_position for each in opened):
            orders = True
            live = collect(objects, root, orders=orders)
        parts, plan = _planned(choices, opened, live, skip_slots=skip_slots)
        slots = building.waiting_slots(plan)
        if slots and building.build_optimizers(live, slots):
            live = collect(objects, root, orders=orders)
            parts, plan = _planned(choices, opened, live, skip_slots=skip_slots)
        building.check_built(live, plan)
        for part in parts:
            steps = (step for step in plan.assignments if step.origin in ("", part.source))
            refuse_absent(part.stored, [entry.key for step in steps for entry in step.reads])
        if plan.nbytes > _SMALL:
            pause.close()
        settings = settings_of(plan, live.variables)
        yield Prepared(plan, live, parts, settings, given)


def _planned(
    choices: Sequence[Choice],
    opened: Sequence[StoredCheckpoint],
    live: Live,
    *,
    skip_slots: bool,
) -> tuple[tuple[Part, ...], Plan]:
    """The open checkpoints, and the plan of their restore."""
    parts, plans = [], []
    for choice, stored in zip(choices, opened, strict=True):
        policy = _effective_policy(choice, stored, alone=len(choices) == 1)
        source = choice.place
        stored_inventory = dataclasses.replace(stored.inventory, source=source)
        live_inventory = live.inventory
        if not stored.graph:
            live_inventory = ungraphed(live, stored_inventory).inventory
        if skip_slots:
            stored_inventory = _without_slots(stored_inventory)
            live_inventory = _without_slots(live_inventory)
        policy = as_named(policy, stored_inventory, live_inventory, partial(_printed, choice))
        known = plan_context(policy) if policy.adapt else None
        plan = make_plan(policy, stored_inventory, live_inventory, known)
        search = partial(
            suggest, policy=policy, stored=stored_inventory, live=live_inventory, known=known
        )
        plan = dataclasses.replace(
            plan,
            origins=(_origin(choice, stored),),
            suggest=search,
            chosen=choice.chosen,
            policies=(choice.policy,),
        )
        plans.append(plan)
        parts.append(Part(source, stored, policy))
    return tuple(parts), union_of(plans) if len(plans) > 1 else plans[0]


def _open(place: str, live: Live) -> StoredCheckpoint:
    roots, bases, files = live.roots, live.weak_bases, files_of(place)
    with contextlib.ExitStack() as stack:
        opened = open_checkpoint(place, roots=roots, bases=bases, files=files)
        stored = stack.enter_context(opened)
        refuse_absent(stored)
        if stored.record is None and files.exists(path_of(place)):
            logging.warning(
                "%s: its files were written over since tfckpt saved it, so they are restored as "
                "what they are, and its commit record is not used",
                place,
            )
        stack.pop_all()
    return stored


def _printed(choice: Choice) -> Inventory:
    """The inventory that ``tfckpt inspect`` prints."""
    with open_checkpoint(choice.place, files=files_of(choice.place)) as stored:
        return stored.inventory


def _effective_policy(choice: Choice, stored: StoredCheckpoint, *, alone: bool) -> Policy:
    """The policy of a choice; a combination of several checkpoints has no training state."""
    update: dict[str, Any] = {}
    state = stored.record.training if stored.record is not None else {}
    tops = {name.partition("/")[0] for name in stored.inventory.entries} if state else set()
    left = [key for key in choice.leave if key in tops and state.get(key)]
    if left := [f"{keyword}/**" for keyword in left]:
        update["exclude_checkpoint"] = (*choice.policy.exclude_checkpoint, *left)
    if not alone:
        update["training_state"] = ()
    if choice.whole:  # as if it were written in the policy
        update.update((key, getattr(choice.policy, key)) for key in ("on_missing", "on_unexpected"))
    return choice.policy.model_copy(update=update) if update else choice.policy


def _origin(choice: Choice, stored: StoredCheckpoint) -> Origin:
    policy = choice.policy
    return Origin(choice.place, stored.values.digest, policy.name, policy.digest)


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
    """Everything that :func:`carry_out` does before the first assignment; changes nothing."""
    with _ready(prepared, workers) as (stored, _):
        check_values(prepared.plan, stored, prepared.live.variables, workers)


def carry_out(
    prepared: Prepared,
    workers: Together = ALONE,
    *,
    objects: bool = True,
) -> Undo:
    """Apply a plan, all of it or none of it."""
    plan, live = prepared.plan, prepared.live
    verify = max((part.policy.verify for part in prepared.parts), key=_VERIFY_LEVELS.index)
    with _ready(prepared, workers) as (stored, resets):
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
def _ready(
    prepared: Prepared, workers: Together
) -> Iterator[tuple[dict[str, StoredCheckpoint], Mapping[str, Any]]]:
    """The open checkpoints by source, and the values of what is reset, of a plan without errors.

    Errors of the body about files name a value by its canonical name, not by its key.
    """
    plan = prepared.plan
    refuse(plan)
    workers.planned(plan)
    resets = initial_values(plan, prepared.live) if plan.resets else {}
    try:
        yield {part.source: part.stored for part in prepared.parts}, resets
    except CheckpointError as error:
        names = {
            entry.key: entry.name
            for part in prepared.parts
            if error.path.startswith(part.stored.prefix)
            for entry in part.stored.inventory.entries.values()
        }
        if error.name not in names:
            raise
        damaged = isinstance(error, DamagedCheckpointError)
        raise error.named(names, _DAMAGED_HINT if damaged else "") from error


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
