"""Explains a path where no checkpoint is: what lies there, and how to restore from it.

A prefix may be one file of a checkpoint, a directory, a file of another format. A directory may be
new, misspelled, relative to another working directory, or written by another tool; training would
start from scratch in all of these cases, but only the first one is intended. Only names, the first
and last bytes of a file and TensorFlow's state file are read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.similar import near_paths, near_words, question
from tfckpt.core.text import FOLD, listed
from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.io.files import absolute, join, reading
from tfckpt.stored.io.state_file import read_state

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tfckpt.stored.io.files import Files

LFS_POINTER = b"version https://git-lfs"
LFS_HINT = "Its content was not downloaded; `git lfs pull` fetches it."
# The suffix of a data file, as ``data_path`` of :mod:`tfckpt.stored.bundles.bundle` makes it.
DATA = r"\.data-[0-9]{5}-of-(?P<shards>[0-9]{5})"
SUFFIX = re.compile(rf"(?:\.index|{DATA}|\.meta|\.tfckpt\.json)\Z")
# Inside of a SavedModel directory.
VARIABLES = "/variables/variables"
SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
# The end of a LevelDB table: of an index, or of a whole checkpoint in TF1's format version 1.
TABLE_END = bytes.fromhex("57fb808b247547db")
_INDEX_FIELD = b"\x08"  # the first one of the header in an index; after the lengths of its entry
# After the prefix in the name of one of several files in that format, and of all of them.
_V1_SHARD = re.compile(r"-(?:[0-9]{5}|\?{5})(?P<of>-of-[0-9]{5})\Z")
_SHOWN = 5
_GZIP = b"\x1f\x8b"
# Suffixes of Keras files, and others, that are a checkpoint each.
KERAS_FILES = (".h5", ".hdf5", ".keras", ".weights.json")
_SAFETENSORS = (".safetensors", ".safetensors.index.json")
SINGLE_FILES = (*KERAS_FILES, *_SAFETENSORS)
SHARD = re.compile(r"_[0-9]{5}\.weights\.h5\Z|-[0-9]{5}-of-[0-9]{5}\.safetensors\Z")
_INDEX, _META, _STATE = ".index", ".meta", "checkpoint"
_NUMBERED = re.compile(r"(?P<name>.*)-[0-9]{1,18}", re.DOTALL)
# Files that are a checkpoint each, and who writes them: keras/src/callbacks/backup_and_restore.py
_WRITERS: tuple[tuple[str | tuple[str, ...], str], ...] = (
    ("latest.weights.h5", "Keras's BackupAndRestore"),
    (KERAS_FILES, "Keras's ModelCheckpoint or model.save"),
    (_SAFETENSORS, "safetensors"),
)
_BACKUP_OF_TF_KERAS = "chief"  # tf_keras/src/distribute/worker_training_state.py
_V1 = "TF1's Saver, format version 1"
_ORBAX_FILES = {"_CHECKPOINT_METADATA", "_METADATA", "manifest.ocdbt"}
# In each step that keras/src/callbacks/orbax_checkpoint.py writes.
ORBAX_TREE = "pytree"
_ORBAX_STEP = {"_CHECKPOINT_METADATA", ORBAX_TREE}
# Of a `.keras` archive that was unzipped, or saved so, beside the weights.
_UNZIPPED = {"config.json", "metadata.json"}
# What a path may be → what it is called.
BUNDLE, SAVED_MODEL, UNZIPPED, ORBAX = "bundle", "saved_model", "unzipped", "orbax"
DIRECTORY, FILE = "directory", "file"
CALLED = {
    BUNDLE: "a checkpoint",
    SAVED_MODEL: "a SavedModel",
    UNZIPPED: "an unzipped .keras archive",
    ORBAX: "a step of Keras's OrbaxCheckpoint",
    DIRECTORY: "a directory",
    FILE: "a file",
}
_ABSENT, _EMPTY = "does not exist", "is empty"
_PEEK = 1024
_PLAIN = re.compile(r"[\w/.][\w/.-]*")  # needs no quotes in YAML
_PROBED = 20


class Finding(NamedTuple):
    """Something in the directory that holds values.

    Attributes:
        names: its file names.
        writer: the tool that wrote it, as in "written by ...".
        path: the path to restore from; "" where tfckpt cannot read it.
        checkpoint_name: the part before the number, for numbered checkpoints.
    """

    names: tuple[str, ...]
    writer: str
    path: str
    checkpoint_name: str = ""

    def __str__(self) -> str:
        return f"{shown(self.names)} ({self.writer})" if self.writer else shown(self.names)

    def how(self, directory: str) -> str:
        """How to restore from it; a run must find its own checkpoints first when restarted."""
        if not self.path:
            return (
                "tfckpt cannot read this format; load it with the tool that wrote it, "
                "then save it with tfckpt"
            )
        if self.writer == _V1:
            return f"`tfckpt inspect {shlex.quote(self.path)}` shows how TensorFlow converts it"
        source = f"{{path: {_plain(self.path)}}}"
        if self.path != directory:
            source = f"{{first_of: [{{directory: {_plain(directory)}}}, {source}]}}"
        call = f"`tfckpt.restore({self.path!r}, model)`, in a config `restore: {source}`"
        if not self.checkpoint_name:
            return f"to start from it: {call}"
        go_on = f"to go on with it: `checkpoint_name: {self.checkpoint_name}`"
        return f"{go_on}; only to start from it: {call}"


@dataclasses.dataclass(frozen=True)
class Findings:
    """What was found in place of a checkpoint.

    Attributes:
        path: where a checkpoint was expected.
        state: what is there, as a predicate of the path.
        others: what can be restored, or was written by another tool.
        near: similar paths, each with its newest checkpoint.
    """

    path: str
    state: str
    others: tuple[Finding, ...] = ()
    near: tuple[tuple[str, str], ...] = ()

    @property
    def notable(self) -> bool:
        """Whether it is more than a new or empty directory."""
        return bool(self.others or self.near) or self.state not in (_ABSENT, _EMPTY)

    @property
    def lines(self) -> list[str]:
        """Sentences on what is there, how to restore from it, and which path may be meant."""
        what = f"{absolute(self.path)} {self.state}"
        how = [other.how(self.path) for other in self.others[:1]]
        return [what, *how, *filter(None, [self.meant])]

    @property
    def meant(self) -> str:
        """A question that names similar paths; "" without any."""
        asked = question(path for path, _ in self.near)
        held = self.near[0][1] if self.near else ""
        return f"{asked} It holds {held}." if held else asked


def look(path: str, files: Files) -> Findings:
    """What is at a path where no checkpoint was found.

    >>> from tfckpt.stored.io.files import LOCAL
    >>> print(look("/nowhere/at/all", LOCAL).state)
    does not exist
    """
    state, others = _found(path, files)
    known = {
        known_path for other in others for known_path in (other.path, os.path.split(other.path)[0])
    }
    try:
        near = near_paths(
            path,
            lambda name: list(_names(name or ".", files) or ()),
            lambda name: bool(_at(name, files)),
        )
        fresh = tuple((name, _held(name, files)) for name in near if name not in known)
    except OSError:  # of a store; what is near is no more than a help
        fresh = ()
    return Findings(path, state, tuple(others), fresh)


class What(NamedTuple):
    """What lies at a path, or is meant by one at which nothing lies.

    Attributes:
        kind: a key of :data:`CALLED`; ``DIRECTORY`` is one of any number of checkpoints.
        checkpoint: the path to restore from; of Orbax's directories that of a step; "" for none.
        names: of what is in a directory.
    """

    kind: str
    checkpoint: str = ""
    names: Collection[str] = ()

    @property
    def directory(self) -> bool:
        return self.kind == DIRECTORY


def what_is(path: str, files: Files) -> What:
    """What a path means, by what is there; where nothing is, by names that only checkpoints have.

    In a store nothing but a checkpoint or a directory is meant, so that files are not read.
    """
    if files.exists(path + _INDEX):
        return What(BUNDLE, path)
    if (names := _names(path or ".", files)) is not None:
        kind = SAVED_MODEL if not names.isdisjoint(SAVED_MODELS) else ""
        kind = kind or (UNZIPPED if _holds_archive(names) else "")
        step = "" if kind else orbax_step(path, files)
        return What(kind or (ORBAX if step else DIRECTORY), path if kind else step, names)
    name = os.path.split(path)[1]
    if "://" in path or SUFFIX.search(path) or name.endswith(SINGLE_FILES) or name == _STATE:
        return What(FILE, path)
    suppress = contextlib.suppress(OSError, ValueError, CheckpointError)
    with suppress, contextlib.closing(files.open_read(path)) as handle:
        return What(FILE, path if b"\0" in handle.pread(0, _PEEK) else "")
    return What(FILE)


def _holds_archive(names: set[str]) -> bool:
    weights = {"model.weights.h5", "model.weights.json"}
    return names >= _UNZIPPED and not names.isdisjoint(weights)


def orbax_step(path: str, files: Files) -> str:
    """A step of Keras's OrbaxCheckpoint, or the newest one in a local directory; "" without any."""
    if "://" in path or not (names := _names(path, files)):
        return ""
    if names >= _ORBAX_STEP:
        return path.rstrip("/")
    steps = [name for name in _in_order(names) if name.isdecimal()]
    if any(name.endswith((_INDEX, *SINGLE_FILES)) for name in names):
        return ""
    found = (join(path, name) for name in reversed(steps))
    return next((step for step in found if (_names(step, files) or set()) >= _ORBAX_STEP), "")


