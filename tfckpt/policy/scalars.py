"""The value of an unquoted YAML scalar, if all YAML parsers agree on it.

YAML 1.1 (PyYAML) reads ``no`` as False, ``012`` as 10 and ``1:30`` as 90; YAML 1.2 reads them as
text, 12 and text, and ``1e-3`` as a number where PyYAML reads text. This module accepts ``true``,
``false``, ``null``, decimal integers and floats (``1e-3`` too), and words that are text to all
parsers. Everything else is refused, with the two ways to write it.
"""

from __future__ import annotations

import math
import re
from typing import Final

from tfckpt.policy.base.messages import short

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
