"""Applies the ``adapt`` rules that match a value to blanks, as one pipeline in the policy's order.

``split``, ``concat`` and a ``function`` of several values also determine where stored values go, as
a rename does. Rules before them apply to each stored value, rules after them to the part or the
joined value. Slots are not adapted with their variable, because an operation that is right for a
weight need not be right for its slots: a slot has its own rule, is reset, or is refused.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from tfckpt.core.dtypes import dtype_name
from tfckpt.core.inventory import Role
from tfckpt.core.selectors import Selector
from tfckpt.core.similar import near_selectors, question
from tfckpt.errors import Problem
from tfckpt.planning.matching.rules import canonical
from tfckpt.policy.adapt import SIZES_HINT, AdaptTarget, Split
from tfckpt.policy.blanks import Impossible, ValueSpec, axis_of, blank, show_shape, with_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Shape
    from tfckpt.planning.matching.routing import Route
    from tfckpt.planning.matching.rules import Aliases, Renames
    from tfckpt.policy import Policy
    from tfckpt.policy.adapt import Adapt, Adaptation, PlanContext

_SLOT_HINT = "add an `adapt` rule for the slot itself, or reset it with optimizer: {slots: reset}"


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One operation on stored values before they are assigned.

    Attributes:
        how: the kind of rule, such as ``transpose``.
        before: the inputs' shapes and dtypes; several if values will be joined.
        after: the outputs' shapes and dtypes.
        detail: more for the report, such as ``[:, 4:8]``.
        rule: what makes the outputs.
        into: the variable, as the plan knows it.
    """

    how: str
    before: tuple[ValueSpec, ...]
    after: tuple[ValueSpec, ...]
    detail: str
    rule: Adaptation
    into: AdaptTarget = dataclasses.field(hash=False)

    def __str__(self) -> str:
        """As reports show it: ``transpose: (2, 3) → (3, 2)``."""
        types = {kind.dtype for kind in (*self.before, *self.after)}
        old, new = (
            " + ".join(
                f"{kind.dtype} " * (len(types) > 1) + show_shape(kind.shape) for kind in kinds
            )
            for kinds in (self.before, self.after)
        )
        return f"{self.how} {self.detail}".rstrip() + f": {old} → {new}"

    def to_json(self) -> dict[str, Any]:
        before, after = (
            [{"dtype": kind.dtype, "shape": list(kind.shape)} for kind in kinds]
            for kinds in (self.before, self.after)
        )
        return {"how": self.how, "detail": self.detail, "before": before, "after": after}


