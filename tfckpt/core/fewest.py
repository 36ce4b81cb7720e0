"""The fewest selectors for certain names and no others, and the fewest rules that rename them.

Of each pair of names come rules that may hold for more: ``net/**`` for a scope, ``**/weights`` for
a word, ``block_*/**`` for numbered blocks. Those that come of most pairs are tried first, and kept
if they are right for every name that no earlier rule matches.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from tfckpt.core.selectors import MAX_PATTERN, REGEX, Selector, compile_rename, exactly

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    Rule = tuple[str, str]

_MOST_LEVELS = 20
_MOST_RULES, _MOST_WORK = 200, 1_500_000  # rules; rules for each name
_SPECIAL = re.compile(r"[*?\[\]\\]")
_NUMBER = re.compile("[0-9]+")


def holder_of(name: str) -> str:
    """What holds a value, by its name; PyTorch separates levels by dots, Keras's files number.

    >>> holder_of("model/dense/vars/0"), holder_of("model/encoder.layer.0.query.weight")
    ('model/dense', 'model/encoder.layer.0.query')
    """
    return re.split(r"/vars/\d+\Z|[/.][^/.]*\Z", name)[0]


def last_word(name: str) -> str:
    """The last component of a name with levels or with dots.

    >>> last_word("model/dense/kernel"), last_word("model/encoder.layer.0.query.weight")
    ('kernel', 'weight')
    """
    return re.split("[/.]", name)[-1]


def selecting(names: Collection[str], others: Collection[str]) -> list[str]:
    """Selectors that match all of some names, and none of the others.

    >>> selecting({"model/head/kernel", "model/head/bias", "step"}, {"model/body/kernel"})
    ['model/head/**', 'step']
    >>> selecting({"model/a/bias", "model/b/bias"}, {"model/a/kernel", "model/b/kernel"})
    ['**/bias']
    >>> selecting({f"model/a/{n}/w" for n in range(12)}, {"model/a/12/w", "model/a/b/w"})
    ['model/a/[0-9]/**', 'model/a/1[01]/**']
    """
    ordered = sorted(others)
    kept = set(map(last_word, ordered))
    groups: dict[str, list[str]] = {}  # what may match several → what is exact
    for name in sorted(names):
        exact, word = exactly(name), last_word(name)
        if scope := _scope(name, ordered):
            exact = f"{exactly(scope)}**"
            several = _NUMBER.sub("*", exact)
        elif word in kept:
            several = exact
        else:
            dotted = name.endswith(f".{word}")
            several = f"{REGEX}.*[.]{re.escape(word)}" if dotted else f"**/{exactly(word)}"
        groups.setdefault(several, []).append(exact)
    found = []
    for several, each in groups.items():
        exact_ones = list(dict.fromkeys(each))
        many = len(exact_ones) > 1 + several.endswith("/**")
        alone = many and not any(map(Selector(several).matches, ordered))
        found += [several] if alone else _by_digits(exact_ones)
    return found


def _by_digits(exact: Sequence[str]) -> list[str]:
    """Selectors that differ in the digits of one number, by classes of digits.

    >>> _by_digits([f"b_{n}/**" for n in (0, 1, 10, 12, 13, 20, 22, 23)])
    ['b_[01]/**', 'b_[12][023]/**']
    """
    rows = [re.split(r"(\d+)", text) for text in exact]
    vary = [at for at, column in enumerate(zip(*rows, strict=False)) if len({*column}) > 1]
    if len(vary) != 1 or len({*map(len, rows)}) > 1:
        return [*exact]
    numbers = [row[vary[0]] for row in rows]
    before, after = ("".join(part) for part in (rows[0][: vary[0]], rows[0][vary[0] + 1 :]))
    columns = dict.fromkeys(tuple(number) for number in numbers)
    for at in range(max(map(len, numbers)) - 1, -1, -1):
        alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        for digits in columns:
            if at < len(digits):
                rest = (len(digits), (*digits[:at], *digits[at + 1 :]))
                alike.setdefault(rest, []).append(digits[at])
        shorter = [digits for digits in columns if at >= len(digits)]
        merged = [(*rest[:at], _class(each), *rest[at:]) for (_, rest), each in alike.items()]
        columns = dict.fromkeys((*shorter, *merged))
    return [f"{before}{''.join(digits)}{after}" for digits in columns]


def _class(digits: Sequence[str]) -> str:
    """The glob of one digit of these; some may be classes already."""
    if len(digits) == 1:
        return digits[0]
    found = sorted(digits)
    run = found == [str(n) for n in range(int(found[0]), int(found[-1]) + 1)]
    return f"[{found[0]}-{found[-1]}]" if run and len(found) > 2 else f"[{''.join(found)}]"


def _scope(name: str, others: Sequence[str]) -> str:
    """The shortest scope of a name that none of the others, sorted, is in, with its slash."""
    for end in itertools.islice((found.end() for found in re.finditer("/", name)), _MOST_LEVELS):
        at = bisect_left(others, name[:end])
        if at == len(others) or not others[at].startswith(name[:end]):
            return name[:end]
    return ""


def renaming(
    names: Mapping[str, str],
    done: Collection[str],
    stored: Collection[str],
    live: Collection[str],
    *,
    plainly: bool = False,
) -> list[Rule] | None:
    """Rules for all names but those that are done; None if they are too many.

    Of ``stored``, what has no new name goes to none of ``live``. With ``plainly``, rules are of
    scopes and single names alone.

    >>> names = {f"model/net/a/{n}": f"model/b/{n}" for n in ("kernel", "bias")}
    >>> renaming(names, (), names, names.values())
    [('model/net/a/**', 'model/b/**')]
    >>> names = {f"a_{n}/w": f"b_{n}/kernel" for n in range(2)}
    >>> renaming(names, (), names, names.values())
    [('**/a_*/w', '**/b_*/kernel')]
    """
    missing = {old: new for old, new in names.items() if old not in done}
    ordered = sorted({*stored, *names})
    most = min(_MOST_RULES, _MOST_WORK // (len(ordered) or 1))
    alone = {old.rpartition("/")[0] for old, new in missing.items() if old == new}
    if len(alone) > most or any(map(_SPECIAL.search, (*missing, *missing.values()))):
        return None
    sources: dict[Rule, list[str]] = {}
    for old, new in missing.items():
        for rule in _rules(old, new, plainly=plainly):
            sources.setdefault(rule, []).append(old)
    rest, rules = {*ordered}, []
    for rule in sorted(sources, key=lambda rule: (-len(sources[rule]), "*" in rule[0][:-2])):
        if missing.keys().isdisjoint(sources[rule]) or max(map(len, rule)) > MAX_PATTERN:
            continue
        apply, near = compile_rename(*rule), _beginning(rule[0].partition("*")[0], ordered)
        pairs = ((old, apply(old)) for old in near if old in rest)
        moved = {old: new for old, new in pairs if new is not None}
        if all(names[n] == new if n in names else new not in live for n, new in moved.items()):
            rules.append(rule)
            if len(rules) > most:
                return None
            rest -= moved.keys()
            for old in moved:
                missing.pop(old, None)
    return None if missing else rules


def _rules(old: str, new: str, *, plainly: bool) -> Iterator[Rule]:
    """Rules that map one name to the other: for scopes, words, or numbered ones."""
    parts = old.split("/"), new.split("/")
    if old == new:
        scope = "/".join([*parts[0][:-1], "**"])
        yield scope, scope
        return
    ends = _shared(*(part[:0:-1] for part in parts))
    heads = (["/".join(part[:-end]) for part in parts] for end in range(ends, 0, -1))
    found = [(f"{a}/**", f"{b}/**") for a, b in heads]
    if not plainly:
        begin = _shared(*(part[:-1] for part in parts))
        a, b = ("/".join(part[begin:]) for part in parts)
        found.append((f"**/{a}", f"**/{b}"))
        inside = 1 + _shared(*(part[-2:0:-1] for part in parts))
        a, b = ("/".join(part[:-inside]) for part in parts)
        found.append((f"{a}/**/{parts[0][-1]}", f"{b}/**/{parts[1][-1]}"))
    for rule in [*found, (old, new)]:
        numbers = [_NUMBER.findall(side) for side in rule]
        if not plainly and numbers[0] and numbers[0] == numbers[1]:
            yield _NUMBER.sub("*", rule[0]), _NUMBER.sub("*", rule[1])
        yield rule


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """How many levels are the same from the beginning."""
    pairs = zip(one[:_MOST_LEVELS], other, strict=False)
    return len([*itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _beginning(start: str, ordered: Sequence[str]) -> Iterator[str]:
    """The names, which are sorted, that begin so."""
    below = itertools.islice(ordered, bisect_left(ordered, start), None)
    return itertools.takewhile(lambda name: name.startswith(start), below)
