"""Parses YAML into plain data, with the line and column of every key and value.

It uses PyYAML's parser, but builds the values itself, because PyYAML's constructors have surprises:
the last of two equal keys wins, words change their meaning, and 585 bytes of merge keys take
seconds.

YAML 1.1 (PyYAML) reads ``no`` as False, ``012`` as 10 and ``1:30`` as 90; YAML 1.2 reads them as
text, 12 and text, and ``1e-3`` as a number where PyYAML reads text. Accepted are ``true``,
``false``, ``null``, decimal integers and floats (``1e-3`` too), and words that are text to all
parsers. Other unquoted words are refused, with the two ways to write them.

Refused: anchors, aliases, merge keys and tags (no config needs them, and without them a text cannot
expand to more data than it has), a second document, keys that are not text, and whatever exceeds
the limits below. All errors are found in one pass, as far as the text parses; a value with an error
becomes :data:`BAD`, so that later checks skip it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Final

import yaml

from tfckpt.errors import PolicyError, Problem
from tfckpt.policy.base.messages import Path, short

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000
MAX_PROBLEMS: Final = 100

Mark = tuple[int, int]


class _Bad:
    def __repr__(self) -> str:
        return "BAD"


_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_IGNORED = "?"
_QUOTES = "put text that contains any of []{}*&!|>%@`#,: in quotes"
_MISPLACED = re.compile(r"<(block end|document start)>.* found '(-|\?|<block \w+ start>)'")

BAD: Final = _Bad()
"""Replaces a value whose error is already among the problems."""


@dataclasses.dataclass(frozen=True)
class Document:
    """A parsed file.

    ``values`` and ``keys`` hold (line, column) of each value and of its key, by the value's path of
    keys and indices. A value that one of the ``problems`` is about is BAD in ``data``.
    """

    data: dict[str, Any]
    values: dict[Path, Mark]
    keys: dict[Path, Mark]
    problems: tuple[Problem, ...]


def parse(raw: bytes, file: str) -> Document:
    r"""Parse a YAML mapping.

    Raises:
        PolicyError: the text is not one YAML mapping; other errors are in the result.

    >>> document = parse(b"version: 1\nrestore: {path: zoo/ckpt-1}\n", "a.yaml")
    >>> document.data
    {'version': 1, 'restore': {'path': 'zoo/ckpt-1'}}
    >>> document.values["restore", "path"]
    (2, 17)

    """
    if len(raw) > MAX_BYTES:
        raise PolicyError(file, [Problem(f"the file is larger than {MAX_BYTES} bytes")])
    problems: list[Problem] = []
    try:
        builder = _Builder(_loader(_decode(raw)), problems)
        try:
            data = builder.document()
        except (ValueError, OverflowError):
            # PyYAML raises these for numbers in escapes and in %YAML: "\UFFFFFFFF".
            what = "an escape or the YAML version has an invalid number"
            raise _StopError(_at(builder.loader.get_mark(), what)) from None
        except yaml.MarkedYAMLError as error:
            raise _StopError(_explain(error)) from None
    except _StopError as stop:
        raise PolicyError(file, [*problems, stop.problem]) from None
    return Document(data, builder.values, builder.keys, tuple(problems))


class _StopError(Exception):
    """Parsing cannot continue."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _decode(raw: bytes) -> str:
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        hint = "save the file as UTF-8 without a byte order mark"
        raise _StopError(Problem("the file begins with a byte order mark", 1, 1, hint))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise _StopError(Problem("the file is not UTF-8", line, column)) from None


def _loader(text: str) -> Any:
    try:
        return yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        what = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise _StopError(Problem(what, line, column)) from None


def _at(mark: Any, message: str, hint: str = "") -> Problem:
    return Problem(message, mark.line + 1, mark.column + 1, hint)


