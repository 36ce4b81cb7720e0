r"""The fewest rules for certain names, and no others: selectors, and ``rename`` rules.

Of each pair of names come rules that may hold for more: ``net/**`` for a scope, ``**/weights`` for
a word, ``re:net/block_(\d+)/(.*)`` for numbered blocks. Those that come of most pairs are tried
first, and kept if they are right for every name of the checkpoint that no earlier rule matches.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from tfckpt.core.selectors import MAX_PATTERN, REGEX, compile_rename, exactly

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    Rule = tuple[str, str]

_MOST_LEVELS = 20
_MOST_WORK = 6_000_000  # names that rules are tried on, some seconds
_SLOW = 20  # how much longer a rule takes that is more than a scope
_SPECIAL = re.compile(r"[*?\[\]\\\"]")
_ESCAPED = re.compile(r"([.^$+{}|()])")


def rename_rules(
    pairs: Mapping[str, str],
    stored: Collection[str],
    live: Collection[str],
    done: Collection[str] = (),
) -> list[Rule] | None:
    r"""The rules, as (checkpoint, model); None if there are none, or finding them takes too long.

    >>> names = {f"model/net/a/{n}": f"model/b/{n}" for n in ("kernel", "bias")}
    >>> rename_rules(names, names, names.values())
    [('model/net/a/**', 'model/b/**')]
    >>> names = {f"model/l{n}/weights": f"model/l{n}/kernel" for n in (1, 2)}
    >>> rename_rules(names, names, names.values())
    [('**/weights', '**/kernel')]
    """
    missing = {old: new for old, new in pairs.items() if old != new and old not in done}
    if any(map(_SPECIAL.search, (*missing, *missing.values()))):
        return None
    rest, targets = set(stored), set(live)
    sources: dict[Rule, list[str]] = {}
    for old, new in missing.items():
        for rule in _rules(old, new):
            sources.setdefault(rule, []).append(old)
    rules: list[Rule] = []
    work = 0
    places = {old: index for index, old in enumerate(stored)}
    for rule in sorted(sources, key=lambda rule: _rank(rule, sources[rule], places)):
        if not missing:
            break
        if max(map(len, rule)) > MAX_PATTERN or not missing.keys() & sources[rule]:
            continue
        work += len(rest) * (1 if _is_scope(rule) else _SLOW)
        if work > _MOST_WORK:
            return None
        apply = compile_rename(*rule)
        moved = {old: target for old in rest if (target := apply(old)) is not None}
        if all(_is_right(old, new, pairs, targets) for old, new in moved.items()):
            rules.append(rule)
            rest -= moved.keys()
            missing = {old: new for old, new in missing.items() if old not in moved}
    return None if missing else rules


def _is_scope(rule: Rule) -> bool:
    return all(side.endswith("/**") and "*" not in side[:-2] for side in rule)


def _is_right(old: str, new: str, pairs: Mapping[str, str], targets: Collection[str]) -> bool:
    return new == pairs[old] if old in pairs else new not in targets


def _rank(rule: Rule, names: Sequence[str], places: Mapping[str, int]) -> tuple[int, ...]:
    """First what maps most; of equals what is plainest, in the order of the checkpoint."""
    plain = rule[0].startswith(REGEX), rule[0].startswith("**/")
    return -len(names), *plain, places[names[0]], len(rule[0]) + len(rule[1])


def _rules(old: str, new: str) -> Iterator[Rule]:
    """Rules that map one name to the other, the most general ones of each kind first."""
    parts = old.split("/"), new.split("/")
    ends = _shared(*(list(reversed(part)) for part in parts))
    for levels in range(ends, 0, -1):
        heads = ["/".join(part[: len(part) - levels]) for part in parts]
        if all(heads):
            yield f"{heads[0]}/**", f"{heads[1]}/**"
        yield from numbered(heads[0] + "/", heads[1] + "/", "(.*)")
    starts = min(_shared(*parts), *(len(part) - 1 for part in parts))
    if starts:
        tails = ["/".join(part[starts:]) for part in parts]
        yield f"**/{tails[0]}", f"**/{tails[1]}"
    yield from _inside(*parts)
    yield from numbered(old, new, "")
    yield old, new


def _inside(old: list[str], new: list[str]) -> Iterator[Rule]:
    """A scope and a variable's name that differ around the same layer."""
    shared = _shared(list(reversed(old[:-1])), list(reversed(new[:-1])))
    heads = ["/".join(part[: len(part) - 1 - shared]) for part in (old, new)]
    if shared and all(heads) and heads[0] != heads[1]:
        yield f"{heads[0]}/**/{old[-1]}", f"{heads[1]}/**/{new[-1]}"


def numbered(old: str, new: str, rest: str) -> Iterator[Rule]:
    r"""With ``(\d+)`` in place of the numbers of both names; ``rest`` is a group that follows."""
    numbers = [re.findall("[0-9]+", name) for name in (old, new)]
    if not numbers[0] or numbers[0] != numbers[1] or len(numbers[0]) > _MOST_LEVELS:
        return
    counted = iter(range(1, _MOST_LEVELS + 2))
    pattern = re.sub("[0-9]+", r"(\\d+)", _ESCAPED.sub(r"\\\1", old))
    target = re.sub("[0-9]+", lambda _: rf"\g<{next(counted)}>", new)
    target = re.sub(r"\\g<(\d+)>(?!\d)", r"\\\1", target)
    yield f"{REGEX}{pattern}{rest}", f"{target}\\{next(counted)}" if rest else target


def _shared(one: list[str], other: list[str]) -> int:
    """How many levels are the same from the beginning, at most all but one of each."""
    most = min(len(one), len(other), _MOST_LEVELS)
    same = 0
    while same < most and one[same] == other[same]:
        same += 1
    return same


def selectors(names: Collection[str], others: Collection[str]) -> list[str]:
    """Selectors that match all of some names, and none of the others.

    >>> selectors({"model/head/kernel", "model/head/bias", "step"}, {"model/body/kernel"})
    ['model/head/**', 'step']
    >>> selectors({"model/a/bias", "model/b/bias"}, {"model/a/kernel", "model/b/kernel"})
    ['**/bias']
    """
    ordered = sorted(others)
    scopes = list(dict.fromkeys(_scope(name, ordered) or name for name in sorted(names)))
    inner = [name for name in scopes if not name.endswith("/")]
    kept = {name.rpartition("/")[2] for name in ordered}
    words: dict[str, list[str]] = {}
    for name in inner:
        words.setdefault(name.rpartition("/")[2], []).append(name)
    common = {word for word, each in words.items() if len(each) > 1 and word not in kept}
    alone = [name for name in scopes if name.rpartition("/")[2] not in common]
    found = [f"{exactly(each)}**" if each.endswith("/") else exactly(each) for each in alone]
    return found + [f"**/{exactly(word)}" for word in sorted(common)]


def _scope(name: str, others: Sequence[str]) -> str:
    """The shortest scope of a name that none of the others is in, with its slash."""
    end = name.find("/")
    while end != -1:
        scope = name[: end + 1]
        index = bisect_left(others, scope)
        if index == len(others) or not others[index].startswith(scope):
            return scope
        end = name.find("/", end + 1)
    return ""
