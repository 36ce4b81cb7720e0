"""Compares a plan with the lock files that its policies name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointError, RestoreError
from tfckpt.live.io.remote_files import files_of
from tfckpt.planning.lock import drift
from tfckpt.stored.io.files import content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfckpt.errors import Problem
    from tfckpt.planning import Plan
    from tfckpt.policy import Policy


def with_drift(plan: Plan, policies: Iterable[Policy]) -> Plan:
    """The plan, with its differences from the lock files of its policies."""
    found: list[Problem] = []
    for policy in {policy.lock: policy for policy in policies}.values():
        if policy.lock is not None:
            found += drift(plan, read_lock(policy.lock), policy.lock, policy.where("lock"))
    return dataclasses.replace(plan, drift=tuple(found)) if found else plan


def read_lock(lock: str) -> str | None:
    """The text of a lock file; None if it does not exist."""
    try:
        return content(lock, files_of(lock)).decode(errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, CheckpointError) as error:
        raise RestoreError(f"{lock}: the lock cannot be read: {error}") from error