def shown(names: Sequence[str]) -> str:
    """The last few names, quoted for a sentence.

    >>> shown(["ckpt-8", "ckpt-9"]), shown(list("abcdefg"))
    ("'ckpt-8', 'ckpt-9'", "'c', 'd', 'e', 'f', 'g' and 2 more")
    """
    last = list(map(repr, names[-FOLD:]))
    return listed([*last, *names[:-FOLD]])


def _plain(path: str) -> str:
    """A path as written in YAML."""
    return path if _PLAIN.fullmatch(path) else json.dumps(path)


def _found(path: str, files: Files) -> tuple[str, list[Finding]]:
    what = what_is(path, files)
    itself = Finding((os.path.split(path)[1],), "", path)
    names = set(what.names)
    steps = what.kind == ORBAX and what.checkpoint != path.rstrip("/")  # a directory of them
    if what.kind == FILE and not files.exists(path):
        return _ABSENT, []
    if what.kind != DIRECTORY and not steps:
        held = what.kind != FILE or path.endswith(SINGLE_FILES) or files.exists(path + _META)
        return f"is {CALLED[what.kind]}, not a directory of checkpoints", [itself] if held else []
    if all(name.startswith(".") for name in names):  # such as the lock file of a new run
        return _EMPTY, []
    others = list(_others(path, names, files))
    claimed = {name for other in others for name in other.names}
    rest = [name for name in _in_order(names) if not _belongs(name, claimed)]
    if not others:
        found = f"holds no checkpoint, but {shown(rest)}" if rest else "holds no checkpoint"
        return found + _gone(path, names, files), []
    besides = f", and also {shown(rest)}" if rest else ""
    return f"holds {', '.join(map(str, others))}{besides}", others


