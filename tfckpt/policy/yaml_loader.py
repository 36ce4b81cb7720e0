"""Parses YAML into plain data, with the line and column of every key and value.

PyYAML parses; the data are built here, because its constructors let the last of two equal keys win,
and read words as YAML 1.1 does: ``no`` is False, ``012`` is 10, ``1:30`` is 90, which YAML 1.2
reads as text, 12 and text. Accepted are ``true``, ``false``, ``null``, decimal numbers (``1e-3``
too), and words that are text to all parsers; the others are refused, with the two ways to write
them. Anchors, aliases, merge keys and tags are refused, too: no config needs them, and without them
a text is no larger than it looks.

All errors are found in one pass over the parser's events, as far as the text parses; a value with
an error becomes :data:`BAD`, so that later checks skip it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Final

import yaml

from tfckpt.errors import PolicyError, Problem
from tfckpt.policy.messages import Path, short

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000
MAX_PROBLEMS: Final = 100
MAX_DIGITS: Final = 100

Mark = tuple[int, int]


class _Bad:
    def __repr__(self) -> str:
        return "BAD"


BAD: Final = _Bad()
"""Replaces a value whose error is already among the problems."""

_KEY = -1  # in the path of a key, where that of its value has the key
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_NUMBER_TO_SOME = re.compile(r"0o[0-7]+|[-+]?0[0-9]+")
_OTHER_NUMBER = (
    "is a different number, or text, for different YAML parsers",
    "for a number, write it in decimal, without leading zeros, `_` or `:`; ",
)
_BY_KIND = {  # what YAML 1.1 takes a word for
    "bool": ("is a boolean for some YAML parsers and text for others", "for a boolean, write {}; "),
    "merge": ("is a YAML merge key; configs do not support merge keys", ""),
    "timestamp": ("is a date in YAML, and no key takes a date", ""),
    **dict.fromkeys(("int", "float", "str"), _OTHER_NUMBER),
}
_SYNTAX = (  # words of PyYAML's errors → what is wrong, what to do
    (
        "scanning an (alias|anchor)",
        "a value cannot begin with an unquoted `*` or `&`",
        'put the selector in quotes: "**/bias"',
    ),
    (
        "expected ',' or '[]}]', but got '{'",
        "within braces or brackets, text with a brace has quotes",
        "e.g. {path: '${ZOO}/ckpt-900'}",
    ),
    (
        "unknown escape",
        "invalid escape: in double quotes, a backslash begins an escape",
        r"put a regular expression in single quotes: 're:model/block_(\d+)'",
    ),
    (r"'\\t'", "a tab cannot indent or begin a value", "use spaces instead"),
    (
        "scanning a simple key",
        "the key has no colon",
        "write a colon and a space after the key: `restore: …`",
    ),
)
_MINIMAL = "a minimal config: `version: 1`, then `restore: {directory: runs/digits}`"
_OTHERWISE = (
    "check the indentation: keys of one mapping, or items of one list, begin in the same column; "
    "each key has a colon and a space after it; text with any of []{}*&!|>%@`#,: is in quotes"
)


@dataclasses.dataclass(frozen=True)
class Document:
    """A parsed file.

    ``values`` and ``keys`` hold (line, column) of each value and of its key, by the value's path of
    keys and indices. A value that one of the ``problems`` is about is BAD in ``data``. What does
    not stand in the file is ``changed``, and by what.
    """

    data: dict[str, Any]
    values: dict[Path, Mark]
    keys: dict[Path, Mark]
    problems: tuple[Problem, ...] = ()
    changed: dict[Path, str] = dataclasses.field(default_factory=dict)


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
    builder = _Builder()
    try:
        data = builder.document(_decode(raw))
    except _StopError as stop:
        raise PolicyError(file, [*builder.problems, stop.problem]) from None
    return Document(data, builder.values, builder.keys, tuple(builder.problems))


class _StopError(Exception):
    """Parsing cannot continue."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def _at(mark: Any, message: str, hint: str = "") -> Problem:
    return Problem(message, mark.line + 1, mark.column + 1, hint)


