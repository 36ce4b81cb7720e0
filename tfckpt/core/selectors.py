r"""Selectors: patterns over canonical names, and rename pairs.

By default a pattern is a glob: ``*``, ``?`` and ``[abc]`` match within one level of a name; a level
``**`` matches any number of levels, including none. The prefix ``re:`` makes it a regular
expression. Both must match the whole name and are case sensitive. In a rename, the i-th wildcard of
one side is the i-th of the other; a ``re:`` pair has groups on the left, ``\1`` or ``\g<name>`` on
the right. Wildcards of a glob are lazy, left to right.

Names come from files that other people made, so matching must not take exponential time: a glob
backtracks to its last star only. Refused: empty levels, a ``**`` that shares its level, and a pair
whose sides do not have the same wildcards or groups.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tfckpt.core.linear_regex import Regex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_PATTERN = 1000
REGEX = "re:"

_Item = TypeVar("_Item")
_Captures = tuple[str, ...]


class CompiledRename(Protocol):
    """A compiled rename pair."""

    def apply(self, stored_name: str) -> str | None:
        """The model name for a checkpoint name, None if the pair does not match it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Selector:
    r"""A compiled pattern over canonical names; equal to every selector of the same pattern.

    >>> Selector("model/**").matches("model/encoder/dense/kernel")
    True
    >>> Selector("**/bias").matches("bias"), Selector("model/*").matches("model/dense/bias")
    (True, False)
    >>> Selector(r"re:model/block_(\d+)/.*").matches("model/block_12/dense/kernel")
    True
    """

    pattern: str
    _match: Callable[[str], Any] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_text(self.pattern)
        if self.pattern.startswith(REGEX):
            match: Callable[[str], Any] = Regex(self.pattern[len(REGEX) :]).whether
        else:
            match = _Glob(self.pattern).whether
        object.__setattr__(self, "_match", match)

    def matches(self, name: str) -> bool:
        """Whether the pattern matches the name."""
        return self._match(name) is not None


def any_match(patterns: Sequence[str]) -> Callable[[str], object]:
    """A quick test that is true for every name that one of the patterns matches.

    It may be true for other names, too. Most names match no rule of a policy, and one expression
    says so sooner than a selector for each.

    >>> test = any_match(["model/head/**", "**/bias"])
    >>> bool(test("model/head/kernel")), bool(test("model/body/kernel"))
    (True, False)
    """
    globs = [_Glob(pattern) for pattern in patterns if not pattern.startswith(REGEX)]
    expressions = [_expression(glob.levels, "(?:") for glob in globs]
    if len(globs) < len(patterns) or not all(expressions):
        return lambda _: True
    if not expressions:
        return lambda _: False
    return re.compile("|".join(expressions), re.DOTALL).fullmatch


def exactly(name: str) -> str:
    """The glob that matches only this name.

    >>> exactly("model/a[0]"), Selector(exactly("model/a[0]")).matches("model/a[0]")
    ('model/a[[]0]', True)
    """
    return re.sub(r"([*?[])", r"[\1]", name)


def compile_rename(checkpoint: str, model: str) -> CompiledRename:
    r"""Compile a rename pair: checkpoint names that match ``checkpoint`` become ``model`` names.

    >>> compile_rename("model/backbone/**", "model/encoder/**").apply("model/backbone/a/kernel")
    'model/encoder/a/kernel'
    >>> compile_rename(r"re:model/block_(\d+)/(.*)", r"model/blk\1/\2").apply("model/block_7/w")
    'model/blk7/w'
    """
    _check_text(checkpoint)
    _check_text(model)
    if model.startswith(REGEX):
        raise ValueError(
            f"{model!r} is the new name, which cannot be a regular expression; "
            r"remove 're:' and write \1 for the first group"
        )
    if checkpoint.startswith(REGEX):
        return _RegexRename(Regex(checkpoint[len(REGEX) :]), model)
    return _GlobRename(_Glob(checkpoint), _Glob(model))


def _check_text(pattern: str) -> None:
    if not pattern or pattern == REGEX:
        raise ValueError("the pattern is empty")
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {MAX_PATTERN} characters")


# --- globs