def _gone(path: str, names: set[str], files: Files) -> str:
    """An addition where TensorFlow's state file names a checkpoint whose files are missing."""
    if _STATE not in names:
        return ""
    try:
        state = read_state(join(path, _STATE), files)
    except CheckpointError:
        return ""
    newest = os.path.split(state.model_checkpoint_path)[1] if state else ""
    return f"; its file 'checkpoint' names {newest!r}, whose files are missing" if newest else ""


def _belongs(name: str, claimed: set[str]) -> bool:
    """Whether a file belongs to something already named, or can be ignored."""
    base = name.partition(".data-")[0].removesuffix(_INDEX).removesuffix(_META)
    own = base in claimed or base.removesuffix(".tfckpt.json") in claimed
    return own or name == _STATE or name.startswith(".")


def _others(path: str, names: set[str], files: Files) -> Iterator[Finding]:
    yield from _prefixes(path, names)
    left = {name for name in names if not SHARD.search(name)}
    for endings, writer in _WRITERS:
        if found := _in_order(name for name in left if name.endswith(endings)):
            yield Finding(tuple(found), writer, join(path, found[-1]))
            left.difference_update(found)
    below: dict[str, dict[str, str]] = {}  # subdirectories that are a checkpoint each
    for name in _in_order(names)[:_PROBED]:
        inner = join(path, name)
        inside = _names(inner, files) or set()
        if not inside.isdisjoint(SAVED_MODELS):
            below.setdefault("SavedModel", {})[name] = inner
        elif not inside.isdisjoint(_ORBAX_FILES):
            below.setdefault("Orbax", {})[name] = orbax_step(inner, files)
        elif name == _BACKUP_OF_TF_KERAS and (backup := _at(inner, files)):
            below.setdefault("tf_keras's BackupAndRestore", {})[name] = backup
    for writer, paths in below.items():
        newest = next(filter(None, reversed(paths.values())), "")
        yield Finding(tuple(paths), writer, newest)