def _explain(error: yaml.MarkedYAMLError) -> Problem:
    context, problem = str(error.context or ""), str(error.problem or error)
    mark = error.problem_mark or error.context_mark
    if "alias" in context or "anchor" in context:
        return _at(
            error.context_mark or mark,
            "a value cannot begin with an unquoted `*` or `&`",
            'put the selector in quotes: "**/bias"',
        )
    if "unknown escape" in problem:
        return _at(
            mark,
            "invalid escape: in double quotes, a backslash begins an escape",
            r"put a regular expression in single quotes: 're:model/block_(\d+)'",
        )
    if "'\\t'" in problem:
        return _at(mark, "a tab cannot indent or begin a value", "use spaces instead")
    if "could not find expected ':'" in problem and error.context_mark:
        hint = "write a colon and a space after the key: `restore: …`"
        return _at(error.context_mark, "the key has no colon", hint)
    message = f"{context}: {problem}" if context else problem
    return _at(mark, message, _indentation(mark, problem) or _QUOTES)


def _indentation(mark: Any, problem: str) -> str:
    """A hint for a line that begins in the wrong column, "" if that is not the error."""
    lines = str(mark.buffer).split("\n")[: mark.line + 1]
    line, above = lines[-1], next(filter(str.strip, reversed(lines[:-1])), "")
    spaces, spaces_above = (len(text) - len(text.lstrip(" ")) for text in (line, above))
    if problem.startswith("mapping values"):
        if ": " in line[: mark.column]:
            return ""
        if spaces <= spaces_above:
            return "perhaps the line above has no colon after its key"
    elif not _MISPLACED.search(problem) or line[: mark.column].strip():
        return ""
    return (
        f"check the indentation: this line begins in column {spaces + 1}, the line above in column "
        f"{spaces_above + 1}; keys of one mapping, or items of one list, begin in the same column"
    )


def _mark(event: Any) -> Mark:
    return event.start_mark.line + 1, event.start_mark.column + 1


class _Builder:
    """Builds data from PyYAML's events, and checks depth and size as it goes."""

    def __init__(self, loader: Any, problems: list[Problem]) -> None:
        self.loader = loader
        self.values: dict[Path, Mark] = {}
        self.keys: dict[Path, Mark] = {}
        self._problems = problems
        self._count = 0

    def document(self) -> dict[str, Any]:
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            hint = "a minimal config: `version: 1`, then `restore: {directory: runs/digits}`"
            raise _StopError(Problem("the file is empty", 1, 1, hint))
        event = self._next()
        data = self._value(event, ())
        self._next()
        after = self._next()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _StopError(
                _at(after.start_mark, "a second YAML document begins; write one document per file")
            )
        if not isinstance(data, dict):
            raise _StopError(_at(event.start_mark, "the file must be a mapping of keys to values"))
        return data

    def _next(self) -> Any:
        return self.loader.get_event()

    def _bad(self, event: Any, message: str, hint: str = "") -> _Bad:
        if len(self._problems) >= MAX_PROBLEMS:
            raise _StopError(
                _at(event.start_mark, f"more than {MAX_PROBLEMS} problems; the rest is not checked")
            )
        self._problems.append(_at(event.start_mark, message, hint))
        return BAD

    def _value(self, event: Any, path: Path) -> Any:
        self.values[path] = _mark(event)
        self._count += 1
        if self._count > MAX_VALUES:
            raise _StopError(_at(event.start_mark, f"the file has more than {MAX_VALUES} values"))
        if len(path) > MAX_DEPTH:
            what = f"values are nested more than {MAX_DEPTH} deep"
            raise _StopError(_at(event.start_mark, what))
        if isinstance(event, yaml.AliasEvent):
            return self._bad(
                event,
                f"`*{short(str(event.anchor))}` is a YAML alias; configs do not support aliases",
                "repeat the value; if it is a selector, put it in quotes",
            )
        refused = self._refused(event)
        value: Any
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                value.append(self._value(inner, (*path, len(value))))
        else:
            value = refused or self._scalar(event)
        return refused or value

    def _refused(self, event: Any) -> _Bad | None:
        if event.anchor is not None:
            return self._bad(
                event,
                f"`&{short(event.anchor)}` is a YAML anchor; configs do not support anchors",
                "repeat the value where it is needed",
            )
        if event.tag is not None:
            return self._bad(
                event,
                f"`{short(event.tag)}` is a YAML tag; configs do not support tags",
                "if it is text that begins with `!`, put it in quotes",
            )
        return None

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, path)
            if isinstance(key, str) and key not in data:
                inner = (*path, key)
                self.keys[inner] = _mark(event)
                data[key] = self._value(self._next(), inner)
                continue
            if isinstance(key, str):
                first = self.keys[(*path, key)][0]
                self._bad(event, f"duplicate key `{short(key)}`, first on line {first}")
            self._value(self._next(), (*path, _IGNORED))
        return data

    def _key(self, event: Any, path: Path) -> str | _Bad:
        if not isinstance(event, yaml.ScalarEvent) or event.anchor or event.tag:
            value = self._value(event, (*path, _IGNORED))
            return BAD if value is BAD else self._bad(event, "a key must be text")
        if event.implicit[0] and event.value == "<<":
            return self._bad(event, "`<<` is a YAML merge key; configs do not support merge keys")
        key = self._scalar(event)
        if key is BAD or isinstance(key, str):
            return key
        return self._bad(event, "a key must be text", f"put it in quotes: '{short(event.value)}'")

    def _scalar(self, event: Any) -> Any:
        value: Any = event.value
        if event.implicit[0]:
            kind = self.loader.resolve(yaml.ScalarNode, value, (True, False)).rpartition(":")[2]
            try:
                value = read_word(value, kind)
            except AmbiguousScalarError as error:
                return self._bad(event, str(error), error.hint)
        if isinstance(value, str) and _UNWRITABLE.search(value):
            return self._bad(event, "the text contains a NUL or half of a surrogate pair")
        return value