def _align(
    tests: Sequence[Any], items: Sequence[_Item], fits: Callable[[Any, _Item], bool]
) -> list[tuple[int, int]] | None:
    """The items that each test takes; None as a test is a star and takes as few as it can.

    What stands between two stars has a fixed length, so its first place is as good as any other
    and only the last star is ever widened: time is at most tests × items.
    """
    taken: list[tuple[int, int]] = []
    at, star = 0, -1
    while at < len(items) or len(taken) < len(tests):
        i = len(taken)
        if i < len(tests):
            test = tests[i]
            if test is None:
                star = i
                taken.append((at, at))
                continue
            if at < len(items) and fits(test, items[at]):
                taken.append((at, at + 1))
                at += 1
                continue
        if star < 0 or taken[star][1] == len(items):
            return None
        start, end = taken[star]
        at = end + 1
        taken[star:] = [(start, at)]
    return taken


@dataclasses.dataclass(frozen=True, slots=True)
class _Level:
    """One level of a glob: literal characters, ``?``, classes, and None for each ``*``."""

    text: str
    tests: tuple[re.Pattern[str] | str | None, ...]
    wildcards: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> _Level:
        tests: list[re.Pattern[str] | str | None] = []
        wildcards = []
        for part in re.findall(r"\[!?\]?[^\]]*\]|.", text, re.DOTALL):
            wild = part in {"*", "?"} or len(part) > 1
            if part == "[":
                raise ValueError(f"'[' in {text!r} is not closed; write a literal bracket as '[[]'")
            if part == "*" and tests and tests[-1] is None:
                raise ValueError(
                    f"'**' shares its level with other characters in {text!r}; write '*' within a "
                    "level, or '**' as a level of its own: 'a/**/b'"
                )
            tests.append(None if part == "*" else _class(part) if wild else part)
            if wild:
                wildcards.append(part)
        return cls(text, tuple(tests), tuple(wildcards))

    def fits(self, level: str) -> bool:
        return self.text == level if not self.wildcards else self.take(level) is not None

    def take(self, level: str) -> _Captures | None:
        taken = _align(self.tests, level, _fits_character)
        if taken is None:
            return None
        pairs = zip(self.tests, taken, strict=True)
        return tuple(level[a:b] for test, (a, b) in pairs if not isinstance(test, str))

    def fill(self, captures: Iterable[str]) -> str:
        if not self.wildcards:
            return self.text
        rest = iter(captures)
        return "".join(test if isinstance(test, str) else next(rest) for test in self.tests)


def _fits_character(test: re.Pattern[str] | str, character: str) -> bool:
    return test == character if isinstance(test, str) else test.match(character) is not None


def _class(part: str) -> re.Pattern[str]:
    if part == "?":
        return re.compile(".", re.DOTALL)
    inside = part[1:-1]
    negated = "^" if inside.startswith("!") else ""
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[len(negated) :])
    try:
        return re.compile(f"[{negated}{escaped}]", re.DOTALL)
    except re.error as error:
        raise ValueError(f"invalid character class {part!r}: {error}") from None


class _Glob:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        texts = pattern.split("/")
        if "" in texts:
            hint = (
                f"; to match everything below it, write {pattern + '**'!r}"
                if pattern.endswith("/")
                else ""
            )
            raise ValueError(f"{pattern!r} has an empty level{hint}")
        self.levels = [None if text == "**" else _Level.parse(text) for text in texts]
        expression = _expression(self.levels)
        self._fullmatch = re.compile(expression, re.DOTALL).fullmatch if expression else None
        # not None for a name that matches
        self.whether: Callable[[str], Any] = self._fullmatch or self.match

    @property
    def wildcards(self) -> list[str]:
        return [w for level in self.levels for w in (level.wildcards if level else ("**",))]

    def match(self, name: str) -> list[_Captures] | None:
        """What the wildcards matched: for ``**`` its levels, for another level the text of each."""
        if self._fullmatch is not None:
            match = self._fullmatch(name)
            return None if match is None else self._taken(match.groups())
        parts = name.split("/")
        taken = _align(self.levels, parts, _Level.fits)
        if taken is None:
            return None
        return [
            tuple(parts[a:b]) if level is None else level.take(parts[a]) or ()
            for level, (a, b) in zip(self.levels, taken, strict=True)
        ]

    def _taken(self, groups: Sequence[str]) -> list[_Captures]:
        """As :meth:`match`, from the groups of the regular expression."""
        rest, captures = iter(groups), list[_Captures]()
        for index, level in enumerate(self.levels):
            if level is not None:
                captures.append(tuple(itertools.islice(rest, len(level.wildcards))))
                continue
            parts = next(rest).split("/")
            if len(self.levels) > 1:  # there is a slash before or after them
                parts = parts[1:] if index else parts[:-1]
            captures.append(tuple(parts))
        return captures