def _decode(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise _StopError(Problem(f"the file is larger than {MAX_BYTES} bytes"))
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        hint = "save the file as UTF-8 without a byte order mark"
        raise _StopError(Problem("the file begins with a byte order mark", 1, 1, hint))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise _StopError(Problem("the file is not UTF-8", line, column)) from None


def _explain(error: yaml.MarkedYAMLError) -> Problem:
    message = ": ".join(filter(None, (error.context, error.problem)))
    for words, what, hint in _SYNTAX:
        if re.search(words, message):
            scanned = words.startswith("scanning")  # it is where that began
            return _at(error.context_mark if scanned else error.problem_mark, what, hint)
    return _at(error.problem_mark or error.context_mark, message, _OTHERWISE)


class _Builder:
    """Builds data from PyYAML's events, and checks depth and size as it goes."""

    def __init__(self) -> None:
        self.values: dict[Path, Mark] = {}
        self.keys: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self._loader: Any = None
        self._count = 0

    def document(self, text: str) -> dict[str, Any]:
        try:
            self._loader = yaml.SafeLoader(text)
            return self._only_document()
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            column = error.position - text.rfind("\n", 0, error.position)
            what = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
            raise _StopError(Problem(what, line, column)) from None
        except (ValueError, OverflowError):  # numbers in escapes and in %YAML: "\UFFFFFFFF"
            what = "an escape or the YAML version has an invalid number"
            raise _StopError(_at(self._loader.get_mark(), what)) from None
        except yaml.MarkedYAMLError as error:
            raise _StopError(_explain(error)) from None

    def _only_document(self) -> dict[str, Any]:
        self._loader.get_event()
        if self._loader.check_event(yaml.StreamEndEvent):
            raise _StopError(Problem("the file is empty", 1, 1, _MINIMAL))
        self._loader.get_event()
        start = self._loader.peek_event().start_mark
        data = self._value(())
        self._loader.get_event()
        if not self._loader.check_event(yaml.StreamEndEvent):
            mark = self._loader.peek_event().start_mark
            what = "a second YAML document begins; write one document per file"
            raise _StopError(_at(mark, what))
        if not isinstance(data, dict):
            raise _StopError(_at(start, "the file must be a mapping of keys to values", _MINIMAL))
        return data

    def _value(self, path: Path) -> Any:
        event = self._loader.get_event()
        self.values[path] = _at(event.start_mark, "")[1:3]
        self._count += path[-1:] != (_KEY,)
        if self._count > MAX_VALUES:
            what = f"the file has more than {MAX_VALUES} values"
            raise _StopError(_at(event.start_mark, what))
        if len(path) > MAX_DEPTH:
            what = f"values are nested more than {MAX_DEPTH} deep"
            raise _StopError(_at(event.start_mark, what))
        bad = self._unsupported(event)
        value: Any = None
        if isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not self._loader.check_event(yaml.SequenceEndEvent):
                value.append(self._value((*path, len(value))))
            self._loader.get_event()
        elif bad is None:
            value = self._scalar(event)
        return bad or value

    def _mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            event = self._loader.peek_event()
            key = self._value((*path, _KEY))
            if isinstance(key, str) and key not in data:
                self.keys[(*path, key)] = _at(event.start_mark, "")[1:3]
                data[key] = self._value((*path, key))
                continue
            if isinstance(key, str):
                first = self.keys[(*path, key)][0]
                self._bad(event, f"duplicate key `{short(key)}`, first on line {first}")
            elif key is not BAD:
                scalar = isinstance(event, yaml.ScalarEvent)
                hint = f"put it in quotes: '{short(event.value)}'" if scalar else ""
                self._bad(event, "a key must be text", hint)
            self._value((*path, _KEY))
        self._loader.get_event()
        return data

    def _bad(self, event: Any, message: str, hint: str = "") -> _Bad:
        if len(self.problems) >= MAX_PROBLEMS:
            what = f"more than {MAX_PROBLEMS} problems; the rest is not checked"
            raise _StopError(_at(event.start_mark, what))
        self.problems.append(_at(event.start_mark, message, hint))
        return BAD

    def _unsupported(self, event: Any) -> _Bad | None:
        if isinstance(event, yaml.AliasEvent):
            what = f"`*{short(str(event.anchor))}` is a YAML alias; configs do not support aliases"
            return self._bad(event, what, "repeat the value; if it is a selector, put it in quotes")
        if event.anchor is not None:
            what = f"`&{short(str(event.anchor))}` is a YAML anchor; configs do not support anchors"
            return self._bad(event, what, "repeat the value where it is needed")
        if event.tag is not None:
            what = f"`{short(event.tag)}` is a YAML tag; configs do not support tags"
            return self._bad(event, what, "if it is text that begins with `!`, put it in quotes")
        return None

    def _scalar(self, event: Any) -> Any:
        value = self._word(event) if event.implicit[0] else event.value
        if isinstance(value, str) and _UNWRITABLE.search(value):
            return self._bad(event, "the text contains a NUL or half of a surrogate pair")
        return value

    def _word(self, event: Any) -> Any:
        """The value of an unquoted word, BAD if YAML parsers disagree about it."""
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            fits = len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63
            return int(text) if fits else self._bad(event, "the number does not fit in 64 bits")
        if _FLOAT.fullmatch(text):
            number = float(text) if len(text) <= MAX_DIGITS else math.inf
            return number if math.isfinite(number) else self._bad(event, "the number is too large")
        kind = self._loader.resolve(yaml.ScalarNode, text, event.implicit).rpartition(":")[2]
        if kind == "str" and not _NUMBER_TO_SOME.fullmatch(text):
            return text
        what, hint = _BY_KIND.get(
            kind, ("has a special meaning in YAML that configs do not support", "")
        )
        if text.lower().lstrip("+-") in {".nan", ".inf"}:
            what, hint = "is not a number that a key can have", ""
        hint = hint.format("true" if text.lower() in {"yes", "on", "true"} else "false")
        word = short(text)
        return self._bad(event, f"`{word}` {what}", f"{hint}for text, write '{word}'")
