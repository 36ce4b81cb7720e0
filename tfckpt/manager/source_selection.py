"""Which checkpoint a config selects: the newest readable one of the first source that has any.

"None exists" and "none is readable" are different: the next source is tried only if a source has no
checkpoint at all, or if it says ``on_damaged: next`` and its checkpoints are damaged or do not
match; a damaged run must not silently become a fine-tune. A directory may be empty when a run
begins, but a ``path`` names a known checkpoint, and may be misspelt: if a longer name or another
number of the same name exists, it is an error. If not, the path is passed over like an empty
directory, and the result lists it as rejected.

The sources of an ``all_of`` count as one: if none has a checkpoint, it has none; if only some have,
it is an error, so that half a model does not start from initial values. Of each directory among
them the newest readable checkpoint is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    RefusedError,
    RestoreError,
)
from tfckpt.live.remote import files_of
from tfckpt.live.restore import Choice
from tfckpt.manager.absent import checkpoint_paths, not_found, paths_of
from tfckpt.manager.directory import Directory
from tfckpt.policy import Latest
from tfckpt.stored.formats.average import Average
from tfckpt.stored.io.explain import shards_of
from tfckpt.stored.io.files import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.policy import Config, Policy, Source

    _Location: TypeAlias = str | Average
    _Candidates: TypeAlias = Iterator[tuple[_Location, str]]

_NUMBER = re.compile(r"[0-9]+$")


PASSED_OVER = (CheckpointError, RefusedError)


class Selection:
    """The checkpoints that a config selects, to be tried in order.

    Each item is what to restore, with its policies. The caller tries it in a ``with
    selection.trying()`` block and leaves the loop if that worked. A CheckpointError of the block
    rejects that checkpoint; a RefusedError rejects the whole source, since older checkpoints match
    no better. The loop ends by itself if no source has a checkpoint and ``if_none: initialize``.

    >>> from tfckpt.policy import Config, Restore, Source
    >>> restore = Restore(first_of=(Source(directory="nowhere"),), if_none="initialize")
    >>> list(Selection(Config(version=1, restore=restore)))
    []
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rejected: list[str] = []
        self._errors: list[CheckpointError | RefusedError] = []

    @property
    def rejected(self) -> tuple[str, ...]:
        """Why others were passed over so far."""
        return tuple(self._rejected)

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Reject what the loop is at if the body says that it is damaged or does not match."""
        try:
            yield
        except PASSED_OVER as error:
            self._errors = [error]

    def __iter__(self) -> Iterator[Sequence[Choice]]:
        """What to try."""
        restore, rejected = self._config.restore, self._rejected
        if restore is None:
            raise RestoreError(
                "the config has no `restore` section, so there is nothing to restore from",
                hint="add `restore: {directory: …}` or `restore: {path: …}`",
            )
        absent = 0
        for source in restore.first_of:
            candidates = [_candidates_if_any(member) for member in source.members]
            if not any(candidates):
                nothing = [
                    f"no checkpoint at {p}" for one in source.members for p in checkpoint_paths(one)
                ]
                rejected += nothing
                absent += len(nothing)
                continue
            if not all(candidates):
                raise _incomplete(source, candidates)
            before = len(rejected)
            yield from self._choices(source, list(filter(None, candidates)))
            if rejected[before:] and source.on_damaged == "error":
                raise _none_readable(
                    rejected[before:],
                    _shown(source),
                    "to try the next source instead, set on_damaged: next",
                )
        places = ", ".join(map(_shown, restore.first_of))
        if len(rejected) > absent:
            hint = "if_none applies only if no source has a checkpoint"
            raise _none_readable(rejected, places, hint)
        if restore.if_none != "initialize":
            raise not_found(self._config, places)

    def _choices(
        self, source: Source, candidates: Sequence[_Candidates]
    ) -> Iterator[Sequence[Choice]]:
        """What to try of one source, whose other checkpoints were rejected."""
        members, policies = source.members, _policies(self._config, source)
        chosen: list[_Location | None] = [None] * len(members)
        while True:
            for number, untried in enumerate(candidates):
                chosen[number] = chosen[number] or _next(untried, self._rejected)
            places = [place for place in chosen if place is not None]
            if len(places) < len(members):
                return
            self._errors = []
            yield [
                Choice(place, policy, chosen=_chosen(member, place))
                for member, place, policy in zip(members, places, policies, strict=True)
            ]
            if not self._errors:  # the caller goes on although it worked
                return
            error, at_fault = self._errors[0], list[int]()
            if isinstance(error, CheckpointError):
                at_fault = _at_fault(error, places, members)
            if not at_fault and source.on_damaged == "error":
                raise _with_hint(error, self._config.unused_policy_hint)
            self._rejected.append(str(error))
            if not at_fault:
                return
            for number in at_fault:
                chosen[number] = None


def choice_to_json(config: Config, choices: Sequence[Choice], rejected: tuple[str, ...]) -> Any:
    """The choice of the chief, as JSON values for the other workers."""
    places = [
        one.place if isinstance(one.place, str) else [one.place.paths, one.place.weights]
        for one in choices
    ]
    policies = [one.policy for one in choices]
    sources = config.restore.first_of if config.restore else ()
    number = next((n for n, one in enumerate(sources) if _policies(config, one) == policies), 0)
    chosen = [one.chosen for one in choices]
    return {"source": number, "places": places, "chosen": chosen, "rejected": list(rejected)}


def choice_from_json(config: Config, sent: Any) -> tuple[Sequence[Choice], tuple[str, ...]]:
    """What the chief has chosen, with the policies of this worker's config; () for nothing."""
    places = [p if isinstance(p, str) else Average(*map(tuple, p)) for p in sent["places"]]
    rejected = tuple(sent["rejected"])
    if not places or config.restore is None:
        return (), rejected
    policies = _policies(config, config.restore.first_of[sent["source"]])
    choices = [
        Choice(place, policy, chosen=chosen)
        for place, policy, chosen in zip(places, policies, sent["chosen"], strict=True)
    ]
    return choices, rejected