def _expression(levels: Sequence[_Level | None], group: str = "(") -> str:
    """The glob as a regular expression for `re`, if `re` can match it without backtracking.

    ``""`` if a level has two stars or the glob has two ``**``: `re` would try every position of one
    with every position of the other. ``group`` begins the group of a wildcard.
    """
    if levels.count(None) > 1 or any(level and level.tests.count(None) > 1 for level in levels):
        return ""
    if len(levels) == 1 and levels[0] is None:
        return f"{group}.*)"
    text = ""
    for index, level in enumerate(levels):
        if level is None:
            text += group + (r"(?:/[^/]*)*)" if index else r"(?:[^/]*/)*)")
        else:
            between = "/" if index and levels[:index] != [None] else ""
            text += between + "".join([_part(test, group) for test in level.tests])
    return text


def _part(test: re.Pattern[str] | str | None, group: str) -> str:
    if test is None:
        return f"{group}[^/]*)"
    return re.escape(test) if isinstance(test, str) else f"{group}(?!/){test.pattern})"


def _subtree(glob: _Glob) -> str:
    """The path of a glob for all that is below one path; ``""`` for any other glob."""
    *above, last = glob.levels
    plain = all(level and not level.wildcards for level in above)
    return glob.pattern.removesuffix("/**") if last is None and plain and above else ""


class _GlobRename:
    def __init__(self, stored: _Glob, live: _Glob) -> None:
        if stored.wildcards != live.wildcards:
            sides = [", ".join(glob.wildcards) or "none" for glob in (stored, live)]
            raise ValueError(
                "both sides must have the same wildcards in the same order; "
                f"{stored.pattern!r} has {sides[0]}, {live.pattern!r} has {sides[1]}"
            )
        self._stored = stored
        self._live = live
        self._subtrees = _subtree(stored), _subtree(live)

    def apply(self, stored_name: str) -> str | None:
        if all(self._subtrees):
            old, new = self._subtrees
            below = stored_name[len(old) :]
            return new + below if stored_name.startswith(old) and below[:1] in {"", "/"} else None
        matched = self._stored.match(stored_name)
        if matched is None:
            return None
        pairs = list(zip(self._stored.levels, matched, strict=True))
        across = iter([captures for level, captures in pairs if level is None])
        within = iter([text for level, captures in pairs if level for text in captures])
        levels: list[str] = []
        for level in self._live.levels:
            levels.extend(next(across) if level is None else [level.fill(within)])
        return "/".join(levels)


class _RegexRename:
    def __init__(self, stored: Regex, template: str) -> None:
        self._stored = stored
        self._parts: list[str | int] = []
        for text, number, name in re.findall(
            r"([^\\]+|\\\\)|\\(?:([1-9]\d?)|g<(\w{1,99})>|)", template
        ):
            if text:
                if "*" in text or "?" in text:
                    raise ValueError(
                        f"{template!r} has a wildcard, but the other side is a regular expression; "
                        r"write \1 for its first group"
                    )
                self._parts.append("\\" if text == "\\\\" else text)
                continue
            group = stored.names.get(
                name, int(number or name) if (number or name).isdecimal() else -1
            )
            if not 0 <= group <= stored.groups:
                raise ValueError(
                    f"{template!r} refers to a group that 're:{stored.text}' does not have"
                )
            self._parts.append(group)

    def apply(self, stored_name: str) -> str | None:
        groups = self._stored.match(stored_name)
        if groups is None:
            return None
        return "".join(part if isinstance(part, str) else groups[part] for part in self._parts)
