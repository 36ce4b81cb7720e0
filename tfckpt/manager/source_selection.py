"""Which checkpoint a config means: the first source that holds one, its newest readable one.

"None exists" and "none is readable" are different answers: a source falls through to the next only
where it holds no checkpoint at all, or says ``on_damaged: next`` and its checkpoints are damaged or
do not fit: a damaged run must not quietly become a fine-tune. A directory may well be empty when a
run begins; a ``path`` names an artefact that somebody knew of, and may be misspelt. Where the name
only goes on, or another number of it is there, it is an error; with nothing of the kind there, it
is passed over like an empty directory, and what comes out names it among what was rejected.

The sources of an ``all_of`` are one: where all are absent, so is it, and where some are, that is an
error, lest half a model start from its initial values. Of each directory among them the newest
readable checkpoint is taken.
"""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    RefusedError,
    RestoreError,
)
from tfckpt.live.io.remote_files import files_of
from tfckpt.live.restoring.restore import Choice
from tfckpt.manager.absent import artefacts_of, not_found, places_of
from tfckpt.manager.directory import Directory
from tfckpt.policy import Latest
from tfckpt.stored.average import Average
from tfckpt.stored.io.files import reading
from tfckpt.stored.paths.wrong_paths import shards_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfckpt.policy import Config, Policy, Source

    Place: TypeAlias = str | Average
    _Attempt: TypeAlias = Callable[[Sequence[Choice], tuple[str, ...]], object]
    _Candidates: TypeAlias = Iterator[tuple[Place, str]]

_NUMBER = re.compile(r"[0-9]+$")


class Selected(NamedTuple):
    """Something restored or planned, None where nothing was, and what was passed over."""

    result: object | None
    rejected: tuple[str, ...]


def first_readable(config: Config, attempt: _Attempt) -> Selected:
    """Try the sources of a config in order.

    Args:
        config: what was declared.
        attempt: called with what to restore from, each with its policy, and what was passed over
            so far; what it returns is the result, a CheckpointError rejects that checkpoint, a
            RefusedError the whole source, since its older checkpoints fit no better.

    Returns:
        The first result, or none where no source holds a checkpoint and ``if_none: initialize``;
        and what was passed over, a path with nothing there included.

    Raises:
        RestoreError: the config has no ``restore`` section.
        CheckpointNotFoundError: no source holds one, and ``if_none: error``.
        DamagedCheckpointError: a source holds checkpoints and none can be read.
        RefusedError: a source's checkpoint does not fit.
    """
    restore = config.restore
    if restore is None:
        raise RestoreError(
            "the config has no `restore` section, so there is nothing to restore from",
            hint="add `restore: {directory: …}` or `restore: {path: …}`",
        )
    rejected: list[str] = []
    absent = 0
    for source in restore.first_of:
        found = [_some(member) for member in source.members]
        if not any(found):
            nothing = [f"nothing at {p}" for one in source.members for p in artefacts_of(one)]
            rejected += nothing
            absent += len(nothing)
            continue
        if not all(found):
            raise _incomplete(source, found)
        before = len(rejected)
        for result in _attempts(source, config, list(filter(None, found)), attempt, rejected):
            return Selected(result, tuple(rejected))
        if rejected[before:] and source.on_damaged == "error":
            raise _none_readable(
                rejected[before:],
                _shown(source),
                "to go on with the next source all the same, set on_damaged: next",
            )
    places = ", ".join(map(_shown, restore.first_of))
    if len(rejected) > absent:
        raise _none_readable(rejected, places, "if_none is for where no source holds a checkpoint")
    if restore.if_none == "initialize":
        return Selected(None, tuple(rejected))
    raise not_found(config, places)


def told_of(config: Config, choices: Sequence[Choice], rejected: tuple[str, ...]) -> Any:
    """What the chief of several workers tells the others of its choice, as JSON holds it."""
    places = [
        one.place if isinstance(one.place, str) else [one.place.paths, one.place.weights]
        for one in choices
    ]
    policies = [one.policy for one in choices]
    sources = config.restore.first_of if config.restore else ()
    number = next((n for n, one in enumerate(sources) if _policies(config, one) == policies), 0)
    return {"source": number, "places": places, "rejected": list(rejected)}


def as_told(config: Config, told: Any) -> tuple[Sequence[Choice], tuple[str, ...]]:
    """What the chief has chosen, with the policies of this worker's config; () for nothing."""
    places = [p if isinstance(p, str) else Average(*map(tuple, p)) for p in told["places"]]
    rejected = tuple(told["rejected"])
    if not places or config.restore is None:
        return (), rejected
    policies = _policies(config, config.restore.first_of[told["source"]])
    return list(map(Choice, places, policies)), rejected