def _policies(config: Config, source: Source) -> list[Policy]:
    return [config.policy_of(member) for member in source.members]


def _with_hint(error: Exception, hint: str) -> Exception:
    if not hint or not isinstance(error, RefusedError):
        return error
    return RefusedError(str(error), plan=error.plan, hint=hint)


def _next(candidates: _Candidates, rejected: list[str]) -> _Location | None:
    for place, reason in candidates:
        if not reason:
            return place
        rejected.append(reason)
    return None


def _at_fault(
    error: CheckpointError, places: Sequence[_Location], members: Sequence[Source]
) -> list[int]:
    """The indices of members whose directory may have another checkpoint to try."""
    return [
        number
        for number, (place, member) in enumerate(zip(places, members, strict=True))
        if member.directory is not None and (len(members) == 1 or _is_of(error.path, str(place)))
    ]


def _is_of(path: str, prefix: str) -> bool:
    """Whether a file belongs to a checkpoint; ``ckpt-12.index`` does not belong to ``ckpt-1``."""
    return path.startswith(prefix) and not path[len(prefix) : len(prefix) + 1].isdigit()


def _none_readable(rejected: list[str], places: str, hint: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        "none of the checkpoints can be restored:\n  " + "\n  ".join(rejected),
        path=places,
        hint=hint,
    )


def _incomplete(source: Source, found: Sequence[object]) -> CheckpointNotFoundError:
    pairs = list(zip(source.members, found, strict=True))
    absent = ", ".join(_shown(member) for member, one in pairs if not one)
    present = ", ".join(_shown(member) for member, one in pairs if one)
    return CheckpointNotFoundError(
        f"all_of: no checkpoint in {absent}, but there is one in {present}",
        hint="all of them must have one; if_none applies only if none of them has",
    )


def _shown(source: Source) -> str:
    if source.all_of is not None:
        return " with ".join(map(_shown, source.all_of))
    return ", ".join(paths_of(source))


def _candidates_if_any(source: Source) -> _Candidates | None:
    """What to try of a source; None if it has no checkpoint."""
    candidates = iter(_candidates(source))
    first = next(candidates, None)
    return None if first is None else itertools.chain((first,), candidates)


