"""Reads and writes TensorFlow's state file, ``checkpoint``, in protobuf text format.

tfckpt writes it for TensorFlow's tools and does not need it to find its own checkpoints. TensorFlow
treats a damaged state file like a missing one, and training starts from scratch; here any damage is
an error with its line. Paths are returned as written and never followed, so a state file cannot
cause access to files outside of its directory.

Supported is what the text format allows for these four fields (comments, both quotes, adjacent
strings, escapes), except lists in brackets, which TensorFlow does not write, and the escape of a
question mark, for which protobuf's own readers differ.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.io.files import LOCAL, Files, content, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE_FILE = "checkpoint"
MAX_BYTES = 1 << 24

_PATHS = ("model_checkpoint_path", "all_model_checkpoint_paths")
_TIMES = ("all_model_checkpoint_timestamps", "last_preserved_timestamp")
_SINGULAR = ("model_checkpoint_path", "last_preserved_timestamp")
_TOKEN = re.compile(
    rb"""
    (?P<space> [ \t\r\n\v\f]+ | \#[^\n]* )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<string> "(?:[^"\\\n]|\\[^\n])*" | '(?:[^'\\\n]|\\[^\n])*' )
  | (?P<number> (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?(?![A-Za-z0-9_.]) )
  | (?P<mark> [:,;-] )
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
)
_SIMPLE = dict(zip(b"abfnrtv\\'\"", b"\a\b\f\n\r\t\v\\'\"", strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class CheckpointState:
    """The content of a state file, with paths as written.

    Attributes:
        model_checkpoint_path: the newest checkpoint.
        all_model_checkpoint_paths: oldest first.
        all_model_checkpoint_timestamps: their Unix times in seconds; () in older files.
        last_preserved_timestamp: Unix time of the last permanently kept checkpoint, or None.
    """

    model_checkpoint_path: str
    all_model_checkpoint_paths: tuple[str, ...] = ()
    all_model_checkpoint_timestamps: tuple[float, ...] = ()
    last_preserved_timestamp: float | None = None


def read_state(path: str, files: Files = LOCAL) -> CheckpointState | None:
    """The content of a state file; None where it does not exist."""
    with reading(path):
        try:
            return parse_state(content(path, files, MAX_BYTES), path)
        except FileNotFoundError:
            return None


def parse_state(data: bytes, path: str) -> CheckpointState:
    r"""The state in the content of a state file; ``path`` is for messages.

    >>> parse_state(rb'model_checkpoint_path: "ckpt-\x32"', "checkpoint").model_checkpoint_path
    'ckpt-2'
    """
    paths: dict[str, list[str]] = {name: [] for name in _PATHS}
    times: dict[str, list[float]] = {name: [] for name in _TIMES}
    seen: list[str] = []
    for name, value, line in _fields(data, path):
        if name in _SINGULAR and name in seen:
            raise _damaged(path, line, f"duplicate field {name!r}")
        seen.append(name)
        if name in paths and isinstance(value, bytes):
            paths[name].append(_text(value, path, line))
        elif name in times and isinstance(value, float):
            times[name].append(value)
        elif name in paths or name in times:
            raise _damaged(path, line, f"{name!r} has a value of the wrong type")
        else:
            raise _damaged(path, line, f"unknown field {name!r}")
    last = data.count(b"\n") + 1
    if not any(paths["model_checkpoint_path"]):
        message = "'model_checkpoint_path' is missing or empty; the file may be truncated"
        raise _damaged(path, last, message)
    stamps, all_paths = times[_TIMES[0]], paths[_PATHS[1]]
    if stamps and len(stamps) != len(all_paths):
        raise _damaged(path, last, f"{len(all_paths)} paths, but {len(stamps)} timestamps")
    preserved = times["last_preserved_timestamp"]
    return CheckpointState(
        paths["model_checkpoint_path"][0],
        tuple(all_paths),
        tuple(stamps),
        preserved[0] if preserved else None,
    )


def render(state: CheckpointState) -> str:
    r"""The state as text that TensorFlow reads.

    >>> render(CheckpointState("ckpt-2", ("ckpt-2",)))
    'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "ckpt-2"\n'
    """
    times = state.all_model_checkpoint_timestamps
    lines = [
        f"model_checkpoint_path: {_quoted(state.model_checkpoint_path)}",
        *(f"all_model_checkpoint_paths: {_quoted(p)}" for p in state.all_model_checkpoint_paths),
        *(f"all_model_checkpoint_timestamps: {time!r}" for time in times),
    ]
    if state.last_preserved_timestamp is not None:
        lines.append(f"last_preserved_timestamp: {state.last_preserved_timestamp!r}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    plain = set(range(32, 127)) - set(b'"\\')
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'


def _tokens(data: bytes, path: str) -> Iterator[tuple[str, bytes, int]]:
    position, line = 0, 1
    while position < len(data):
        match = _TOKEN.match(data, position)
        if match is None:
            shown = data[position : position + 20].split(b"\n")[0]
            raise _damaged(path, line, f"invalid text {shown.decode(errors='backslashreplace')!r}")
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0], line
        line += match[0].count(b"\n")
        position = match.end()
    yield "end", b"", line


def _fields(data: bytes, path: str) -> Iterator[tuple[str, bytes | float, int]]:
    tokens = _tokens(data, path)
    kind, token, line = next(tokens)
    while kind != "end":
        name = token.decode()
        if kind != "name":
            raise _damaged(path, line, f"expected a field name, got {name!r}")
        kind, token, line = next(tokens)
        if token != b":":
            raise _damaged(path, line, f"expected ':' after {name!r}")
        kind, token, line = next(tokens)
        if kind == "string":
            parts = []
            while kind == "string":
                parts.append(_unescape(token[1:-1], path, line))
                kind, token, _ = following = next(tokens)
            yield name, b"".join(parts), line
        else:
            sign = -1.0 if token == b"-" else 1.0
            if token == b"-":
                kind, token, line = next(tokens)
            yield name, sign * _float(token, path, line), line
            kind, token, _ = following = next(tokens)
        if token in (b",", b";"):
            following = next(tokens)
        kind, token, line = following


def _float(token: bytes, path: str, line: int) -> float:
    word = token.decode().lower()
    if word not in ("inf", "infinity", "nan"):
        word = word.rstrip("f")
    try:
        return float(word)
    except ValueError:
        raise _damaged(path, line, "expected a string or a number") from None


def _unescape(content: bytes, path: str, line: int) -> bytes:
    def replace(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, *unicode, simple = match.groups()
        code = next((code for code in unicode if code), None)
        if octal is not None and int(octal, 8) < 256:
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        if code is not None and int(code, 16) < 0x110000 and not 0xD800 <= int(code, 16) < 0xE000:
            return chr(int(code, 16)).encode()
        if simple is not None and simple[0] in _SIMPLE:
            return bytes([_SIMPLE[simple[0]]])
        raise _damaged(path, line, f"invalid escape {match[0].decode(errors='replace')!r}")

    return _ESCAPE.sub(replace, content)


def _text(value: bytes, path: str, line: int) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise _damaged(path, line, "a path is not valid UTF-8") from None
    if "\0" in text:
        raise _damaged(path, line, "a path contains a null byte")
    return text


def _damaged(path: str, line: int, message: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"line {line}: {message}", path=path)
