"""No source holds a checkpoint: what lies where it was looked for, and what was perhaps meant.

A person who starts a training reads it where the training begins from scratch, and where that is
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.live.io.remote_files import files_of
from tfckpt.policy import Latest
from tfckpt.policy.directories import directory_mismatch, same_directory
from tfckpt.stored.paths.lookalikes import For, look

if TYPE_CHECKING:
    from tfckpt.policy import Config, Source


def absent(config: Config, told: For = For.TRAINING) -> tuple[str, ...]:
    """What there is to say of the places of a config that hold no checkpoint."""
    sources = config.restore.first_of if config.restore else ()
    places = [place for one in sources for member in one.members for place in places_of(member)]
    lines = []
    for place in dict.fromkeys(places):
        own = told is For.CONFIG and _is_own(config, place)
        lines += look(place, files_of(place)).lines(For.RUN if own else told)
    return (*lines, *filter(None, [directory_mismatch(config)]))


def not_found(config: Config, places: str) -> CheckpointNotFoundError:
    """The error for a restore that is not to go on without a checkpoint."""
    lines = absent(config, For.CONFIG)
    sources = config.restore.first_of if config.restore else ()
    if any(one.directory and _is_own(config, one.directory) for one in sources):
        lines += ("if this is the first start of the run, set if_none: initialize",)
    return CheckpointNotFoundError(f"no checkpoint in {places}", hint="\n  ".join(lines))


def _is_own(config: Config, directory: str) -> bool:
    """Whether the run saves into that directory."""
    return config.manager is not None and same_directory(config.manager.directory, directory)


def places_of(source: Source) -> tuple[str, ...]:
    """The paths that a source names, be they of checkpoints or of directories."""
    if isinstance(source.average, Latest):
        return (source.average.directory,)
    if source.directory is not None:
        return (source.directory,)
    return artefacts_of(source)


def artefacts_of(source: Source) -> tuple[str, ...]:
    """The checkpoints that a source names."""
    if source.path is not None:
        return (source.path,)
    return source.average if isinstance(source.average, tuple) else ()
