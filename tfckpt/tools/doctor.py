"""What a bug report needs: versions, file system, lock, space, and what the next start would do."""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from tfckpt.core.tables import plain
from tfckpt.core.text import one_line, size
from tfckpt.core.versions import NEWEST_TESTED, tested
from tfckpt.errors import CheckpointNotFoundError, TfckptError
from tfckpt.stored.commits.writer_lock import holder_of
from tfckpt.stored.io.files import files_of
from tfckpt.tools.find_checkpoint import path_of
from tfckpt.tools.listing import list_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.stored.commits.discovery import CheckpointInfo

_MOUNTS = "/proc/self/mounts"
_BUILDS = {"tensorflow": ("tensorflow-cpu", "tensorflow-intel", "tf-nightly"), "tf_keras": ()}
_OTHERS = ("numpy", "h5py", "protobuf", "fsspec")
_REMOTE = ("nfs", "cifs", "smb", "fuse", "lustre", "gpfs", "9p", "ceph")


class Diagnosis(tuple[tuple[str, str], ...]):
    """Facts, each with its name; ``print`` shows a line for each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(plain([(name, one_line(fact)) for name, fact in self], wraps=True))

    def to_json(self) -> dict[str, str]:
        """The ``facts`` in the document of ``tfckpt doctor --json``."""
        return dict(self)


def doctor(directory: str | os.PathLike[str] | None = None) -> Diagnosis:
    """What a bug report needs, of this machine and of a directory. Does not import TensorFlow.

    Args:
        directory: of checkpoints; None for versions alone.

    Returns:
        Pairs of a name and a fact, in some twenty lines.

    >>> import tfckpt
    >>> tfckpt.doctor()[0]
    ('tfckpt', '...')
    """
    return Diagnosis([*_software(), *(() if directory is None else _directory(directory))])


def _software() -> Iterator[tuple[str, str]]:
    yield "tfckpt", _version("tfckpt")
    yield "Python", f"{platform.python_version()}, {platform.platform()}"
    for package in NEWEST_TESTED:
        names = package, *_BUILDS.get(package, ())
        found = next((v for v in map(_version, names) if v), "")
        yield package, f"{found} (tested: {tested(package)})" if found else "not installed"
    yield "others", ", ".join(f"{name} {_version(name) or '-'}" for name in _OTHERS)


def _version(package: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _directory(directory: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    path = path_of(directory)
    yield "directory", path
    files = files_of(path)
    if "://" in path:
        yield "file system", "an object store: no lock, a commit is one object"
    elif not Path(path).is_dir():
        yield "checkpoints", "the directory does not exist"
        yield "next start", "begins from initial values, and creates the directory"
        return
    else:
        kind = _file_system(path)
        remote = ", over a network: locks may not reach other machines"
        yield "file system", kind + (remote if kind.startswith(_REMOTE) else "")
        yield "writable", "yes" if os.access(path, os.W_OK | os.X_OK) else "no: saves will fail"
        yield "lock", holder_of(path) or "free: no process saves into it"
    free = files.free(path)
    yield "free space", "unknown" if free is None else size(free)
    try:
        found: Sequence[CheckpointInfo] = list_checkpoints(path)
    except CheckpointNotFoundError:
        found = ()
    except TfckptError as error:
        yield "checkpoints", f"cannot be listed: {error}"
        return
    yield from _checkpoints(found)


def _file_system(path: str) -> str:
    """The type of the mounted file system that a path is on."""
    real, best, kind = os.path.realpath(path), "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path(_MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines():
            _, mount, name, *_ = line.split(" ")
            inside = real == mount or real.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, name
    return kind


def _checkpoints(found: Sequence[CheckpointInfo]) -> Iterator[tuple[str, str]]:
    states = collections.Counter(one.state for one in found)
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    total = size(sum(one.nbytes for one in found))
    yield "checkpoints", f"{counted}; {total}" if found else "none"
    for one in found:
        if one.problem:
            yield os.path.split(one.prefix)[1], one.problem
    numbered = [one for one in found if one.number is not None]
    whole = next((one for one in numbered if not one.problem), None)
    if best := next((one for one in found if one.best_by), None):
        yield "best", f"{os.path.split(best.prefix)[1]} by {best.best_by}"
    if whole is None:
        nothing = "begins from initial values" if not numbered else "fails: none can be read"
        yield "next start", nothing
        return
    passed = [os.path.split(one.prefix)[1] for one in numbered[: numbered.index(whole)]]
    name, head = os.path.split(whole.prefix)[1], whole.head
    step = "" if head is None or head.step is None else f", step {head.step:,}"
    epoch = "" if head is None or head.epoch is None else f", epoch {head.epoch}"
    over = f"passes over {', '.join(passed)}; " if passed else ""
    yield "next start", f"{over}resumes from {name}{step}{epoch}"
