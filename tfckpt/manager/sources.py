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

import contextlib
import dataclasses
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
from tfckpt.live.restore import Choice
from tfckpt.live.workers import (
    PassedOverError,
    Together,
    choices_of_chief,
    chose_nothing,
    offered,
)
from tfckpt.manager.directory import Directory
from tfckpt.policy.config import directory_mismatch, same_directory
from tfckpt.stored.io.explain import look
from tfckpt.stored.io.files import files_of, lies_in, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfckpt.live.workers import Workers
    from tfckpt.policy import Config, Manager, Policy, Source

    _Candidates: TypeAlias = Iterator[tuple[str, str]]

_NUMBER = re.compile(r"[0-9]+$")
_PASSED_OVER = (CheckpointError, RefusedError)


class Selection:
    """The checkpoints that a config selects, to be tried in order.

    Each item is what to restore, with its policies. The caller tries it in a ``with
    selection.trying()`` block and leaves the loop if that worked. A CheckpointError of the block
    rejects that checkpoint; a RefusedError rejects the whole source, since older checkpoints match
    no better. The loop ends by itself if no source has a checkpoint and ``if_none: initialize``.

    Attributes:
        rejected: why others were passed over so far.

    >>> from tfckpt.policy import Config, Restore, Source
    >>> restore = Restore(first_of=(Source(directory="nowhere"),), if_none="initialize")
    >>> list(Selection(Config(version=1, restore=restore)))
    []
    """

    def __init__(self, config: Config, workers: Workers | None = None) -> None:
        self._config, self._workers = config, workers
        self._errors: list[CheckpointError | RefusedError] = []
        self.rejected: list[str] = []

    @contextlib.contextmanager
    def trying(self) -> Iterator[Together]:
        """Reject what the loop is at if the body says that it is damaged or does not match."""
        passes: tuple[type[Any], ...] = _PASSED_OVER
        if self._workers is not None and not self._workers.chief:
            passes = (PassedOverError,)
        try:
            with Together(self._workers, passes=_PASSED_OVER) as together:
                yield together
        except passes as error:
            self._errors = [error]

    def __iter__(self) -> Iterator[Sequence[Choice]]:
        """What to try, in all workers the same."""
        workers = self._workers
        if workers is None or workers.chief:
            yield from offered(workers, self._candidates(), self._to_json)
            chose_nothing(workers, self._to_json(()))
            return
        for sent in choices_of_chief(workers):
            self.rejected = list(sent["rejected"])
            if not sent["choices"]:
                return
            yield self._from_json(sent)

    def _candidates(self) -> Iterator[Sequence[Choice]]:
        restore, rejected = self._config.restore, self.rejected
        if restore is None:
            raise RestoreError(
                "the config has no `restore` section, so there is nothing to restore from",
                hint="add `restore: {directory: …}` or `restore: {path: …}`",
            )
        absent = 0
        for source in restore.first_of:
            candidates = [_candidates_if_any(member) for member in source.members]
            if not any(candidates):
                nothing = [f"no checkpoint at {one.path}" for one in source.members if one.path]
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
            raise _not_found(self._config, places)

    def _choices(
        self, source: Source, candidates: Sequence[_Candidates]
    ) -> Iterator[Sequence[Choice]]:
        """What to try of one source, whose other checkpoints were rejected."""
        members, policies = source.members, _policies(self._config, source)
        chosen: list[str | None] = [None] * len(members)
        while True:
            for number, untried in enumerate(candidates):
                chosen[number] = chosen[number] or _next(untried, self.rejected)
            places = [place for place in chosen if place is not None]
            if len(places) < len(members):
                return
            self._errors = []
            found = [
                Choice(place, policy, chosen=_chosen(member, place))
                for member, place, policy in zip(members, places, policies, strict=True)
            ]
            yield with_state(self._config, found)
            if not self._errors:  # the caller goes on although it worked
                return
            error, at_fault = self._errors[0], list[int]()
            if isinstance(error, CheckpointError):
                at_fault = _at_fault(error, places, members)
            if not at_fault and source.on_damaged == "error":
                raise _with_hint(error, self._config.unused_policy_hint)
            self.rejected.append(str(error))
            if not at_fault:
                return
            for number in at_fault:
                chosen[number] = None

    def _to_json(self, choices: Sequence[Choice]) -> Any:
        """A choice of the chief for the other workers, who have the same policies."""
        sources = self._config.restore.first_of if self._config.restore else ()
        policies = [one.policy for one in choices]
        numbers = (n for n, s in enumerate(sources) if _policies(self._config, s) == policies)
        sent = [
            {name: getattr(one, name) for name in ("place", "chosen", "whole", "state")}
            for one in choices
        ]
        return {"source": next(numbers, 0), "choices": sent, "rejected": self.rejected}

    def _from_json(self, sent: Any) -> Sequence[Choice]:
        sources = self._config.restore.first_of if self._config.restore else ()
        policies = _policies(self._config, sources[sent["source"]])
        return [
            Choice(
                each["place"],
                policy,
                chosen=each["chosen"],
                whole=each["whole"],
                state=tuple(each["state"]),
            )
            for each, policy in zip(sent["choices"], policies, strict=True)
        ]


