"""Checks that a config restores from the directory that it saves into.

A restarted run finds its own checkpoints only if one of its sources is the directory that it saves
into. A one-letter typo is enough to miss it, and with ``if_none: initialize`` every start is then a
start from scratch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfckpt.core.similar import nearly_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.policy.config import Config, Restore


def directory_mismatch(config: Config) -> str:
    """Why a restarted run does not find its own checkpoints, "" if it does.

    Saving and restoring in two directories is reported only if their names are nearly the same, or
    if every start would begin from the initial values.

    >>> from tfckpt.policy import load_config
    >>> run = {"manager": {"directory": "runs/digits"}, "restore": {"directory": "runs/digit"}}
    >>> print(directory_mismatch(load_config({"version": 1, **run})))
    manager.directory 'runs/digits' and restore.directory 'runs/digit' are nearly the same: ...
    """
    if config.manager is None or config.restore is None:
        return ""
    if restores_its_own(config):
        return ""
    own, name = config.manager.directory, config.manager.checkpoint_name
    sources = list(_directories(config.restore))
    key = "restore.directory" if len(config.restore.first_of) == 1 else "restore.first_of"
    for path, other in sources:
        if same_directory(own, path):
            return (
                f"manager.checkpoint_name is {name!r}, but checkpoint_name of {key} {path!r} is "
                f"{other!r}: the run does not restore what it saves"
            )
        if nearly_same(_absolute(own), _absolute(path)):
            return (
                f"manager.directory {own!r} and {key} {path!r} are nearly the same: the run does "
                "not restore what it saves"
            )
    if sources and config.restore.if_none == "initialize":
        return (
            f"the run saves into manager.directory {own!r} but does not restore from it: with "
            "if_none: initialize, every start begins from the initial values"
        )
    return ""


def restores_its_own(config: Config) -> bool:
    """Whether a restarted run finds what it has saved."""
    if config.manager is None or config.restore is None:
        return False
    own, name = config.manager.directory, config.manager.checkpoint_name
    return any(
        same_directory(own, at) and name == other for at, other in _directories(config.restore)
    )


def _directories(restore: Restore) -> Iterator[tuple[str, str]]:
    for source in restore.first_of:
        for member in source.members:
            if member.directory is not None:
                yield member.directory, member.checkpoint_name


def _absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else os.path.realpath(path)


def same_directory(path: str, other: str) -> bool:
    """Whether two paths are the same directory."""
    return _absolute(path) == _absolute(other)