def _candidates(source: Source) -> Iterable[tuple[_Location, str]]:
    """What to try of a source, in order, each with the reason to reject it, if any."""
    if isinstance(source.average, Latest):
        return _latest(source.average)
    if source.directory is None:
        if not any(map(_exists_or_resembles, checkpoint_paths(source))):
            return []
        return [(source.path or Average(checkpoint_paths(source), source.weights or ()), "")]
    path = source.directory
    directory = Directory(path, source.checkpoint_name, files_of(path))
    if source.select == "latest":
        return directory.restorable()
    if source.select == "best":
        return _best(source, directory)
    existing = directory.checkpoints()
    chosen = [(each.prefix, "") for each in existing if each.number == source.select]
    if existing and not chosen:
        numbers = ", ".join(str(each.number) for each in existing)
        raise CheckpointNotFoundError(
            f"no checkpoint {source.checkpoint_name}-{source.select}",
            path=directory.path,
            hint=f"the directory has {numbers}",
        )
    return chosen


def _chosen(source: Source, place: _Location) -> str:
    """Why `select: best` has chosen a checkpoint; "" if the source says something else."""
    if source.directory is None or source.select != "best":
        return ""
    directory = Directory(source.directory, source.checkpoint_name, files_of(source.directory))
    if (measure := _measure(source, directory)) is None:
        return ""
    ranked = directory.best(*measure)
    for number, one in enumerate(ranked):
        if one.prefix == place:
            which = f"number {number + 1}" if number else "the best"
            return f"{which} of {len(ranked)} by {measure[0]} ({one.metrics[measure[0]]:g})"
    return ""  # deleted meanwhile


def _measure(source: Source, directory: Directory) -> tuple[str, str] | None:
    """The metric and the mode of `select: best`."""
    if source.monitor and source.mode:
        return source.monitor, source.mode
    return directory.measure()


def _best(source: Source, directory: Directory) -> list[tuple[_Location, str]]:
    """The checkpoints of a directory that have the metric, the best first."""
    if not (existing := directory.checkpoints()):
        return []
    if (measure := _measure(source, directory)) is None:
        raise CheckpointNotFoundError(
            "`select: best`, but no checkpoint says by which metric",
            path=directory.path,
            hint="add `monitor` and `mode` beside `select: best`",
        )
    if not (found := directory.best(*measure)):
        metrics = sorted({m for one in directory.saved(existing) for m in one.metrics})
        raise CheckpointNotFoundError(
            f"`select: best`, but no checkpoint has the metric {measure[0]!r}",
            path=directory.path,
            hint=f"their metrics are {', '.join(metrics)}" if metrics else "none has any metric",
        )
    return [(one.prefix, "") for one in found]


def _latest(average: Latest) -> Iterator[tuple[_Location, str]]:
    """The average of the newest checkpoints of a directory."""
    files = files_of(average.directory)
    directory = Directory(average.directory, average.checkpoint_name, files)
    prefixes: list[str] = []
    for prefix, reason in directory.restorable():
        if reason:
            yield "", reason
            continue
        prefixes.append(prefix)
        if len(prefixes) == average.latest:
            yield Average(tuple(prefixes)), ""
            return
    if prefixes:
        raise CheckpointNotFoundError(
            f"has {len(prefixes)} checkpoints, but `latest: {average.latest}` was asked for",
            path=directory.path,
            hint="lower `latest`, or keep more checkpoints with `manager.keep`",
        )


def _exists_or_resembles(prefix: str) -> bool:
    """Whether a checkpoint has that name, or a similar one for which it may be a mistake.

    That is a longer name (``ckpt-9.index``, or ``ckpt-90``), or the same name with another number.
    """
    files = files_of(prefix)
    if files.exists(prefix) or shards_of(prefix, files):
        return True
    directory, name = os.path.split(prefix)
    with reading(directory):
        try:
            names = files.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
    stem = _NUMBER.sub("", name)
    return any(
        other.startswith(name)
        or (other.endswith(".index") and _NUMBER.sub("", other.removesuffix(".index")) == stem)
        for other in names
    )
