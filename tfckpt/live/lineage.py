"""The lineage of live objects: which checkpoints their values were restored from.

Commit records store it. A run that resumes from a checkpoint in its own directory inherits that
checkpoint's lineage and its run; values from elsewhere, or restored with ``api: read``, start a new
one. Restores add up as long as each leaves some weights of the previous one in place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import Restored, Role
from tfckpt.live.inventory import is_model
from tfckpt.planning.checks.step import ASSIGNED, is_save_counter
from tfckpt.stored.io.files import absolute, lies_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Plan


@dataclasses.dataclass(frozen=True)
class _PastRestore:
    """One restore."""

    restored: Restored
    prefix: str = ""
    inherited: tuple[Restored, ...] = ()


@dataclasses.dataclass(frozen=True)
class Lineage:
    """Where the values of live objects come from."""

    prefix: str | None = None  # the last one
    _restores: tuple[_PastRestore, ...] = ()
    # Path of numbered checkpoints without the number → the id of the run that saves there.
    _runs: dict[str, str] = dataclasses.field(default_factory=dict)

    def after(self, prepared: Prepared) -> Lineage:
        """The lineage after a restore."""
        plan, prefix = prepared.plan, prepared.prefix
        goes_on = prefix is not None and prepared.policy.api == "restore"
        record = prepared.stored.record if goes_on else None
        base = None if prefix is None else _base(prefix)
        runs = {at: run for at, run in self._runs.items() if at != base}
        if base is not None and record is not None and record.run is not None:
            runs[base] = record.run
        if not plan.assignments:
            return dataclasses.replace(self, prefix=prefix, _runs=runs)
        counts = {status.value: count for status, count in plan.counts.items()}
        past_restore = _PastRestore(Restored(plan.origins, counts))
        if prefix is not None and goes_on:
            inherited = record.lineage if record is not None else ()
            past_restore = dataclasses.replace(
                past_restore, prefix=absolute(prefix), inherited=inherited
            )
        restores = (past_restore,) if _assigns_all(plan) else (*self._restores, past_restore)
        return Lineage(prefix, restores, runs)

    def lineage(self, directory: str) -> tuple[Restored, ...]:
        """The entries for the record of a checkpoint that is saved in this directory."""
        found: list[Restored] = []
        for past_restore in self._restores:
            own = past_restore.prefix and lies_in(past_restore.prefix, directory)
            found += past_restore.inherited if own else (past_restore.restored,)
        return tuple(found)

    def run_of(self, prefix: str, objects: Sequence[Any], *, begin: bool = False) -> str:
        """The id of the run that saves these objects under a numbered prefix.

        That is the run which this lineage or the objects go on with; else "", or a new one that
        begins.
        """
        base = _base(prefix)
        if not (run := self._runs.get(base, "")):
            source = _source_of(objects, base)
            run = source.run if source is not None else ""
        if begin:
            run = self._runs[base] = run or os.urandom(8).hex()
        return run

    def source_of(self, prefix: str, objects: Sequence[Any]) -> str:
        """The checkpoint there that the objects were last restored from; "" for none."""
        base = _base(prefix)
        if self.prefix is not None and _base(self.prefix) == base:
            return self.prefix
        source = _source_of(objects, base)
        return source.prefix if source is not None else ""


class _LastRestore(NamedTuple):
    """What an object was last restored from, to go on with it."""

    of: Callable[[], Any]
    base: str
    run: str
    prefix: str


_last: dict[int, _LastRestore] = {}
"""By the id of the object, as long as it lives."""


def remember(prepared: Prepared) -> Callable[[], None]:
    """Note which run the objects of a restore go on with, for a manager that is made later.

    Returns a function that undoes it.
    """
    before = {id(obj): _last.pop(id(obj), None) for obj in prepared.objects.values()}
    record, prefix = prepared.record, prepared.prefix
    if record is not None and record.run and prefix and prepared.policy.api == "restore":
        for obj in prepared.objects.values():
            with contextlib.suppress(TypeError):  # of a tuple, say
                of = weakref.ref(obj, functools.partial(_forget, id(obj)))
                _last[id(obj)] = _LastRestore(of, _base(prefix), record.run, prefix)

    def undo() -> None:
        for key, source in before.items():
            _last.pop(key, None)
            if source is not None:
                _last[key] = source

    return undo


def _forget(key: int, _: Any) -> None:
    _last.pop(key, None)


def _source_of(objects: Sequence[Any], base: str) -> _LastRestore | None:
    """What the models among objects were restored from, all from one run; without models, any."""
    models = [obj for obj in objects if is_model(obj)]
    known = [_last[id(obj)] for obj in models or objects if id(obj) in _last]
    known = [one for one in known if one.of() is not None and one.base == base]
    one_run = len({one.run for one in known}) == 1
    return known[-1] if one_run and len(known) >= len(models) else None


def _base(prefix: str) -> str:
    base = absolute(prefix.removeprefix("file://")).rpartition("-")[0]
    return base if "://" in base else os.path.realpath(base)


def _assigns_all(plan: Plan) -> bool:
    """Whether the plan assigns every weight, so that earlier restores no longer count."""
    return all(
        step.status in ASSIGNED
        for step in plan.steps
        if step.live is not None
        and step.live.role in (Role.WEIGHT, Role.STATE)
        and not is_save_counter(step.live)
    )
