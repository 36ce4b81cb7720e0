"""What to say if no source has a checkpoint: what is at the paths instead, and similar paths.

It is shown where a training starts from scratch, and where that is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.live.remote import files_of
from tfckpt.policy import Latest
from tfckpt.policy.config import directory_mismatch, same_directory
from tfckpt.stored.io.explain import Audience, look

if TYPE_CHECKING:
    from tfckpt.policy import Config, Source


def absent(config: Config, reader: Audience = Audience.TRAINING) -> tuple[str, ...]:
    """Lines about the paths of a config that have no checkpoint."""
    sources = config.restore.first_of if config.restore else ()
    paths = [path for source in sources for member in source.members for path in paths_of(member)]
    lines = []
    for path in dict.fromkeys(paths):
        own = reader is Audience.CONFIG and _is_own(config, path)
        lines += look(path, files_of(path)).lines(Audience.RUN if own else reader)
    return (*lines, *filter(None, [directory_mismatch(config)]))


def not_found(config: Config, paths: str) -> CheckpointNotFoundError:
    """The error of a restore that requires a checkpoint."""
    lines = absent(config, Audience.CONFIG)
    sources = config.restore.first_of if config.restore else ()
    if any(source.directory and _is_own(config, source.directory) for source in sources):
        lines += ("if this is the first start of the run, set if_none: initialize",)
    return CheckpointNotFoundError(f"no checkpoint in {paths}", hint="\n  ".join(lines))


def _is_own(config: Config, directory: str) -> bool:
    """Whether the run saves into that directory."""
    return config.manager is not None and same_directory(config.manager.directory, directory)


def paths_of(source: Source) -> tuple[str, ...]:
    """The paths of a source, of checkpoints or of directories."""
    if isinstance(source.average, Latest):
        return (source.average.directory,)
    if source.directory is not None:
        return (source.directory,)
    return checkpoint_paths(source)


def checkpoint_paths(source: Source) -> tuple[str, ...]:
    """The paths of single checkpoints that a source names."""
    if source.path is not None:
        return (source.path,)
    return source.average if isinstance(source.average, tuple) else ()