MAX_DIGITS: Final = 100

_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_NUMBER_TO_SOME = re.compile(r"0o[0-7]+|[-+]?0[0-9]+")


class AmbiguousScalarError(ValueError):
    """YAML parsers disagree about a word; the hint says how to write each meaning."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read_word(text: str, kind: str) -> str | int | float | bool | None:
    """The value of an unquoted word; ``kind`` is its YAML 1.1 type, e.g. int or timestamp.

    Raises:
        AmbiguousScalarError: YAML parsers disagree about the word, or no key has such a value.

    >>> read_word("1e-3", "str"), read_word("model/**", "str"), read_word("true", "bool")
    (0.001, 'model/**', True)

    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
            raise AmbiguousScalarError("the number does not fit in 64 bits", "")
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text) if len(text) <= MAX_DIGITS else math.inf
        if math.isinf(number):
            raise AmbiguousScalarError("the number is too large", "")
        return number
    if kind == "str" and not _NUMBER_TO_SOME.fullmatch(text):
        return text
    raise _ambiguous(short(text), kind)


def _ambiguous(text: str, kind: str) -> AmbiguousScalarError:
    quoted = f"for text, write '{text}'"
    if kind == "bool":
        word = "true" if text.lower() in {"yes", "on", "true"} else "false"
        return AmbiguousScalarError(
            f"`{text}` is a boolean for some YAML parsers and text for others",
            f"for a boolean, write {word}; {quoted}",
        )
    if kind == "timestamp":
        return AmbiguousScalarError(f"`{text}` is a date in YAML, and no key takes a date", quoted)
    if text.lower().lstrip("+-") in {".nan", ".inf"}:
        return AmbiguousScalarError(f"`{text}` is not a number that a key can have", quoted)
    if kind in {"int", "float", "str"}:
        return AmbiguousScalarError(
            f"`{text}` is a different number, or text, for different YAML parsers",
            f"for a number, write it in decimal, without leading zeros, `_` or `:`; {quoted}",
        )
    return AmbiguousScalarError(
        f"`{text}` has a special meaning in YAML that configs do not support", quoted
    )