def with_state(config: Config, choices: Sequence[Choice]) -> list[Choice]:
    """The same, with the training state that each restores.

    A run that resumes itself restores it too, and asks for everything of both sides. A checkpoint
    from elsewhere is where a new training begins: its epoch, callbacks and data position belong to
    another one, unless the policy lists ``training_state`` itself.
    """
    (first, *_), alone = choices, continues(choices)
    goes_on = alone and _is_of_run(config.manager, first.place)
    policy = first.policy
    state: tuple[str, ...] = ()
    if goes_on or (alone and "training_state" in policy.model_fields_set):
        state = policy.training_state if "epoch" in policy.training_state else ()
    return [dataclasses.replace(one, whole=goes_on, state=state) for one in choices]


def continues(choices: Sequence[Choice]) -> bool:
    """Whether a single checkpoint is continued, including its save counter."""
    first, *others = choices
    return not others and first.policy.api == "restore"


def _is_of_run(manager: Manager | None, prefix: str) -> bool:
    """Whether a checkpoint is of the run's directory and name."""
    if manager is None or not lies_in(prefix, manager.directory):
        return False
    name = os.path.split(prefix)[1]
    return re.fullmatch(rf"{re.escape(manager.checkpoint_name)}-\d+", name) is not None


def _policies(config: Config, source: Source) -> list[Policy]:
    return [config.policy_of(member) for member in source.members]


def _with_hint(error: Exception, hint: str) -> Exception:
    if not hint or not isinstance(error, RefusedError):
        return error
    return RefusedError(str(error), plan=error.plan, hint=hint)


def _next(candidates: _Candidates, rejected: list[str]) -> str | None:
    for place, reason in candidates:
        if not reason:
            return place
        rejected.append(reason)
    return None


def _at_fault(
    error: CheckpointError, places: Sequence[str], members: Sequence[Source]
) -> list[int]:
    """The indices of members whose directory may have another checkpoint to try."""
    return [
        number
        for number, (place, member) in enumerate(zip(places, members, strict=True))
        if member.directory is not None and (len(members) == 1 or _is_of(error.path, place))
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


def _candidates_if_any(source: Source) -> _Candidates | None:
    """What to try of a source; None if it has no checkpoint."""
    candidates = iter(_candidates_of(source))
    first = next(candidates, None)
    return None if first is None else itertools.chain((first,), candidates)


def _candidates_of(source: Source) -> Iterable[tuple[str, str]]:
    """What to try of a source, in order, each with the reason to reject it, if any."""
    if (path := source.directory) is None:
        path = _path_of(source)
        return [(path, "")] if _exists_or_resembles(path) else []
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


def _chosen(source: Source, place: str) -> str:
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


def _best(source: Source, directory: Directory) -> list[tuple[str, str]]:
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
    sources = config.restore.first_of if config.restore else ()
    paths = [_path_of(member) for source in sources for member in source.members]
    lines = [line for p in dict.fromkeys(paths) for line in look(p, files_of(p)).lines]
    return (*lines, *filter(None, [directory_mismatch(config)]))


def _not_found(config: Config, paths: str) -> CheckpointNotFoundError:
    """The error of a restore that requires a checkpoint."""
    lines = absent(config)
    sources = config.restore.first_of if config.restore else ()
    if any(source.directory and _is_own(config, source.directory) for source in sources):
        lines += ("if this is the first start of the run, set if_none: initialize",)
    return CheckpointNotFoundError(f"no checkpoint in {paths}", hint="\n  ".join(lines))


def _is_own(config: Config, directory: str) -> bool:
    """Whether the run saves into that directory."""
    return config.manager is not None and same_directory(config.manager.directory, directory)


def _path_of(source: Source) -> str:
    """The path of a source, of a checkpoint or of a directory."""
    return source.directory or source.path or ""
