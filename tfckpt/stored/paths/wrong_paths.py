"""Explains a prefix that is not a checkpoint, and suggests the right one.

TensorFlow's reactions to such mistakes range from a message about another format to silence:
``restore("ckpt-1.index")`` restores nothing. Only the path, the names beside it, and the first and
last bytes of a file are examined.
"""

from __future__ import annotations

import contextlib
import os
import re

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.io.files import Files, join, reading

LFS_POINTER = b"version https://git-lfs"
LFS_HINT = "Its content was not downloaded; `git lfs pull` fetches it."
# The suffix of a data file, as ``data_path`` of :mod:`tfckpt.stored.bundles.bundle` makes it.
DATA = r"\.data-[0-9]{5}-of-(?P<shards>[0-9]{5})"
SUFFIX = re.compile(rf"(?:\.index|{DATA}|\.meta|\.tfckpt\.json)\Z")
# Inside of a SavedModel directory.
VARIABLES = "/variables/variables"
SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
# A file of TF1's Saver, version 1, which returns the name with question marks for the number.
_SHARD = re.compile(r"(?P<of>.*)-(?P<number>[0-9]{5}|\?{5})-of-(?P<total>[0-9]{5})", re.DOTALL)
_SHOWN = 5
_GZIP = b"\x1f\x8b"


def not_found(prefix: str, files: Files) -> CheckpointError:
    """The error for a prefix without an index, with a hint on what exists instead."""
    message, hint = "there is no checkpoint with this name", ""
    directory, name = os.path.split(prefix)
    beside = _names(directory, files)
    suffix = SUFFIX.search(name)
    if _names(prefix, files) is not None and name:
        message, hint = "is a directory, not a checkpoint prefix", _inside(prefix, files)
    elif beside is None:
        message = f"there is no checkpoint with this name: {directory!r} is not a directory"
        hint = _meant(prefix, files)
    elif suffix:
        message = "is one file of a checkpoint, not its prefix"
        hint = f"Use {prefix[: -len(suffix[0])]!r}."
    elif name in SAVED_MODELS and name in beside:
        message = "is the graph of a SavedModel, not its variables"
        hint = f"Use the directory, {directory or '.'!r}."
    elif name in beside:
        return _other_format(prefix, files)
    elif any(other.startswith(f"{name}.data-") for other in beside):
        message = f"the index file {name + '.index'!r} is missing, but data files exist"
        if name + ".tfckpt.json" in beside:
            hint = "Its commit record says that it was complete: the index was lost, or not copied."
            return DamagedCheckpointError(message, path=prefix, hint=hint)
        hint = "The save was not finished, or the index was not copied."
    else:
        hint = _similar(directory, name, beside) or _meant(prefix, files)
    return CheckpointNotFoundError(message, path=prefix, hint=hint)


def shards_of(prefix: str, files: Files) -> list[str]:
    """The existing files of a sharded TF1 checkpoint (version 1); its prefix may end with
    ``-?????-of-00002``.
    """
    directory, name = os.path.split(prefix)
    sharded = _SHARD.fullmatch(name)
    if sharded and "?" not in sharded["number"]:
        return []
    of, total = (sharded["of"], sharded["total"]) if sharded else (name, None)
    if not of or of.endswith(".data"):
        return []
    shards = []
    for other in _names(directory, files) or []:
        match = _SHARD.fullmatch(other)
        if match and match["of"] == of and total in (None, match["total"]):
            shards.append(join(directory, other))
    return sorted(shards)


def saver_v1_files(prefix: str, files: Files) -> list[str]:
    """All files of a TF1 checkpoint (version 1), in order."""
    directory, name = os.path.split(prefix)
    sharded = _SHARD.fullmatch(name)
    if sharded and sharded["number"].isdigit() and int(sharded["total"]) > 1:
        message = f"is one of the {int(sharded['total'])} files of a TF1 checkpoint (version 1)"
        hint = f"Use {join(directory, sharded['of'])!r}."
        raise CheckpointNotFoundError(message, path=prefix, hint=hint)
    shards = shards_of(prefix, files)
    if not shards:
        return [prefix]
    totals = sorted({path[-5:] for path in shards})
    if len(totals) > 1:
        stem = shards[0][: -len("00000-of-00000")]
        message = f"several checkpoints have this name, with {' and '.join(totals)} files"
        raise CheckpointNotFoundError(
            message, path=prefix, hint=f"Use '{stem}?????-of-{totals[0]}'."
        )
    stem, total = shards[0][: -len("00000-of-00000")], totals[0]
    for number in range(int(total)):
        path = f"{stem}{number:05d}-of-{total}"
        if path not in shards:
            message = "this file of the checkpoint is missing"
            hint = "Copy it next to the other files; each file lists only its own values."
            raise DamagedCheckpointError(message, path=path, hint=hint)
    return shards


def _names(directory: str, files: Files) -> list[str] | None:
    try:
        return files.listdir(directory)
    except OSError:
        return None


def _prefixes(names: list[str]) -> list[str]:
    """Prefixes with an index, or with a TF1 graph, highest number last."""
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    prefixes = prefixes or [name.removesuffix(".meta") for name in names if name.endswith(".meta")]
    return sorted(prefixes, key=lambda name: [int(n) for n in re.findall(r"[0-9]+", name)])


def _inside(prefix: str, files: Files) -> str:
    variables = join(prefix, "variables")
    if "variables" in _prefixes(_names(variables, files) or []):
        inner = join(variables, "variables")
        return f"It looks like a SavedModel. Use {inner!r}."
    from tfckpt.stored.paths.lookalikes import look  # only needed for errors

    findings = look(prefix, files)
    readable = next((other.path for other in findings.others if other.path), "")
    write = f" Use {readable!r}." if readable else ""
    return f"It {findings.state}.{write}\n  {findings.meant}".rstrip()


def _similar(directory: str, name: str, beside: list[str]) -> str:
    prefixes = _prefixes(beside)
    stem = re.sub(r"[0-9]+$", "", name)
    same = [other for other in prefixes if re.sub(r"[0-9]+$", "", other) == stem]
    from tfckpt.core.similar import near_words
    from tfckpt.stored.paths.lookalikes import shown

    close = same or near_words(name, prefixes, _SHOWN) or prefixes
    return f"{directory or '.'!r} contains {shown(close)}." if close else ""


def _meant(prefix: str, files: Files) -> str:
    from tfckpt.stored.paths.lookalikes import look

    directory = os.path.split(prefix)[0]
    return look(prefix, files).meant or f"There is no checkpoint in {directory or '.'!r}."


def _other_format(path: str, files: Files) -> CheckpointError:
    with reading(path), contextlib.closing(files.open_read(path)) as handle:
        head = handle.pread(0, 64)
    if head.startswith(LFS_POINTER):
        return CheckpointNotFoundError("is a Git LFS pointer", path=path, hint=LFS_HINT)
    if head.startswith(_GZIP):
        message = "is a gzip file, not a TensorFlow checkpoint"
        return UnsupportedCheckpointError(message, path=path, hint="Decompress it first.")
    if head.startswith(b"model_checkpoint_path"):
        message = "is the state file of a checkpoint directory, not a checkpoint prefix"
        hint = f"Use a checkpoint prefix, or the directory {os.path.split(path)[0] or '.'!r}."
        return CheckpointNotFoundError(message, path=path, hint=hint)
    return CheckpointNotFoundError("is not a file of a checkpoint", path=path)