def _prefixes(path: str, names: set[str]) -> Iterator[Finding]:
    """Checkpoints in TensorFlow's formats, grouped by name."""
    families: dict[tuple[str, str], list[str]] = {}
    indexed = {name.removesuffix(_INDEX) for name in names if name.endswith(_INDEX)}
    with_meta = {name.removesuffix(_META) for name in names if name.endswith(_META)}
    for prefix in reversed(_in_order(indexed | with_meta & names)):
        numbered = _NUMBERED.fullmatch(prefix) if prefix in indexed else None
        writer = "TF1's Saver" if prefix in with_meta else ""
        writer = writer if prefix in indexed else _V1
        families.setdefault((numbered["name"] if numbered else "", writer), []).append(prefix)
    for (name, writer), family in families.items():
        yield Finding(tuple(reversed(family)), writer, join(path, family[0]), name)


def _at(path: str, files: Files) -> str:
    """The checkpoint at a path, or the newest one in it; "" without any."""
    if files.exists(path + _INDEX):
        return path
    found = _with_index(_names(path, files) or ())
    return join(path, found[-1]) if found else ""


def _held(path: str, files: Files) -> str:
    found = _at(path, files)
    return "" if found == path else os.path.split(found)[1]


def _names(path: str, files: Files) -> set[str] | None:
    try:
        return {
            name.rstrip("/") for name in files.listdir(path)
        }  # object stores end directory names with /
    except (OSError, ValueError):  # a path with a zero byte
        return None


def _in_order(names: Iterable[str]) -> list[str]:
    """Names sorted by their numbers, the newest last."""
    return sorted(names, key=lambda name: ([int(n) for n in re.findall("[0-9]{1,18}", name)], name))


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
    elif (v1 := _v1_shards(name, beside)) or name in beside:
        file, whole = v1 or (name, name)
        return _other_format(join(directory, file), join(directory, whole), files)
    elif any(other.startswith(f"{name}.data-") for other in beside):
        message = f"the index file {name + '.index'!r} is missing, but data files exist"
        if name + ".tfckpt.json" in beside:
            hint = "Its commit record says that it was complete: the index was lost, or not copied."
            return DamagedCheckpointError(message, path=prefix, hint=hint)
        hint = "The save was not finished, or the index was not copied."
    else:
        hint = _similar(directory, name, beside) or _meant(prefix, files)
    return CheckpointNotFoundError(message, path=prefix, hint=hint)


def _with_index(names: Iterable[str]) -> list[str]:
    """Prefixes with an index, or with a TF1 graph, highest number last."""
    names = list(names)
    prefixes = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    prefixes = prefixes or [name.removesuffix(".meta") for name in names if name.endswith(".meta")]
    return _in_order(prefixes)


