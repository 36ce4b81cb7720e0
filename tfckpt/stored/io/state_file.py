"""Reads and writes TensorFlow's state file, ``checkpoint``, in protobuf text format.

tfckpt writes it for TensorFlow's tools and does not need it to find its own checkpoints. TensorFlow
treats a damaged state file like a missing one, and training starts from scratch; here any damage is
an error. Paths are returned as written and never followed, so a state file cannot cause access to
files outside of its directory.

A file is written with room for more. So on a full disk, where no second file can be written to
replace it, it can still be written again in its place, and never names what is deleted.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import LOCAL, Files, content, join, reading
from tfckpt.stored.io.messages import CheckpointState, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

STATE_FILE = "checkpoint"
ROOM = 512  # bytes: the names and times of a few checkpoints
FULL = (errno.ENOSPC, errno.EDQUOT)
_ESCAPES = {code: f"\\{code:03o}" for code in (*range(32), 127)}
_ESCAPES |= {ord(sign): f"\\{name}" for sign, name in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}


def read_state(path: str, files: Files = LOCAL) -> Message | None:
    """The ``CheckpointState`` of a state file; None where it does not exist."""
    with reading(path):
        try:
            return parse_state(content(path, files, limits.STATE_FILE), path)
        except FileNotFoundError:
            return None


def parse_state(data: bytes, path: str) -> Message:
    r"""The state in the content of a state file; ``path`` is for messages.

    >>> parse_state(rb'model_checkpoint_path: "ckpt-\x32"', "checkpoint").model_checkpoint_path
    'ckpt-2'
    """
    from google.protobuf import text_format

    try:
        state = text_format.Parse(data.decode(), CheckpointState())
    except (ValueError, text_format.ParseError) as error:
        raise DamagedCheckpointError(f"is no state of checkpoints: {error}", path=path) from None
    newest, stamps = state.model_checkpoint_path, state.all_model_checkpoint_timestamps
    if not newest or "\0" in newest:
        message = "'model_checkpoint_path' is missing or empty; the file may be truncated"
        raise DamagedCheckpointError(message, path=path)
    if stamps and len(stamps) != len(state.all_model_checkpoint_paths):
        message = f"{len(state.all_model_checkpoint_paths)} paths, but {len(stamps)} timestamps"
        raise DamagedCheckpointError(message, path=path)
    return state


def write_state(
    directory: str,
    files: Files,
    paths: Sequence[str],
    times: Sequence[float] = (),
    last_preserved: float = 0.0,
    *,
    newest: str = "",
) -> None:
    """Replace a state file; on a full disk in its place, which takes no space.

    ``newest`` is the last of the paths, unless given.
    """
    path = join(directory, STATE_FILE)
    state = render(newest or paths[-1], paths, times, last_preserved)
    try:
        files.write_atomic(path, _filled(state, len(state) + ROOM))
    except OSError as error:
        if error.errno not in FULL or not files.exists(path):
            raise
        size, _ = files.status(path)
        if size < len(state):
            raise
        with contextlib.closing(files.lock(path)) as lock:
            lock.write(_filled(state, size))


def _filled(state: bytes, size: int) -> bytes:
    return state if len(state) == size else state.ljust(size - 1) + b"\n"


def render(
    newest: str, paths: Sequence[str], times: Sequence[float] = (), last_preserved: float = 0.0
) -> bytes:
    r"""The content of a state file, as TensorFlow writes it.

    >>> render("ckpt-2", ["ckpt-2"])
    b'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "ckpt-2"\n'
    """
    lines = [f'model_checkpoint_path: "{newest.translate(_ESCAPES)}"']
    lines += [f'all_model_checkpoint_paths: "{path.translate(_ESCAPES)}"' for path in paths]
    lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
    if last_preserved:
        lines.append(f"last_preserved_timestamp: {last_preserved}")
    return "\n".join([*lines, ""]).encode()
