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

With several workers the chief tries the candidates, and sends each to the others: all of them
restore it, or none does.
"""

from __future__ import annotations

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
from tfckpt.live.restore import RestoreSource
from tfckpt.live.workers import agreed
from tfckpt.manager.directory import Directory
from tfckpt.policy.config import directory_mismatch, same_directory
from tfckpt.stored.io.explain import look
from tfckpt.stored.io.files import files_of, lies_in, reading

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from tfckpt.live.restore import Candidates
    from tfckpt.live.workers import Workers
    from tfckpt.policy import Config, Manager, Policy, Source

    _Untried: TypeAlias = Iterator[tuple[str, str]]

_NUMBER = re.compile(r"[0-9]+$")


def candidates(config: Config, rejected: list[str], workers: Workers | None = None) -> Candidates:
    """What to try, in order; ends if no source has a checkpoint and ``if_none: initialize``.

    A CheckpointError that is thrown in rejects that checkpoint; a RefusedError rejects the whole
    source, since older checkpoints match no better. ``rejected`` is filled with the reasons.

    >>> from tfckpt.policy import Config, Restore, Source
    >>> restore = Restore(first_of=(Source(directory="nowhere"),), if_none="initialize")
    >>> list(candidates(Config(version=1, restore=restore), []))
    []
    """

    def send(chosen: Sequence[RestoreSource] | None) -> Any:
        """Without policies, which the other workers have by their own config."""
        policies = [one.policy for one in chosen or ()]
        numbers = (n for n, s in enumerate(_first_of(config)) if _policies(config, s) == policies)
        sent = [(one.path, one.chosen, one.resumes) for one in chosen or ()]
        return {"source": next(numbers, 0), "chosen": sent, "rejected": rejected}

    def receive(sent: Any) -> Sequence[RestoreSource] | None:
        rejected[:] = sent["rejected"]
        if not sent["chosen"]:
            return None
        policies = _policies(config, _first_of(config)[sent["source"]])
        rows = zip(sent["chosen"], policies, strict=True)
        return [RestoreSource(path, policy, *more) for (path, *more), policy in rows]

    return agreed(workers, _candidates(config, rejected), send, receive)


def _first_of(config: Config) -> tuple[Source, ...]:
    return config.restore.first_of if config.restore else ()


def _candidates(
    config: Config, rejected: list[str]
) -> Generator[Sequence[RestoreSource], None, None]:
    restore = config.restore
    if restore is None:
        raise RestoreError(
            "the config has no `restore` section, so there is nothing to restore from",
            hint="add `restore: {directory: …}` or `restore: {path: …}`",
        )
    missing = 0
    for source in restore.first_of:
        untried = [_if_any(_untried(member)) for member in source.members]
        if not any(untried):
            nothing = [f"no checkpoint at {one.path}" for one in source.members if one.path]
            rejected += nothing
            missing += len(nothing)
            continue
        if not all(untried):
            raise _incomplete(source, untried)
        before = len(rejected)
        yield from _of_source(config, source, list(filter(None, untried)), rejected)
        if rejected[before:] and source.on_damaged == "error":
            raise _none_readable(
                rejected[before:],
                _shown(source),
                "to try the next source instead, set on_damaged: next",
            )
    places = ", ".join(map(_shown, restore.first_of))
    if len(rejected) > missing:
        hint = "if_none applies only if no source has a checkpoint"
        raise _none_readable(rejected, places, hint)
    if restore.if_none != "initialize":
        raise _not_found(config, places)


def _of_source(
    config: Config, source: Source, untried: Sequence[_Untried], rejected: list[str]
) -> Generator[Sequence[RestoreSource], None, None]:
    """What to try of one source, which has a checkpoint."""
    members, policies = source.members, _policies(config, source)
    chosen: list[RestoreSource | None] = [None] * len(members)
    while True:
        for number, policy in enumerate(policies):
            chosen[number] = chosen[number] or _next(untried[number], policy, rejected)
        found = list(filter(None, chosen))
        if len(found) < len(members):
            return
        first, *others = found
        if not others:
            found = [first._replace(resumes=_resumes(config.manager, first))]
        try:
            yield found
            return  # nothing was thrown in
        except (CheckpointError, RefusedError) as error:
            at_fault = _at_fault(error, found, members)
            if not at_fault and source.on_damaged == "error":
                raise _with_hint(error, config.unused_policy_hint) from error.__cause__
            rejected.append(str(error))
            if not at_fault:
                return
            for number in at_fault:
                chosen[number] = None


def _resumes(manager: Manager | None, source: RestoreSource) -> bool:
    """Whether a run goes on from a checkpoint of its directory and name."""
    if manager is None or source.policy.api != "restore":
        return False
    if not lies_in(source.path, manager.directory):
        return False
    name = os.path.split(source.path)[1]
    return re.fullmatch(rf"{re.escape(manager.checkpoint_name)}-\d+", name) is not None


def _policies(config: Config, source: Source) -> list[Policy]:
    return [config.policy_of(member) for member in source.members]


def _with_hint(error: Exception, hint: str) -> Exception:
    if not hint or not isinstance(error, RefusedError):
        return error
    return RefusedError(str(error), plan=error.plan, hint=hint)


def _next(untried: _Untried, policy: Policy, rejected: list[str]) -> RestoreSource | None:
    for path, text in untried:
        if path:
            return RestoreSource(path, policy, text)
        rejected.append(text)
    return None


def _at_fault(
    error: Exception, found: Sequence[RestoreSource], members: Sequence[Source]
) -> list[int]:
    """The indices of members whose directory may have another checkpoint to try."""
    if not isinstance(error, CheckpointError):
        return []
    return [
        number
        for number, (one, member) in enumerate(zip(found, members, strict=True))
        if member.directory is not None and (len(members) == 1 or _is_of(error.path, one.path))
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
    return _path_of(source)


def _if_any(untried: _Untried) -> _Untried | None:
    """None if there is nothing to try."""
    first = next(untried, None)
    return None if first is None else itertools.chain((first,), untried)


def _untried(source: Source) -> _Untried:
    """What to try of a source, in order, each with why it is chosen; or "" and why it is not."""
    if (path := source.directory) is None:
        path = _path_of(source)
        return iter([(path, "")] if _exists_or_resembles(path) else [])
    directory = Directory(path, source.checkpoint_name, files_of(path))
    if source.select == "latest":
        return directory.restorable()
    if source.select == "best":
        return iter(_best(source, directory))
    existing = directory.checkpoints()
    chosen = [(each.prefix, "") for each in existing if each.number == source.select]
    if existing and not chosen:
        numbers = ", ".join(str(each.number) for each in existing)
        raise CheckpointNotFoundError(
            f"no checkpoint {source.checkpoint_name}-{source.select}",
            path=directory.path,
            hint=f"the directory has {numbers}",
        )
    return iter(chosen)


def _best(source: Source, directory: Directory) -> list[tuple[str, str]]:
    """The checkpoints of a directory that have the metric, the best first."""
    if not (existing := directory.checkpoints()):
        return []
    given = (source.monitor, source.mode) if source.monitor and source.mode else None
    if (measure := given or directory.measure()) is None:
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
    return [
        (
            one.prefix,
            f"{f'number {number}' if number > 1 else 'the best'} of {len(found)} by {measure[0]} "
            f"({one.metrics[measure[0]]:g})",
        )
        for number, one in enumerate(found, 1)
    ]


def _exists_or_resembles(prefix: str) -> bool:
    """Whether a checkpoint has that name, or a similar one for which it may be a mistake.

    That is a longer name (``ckpt-9.index``, or ``ckpt-90``), or the same name with another number.
    """
    files = files_of(prefix)
    if files.exists(prefix):
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


def absent(config: Config) -> tuple[str, ...]:
    """Lines about the paths of a config that have no checkpoint."""
    paths = [_path_of(member) for member in config.members]
    lines = [line for p in dict.fromkeys(paths) for line in look(p, files_of(p)).lines]
    return (*lines, *filter(None, [directory_mismatch(config)]))


def _not_found(config: Config, paths: str) -> CheckpointNotFoundError:
    """The error of a restore that requires a checkpoint."""
    lines = absent(config)
    own = [one.directory and _is_own(config, one.directory) for one in config.members]
    if own and all(own):  # else a path is wrong, and a run would begin without its weights
        lines += ("if this is the first start of the run, set if_none: initialize",)
    line = config._locations.at.get(("restore",))
    where = f"{config._locations.file}:{line[0]}: " if line else ""
    return CheckpointNotFoundError(f"{where}no checkpoint in {paths}", hint="\n  ".join(lines))


def _is_own(config: Config, directory: str) -> bool:
    """Whether the run saves into that directory."""
    return config.manager is not None and same_directory(config.manager.directory, directory)


def _path_of(source: Source) -> str:
    """The path of a source, of a checkpoint or of a directory."""
    return source.directory or source.path or ""
