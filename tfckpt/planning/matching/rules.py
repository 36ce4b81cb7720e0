"""The selectors and renaming rules of a policy, and which of them matched anything.

A selector with a typo matches nothing, and the restore would silently do the wrong thing. So each
rule records whether it matched a value, and one that did not is a problem, with its line and
similar names. The default ``include: ["**"]`` is exempt.

All renaming rules see the original stored names, never the result of another rule. ``adapt`` rules
that split and join values come first, and a value goes to each that matches. If none matches, the
first matching ``rename`` rule applies.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.selectors import REGEX, Selector, compile_rename
from tfckpt.core.similar import near_selectors, question
from tfckpt.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.policy import Policy

    Aliases = Mapping[str, str]

_EVERYTHING = ("**",)
_BELOW = "/**"
_WILDCARDS = frozenset("*?[")
NO_ALIASES: Aliases = MappingProxyType({})


class Rules:
    """The selectors of one key of a policy, in order.

    >>> from tfckpt.policy import Policy
    >>> rules = Rules(Policy(exclude=["model/head/**", "model/tail/**"]), "exclude")
    >>> rules.first("model/head/kernel")
    'model/head/**'
    >>> [problem.message for problem in rules.unused(["model/head/kernel"])]
    ["exclude: 'model/tail/**' matches nothing"]
    """

    def __init__(self, policy: Policy, field: str) -> None:
        self._policy = policy
        self._field = field
        self._texts: tuple[str, ...] = tuple(getattr(policy, field))
        self._used = [False] * len(self._texts)
        self.everything = self._texts == _EVERYTHING

    @cached_property
    def _selectors(self) -> list[Selector]:
        return [Selector(text) for text in self._texts]

    def __len__(self) -> int:
        return len(self._texts)

    def first(self, name: str, holder: str = "") -> str | None:
        """The first selector that matches, as written in the policy.

        ``holder`` has the optimizer of a value: a selector of all in it means its weights.
        """
        if self.everything:
            return self._texts[0]
        for index, selector in enumerate(self._selectors):
            of_all = holder and selector.matches(f"{holder}/\0") and not selector.matches("\0")
            if selector.matches(name) and not of_all:
                self._used[index] = True
                return self._texts[index]
        return None

    def taking(self, name: str) -> tuple[str, int, str] | None:
        """The key, the index and the text of the first selector that matches."""
        found = (at for at, selector in enumerate(self._selectors) if selector.matches(name))
        return next(((self._field, at, self._texts[at]) for at in found), None)

    def every(self, name: str) -> str | None:
        """As :meth:`first`, but all matching selectors count as used."""
        matching = [index for index, rule in enumerate(self._selectors) if rule.matches(name)]
        for index in matching:
            self._used[index] = True
        return self._texts[matching[0]] if matching else None

    @property
    def idle(self) -> bool:
        """Whether a selector has matched nothing so far."""
        return not self.everything and not all(self._used)

    def unused(self, names: Collection[str], also: Aliases = NO_ALIASES) -> Iterator[Problem]:
        """A problem for each selector without a match; ``also``: aliases, which none matches."""
        if self.everything:
            return
        for index, selector in enumerate(self._selectors):
            if not self._used[index] and not any(selector.matches(name) for name in names):
                line, column = self._policy.where(self._field, index)
                text = self._texts[index]
                message = f"{self._field}: {text!r} matches nothing"
                hint = canonical(selector.matches, also) or question(near_selectors(text, names))
                yield Problem(message, line, column, hint)

    def unmet(
        self, names: Collection[str], what: str, also: Aliases = NO_ALIASES
    ) -> Iterator[Problem]:
        """A problem for each expected difference that did not occur; ``what`` occurred instead."""
        for index, selector in enumerate(self._selectors):
            if self._used[index]:
                continue
            line, column = self._policy.where(self._field, index)
            text = self._texts[index]
            if (other := next((name for name in names if selector.matches(name)), None)) is None:
                message = f"{self._field}: {text!r} matches nothing"
                hint = canonical(selector.matches, also) or question(near_selectors(text, names))
            else:
                message = f"{self._field}: {text!r} expects a difference, but {other!r} is {what}"
                hint = "remove the rule if the difference is gone for good"
            yield Problem(message, line, column, hint)


def also_known(inventory: Inventory) -> dict[str, str]:
    """Alias of a value → its canonical name.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
    >>> also_known(Inventory("", {kernel.name: kernel}, aliases={"model/tied": "model/a"}))
    {'model/tied/kernel': 'model/a/kernel'}
    """
    names = sorted(inventory.entries) if inventory.aliases else []
    canonical_names = {}
    for alias, path in sorted(inventory.aliases.items()):
        for index in range(bisect_left(names, path), len(names)):
            name = names[index]
            if not name.startswith(path):
                break
            if name == path or name[len(path)] == "/":
                canonical_names[alias + name.removeprefix(path)] = name
    return canonical_names


def canonical(matches: Callable[[str], object], also: Aliases) -> str:
    """A hint if a selector matches only an alias of a value; else ``""``."""
    alias = next(filter(matches, also), None)
    if alias is None:
        return ""
    return f"{alias!r} is another name of {also[alias]!r}: selectors match only the latter"


def selects(policy: Policy, name: str) -> bool:
    """Whether a policy selects a live value, as far as its name tells.

    >>> from tfckpt.policy import Policy
    >>> selects(Policy(exclude=["model/head/**"]), "model/head/kernel")
    False
    """
    included, excluded = (Rules(policy, key).first(name) for key in ("include", "exclude"))
    return included is not None and excluded is None


def by_role(policy: Policy) -> tuple[dict[Role, str], dict[Role, str]]:
    """Role → reason, for roles that the policy resets and those whose live values it keeps."""
    rules, reset, kept = policy.optimizer, {}, {}
    if rules.slots == "reset":
        reset[Role.SLOT] = "optimizer.slots: reset"
    if rules.iterations == "reset":
        reset[Role.ITERATIONS] = "optimizer.iterations: reset"
    if rules.hyperparameters == "config":
        kept[Role.HYPERPARAMETER] = "the configured value is kept"
    if "seeds" not in policy.training_state:
        kept[Role.SEED] = "training_state does not list seeds"
    if "iterator" not in policy.training_state:
        kept[Role.ITERATOR] = "training_state does not list iterator"
    return reset, kept


class Moved(NamedTuple):
    """Where a rule sends a stored value.

    Attributes:
        targets: the live names.
        rule: the rule, for reports.
        adapt: the index of an ``adapt`` rule, -1 for a rename.
        part: index among the values that a rule joins.
    """

    targets: tuple[str, ...]
    rule: str
    adapt: int = -1
    part: int = 0


@dataclasses.dataclass(slots=True)
class _Rule:
    field: str
    index: int
    checkpoint: str
    pairs: tuple[Callable[[str], str | None], ...]
    words: str
    models: tuple[str, ...]
    part: int = 0
    used: bool = False

    @property
    def adapt(self) -> int:
        return self.index if self.field == "adapt" else -1

    def apply(self, name: str) -> tuple[str, ...]:
        """The new names; empty if the rule does not match."""
        results = [pair(name) for pair in self.pairs]
        return tuple([target for target in results if target is not None])


class Renames:
    """The renaming rules of a policy, in order.

    >>> from tfckpt.policy import Policy
    >>> rule = {"checkpoint": "model/shared/*", "model": ["model/a/*", "model/b/*"]}
    >>> Renames(Policy(rename=[rule])).apply("model/shared/kernel")[0].targets
    ('model/a/kernel', 'model/b/kernel')
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        adapting = [
            (("adapt", index), part, pair, f"{rule.how}: ")
            for index, rule in enumerate(policy.adapt)
            for part, pair in enumerate(rule.pairs())
        ]
        renaming = [
            (("rename", index), 0, (rule.checkpoint, rule.model), "rename: ")
            for index, rule in enumerate(policy.rename)
        ]
        self._rules = [
            _Rule(
                *field_and_index,
                checkpoint,
                tuple(compile_rename(checkpoint, model) for model in models),
                f"{prefix}{checkpoint} → {', '.join(models)}",
                tuple(models),
                part,
            )
            for field_and_index, part, (checkpoint, models), prefix in adapting + renaming
        ]
        self._renaming = self._rules[len(adapting) :]

    def __len__(self) -> int:
        return len(self._rules)

    def apply(self, name: str) -> tuple[Moved, ...]:
        """The results of all matching ``adapt`` rules, else of the first ``rename`` rule."""
        moves: list[Moved] = []
        for rule in self._rules:
            if moves and rule.field == "rename":
                break
            if targets := rule.apply(name):
                rule.used = True
                moves.append(Moved(targets, rule.words, rule.adapt, rule.part))
        return tuple(moves)

    @property
    def idle(self) -> bool:
        """Whether a rule has not been used so far."""
        return not all(rule.used for rule in self._rules)

    def decide(self, name: str, stored: str, live: str) -> bool:
        """Whether the rule that a value goes by names its layer, at a stored and at a live path.

        >>> from tfckpt.policy import Policy
        >>> rules = {"model/a/**": "model/a/**", "model/*/b/**": "net/*/b/**", "model/**": "net/**"}
        >>> rename = [{"checkpoint": old, "model": new} for old, new in rules.items()]
        >>> renames = Renames(Policy(rename=rename))
        >>> renames.decide("model/a/kernel", "model/a", "model/a")
        True
        >>> renames.decide("model/c/b/kernel", "model/c/b", "net/c/b")
        True
        >>> renames.decide("model/b/kernel", "model/b", "net/b")
        False
        """
        rule = next((rule for rule in self._renaming if rule.apply(name)), None)
        return rule is not None and any(
            _rest(rule.checkpoint, stored) is not None and _rest(model, live) is not None
            for model in rule.models
        )

    def take(self, layer: str, *, live: bool = False) -> bool:
        """Whether a rule maps all of a layer, by its stored or its live path.

        >>> from tfckpt.policy import Policy
        >>> rules = [{"checkpoint": "model/a/**", "model": "model/b/**"}]
        >>> renames = Renames(Policy(rename=rules))
        >>> renames.take("model/a"), renames.take("model/b"), renames.take("model/b", live=True)
        (True, False, True)
        """
        whole, others = self._layers[live]
        return layer in whole or any(_rest(pattern, layer) == "**" for pattern in others)

    @cached_property
    def _layers(self) -> list[tuple[set[str], list[str]]]:
        """For each side, the layers that rules map as a whole, and the patterns of other rules."""
        sides = []
        for patterns in zip(*self._pairs(), strict=True) if self._policy.rename else ((), ()):
            heads = {each: each.removesuffix(_BELOW) for each in patterns}
            whole = {p: h for p, h in heads.items() if h != p and _WILDCARDS.isdisjoint(h)}
            sides.append((set(whole.values()), [p for p in patterns if p not in whole]))
        return sides

    def _pairs(self) -> Iterator[tuple[str, str]]:
        return ((r.checkpoint, model) for r in self._policy.rename for model in r.model)

    def unused(
        self, names: Sequence[str], dropped: Rules, also: Aliases = NO_ALIASES
    ) -> Iterator[Problem]:
        """A problem for each rule that was not used; ``dropped``: what is left out before."""
        for at, rule in enumerate(self._rules):
            if rule.used:
                continue
            place = self._policy.where(rule.field, rule.index)
            text = rule.checkpoint
            if (taken := next(filter(rule.apply, names), None)) is None:
                message = f"{rule.field}: {text!r} matches nothing in the checkpoint"
                hint = canonical(rule.apply, also) or question(near_selectors(text, names))
            else:
                before = (each for each in self._rules[:at] if each.apply(taken))
                earlier = next(((e.field, e.index, e.checkpoint) for e in before), None)
                field, index, other = dropped.taking(taken) or earlier or ("adapt", 0, "")
                line, _ = self._policy.where(field, index)
                verb = "renames" if rule.field == "rename" else "takes"
                message = (
                    f"{rule.field}: {text!r} {verb} nothing: {field}: {other!r}"
                    f"{f' in line {line}' * bool(line)} comes first, and takes {taken!r}"
                )
                hint = f"remove one of both{', or put this one first' * (field == rule.field)}"
            yield Problem(message, *place, hint)


def _rest(pattern: str, layer: str) -> str | None:
    """The rest of a pattern that names a layer; None if it does not name the layer itself.

    >>> _rest("model/a/**", "model/a"), _rest("model/**", "model/a")
    ('**', None)
    """
    levels, level = pattern.split("/"), layer.count("/") + 1
    head, rest = levels[:level], levels[level:]
    if pattern.startswith(REGEX) or len(head) < level or head[-1] == "*" or "**" in head:
        return None
    path = "/".join(head)
    if path == layer or (not _WILDCARDS.isdisjoint(path) and Selector(path).matches(layer)):
        return "/".join(rest)
    return None
