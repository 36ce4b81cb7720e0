r"""Selectors: patterns over canonical names, and rename pairs.

By default a pattern is a glob: ``*``, ``?`` and ``[abc]`` match within one level of a name; a level
``**`` matches any number of levels, including none. The prefix ``re:`` makes it a regular
expression in RE2's syntax. Both must match the whole name and are case sensitive. In a rename, the
i-th wildcard of one side is the i-th of the other; a ``re:`` pair has groups on the left, ``\1`` or
``\g<name>`` on the right. Wildcards of a glob are lazy, left to right.

Names come from files that other people made, and Python's ``re`` can take exponential time:
``(a+)+b`` takes forever on a name of forty characters. RE2 takes linear time
(https://github.com/google/re2), and globs are expressions for it, too.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import re2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_PATTERN = 1000
REGEX = "re:"

# A glob is matched against a slash and the name: so `**` is the same wherever it stands.
_WILDCARDS = {"**": "((?:/[^/]*)*?)", "*": "([^/]*?)", "?": "([^/])"}
_SYNTAX = "the syntax is RE2's, without look-around and back-references"
# RE2 reads `{,3}` as four characters, and `\C` as a byte, which may be a part of a letter.
_MISREAD = re.compile(r"\\[^C]|\[\^?\]?(?:\\.|[^\]\\])*\]|(\{,\d*\}|\\C)", re.DOTALL)
_PLAINLY = {
    "missing )": "'(' is not closed",
    "missing ]": "'[' is not closed",
    "unexpected )": "unmatched ')'",
}
_GROUP_NAME = re.compile(r"\(\?P?<(\w+)>")


class Selector:
    r"""A compiled pattern over canonical names.

    >>> Selector("model/**").matches("model/encoder/dense/kernel")
    True
    >>> Selector("**/bias").matches("bias"), Selector("model/*").matches("model/dense/bias")
    (True, False)
    >>> Selector(r"re:model/block_(\d+)/.*").matches("model/block_12/dense/kernel")
    True

    Attributes:
        wildcards: those of a glob, in order.
        expression: what RE2 matches, against ``before`` and the name.
        subtree: the path of a glob for all that is below one path, as ``model/a/**``, else ``""``.
    """

    def __init__(self, pattern: str) -> None:
        _check_length(pattern)
        self.pattern = pattern
        self.wildcards: list[str] = []
        self.before, self._start, self._end = "", "", ""
        if pattern.startswith(REGEX):
            self.expression = _checked(pattern.removeprefix(REGEX))
        else:
            parts = list(_parts(pattern))
            self.expression = "".join(_expression(part) for part in parts)
            self.wildcards += filter(_is_wild, parts)
            self.before = "/"
            self._start = re.split(r"[*?[]", pattern)[0].rstrip("/")
            self._end = re.split(r"[*?\]]", pattern)[-1].lstrip("/")
        self.subtree = self._start if pattern == f"{self._start}/**" else ""
        self._match = _compiled(self.expression, never_capture=True).fullmatch

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the name."""
        if not (name.startswith(self._start) and name.endswith(self._end)):
            return False  # sooner than RE2 says so: most names match no rule of a policy
        if self.subtree:
            return name[len(self.subtree) :][:1] in {"", "/"}
        return self._match(_encoded(self.before + name)) is not None


def exactly(name: str) -> str:
    """The glob that matches only this name.

    >>> exactly("model/a[0]"), Selector(exactly("model/a[0]")).matches("model/a[0]")
    ('model/a[[]0]', True)
    """
    return re.sub(r"([*?[])", r"[\1]", name)


def compile_rename(checkpoint: str, model: str) -> Callable[[str], str | None]:
    r"""A function from checkpoint names to model names, None for those that do not match.

    >>> compile_rename("model/backbone/**", "model/encoder/**")("model/backbone/a/kernel")
    'model/encoder/a/kernel'
    >>> compile_rename(r"re:model/block_(\d+)/(.*)", r"model/blk\1/\2")("model/block_7/w")
    'model/blk7/w'
    """
    stored = Selector(checkpoint)
    regex = _compiled(stored.expression)
    if model.startswith(REGEX):
        raise ValueError(
            f"{model!r} is the new name, which cannot be a regular expression; "
            r"remove 're:' and write \1 for the first group"
        )
    if checkpoint.startswith(REGEX):
        _check_length(model)
        subtree, form = "", "".join(_template(model, checkpoint, regex))
    else:
        live, numbers = Selector(model), itertools.count(1)
        if stored.wildcards != live.wildcards:
            sides = [", ".join(side.wildcards) or "none" for side in (stored, live)]
            raise ValueError(
                "both sides must have the same wildcards in the same order; "
                f"{checkpoint!r} has {sides[0]}, {model!r} has {sides[1]}"
            )
        subtree = live.subtree and stored.subtree
        parts = _parts(model)
        form = "".join(f"{{{next(numbers)}}}" if _is_wild(part) else _plain(part) for part in parts)

    def rename(name: str) -> str | None:
        if not stored.matches(name):
            return None
        if subtree:
            return live.subtree + name[len(subtree) :]
        found = regex.fullmatch(_encoded(stored.before + name))
        groups = (text.decode(errors="surrogatepass") for text in (found[0], *found.groups(b"")))
        return form.format(*groups).removeprefix(stored.before)

    return rename


def _check_length(pattern: str) -> None:
    if not pattern or pattern == REGEX:
        raise ValueError("the pattern is empty")
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")


def _encoded(text: str) -> bytes:
    """As RE2 takes it soonest; names in HDF5 files may have half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def _compiled(expression: str, *, never_capture: bool = False) -> Any:
    """``never_capture``: without what the groups match, which takes RE2 longer to find."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = never_capture
    return re2.compile(_encoded(expression), options)


# --- globs


def _parts(pattern: str) -> Iterator[str]:
    """The wildcards and the other characters of a glob; ``**`` takes the slash before it."""
    for level in pattern.split("/"):
        if not level:
            below = f"; to match everything below it, write {pattern + '**'!r}"
            raise ValueError(f"{pattern!r} has an empty level{below * pattern.endswith('/')}")
        if level == "**":
            yield level
            continue
        yield "/"
        for part in re.findall(r"\*\*|\[!?\]?[^\]]*\]|.", level, re.DOTALL):
            if part == "[":
                raise ValueError(
                    f"'[' in {level!r} is not closed; write a literal bracket as '[[]'"
                )
            if part == "**":
                raise ValueError(
                    f"'**' shares its level with other characters in {level!r}; write '*' within a "
                    "level, or '**' as a level of its own: 'a/**/b'"
                )
            yield part


