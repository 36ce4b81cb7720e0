"""What a word, a selector or a path was meant to be that matches nothing, to be asked about.

Paths are compared by components: one spelled slightly differently, one less or one more, and the
same path from another working directory. Those that differ only in digits are other runs, not
misspellings. Only the first names of a very large directory are compared.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING

from tfckpt.core.selectors import MAX_PATTERN, REGEX, Selector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

_SHOWN = 3
_BEGINNING = 3
LIKE = 0.6
_LIKE_PATHS = 0.75
_ABOVE = 4
_NAMES = 2000
_PROBED = 20
_BELOW = "/**"
_TELLING = 2  # a variable's name alone is too common
_NUMBER_OF_OUTPUT = re.compile(r":[0-9]{1,9}\Z")  # `kernel:0`, a tensor name in TensorFlow


def question(meant: Iterable[str]) -> str:
    """The question whether one of these was meant; ``""`` without any.

    >>> question(["model/a", "model/b"])
    "did you mean 'model/a' or 'model/b'?"
    """
    choices = " or ".join(map(repr, meant))
    return f"did you mean {choices}?" if choices else ""


def near_words(word: str, words: Iterable[str], most: int = 1, likeness: float = LIKE) -> list[str]:
    """The words that are spelled most like one, the nearest first.

    >>> near_words("inclde", ["include", "exclude"])
    ['include']
    """
    import difflib  # imported only when something was not found

    return difflib.get_close_matches(word[:100], list(words), most, likeness)


def begun(word: str, words: Iterable[str]) -> list[str]:
    """The words that one is the beginning of.

    >>> begun("every", ["every_steps", "every_epochs", "on_signal"])
    ['every_steps', 'every_epochs']
    """
    return [each for each in words if len(word) >= _BEGINNING and each.startswith(word)]


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """A hint for a key or value of a config: the nearest valid word, or all of them.

    >>> did_you_mean("inclde", ["include", "exclude"]), did_you_mean("x", ["read"])
    ('did you mean `include`?', 'use one of `read`')
    """
    words = sorted(valid)
    if near := begun(word, words) or near_words(word, words):
        return f"did you mean {' or '.join(f'`{each}`' for each in near)}?"
    return f"use one of {', '.join(f'`{each}`' for each in words)}" if words else ""


def near_selectors(pattern: str, names: Collection[str]) -> list[str]:
    """What a selector that matches nothing was meant to be, the likeliest first.

    First its end below another parent, in case it begins with the model's own name; else names with
    a similar spelling or the same last component.

    >>> near_selectors("sequential/head/kernel:0", ["model/body/kernel", "model/head/kernel"])
    ['model/head/kernel']
    >>> near_selectors("model/hed/**", ["model/head/kernel", "model/encoder/kernel"])
    ['model/head/**']
    """
    plain = not pattern.startswith(REGEX) and len(pattern) < MAX_PATTERN - len("**//**")
    near = _below_a_parent(pattern, names) if plain else []
    if not near:
        near = _similar(pattern, names)
        if pattern.endswith(_BELOW):  # what was meant is as wide as what was written
            heads = ((name, name.split("/")[:-1][: pattern.count("/")]) for name in near)
            near = ["/".join(head) + _BELOW if head else name for name, head in heads]
        last = pattern.rpartition("/")[2]
        near.extend(name for name in names if name.rpartition("/")[2] == last)
    return list(dict.fromkeys(near))[:_SHOWN]


def _similar(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that have a level like each word of a pattern."""
    import difflib

    levels = pattern.removeprefix(REGEX).split("/")
    words = [word[:100] for level in levels if (word := re.sub(r"\\.|\W", "", level))]

    @functools.cache
    def likeness(word: str, level: str) -> float:
        return difflib.SequenceMatcher(None, word, level[:100]).ratio()

    scored = []
    for name in dict.fromkeys(names):
        parts = name.split("/")
        scores = [max(likeness(word, part) for part in parts) for word in words]
        if min(scores, default=0) >= LIKE:
            scored.append((-sum(scores), len(parts), name))
    return [name for _, _, name in sorted(scored)[:_SHOWN]]


def _below_a_parent(pattern: str, names: Iterable[str]) -> list[str]:
    """The longest end of a pattern that matches below other parents, with these parents."""
    levels = _NUMBER_OF_OUTPUT.sub("", pattern).split("/")
    for start in range(max(len(levels) - _TELLING, 0) + 1):
        for end in (levels[start:], [*levels[start:], "**"]):
            selector, anywhere = Selector("/".join(end)), Selector("/".join(["**", *end]))
            parents = {
                tuple(parts[:at])
                for parts in (name.split("/") for name in names if anywhere.matches(name))
                for at in range(len(parts) - len(end) + 1)
                if selector.matches("/".join(parts[at:]))
            }
            nearest = min(map(len, parents), default=0)
            if parents and any(map(str.isidentifier, end)):
                shortest = sorted(parent for parent in parents if len(parent) == nearest)
                return ["/".join((*parent, *end)) for parent in shortest]
    return []


def near_paths(
    path: str, names_in: Callable[[str], Sequence[str]], accepted: Callable[[str], bool]
) -> list[str]:
    """Paths similar to ``path`` that ``accepted`` is true for, the most similar first.

    ``names_in`` lists the names in a directory, and is empty for one that does not exist.

    >>> there = {"": ["runs"], "runs": ["digits", "notes"]}
    >>> near_paths("run/digits", lambda path: there.get(path, []), "runs/digits".__eq__)
    ['runs/digits']
    """
    similar: dict[str, str] = {}
    for candidate in _candidates(path.rstrip("/"), names_in):
        real = os.path.realpath(candidate)  # a link to the same path is not another one
        if real != os.path.realpath(path) and real not in similar and accepted(candidate):
            similar[real] = candidate
            if len(similar) == _SHOWN:
                break
    return list(similar.values())


def nearly_same(path: str, other: str) -> bool:
    """Whether one component of two absolute paths is misspelled or missing.

    >>> nearly_same("/runs/digit", "/runs/digits"), nearly_same("/runs/1", "/runs/2")
    (True, False)
    """
    path, other = (each.replace("://", ":/") for each in (path, other))  # a bucket is one, too
    parts = other.split("/")
    there = {"/".join(parts[:at]): [name] for at, name in enumerate(parts)}
    return bool(near_paths(path, lambda above: there.get(above.rstrip("/"), []), other.__eq__))


def _candidates(path: str, names_in: Callable[[str], Sequence[str]]) -> Iterator[str]:
    root = re.match(r"[^/]*://[^/]*/?|/*", path)[0]  # type: ignore[index]  # it matches any text
    parts = [part for part in path.removeprefix(root).split("/") if part]
    if not parts:
        return
    for index in reversed(range(max(len(parts) - _ABOVE, 0), len(parts))):
        above, name = root + "/".join(parts[:index]), parts[index]
        stem = _numberless(name)
        others = [each for each in names_in(above)[:_NAMES] if _numberless(each) != stem]
        for close in near_words(name, others, _SHOWN, _LIKE_PATHS):
            yield root + "/".join([*parts[:index], close, *parts[index + 1 :]])
    if len(parts) > 1:
        yield os.path.split(path)[0]
    yield from (f"{path}/{name}" for name in sorted(names_in(path))[:_PROBED])
    if not root:
        yield from (f"{'../' * up}{path}" for up in range(1, _ABOVE))
        yield from (f"{name}/{path}" for name in sorted(names_in(""))[:_PROBED])


def _numberless(name: str) -> str:
    return re.sub("[0-9]+", "", name)