def _policies(config: Config, source: Source) -> list[Policy]:
    return [config.policy_of(member) for member in source.members]


def _attempts(
    source: Source,
    config: Config,
    found: Sequence[_Candidates],
    attempt: _Attempt,
    rejected: list[str],
) -> Iterator[object]:
    """What the checkpoints of a source give; the reasons of those that give nothing are added."""
    members = source.members
    chosen: list[Place | None] = [None] * len(members)
    while True:
        for number, candidates in enumerate(found):
            chosen[number] = chosen[number] or _next(candidates, rejected)
        places = [place for place in chosen if place is not None]
        if len(places) < len(members):
            return
        choices = [
            Choice(place, config.policy_of(member))
            for place, member in zip(places, members, strict=True)
        ]
        try:
            yield attempt(choices, tuple(rejected))
        except CheckpointError as error:
            at_fault = _at_fault(error, places, members)
            if not at_fault and source.on_damaged == "error":
                raise
            rejected.append(str(error))
            if not at_fault:
                return
            for number in at_fault:
                chosen[number] = None
        except RefusedError as error:
            if source.on_damaged == "error":
                raise _with_hint(error, config.forgotten) from None
            rejected.append(str(error))
            return


def _with_hint(error: RefusedError, hint: str) -> RefusedError:
    return RefusedError(str(error), plan=error.plan, hint=hint) if hint else error


def _next(candidates: _Candidates, rejected: list[str]) -> Place | None:
    for place, reason in candidates:
        if not reason:
            return place
        rejected.append(reason)
    return None


def _at_fault(
    error: CheckpointError, places: Sequence[Place], members: Sequence[Source]
) -> list[int]:
    """The members in whose directory another checkpoint may be tried."""
    return [
        number
        for number, (place, member) in enumerate(zip(places, members, strict=True))
        if member.directory is not None and (len(members) == 1 or _is_of(error.path, str(place)))
    ]


def _is_of(path: str, prefix: str) -> bool:
    """Whether a file is of that checkpoint; ``ckpt-12.index`` is not of ``ckpt-1``."""
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
    there = ", ".join(_shown(member) for member, one in pairs if one)
    return CheckpointNotFoundError(
        f"all_of: there is no checkpoint in {absent}, while there is one in {there}",
        hint="all of them are restored, or none; if_none is for where there is none at all",
    )


def _shown(source: Source) -> str:
    if source.all_of is not None:
        return " with ".join(map(_shown, source.all_of))
    return ", ".join(places_of(source))


def _some(source: Source) -> _Candidates | None:
    """What to try of a source, None where it holds no checkpoint."""
    candidates = iter(_candidates(source))
    first = next(candidates, None)
    return None if first is None else itertools.chain((first,), candidates)


def _candidates(source: Source) -> Iterable[tuple[Place, str]]:
    """What to try of a source, in that order, each with what speaks against it."""
    if isinstance(source.average, Latest):
        return _latest(source.average)
    if source.directory is None:
        if not any(map(_anything, artefacts_of(source))):
            return []
        return [(source.path or Average(artefacts_of(source), source.weights or ()), "")]
    path = source.directory
    directory = Directory(path, source.checkpoint_name, files_of(path))
    if source.select == "latest":
        return directory.restorable()
    found = directory.checkpoints()
    chosen = [(one.prefix, "") for one in found if one.number == source.select]
    if found and not chosen:
        numbers = ", ".join(str(one.number) for one in found)
        raise CheckpointNotFoundError(
            f"there is no checkpoint {source.checkpoint_name}-{source.select}",
            path=directory.path,
            hint=f"there are {numbers}",
        )
    return chosen


def _latest(average: Latest) -> Iterator[tuple[Place, str]]:
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
            f"holds {len(prefixes)} checkpoints, and {average.latest} are to be averaged",
            path=directory.path,
            hint="lower `latest`, or save more; manager.keep says how many are kept",
        )


def _anything(prefix: str) -> bool:
    """Whether there is a checkpoint of that name, or something else that was meant as one.

    That is a name which only goes on (``ckpt-9.index``, or ``ckpt-90``), and a checkpoint of the
    same name with another number.
    """
    files = files_of(prefix)
    if files.exists(prefix) or shards_of(prefix, files):
        return True
    directory, name = os.path.split(prefix)
    with reading(directory):
        try:
            beside = files.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
    stem = _NUMBER.sub("", name)
    return any(
        other.startswith(name)
        or (other.endswith(".index") and _NUMBER.sub("", other.removesuffix(".index")) == stem)
        for other in beside
    )