def _is_wild(part: str) -> bool:
    return part in _WILDCARDS or len(part) > 1


def _expression(part: str) -> str:
    if len(part) == 1 or part in _WILDCARDS:
        return _WILDCARDS.get(part) or _character(part)
    negated = part.startswith("[!")
    members = "^/" * negated  # a slash is in no class: it separates levels
    ranges = re.findall("(.)(?:-(.))?", part[1 + negated : -1], re.DOTALL)
    for low, high in ranges:
        if high and high < low:
            raise ValueError(f"invalid character class {part!r}: nothing is in {low}-{high}")
        to = "-.0-" if low < "/" < high else "-" if high else ""
        members += _character(low) + to + "".join(map(_character, high))
    if not ranges:
        raise ValueError(f"invalid character class {part!r}: nothing is in it")
    return f"([{members}])"


def _character(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def _plain(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


# --- regular expressions


def _checked(text: str) -> str:
    """An expression that RE2 reads, and reads as it is meant; else a ValueError."""
    for found in _MISREAD.finditer(text):
        if what := found[1]:
            as_what, instead = ("a byte", ".") if what == r"\C" else ("text", f"{{0{what[1:]}")
            where = f"at character {found.start() + 1} of {text!r}"
            raise ValueError(f"RE2 reads {what!r} as {as_what}, {where}; write {instead!r}")
    if said := _refusal(text):
        what, _, part = said.partition(": ")
        where = f"in {text!r}"
        if part and part != text:
            ends = [each.end() for each in re.finditer(re.escape(part), text)]
            end = next((each for each in ends if _refusal(text[: each + 1]) == said), len(text))
            what, where = said, f"at character {end - len(part) + 1} of {text!r}"
        raise ValueError(f"{_PLAINLY.get(what, what)}, {where}; {_SYNTAX}")
    names = _GROUP_NAME.findall(text)
    if len(set(names)) < len(names):
        raise ValueError(f"two groups have the same name, in {text!r}")
    return text


def _refusal(text: str) -> str:
    """What RE2 says against an expression, ``""`` if it accepts it."""
    try:
        _compiled(text)
    except re2.error as error:
        return str(error.args[0].decode(errors="replace"))
    return ""


def _template(template: str, checkpoint: str, regex: Any) -> Iterator[str]:
    """The parts of a format for the groups of a regular expression."""
    names = {name.decode(): number for name, number in regex.groupindex.items()}
    for text, number, name in re.findall(
        r"([^\\]+|\\\\)|\\(?:([1-9]\d?)|g<(\w{1,99})>|)", template
    ):
        if "*" in text or "?" in text:
            raise ValueError(
                f"{template!r} has a wildcard, but the other side is a regular expression; "
                r"write \1 for its first group"
            )
        group = names.get(name, int(number or name) if (number or name).isdecimal() else -1)
        if not text and not 0 <= group <= regex.groups:
            raise ValueError(f"{template!r} refers to a group that {checkpoint!r} does not have")
        yield ("\\" if text == "\\\\" else _plain(text)) if text else f"{{{group}}}"