class Adaptations:
    """The pipelines of a policy."""

    def __init__(
        self,
        policy: Policy,
        renames: Renames,
        stored: Inventory,
        live: Inventory,
        known: PlanContext,
    ) -> None:
        self._policy = policy
        self._renames = renames
        self._stored = stored
        self._live = live
        self._known = known
        self._selectors = [
            Selector(rule.model) if not any(rule.pairs()) and isinstance(rule.model, str) else None
            for rule in policy.adapt
        ]

    def changes(self, routes: Sequence[Route], live: Entry) -> tuple[Change, ...]:
        """The changes to the stored values of these routes, in the order of the parts."""
        leading = routes[0].adapt
        own = [
            rule
            for index, rule in enumerate(self._policy.adapt)
            if (index == leading if (s := self._selectors[index]) is None else s.matches(live.name))
        ]
        self._check_slot(routes[0], live, own)
        if live.shape is None:  # a cast of all values does not concern an iterator
            own = [rule for rule in own if rule.how != "cast"]
        if not own:
            return ()
        self._check_parts(routes)
        kinds = tuple(_kind(route.stored) for route in routes)
        into = AdaptTarget(*_kind(live), self._known)
        changes: list[Change] = []
        for rule in own:
            change = self._change(rule, kinds, into, routes[0])
            if not rule.idempotent or change.before != change.after:
                changes.append(change)
                kinds = change.after
        return tuple(changes)

    def unused(self, names: Collection[str], also: Aliases) -> Iterator[Problem]:
        """A problem for each rule whose selector matches no live name."""
        for index, selector in enumerate(self._selectors):
            if selector is None or any(map(selector.matches, names)):
                continue
            text = selector.pattern
            message = f"adapt: {text!r} matches nothing"
            hint = canonical(selector.matches, also) or question(near_selectors(text, names))
            yield Problem(message, *self._policy.where("adapt", index), hint)

    def _check_slot(self, route: Route, live: Entry, own: Sequence[Adapt]) -> None:
        """Refuse a slot whose variable is adapted while the slot is not."""
        if live.role is not Role.SLOT:
            return
        followed = route.rule if route.follows else ""
        if live.shape and all(rule.how == "cast" for rule in own):
            followed = followed or self._rearranged(route, live)
        if followed:
            raise Impossible(
                f"its variable is adapted ({followed}), but this slot is not", _SLOT_HINT
            )

    def _rearranged(self, route: Route, live: Entry) -> str:
        """The rule that changes a slot's variable, ``""`` if there is none."""
        sides = self._stored.entries.get(route.stored.of), self._live.entries.get(live.of)
        same_shape = None not in sides and len({side.shape for side in sides if side}) == 1
        for rule, selector in zip(self._policy.adapt, self._selectors, strict=True):
            no_effect = rule.how == "cast" or (same_shape and rule.idempotent)
            if selector is not None and selector.matches(live.of) and not no_effect:
                return f"{rule.how}: {selector.pattern}"
        return ""

    def _check_parts(self, routes: Sequence[Route]) -> None:
        """Refuse a join with a missing part."""
        rule = self._policy.adapt[routes[0].adapt] if routes[0].adapt >= 0 else None
        if rule is None or isinstance(rule, Split):
            return
        parts = {route.part for route in routes}
        for part, (pattern, _) in enumerate(rule.pairs()):
            if part not in parts:
                raise Impossible(f"how: {rule.how} needs {pattern!r}, which is missing")

    def _change(
        self, rule: Adapt, kinds: tuple[ValueSpec, ...], into: AdaptTarget, route: Route
    ) -> Change:
        applied: Adaptation = rule
        if isinstance(rule, Split):
            sizes = rule.sizes or self._part_sizes(kinds[0].shape, rule.axis, route)
            applied = rule.part(route.part, kinds[0].shape, sizes)
        arrays = [blank(*kind) for kind in kinds]
        if rule.joins:
            made = [applied.make(into, *arrays)]
        else:
            made = [applied.make(into, array) for array in arrays]
        after = tuple(ValueSpec(array.shape, dtype_name(array.dtype)) for array, _ in made)
        detail = " and ".join(dict.fromkeys(detail for _, detail in made if detail))
        return Change(rule.how, kinds, after, detail, applied, into)

    def _part_sizes(self, shape: Shape, axis: int, route: Route) -> tuple[int, ...]:
        """The sizes of the parts along an axis, from the shapes of the live values."""
        axis = axis_of(axis, shape)
        moved = self._renames.apply(route.stored.name)
        targets = next((each.targets for each in moved if each.adapt == route.adapt), ())
        rest = math.prod(with_size(shape, axis, 1))
        sizes = []
        for target in targets:
            part = self._live.find(target)
            if part is None or part.shape is None:
                raise Impossible(f"the model has no {target}, so its size is unknown", SIZES_HINT)
            if not rest or math.prod(part.shape) % rest:
                raise Impossible(
                    f"{show_shape(shape)} cannot be split along axis {axis} into parts for "
                    f"{target} {show_shape(part.shape)}",
                    SIZES_HINT,
                )
            sizes.append(math.prod(part.shape) // rest)
        return tuple(sizes)


def _kind(entry: Entry) -> ValueSpec:
    if entry.shape is None or entry.dtype in ("resource", "variant"):
        raise Impossible(f"{entry.name} is not a tensor")
    return ValueSpec(entry.shape, entry.dtype)