def _inside(prefix: str, files: Files) -> str:
    variables = join(prefix, "variables")
    if "variables" in _with_index(_names(variables, files) or ()):
        inner = join(variables, "variables")
        return f"It looks like a SavedModel. Use {inner!r}."
    findings = look(prefix, files)
    readable = next((other.path for other in findings.others if other.path), "")
    write = f" Use {readable!r}." if readable else ""
    return f"It {findings.state}.{write}\n  {findings.meant}".rstrip()


def _similar(directory: str, name: str, beside: Iterable[str]) -> str:
    prefixes = _with_index(beside)
    stem = re.sub(r"[0-9]+$", "", name)
    same = [other for other in prefixes if re.sub(r"[0-9]+$", "", other) == stem]
    close = same or near_words(name, prefixes, _SHOWN) or prefixes
    return f"{directory or '.'!r} contains {shown(close)}." if close else ""


def _meant(prefix: str, files: Files) -> str:
    directory = os.path.split(prefix)[0]
    return look(prefix, files).meant or f"There is no checkpoint in {directory or '.'!r}."


def _v1_shards(name: str, beside: Iterable[str]) -> tuple[str, str] | None:
    """The first of several files in TF1's format version 1, and TensorFlow's name for all."""
    given = _V1_SHARD.search(name)
    stem = name[: given.start()] if given else name
    for other in sorted(beside):
        found = _V1_SHARD.search(other.removeprefix(stem)) if other.startswith(stem) else None
        if found and not found.start() and (not given or given["of"] == found["of"]):
            return other, f"{stem}-?????{found['of']}"
    return None


# TensorFlow's own reader and writer: those of `tf.train.load_checkpoint` lack some dtypes.
_CONVERT = """\
TensorFlow converts it to {target!r}
    import tensorflow as tf
    types = tf.train.load_checkpoint({path!r}).get_variable_to_dtype_map()
    names = {{"tensor_names": [*types], "shape_and_slices": [""] * len(types)}}
    values = tf.raw_ops.RestoreV2(prefix={path!r}, dtypes=[*types.values()], **names)
    tf.raw_ops.SaveV2(prefix={target!r}, tensors=values, **names)"""


def _other_format(path: str, whole: str, files: Files) -> CheckpointError:
    """The error for a file; ``whole`` is TensorFlow's name for the checkpoint it is of."""
    with reading(path), contextlib.closing(files.open_read(path)) as handle:
        head = handle.pread(0, 64)
        tail = handle.pread(max(handle.size - len(TABLE_END), 0), len(TABLE_END))
    if head.startswith(LFS_POINTER):
        return CheckpointNotFoundError("is a Git LFS pointer", path=path, hint=LFS_HINT)
    if head.startswith(_GZIP):
        message = "is a gzip file, not a TensorFlow checkpoint"
        return UnsupportedCheckpointError(message, path=path, hint="Decompress it first.")
    if head.startswith(b"model_checkpoint_path"):
        message = "is the state file of a checkpoint directory, not a checkpoint prefix"
        hint = f"Use a checkpoint prefix, or the directory {os.path.split(path)[0] or '.'!r}."
        return CheckpointNotFoundError(message, path=path, hint=hint)
    if tail == TABLE_END and head[3:4] == _INDEX_FIELD:
        message = "is the index of a checkpoint, but is not named '….index'"
        hint = "Name it like its data files, with `.index` for `.data-…`, and give the prefix."
        return CheckpointNotFoundError(message, path=path, hint=hint)
    if tail == TABLE_END:
        message = "is a checkpoint in TF1's format version 1, which tfckpt does not read"
        hint = _CONVERT.format(path=whole, target=f"{_V1_SHARD.sub('', whole)}-v2")
        return UnsupportedCheckpointError(message, path=whole, hint=hint)
    return CheckpointNotFoundError("is not a file of a checkpoint", path=path)
