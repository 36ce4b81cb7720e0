"""Which checkpoint a config means: the first source that holds one, its newest readable one.

"None exists" and "none is readable" are different answers: a source falls through to the next only
where it holds no checkpoint at all, or says ``on_damaged: next``. A damaged run must not quietly
become a fine-tune, nor a misspelt path a start from scratch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.errors import CheckpointError, CheckpointNotFoundError, DamagedCheckpointError
from tfckpt.stored import discover

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.policy import Config, Policy, Source


class Found(NamedTuple):
    """Something restored or planned, and what was passed over on the way."""

    result: object
    rejected: tuple[str, ...]


def first_readable(
    config: Config, attempt: Callable[[str, Policy, tuple[str, ...]], object]
) -> Found | None:
    """Try the sources of a config in order.

    Args:
        config: one with a ``restore`` section.
        attempt: called with a prefix, the policy for it, and what was passed over so far;
            what it returns is the result, a CheckpointError rejects that checkpoint.

    Returns:
        The first result; None where no source holds a checkpoint and ``if_none: initialize``.

    Raises:
        CheckpointNotFoundError: no source holds one, and ``if_none: error``.
        DamagedCheckpointError: a source holds checkpoints and none can be read.
    """
    restore = config.restore
    if restore is None:
        return None
    rejected: list[str] = []
    for source in restore.first_of:
        policy = config.policy_of(source)
        prefixes = _prefixes(source)
        for prefix in prefixes:
            try:
                result = attempt(prefix, policy, tuple(rejected))
            except CheckpointError as error:
                if source.path is not None and source.on_damaged == "error":
                    raise
                rejected.append(str(error))
                continue
            return Found(result, tuple(rejected))
        if prefixes and source.on_damaged == "error":
            raise DamagedCheckpointError(
                "none of the checkpoints can be read:\n  " + "\n  ".join(rejected),
                path=source.directory or "",
                hint="to go on with the next source all the same, set on_damaged: next",
            )
    if restore.if_none == "initialize":
        return None
    places = ", ".join(source.path or source.directory or "" for source in restore.first_of)
    raise CheckpointNotFoundError(
        f"no checkpoint in {places}",
        hint="to start from the initial values where there is none, set if_none: initialize",
    )


def _prefixes(source: Source) -> list[str]:
    """The checkpoints of a source, newest first."""
    if source.path is not None:
        return [source.path] if _anything(source.path) else []
    directory = source.directory or ""
    found = discover.candidates(directory, source.checkpoint_name)
    if source.select == "latest":
        return [one.prefix for one in found]
    chosen = [one.prefix for one in found if one.number == source.select]
    if found and not chosen:
        numbers = ", ".join(str(one.number) for one in found[::-1])
        raise CheckpointNotFoundError(
            f"there is no checkpoint {source.checkpoint_name}-{source.select}",
            path=directory,
            hint=f"there are {numbers}",
        )
    return chosen


def _anything(prefix: str) -> bool:
    """Whether there is a checkpoint of that name, or something else that was meant as one."""
    path = Path(prefix)
    if path.exists() or not path.parent.is_dir():
        return path.exists()
    return any(each.name.startswith(path.name) for each in path.parent.iterdir())
