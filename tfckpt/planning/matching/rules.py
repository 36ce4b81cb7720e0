"""The selectors of a policy, and which of them met anything.

A selector with a typing error selects nothing, and a restore that then goes through is the wrong
one. So each rule remembers whether it met a value, and one that met none is a problem, with its
line and with the names that were perhaps meant. The default ``include: ["**"]`` is nobody's rule
and is not held to that.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from types import MappingProxyType
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Role
from tfckpt.core.selectors import REGEX, Selector, suggest
from tfckpt.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from tfckpt.core.inventory import Inventory
    from tfckpt.policy import Policy

    Aliases = Mapping[str, str]

_EVERYTHING = ("**",)
_SHOWN = 3
_TELLING = 2  # the name of a variable alone says nothing
_NUMBER_OF_OUTPUT = re.compile(r":[0-9]{1,9}\Z")  # `kernel:0`, as TensorFlow calls a variable
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
        self._selectors = [Selector(text) for text in self._texts]
        self._met = [False] * len(self._texts)
        self.everything = self._texts == _EVERYTHING

    def __len__(self) -> int:
        return len(self._texts)

    def first(self, name: str) -> str | None:
        """The first selector that matches, as it is written."""
        if self.everything:
            return self._texts[0]
        for index, selector in enumerate(self._selectors):
            if selector.matches(name):
                self._met[index] = True
                return self._texts[index]
        return None

    def every(self, name: str) -> str | None:
        """As :meth:`first`, and every other selector that matches has met something too."""
        found = [index for index, rule in enumerate(self._selectors) if rule.matches(name)]
        for index in found:
            self._met[index] = True
        return self._texts[found[0]] if found else None

    @property
    def idle(self) -> bool:
        """Whether a selector has met nothing so far."""
        return not self.everything and not all(self._met)

    def unused(self, names: Collection[str], also: Aliases = NO_ALIASES) -> Iterator[Problem]:
        """A problem for each selector that matches none of the names.

        Args:
            names: what there is to match.
            also: other names of the same values, which no selector matches.

        """
        if self.everything:
            return
        for index, selector in enumerate(self._selectors):
            if not self._met[index] and not any(selector.matches(name) for name in names):
                line, column = self._policy.where(self._field, index)
                text = self._texts[index]
                message = f"{self._field}: {text!r} matches nothing"
                hint = canonical(selector.matches, also) or did_you_mean(text, names)
                yield Problem(message, line, column, hint)

    def unmet(
        self, names: Collection[str], what: str, also: Aliases = NO_ALIASES
    ) -> Iterator[Problem]:
        """A problem for each expected difference that did not occur; ``what`` did not happen."""
        for index, selector in enumerate(self._selectors):
            if self._met[index]:
                continue
            line, column = self._policy.where(self._field, index)
            text = self._texts[index]
            if (other := next((name for name in names if selector.matches(name)), None)) is None:
                message = f"{self._field}: {text!r} matches nothing"
                hint = canonical(selector.matches, also) or did_you_mean(text, names)
            else:
                message = f"{self._field}: {text!r} expects a difference, but {other!r} is {what}"
                hint = "remove the rule if the difference is gone for good"
            yield Problem(message, line, column, hint)


def also_known(inventory: Inventory) -> dict[str, str]:
    """Every further name of a value → its canonical one.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
    >>> also_known(Inventory("here", {kernel.name: kernel}, aliases={"model/tied": "model/a"}))
    {'model/tied/kernel': 'model/a/kernel'}
    """
    names = sorted(inventory.entries)
    found = {}
    for alias, path in sorted(inventory.aliases.items()):
        for index in range(bisect_left(names, path), len(names)):
            name = names[index]
            if not name.startswith(path):
                break
            if name == path or name[len(path)] == "/":
                found[alias + name.removeprefix(path)] = name
    return found


def canonical(matches: Callable[[str], object], also: Aliases) -> str:
    """Where a selector matches a further name of a value alone: the name to write."""
    alias = next(filter(matches, also), None)
    if alias is None:
        return ""
    return f"{alias!r} is another name of {also[alias]!r}: selectors match only the latter"


def did_you_mean(pattern: str, names: Collection[str]) -> str:
    """What a selector that matched nothing may have meant.

    Itself below a parent, as it is where the name of the model, or Keras's for it, stands in its
    place; else names near it, by spelling and by their last component.

    >>> did_you_mean("sequential/head/kernel:0", ["model/body/kernel", "model/head/kernel"])
    "did you mean 'model/head/kernel'?"
    """
    near = [] if pattern.startswith(REGEX) else _below_a_parent(pattern, names)
    if not near:
        near = list(suggest(pattern, names))
        last = pattern.rpartition("/")[2]
        near.extend(name for name in names if name.rpartition("/")[2] == last)
    shown = list(dict.fromkeys(near))[:_SHOWN]
    return f"did you mean {' or '.join(map(repr, shown))}?" if shown else ""


def by_role(policy: Policy) -> tuple[dict[Role, str], dict[Role, str]]:
    """Roles that the policy resets, and roles whose live values it keeps; each with the reason."""
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


def _below_a_parent(pattern: str, names: Collection[str]) -> list[str]:
    """The end of a pattern, or all below it, below the parents of which it matches anything."""
    levels = _NUMBER_OF_OUTPUT.sub("", pattern).split("/")
    for start in range(len(levels)):
        tail = levels[start:]
        if start and len(tail) < _TELLING:
            break
        for end in (tail, [*tail, "**"]):
            selector = Selector("/".join(end))
            parents = {
                tuple(parts[:at])
                for parts in (name.split("/") for name in names)
                for at in range(len(parts) - len(end) + 1)
                if selector.matches("/".join(parts[at:]))
            }
            nearest = min(map(len, parents), default=0)
            if parents and any(map(str.isidentifier, end)):
                found = sorted(parent for parent in parents if len(parent) == nearest)
                return ["/".join((*parent, *end)) for parent in found]
    return []
