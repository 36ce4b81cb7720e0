"""``tfckpt.list_checkpoints``: what a directory has, the best of it, and what rules would keep."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.text import preformatted
from tfckpt.errors import ARGUMENTS, CheckpointNotFoundError, PolicyError, Problem
from tfckpt.manager.retention import SavedCheckpoint, decide, ranked
from tfckpt.stored.inspection.listing import listing
from tfckpt.stored.io.explain import Audience, look
from tfckpt.stored.io.files import absolute
from tfckpt.tools.find_checkpoint import files_of, path_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from tfckpt.manager.directory import Directory
    from tfckpt.manager.retention import Decision
    from tfckpt.policy import Keep
    from tfckpt.stored.inspection.listing import ListedCheckpoint


class CheckpointList(tuple["ListedCheckpoint", ...]):
    """The checkpoints of a directory; a notebook shows it as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        from tfckpt.tools.result_texts import listing_text

        return listing_text(self)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def list_checkpoints(
    directory: str | os.PathLike[str],
    *,
    keep: Iterable[Keep | Mapping[str, Any]] = (),
    checkpoint_name: str | None = None,
) -> CheckpointList:
    """The checkpoints of a directory, as ``tfckpt list`` shows them. Does not import TensorFlow.

    Args:
        directory: where they are.
        keep: retention rules, as in a config: ``[{"latest": 3}]``. Each row then says by which of
            them it is ``kept``, or that they would ``delete`` it; nothing is deleted here.
        checkpoint_name: the name of those that the rules are for, where the directory has several.

    Returns:
        A tuple: the numbered ones, newest first, then those without a number. One that is damaged
        has a ``problem``.

    Raises:
        CheckpointNotFoundError: there is none.
        PolicyError: a rule is not valid, or the directory has checkpoints of several names.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> directory = tempfile.mkdtemp()
    >>> manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), directory, None)
    >>> paths = [manager.save(), manager.save()]
    >>> rows = tfckpt.list_checkpoints(directory, keep=[{"latest": 1}])
    >>> [(row.number, row.state, row.delete) for row in rows]
    [(2, 'committed', False), (1, 'committed', True)]
    """
    path, found = path_of(directory), list[Any]()
    files = files_of(path)
    with contextlib.suppress(CheckpointNotFoundError):  # the path is a file
        found = listing(path, files)
    if not found:
        nothing = look(path, files)
        raise CheckpointNotFoundError(
            f"no checkpoint in {path}", hint="\n  ".join(nothing.lines(Audience.COMMAND))
        )
    found = with_best(found)
    if rules := _rules(keep):
        undamaged = undamaged_of(path, found, checkpoint_name)
        deleted = set(undamaged.decide(rules, one_more=True).delete)
        found = [
            dataclasses.replace(one, next=one.prefix in deleted)
            for one in with_decision(found, undamaged.decide(rules))
        ]
    return CheckpointList(found)


def with_best(found: Sequence[ListedCheckpoint]) -> list[ListedCheckpoint]:
    """The same, with the best marked, by the rule of the newest checkpoint that has one."""
    heads = {one.prefix: one.head for one in found if one.head is not None}
    best_by = next((head.best_by for head in heads.values() if head.best_by), None)
    if best_by is None:
        return list(found)
    saved = [SavedCheckpoint.of(prefix, head.number, head) for prefix, head in heads.items()]
    metric, mode = best_by
    best = [one.prefix for one in ranked(saved, 1, metric, greatest=mode == "max")]
    return [
        dataclasses.replace(one, best_by=metric) if one.prefix in best else one for one in found
    ]


def with_decision(found: Sequence[ListedCheckpoint], decision: Decision) -> list[ListedCheckpoint]:
    """The same, each with what retention rules decide about it."""
    deleted = set(decision.delete)
    return [
        dataclasses.replace(
            one, kept=tuple(decision.kept.get(one.prefix, ())), delete=one.prefix in deleted
        )
        for one in found
    ]


class Undamaged(NamedTuple):
    """The checkpoints of a directory that rules decide about."""

    directory: Directory
    saved: Sequence[SavedCheckpoint]

    def decide(self, rules: Sequence[Keep], *, one_more: bool = False) -> Decision:
        """What the rules decide; with ``one_more``, after another save of unknown metrics."""
        began, preserved = self.directory.history()
        saved = [*self.saved, _after(self.saved)] if one_more and self.saved else self.saved
        return decide(saved, rules, anchor=began, preserved=preserved)


def undamaged_of(path: str, found: Sequence[ListedCheckpoint], name: str | None) -> Undamaged:
    """The undamaged ones of the checkpoints that were found in a directory."""
    from tfckpt.manager.directory import Directory

    numbered = [one for one in found if one.state == "committed" and one.number is not None]
    names = sorted({_name(checkpoint) for checkpoint in numbered})
    if not names:
        message = "has no checkpoint that tfckpt committed"
        hint = "retention rules never delete what other software wrote" if found else ""
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    if name is None and len(names) > 1:
        message = f"{path} has checkpoints named {' and '.join(names)}"
        hint = "select one with `checkpoint_name`"
        raise PolicyError(ARGUMENTS, [Problem(message, hint=hint)])
    if name is not None and name not in names:
        message = f"{path} has no checkpoints named {name}; it has {' and '.join(names)}"
        raise PolicyError(ARGUMENTS, [Problem(message)])
    directory = Directory(path, name or names[0], files_of(path))
    intact = {checkpoint.prefix for checkpoint in found if not checkpoint.problem}
    saved = [
        checkpoint
        for checkpoint in directory.saved(directory.checkpoints())
        if checkpoint.prefix in intact
    ]
    return Undamaged(directory, saved)


def _after(saved: Sequence[SavedCheckpoint]) -> SavedCheckpoint:
    """The save that follows, as far from the last one as that is from the one before."""
    ordered = sorted(saved, key=operator.attrgetter("number"))
    before, last = ordered[-2:] if len(ordered) > 1 else (ordered[0], ordered[0])
    step = None
    if last.step is not None and before.step is not None:
        step = last.step + max(last.step - before.step, 1)
    return SavedCheckpoint(
        prefix="",
        number=last.number + 1,
        time=last.time + max(last.time - before.time, 0.0),
        step=step,
        metrics={},
        finite=last.finite,
        run_first=last.run_first,
    )


def _rules(keep: Iterable[Keep | Mapping[str, Any]]) -> tuple[Keep, ...]:
    if not (given := list(keep)):
        return ()
    from tfckpt.manager.arguments import rules

    try:
        return rules(None, None, given)
    except ValueError as error:
        raise PolicyError(ARGUMENTS, [Problem(str(error))]) from None


def _name(checkpoint: ListedCheckpoint) -> str:
    return absolute(checkpoint.prefix).rpartition("/")[2].rpartition("-")[0]
