r"""Regular expressions whose matching takes linear time, for the ``re:`` selectors.

Python's ``re`` backtracks: ``(a+)+b`` takes forever on a name of forty characters, and names come
from files that other people made. RE2 does not (https://github.com/google/re2). Where the two read
an expression differently it is rewritten, so that the syntax is Python's: ``\w`` matches letters of
any language, ``{,3}`` is a repetition, and ``[[:a]`` a set of three characters.

Refused, because RE2 has no such thing or because it has no use on a whole name: lookaround,
back-references, flags, and anchors, except ``^`` at the start and ``$`` at the end, which change
nothing.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_GROUPS = 32

_TOKEN = re.compile(
    r"""(?P<group>\((?:\?:|\?P<(?P<name>[A-Za-z_]\w*)>|(?!\?)))
      | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
      | (?P<escape>\\(?:[dDsSwWntrfv]|[^A-Za-z0-9]|x[0-9A-Fa-f]{2}))
      | \{(?=[\d,])(?P<low>\d*)(?:(?P<comma>,)(?P<high>\d*))?\}
      | (?P<plain>[^\\(\[^$])""",
    re.VERBOSE | re.DOTALL,
)
_REFUSED = {
    "(?": "lookaround, flags or back-references",
    "\\": "back-references or this escape",
    "^": "'^' anywhere but at the start",
    "$": "'$' anywhere but at the end",
}
# What a class of Python's is inside a set of RE2's.
_CLASSES = {
    r"\d": r"\p{Nd}",
    r"\D": r"\P{Nd}",
    r"\w": r"\p{L}\p{N}_",
    r"\s": r"\s\v\x1c-\x1f\x85\p{Z}",
}
# A set whose members RE2 understands once its classes are replaced.
_SIMPLE_SET = re.compile(
    r"\[\^?\]?(?:\\[dDswntrfv]|\\x[0-9A-Fa-f]{2}|\\[!-/:-@\[-`{-~]|[^\\\]])*\]", re.DOTALL
)
_OF_RE2 = {
    "no argument": "nothing to repeat",
    "bad repetition": "a repetition cannot be repeated",
    "invalid repetition": "the repetition is too long",
}


class Regex:
    """A compiled expression.

    Attributes:
        names: name of a group → its number.
        groups: the number of groups.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, int] = {}
        self.groups = 0
        self._rewritten = "".join(self._tokens())
        self._regex = self._compiled()

    def _compiled(self, *, never_capture: bool = False) -> Any:
        import re2

        options = re2.Options()
        options.log_errors = False
        options.never_capture = never_capture
        try:
            return re2.compile(self._rewritten, options)
        except re2.error as error:
            said = error.args[0].decode(errors="replace")
            what = next((ours for its, ours in _OF_RE2.items() if said.startswith(its)), "")
            raise ValueError(f"{what or 'the expression is too long'}, in {self.text!r}") from None

    def match(self, name: str) -> tuple[str, ...] | None:
        """The whole name and each group's text, or None."""
        # as bytes: re2 spends most of its time on turning positions in bytes into those in text
        match: Any = self._regex.fullmatch(name.encode(errors="replace"))
        return match and (match[0].decode(), *(group.decode() for group in match.groups(b"")))

    def whether(self, name: str) -> Any:
        """As :meth:`match`, without the groups, which RE2 takes longer to find."""
        return self._groupless.fullmatch(name.encode(errors="replace"))

    @functools.cached_property
    def _groupless(self) -> Any:
        return self._compiled(never_capture=True)

    def _tokens(self) -> Iterator[str]:
        text, at, depth = self.text, 0, 0
        while at < len(text):
            if (text[at], at) in {("^", 0), ("$", len(text) - 1)}:
                at += 1
                continue
            token = _TOKEN.match(text, at)
            if token is None:
                start = text[at : at + 2]
                refused = _REFUSED.get(start) or _REFUSED.get(start[0])
                what = f"selectors do not support {refused}" if refused else "'[' is not closed"
                raise self._error(what, at)
            if token["group"]:
                depth += 1
                self._count(token, depth, at)
            elif token[0] == ")":
                depth -= 1
                if depth < 0:
                    raise self._error("unmatched ')'", at)
            try:
                yield _rewritten(token)
            except ValueError as error:
                raise self._error(str(error), at) from None
            at = token.end()
        if depth:
            raise self._error("'(' is not closed", at)

    def _count(self, token: re.Match[str], depth: int, at: int) -> None:
        self.groups += token["group"] != "(?:"
        if max(self.groups, depth) > MAX_GROUPS:
            raise self._error(f"more than {MAX_GROUPS} groups", at)
        if (name := token["name"]) is not None:
            if name in self.names:
                raise self._error(f"duplicate group {name!r}", at)
            self.names[name] = self.groups

    def _error(self, what: str, at: int) -> ValueError:
        return ValueError(f"{what}, at character {at + 1} of {self.text!r}")


def _rewritten(token: re.Match[str]) -> str:
    """A part of an expression as RE2 reads it."""
    text = token[0]
    if token["name"] is not None:
        return "("
    if token["set"]:
        return _set(text)
    if token["escape"]:
        negated = "^" if text in {r"\S", r"\W"} else ""
        members = _CLASSES.get(text.lower() if negated else text, "")
        return f"[{negated}{members}]" if members else text[not text[1].isascii() :]
    if token["low"] is None:
        return text
    low, high = token["low"] or "0", token["high"]
    if high and int(low[:9]) > int(high[:9]):
        raise ValueError("the minimum repeat is greater than the maximum")
    return f"{{{low}{token['comma'] or ''}{high or ''}}}"


@functools.lru_cache
def _set(text: str) -> str:
    with warnings.catch_warnings():
        # "[[" may mean a nested set in some later Python; here it stays a bracket.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            members = re.compile(f"{text}+")
        except re.error as error:
            raise ValueError(f"invalid {text!r} ({error})") from None
    if _SIMPLE_SET.fullmatch(text):
        return "[" + re.sub(r"\\.|\[", _member, text[1:], flags=re.DOTALL)
    # RE2 cannot intersect sets, as in [^\W_]; so every character is tried, surrogates left out
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))
    runs = ((ord(run[0][0]), ord(run[0][-1])) for run in members.finditer(every))
    ranges = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in runs)
    return f"[{ranges}]" if ranges else r"[^\x00-\x{10ffff}]"


def _member(found: re.Match[str]) -> str:
    return _CLASSES.get(found[0], r"\[" if found[0] == "[" else found[0])
