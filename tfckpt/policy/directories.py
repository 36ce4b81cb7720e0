"""Where a run saves against where it restores from: what no single key of a config shows.

A run that is started again finds its own checkpoints only where one of its sources is the directory
that it saves into. One letter is enough to miss it, and with ``if_none: initialize`` every start is
then a start from scratch.
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING

from tfckpt.core.nearby import numberless

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.policy.config import Config, Restore

_CLOSE = 0.8


def apart(config: Config) -> str:
    """Why a run does not find its own checkpoints when it is started again, "" where it does.

    That it saves and restores in two places is told where they are spelt nearly alike, and where it
    would begin from the initial values each time.

    >>> from tfckpt.policy import load_config
    >>> run = {"manager": {"directory": "runs/digits"}, "restore": {"directory": "runs/digit"}}
    >>> print(apart(load_config({"version": 1, **run})))
    manager.directory 'runs/digits' and restore.directory 'runs/digit' differ by little: ...
    """
    if config.manager is None or config.restore is None:
        return ""
    if restores_its_own(config):
        return ""
    own, name = config.manager.directory, config.manager.checkpoint_name
    read = list(_directories(config.restore))
    key = "restore.directory" if len(config.restore.first_of) == 1 else "restore.first_of"
    for path, other in read:
        if same(own, path):
            return (
                f"manager.checkpoint_name is {name!r}, and that of {key} {path!r} is {other!r}: "
                "what the run saves is not what it restores"
            )
        if _alike(own, path):
            return (
                f"manager.directory {own!r} and {key} {path!r} differ by little: what the run "
                "saves is not what it restores"
            )
    if read and config.restore.if_none == "initialize":
        return (
            f"the run saves into manager.directory {own!r} and does not restore from it: it begins "
            "anew at each start, by if_none: initialize"
        )
    return ""


def restores_its_own(config: Config) -> bool:
    """Whether a run finds what it has saved when it is started again."""
    if config.manager is None or config.restore is None:
        return False
    own, name = config.manager.directory, config.manager.checkpoint_name
    return any(same(own, at) and name == other for at, other in _directories(config.restore))


def _directories(restore: Restore) -> Iterator[tuple[str, str]]:
    for source in restore.first_of:
        for one in source.members:
            if one.directory is not None:
                yield one.directory, one.checkpoint_name


def _absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def same(one: str, other: str) -> bool:
    """Whether two paths are one directory."""
    return _absolute(one) == _absolute(other)


def _alike(one: str, other: str) -> bool:
    """Whether one name is misspelt or too many; what differs in its digits is another run."""
    ours, theirs = _absolute(one).split("/"), _absolute(other).split("/")
    if ours[:-1] == theirs or theirs[:-1] == ours:
        return True
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
    if len(ours) != len(theirs) or len(pairs) != 1:
        return False
    ((a, b),) = pairs
    close = difflib.SequenceMatcher(None, a, b).ratio() > _CLOSE
    return close and numberless(a) != numberless(b)
