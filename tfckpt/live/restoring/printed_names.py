"""Selectors as they were copied from ``tfckpt inspect``, which knows no objects.

A model that is passed as ``model=`` gives its names to what the checkpoint has under another root:
``encoder/dense/kernel`` is ``model/encoder/dense/kernel`` then. A selector whose first component
nothing has is understood as in the checkpoint's own names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.core.selectors import REGEX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tfckpt.core.inventory import Inventory
    from tfckpt.policy import Policy

_SELECTORS = ("include", "exclude", "exclude_checkpoint", "expect_missing", "expect_unexpected")
_WILD = frozenset("*?[")


def as_named(
    policy: Policy, stored: Inventory, live: Inventory, printed: Callable[[], Inventory]
) -> Policy:
    """The policy with the names that the values have beside these objects.

    ``printed`` opens the checkpoint without objects; it is called only if a selector needs it.
    """
    known = {name.partition("/")[0] for side in (stored, live) for name in side.entries}
    unknown = {_top(text) for text in _texts(policy)} - known - {""}
    if not unknown:
        return policy
    heads = {top: head for top, head in _heads(printed(), stored).items() if top in unknown}
    if not heads:
        return policy

    def renamed(text: str) -> str:
        head = heads.get(_top(text))
        return text if head is None else head + text[len(_top(text)) :]

    changed: dict[str, Any] = {
        field: tuple(map(renamed, getattr(policy, field)))
        for field in _SELECTORS
        if getattr(policy, field)
    }
    rules = (r.model_copy(update={"checkpoint": renamed(r.checkpoint)}) for r in policy.rename)
    changed = {field: value for field, value in changed.items() if value != getattr(policy, field)}
    return policy.model_copy(update={**changed, "rename": tuple(rules)})


def _texts(policy: Policy) -> Iterator[str]:
    for field in _SELECTORS:
        yield from getattr(policy, field)
    for rule in policy.rename:
        yield rule.checkpoint


def _top(text: str) -> str:
    """The first component of a selector, ``""`` if it may be several."""
    top = text.partition("/")[0]
    return "" if text.startswith(REGEX) or _WILD & set(top) else top


def _heads(printed: Inventory, stored: Inventory) -> Mapping[str, str]:
    """First component as printed → what the values below it begin with here."""
    names = {entry.key: entry.name for entry in stored.entries.values() if entry.key}
    found: dict[str, set[str]] = {}
    for entry in printed.entries.values():
        top, _, rest = entry.name.partition("/")
        name = names.get(entry.key, "")
        if rest and name.endswith(f"/{rest}"):
            found.setdefault(top, set()).add(name.removesuffix(f"/{rest}"))
    return {top: heads.pop() for top, heads in found.items() if len(heads) == 1}
