"""Applies the ``adapt`` rules that match a value, as one pipeline in the policy's order.

``split``, ``concat`` and a ``function`` of several values also determine where stored values go, as
a rename does. Rules before them apply to each stored value, rules after them to the part or the
joined value. Slots are not adapted with their variable, because an operation that is right for a
weight need not be right for its slots: a slot has its own rule, is reset, or is refused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.core.selectors import Selector
from tfckpt.errors import Problem
from tfckpt.planning.adaptation import operations
from tfckpt.planning.adaptation.change import Change, Impossible, ValueSpec, show_shape
from tfckpt.planning.adaptation.operations import Done, axis_of, box
from tfckpt.planning.matching.rules import canonical, did_you_mean
from tfckpt.policy import adaptations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory, Shape
    from tfckpt.planning.adaptation.operations import PlanContext
    from tfckpt.planning.matching.renames import Renames
    from tfckpt.planning.matching.routing import Route
    from tfckpt.planning.matching.rules import Aliases
    from tfckpt.policy import Policy

_SINGLE: dict[
    type[adaptations.Adaptation], Callable[[Any, ValueSpec, ValueSpec, PlanContext], Done]
] = {
    adaptations.Cast: operations.cast,
    adaptations.Transpose: operations.transpose,
    adaptations.Reshape: operations.reshape,
    adaptations.Slice: operations.slice_,
    adaptations.Pad: operations.pad,
    adaptations.Resize: operations.resize,
    adaptations.Vocabulary: operations.vocabulary,
    adaptations.Tile: operations.tile,
}
# These do nothing if dtype and shape are right already, and are not reported then.
_IDEMPOTENT = {"cast", "reshape", "slice", "pad", "tile"}
_SLOT_HINT = "add an `adapt` rule for the slot itself, or reset it with optimizer: {slots: reset}"


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
        """The changes to the stored values of these routes, in the order of the parts.

        Raises:
            Impossible: a rule cannot be applied.
        """
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
        to = _kind(live)
        changes: list[Change] = []
        for rule in own:
            change = self._change(rule, kinds, to, routes)
            if rule.how not in _IDEMPOTENT or change.before != change.after:
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
            hint = canonical(selector.matches, also) or did_you_mean(text, names)
            yield Problem(message, *self._policy.where("adapt", index), hint)

    def _check_slot(self, route: Route, live: Entry, own: Sequence[adaptations.Adapt]) -> None:
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
        stored_variable = self._stored.entries.get(route.stored.of)
        live_variable = self._live.entries.get(live.of)
        same_shape = (
            stored_variable is not None
            and live_variable is not None
            and stored_variable.shape == live_variable.shape
        )
        for rule, selector in zip(self._policy.adapt, self._selectors, strict=True):
            no_effect = rule.how == "cast" or (same_shape and rule.how in _IDEMPOTENT)
            if selector is not None and selector.matches(live.of) and not no_effect:
                return f"{rule.how}: {selector.pattern}"
        return ""

    def _check_parts(self, routes: Sequence[Route]) -> None:
        """Refuse a join with a missing part."""
        rule = self._policy.adapt[routes[0].adapt] if routes[0].adapt >= 0 else None
        if rule is None or isinstance(rule, adaptations.Split):
            return
        parts = {route.part for route in routes}
        for part, (pattern, _) in enumerate(rule.pairs()):
            if part not in parts:
                raise Impossible(f"how: {rule.how} needs {pattern!r}, which is missing")

    def _change(
        self, rule: Any, kinds: tuple[ValueSpec, ...], to: ValueSpec, routes: Sequence[Route]
    ) -> Change:
        if isinstance(rule, adaptations.Concat):
            done = _concat(rule, kinds)
        elif isinstance(rule, adaptations.Function) and rule.checkpoint is not None:
            done = self._function(rule, to)
        else:
            each = [self._single(rule, kind, to, routes[0]) for kind in kinds]
            return Change(
                rule.how,
                kinds,
                tuple(done.kind for done in each),
                " and ".join(dict.fromkeys(done.detail for done in each if done.detail)),
                tuple(done.options for done in each),
                each[0].rows,
            )
        return Change(rule.how, kinds, (done.kind,), done.detail, (done.options,))

    def _single(self, rule: Any, kind: ValueSpec, to: ValueSpec, route: Route) -> Done:
        if isinstance(rule, adaptations.Split):
            return self._split(rule, kind, route)
        if isinstance(rule, adaptations.Function):
            return self._function(rule, to)
        return _SINGLE[type(rule)](rule, kind, to, self._known)

    def _split(self, rule: adaptations.Split, kind: ValueSpec, route: Route) -> Done:
        axis = axis_of(rule.axis, kind.shape)
        sizes = rule.sizes or self._part_sizes(kind.shape, axis, route)
        whole = kind.shape[axis]
        if sum(sizes) != whole:
            parts = " + ".join(map(str, sizes))
            raise Impossible(
                f"sizes {parts} do not add up to {whole}, the size of axis {axis}", _SIZES_HINT
            )
        start = tuple(sum(sizes[: route.part]) if i == axis else 0 for i in range(len(kind.shape)))
        shape = _with(kind.shape, axis, sizes[route.part])
        detail = box(kind.shape, start, shape)
        return Done(ValueSpec(shape, kind.dtype), {"start": start, "size": shape}, detail)

    def _part_sizes(self, shape: Shape, axis: int, route: Route) -> tuple[int, ...]:
        """The sizes of the parts along an axis, from the shapes of the live values."""
        moved = self._renames.apply(route.stored.name)
        targets = next((each.targets for each in moved if each.adapt == route.adapt), ())
        rest = math.prod(_with(shape, axis, 1))
        sizes = []
        for target in targets:
            part = self._live.find(target)
            if part is None or part.shape is None:
                raise Impossible(f"the model has no {target}, so its size is unknown", _SIZES_HINT)
            if not rest or math.prod(part.shape) % rest:
                raise Impossible(
                    f"{show_shape(shape)} cannot be split along axis {axis} into parts for "
                    f"{target} {show_shape(part.shape)}",
                    _SIZES_HINT,
                )
            sizes.append(math.prod(part.shape) // rest)
        return tuple(sizes)

    def _function(self, rule: adaptations.Function, to: ValueSpec) -> Done:
        if rule.name not in self._known.functions:
            raise Impossible(
                f"no function is registered as {rule.name!r}",
                "import the module that registers it with tfckpt.register_adaptation; "
                f"registered: {', '.join(sorted(self._known.functions)) or 'none'}",
            )
        return Done(to, {"name": rule.name}, rule.name)


_SIZES_HINT = "set `sizes` to the sizes of the parts"


def _concat(rule: adaptations.Concat, kinds: Sequence[ValueSpec]) -> Done:
    first = kinds[0]
    axis = axis_of(rule.axis, first.shape)
    for kind in kinds:
        same = len(kind.shape) == len(first.shape)
        if not same or _with(kind.shape, axis, 1) != _with(first.shape, axis, 1):
            raise Impossible(
                f"cannot concatenate {show_shape(first.shape)} and {show_shape(kind.shape)} along "
                f"axis {axis}"
            )
        if kind.dtype != first.dtype:
            raise Impossible(
                f"cannot concatenate {first.dtype} and {kind.dtype}",
                "add a `how: cast` rule before this one",
            )
    shape = _with(first.shape, axis, sum(kind.shape[axis] for kind in kinds))
    return Done(ValueSpec(shape, first.dtype), {"axis": axis}, f"axis {axis}")


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _kind(entry: Entry) -> ValueSpec:
    if entry.shape is None:
        raise Impossible(f"{entry.name} is not a tensor")
    return ValueSpec(entry.shape, entry.dtype)
