"""The rules that map a stored value to a live one of another name, and which of them were used.

All rules see the original stored names, never the result of another rule. ``adapt`` rules that
split and join values come first, and a value goes to each that matches. If none matches, the first
matching ``rename`` rule applies.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.selectors import REGEX, Selector, compile_rename
from tfckpt.errors import Problem
from tfckpt.planning.matching.rules import NO_ALIASES, canonical, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfckpt.core import selectors
    from tfckpt.planning.matching.rules import Aliases
    from tfckpt.policy import Policy


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
    pairs: tuple[selectors.CompiledRename, ...]
    words: str
    part: int = 0
    used: bool = False

    @property
    def adapt(self) -> int:
        return self.index if self.field == "adapt" else -1

    def apply(self, name: str) -> tuple[str, ...]:
        """The new names; empty if the rule does not match."""
        results = [pair.apply(name) for pair in self.pairs]
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
                part,
            )
            for field_and_index, part, (checkpoint, models), prefix in adapting + renaming
        ]

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

    def keep(self, layer: str) -> bool:
        """Whether a rule explicitly maps the layer of a path to its own name.

        >>> from tfckpt.policy import Policy
        >>> rules = [{"checkpoint": each, "model": each} for each in ("model/a/**", "model/*/b/**")]
        >>> renames = Renames(Policy(rename=rules))
        >>> renames.keep("model/a"), renames.keep("model/b"), renames.keep("model/c/b")
        (True, False, True)
        """
        level = layer.count("/") + 1
        for rule in self._policy.rename:
            parts = rule.checkpoint.split("/")[:level]
            maps_to_itself = rule.checkpoint in rule.model and not rule.checkpoint.startswith(REGEX)
            if not maps_to_itself or len(parts) < level or parts[-1] == "*":
                continue
            if "**" not in parts and Selector("/".join(parts)).matches(layer):
                return True
        return False

    def unused(self, names: Sequence[str], also: Aliases = NO_ALIASES) -> Iterator[Problem]:
        """A problem for each rule that was not used."""
        for rule in self._rules:
            if rule.used:
                continue
            line, column = self._policy.where(rule.field, rule.index)
            text = rule.checkpoint
            if (taken := next(filter(rule.apply, names), None)) is None:
                message = f"{rule.field}: {text!r} matches nothing in the checkpoint"
                hint = canonical(rule.apply, also) or did_you_mean(text, names)
            else:
                verb = "renames" if rule.field == "rename" else "takes"
                message = f"{rule.field}: {text!r} {verb} nothing"
                hint = f"an earlier rule or exclude_checkpoint takes all its values, e.g. {taken!r}"
            yield Problem(message, line, column, hint)
