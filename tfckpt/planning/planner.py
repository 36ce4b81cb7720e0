"""A policy and two inventories become a plan.

Nothing is read from files. Linear in the number of values, unless layers are refused, hundreds of
unnamed ones were replaced by named ones, or there are hundreds of rules. In order:

1. ``matching/routing.py`` finds the live value for each stored one.
2. ``include``, ``exclude`` and the ``optimizer`` rules remove values that must not be restored.
3. ``checks/comparison.py`` compares the remaining pairs.
4. Everything unmatched is MISSING or UNEXPECTED.
5. Rules that matched nothing are reported as problems.

``exclude`` comes before ``optimizer`` rules, and these before ``include``: a slot that
``optimizer`` resets is reset even if ``include`` does not select it. If a variable is not restored,
neither are its slots: another variable's momentum would be wrong for it.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.gc_pause import gc_paused
from tfckpt.core.inventory import Role
from tfckpt.planning.adaptation.pipeline import Adaptations
from tfckpt.planning.checks.comparison import Comparison
from tfckpt.planning.checks.one_sided import OF_OPTIMIZERS, is_adapter, kind, with_new_factors
from tfckpt.planning.checks.optimizers import Optimizers
from tfckpt.planning.checks.step import (
    SAVE_COUNTER,
    Severity,
    Status,
    Step,
    counter_left,
    coverage,
    is_save_counter,
)
from tfckpt.planning.checks.unmatched import Unmatched
from tfckpt.planning.ema import Averages
from tfckpt.planning.matching.layers import Layers
from tfckpt.planning.matching.routing import Route, Router
from tfckpt.planning.matching.rules import Renames, Rules, also_known, by_role
from tfckpt.planning.plan import Plan
from tfckpt.policy.adapt import PlanContext

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.errors import Problem
    from tfckpt.planning.checks.one_sided import Kind
    from tfckpt.policy import Policy

_CLASH_HINT = "drop all but one with exclude_checkpoint"


@gc_paused()
def make_plan(
    policy: Policy, stored: Inventory, live: Inventory, known: PlanContext | None = None
) -> Plan:
    """What restoring ``stored`` into ``live`` under ``policy`` would do, value by value.

    ``known`` holds the vocabularies, functions and initializers that ``adapt`` rules refer to.

    >>> from tfckpt.policy import Policy
    >>> from tfckpt.core.inventory import Entry, Inventory, Role
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2, 2), 16)
    >>> inventory = Inventory("", {kernel.name: kernel})
    >>> plan = make_plan(Policy(name="strict"), inventory, inventory)
    >>> plan.ok, [step.status.value for step in plan.steps]
    (True, ['LOADED'])
    """
    if policy.ema is None:
        return _Planning(policy, stored, live, known).run()
    averages = Averages(policy, stored, live)
    plan = _Planning(policy, averages.stored, live, known).run()
    return dataclasses.replace(plan, steps=tuple(sorted(averages.named(plan.steps), key=_order)))


class _Spared(NamedTuple):
    """Why the policy keeps a value from being loaded."""

    status: Status
    reason: str
    severity: Severity = Severity.OK
    target: str = ""


class _Planning:
    def __init__(
        self, policy: Policy, stored: Inventory, live: Inventory, known: PlanContext | None
    ) -> None:
        self._policy = policy
        self._stored = stored
        self._live = live
        self._include = Rules(policy, "include")
        self._exclude = Rules(policy, "exclude")
        self._drop = Rules(policy, "exclude_checkpoint")
        self._renames = Renames(policy)
        self._layers = Layers(stored, live, self._renames)
        self._router = Router(policy, self._renames, stored, live, self._layers)
        adaptations = None
        if policy.adapt:
            adaptations = Adaptations(policy, self._renames, stored, live, known or PlanContext())
        self._adaptations = adaptations
        self._optimizers = optimizers = Optimizers(policy, stored, live)
        both = policy, stored, live, self._layers
        self._comparison = Comparison(*both, adaptations, optimizers=optimizers)
        self._expected = Rules(policy, "expect_missing"), Rules(policy, "expect_unexpected")
        self._reset, self._kept = by_role(policy)
        # stored values that go to the live value of the same name, which no other one maps to
        self._straight: dict[str, Entry] = {}
        # stored values without a live counterpart, as their names alone show
        self._left: list[Entry] = []
        # values of one side alone; for a stored value also the reason and the target name
        self._missing: list[Entry] = []
        self._unexpected: list[tuple[Entry, str, str]] = []
        self._steps: list[Step] = []
        # variable → the rule that excludes it, asked once for all its slots
        self._excluded: dict[str, str | None] = {}

    def run(self) -> Plan:
        routes = self._routes()
        moved = {route.stored.name: route.rule for route in routes if route.rule}
        claims = self._claims(routes)
        placed = {route.stored.name for routes_to_it in claims.values() for route in routes_to_it}
        unrouted = [route for route in routes if not route.live and _goes_nowhere(route, placed)]
        self._load_straight()
        for live in self._live.entries.values():
            if live.name not in self._straight:
                self._place(live, claims.get(live.name, ()))
        for route in unrouted:
            self._leave(route)
        wanted = {kind(live) for live in self._missing}
        self._leave_plainly(wanted)
        left = (*self._left, *(stored for stored, *_ in self._unexpected)) if wanted else ()
        unused = {kind(stored) for stored in left if not is_save_counter(stored)}
        for live in self._missing:
            rival = kind(live) in unused
            self._steps.append(self._unmatched.missing(live, moved, rival=rival))
        for stored, reason, target in self._unexpected:
            rival = kind(stored) in wanted
            self._steps.append(self._unmatched.unexpected(stored, reason, target, rival=rival))
        if len(self._steps) > len(self._straight):  # those are in order
            self._steps.sort(key=_order)
        steps = with_new_factors(self._steps, self._policy)
        self._steps = self._optimizers.decide(steps)
        problems = (
            *self._idle_rules(routes),
            *coverage(self._policy, self._steps, self._stored, self._live),
        )
        name, source = self._policy.name, self._stored.source
        return Plan(name, source, tuple(self._steps), problems, self._policy.file)

    @cached_property
    def _unmatched(self) -> Unmatched:
        rules = self._drop, *self._expected
        both = self._policy, self._stored, self._live, self._layers
        return Unmatched(*both, rules, optimizers=self._optimizers)

    def _routes(self) -> list[Route]:
        """Where each stored value goes, except those that are dropped at once.

        Fast path: values matched by name alone go to ``_straight``, those whose name the model does
        not have to ``_left``. In most restores that covers every value.
        """
        routes: list[Route] = []
        straight, nowhere = self._router.straight, self._router.nowhere
        drops = bool(self._drop)
        counter_left = self._policy.api == "read" and self._policy.assert_ == "consumed"
        for name, stored in self._stored.entries.items():
            if drops and (rule := self._drop.first(name)) is not None:
                self._spare(_Spared(Status.EXCLUDED, f"exclude_checkpoint: {rule}"), stored=stored)
            elif counter_left and is_save_counter(stored):
                reason = (
                    "api: read does not restore the save counter, so assert: consumed cannot hold"
                )
                self._unexpected.append((stored, reason, ""))
            elif stored.role is not Role.SEED and straight(stored) is not None:
                self._straight[name] = stored
            elif stored.role is not Role.SEED and nowhere(stored):
                self._left.append(stored)
            else:
                for route in self._router.routes(stored):
                    if not route.rule and (reason := self._unmatched.seeds.ambiguity(stored)):
                        route = route._replace(live=None, conflicts=reason)  # noqa: PLW2901
                    routes.append(route)
        return routes

    def _claims(self, routes: Sequence[Route]) -> dict[str, list[Route]]:
        """Live name → the stored values that map to it, each once."""
        claims: dict[str, list[Route]] = {}
        for route in routes:
            if route.live is not None:
                routes_to_it = claims.setdefault(route.live.name, [])
                if not any(
                    _same(other, route) for other in routes_to_it
                ):  # two names of one variable
                    routes_to_it.append(route)
        unruled = {route.stored.name for route in routes if not route.rule}
        unruled.update(self._straight)
        for name in claims.keys() & self._straight.keys():
            stored = self._straight.pop(name)
            claims[name].append(Route(stored, name, self._live.entries[name]))
        for name, live in self._live.entries.items() if self._router.aliased else ():
            is_claimed = name in claims or name in self._straight
            other = None if is_claimed else self._router.known_as(live)
            if other is not None and other.name in unruled:
                claims[name] = [Route(other, name, live, alias=True)]
        return claims

    def _load_straight(self) -> None:
        """The steps of the values in ``_straight``, unless a rule leaves them out."""
        selects = bool(self._exclude) or not self._include.everything
        spared = self._reset.keys() | self._kept.keys()
        plain, steps = self._comparison.plain, self._steps
        loaded = Status.LOADED
        for name in sorted(self._straight):
            stored, live = self._straight[name], self._live.entries[name]
            asks = selects or live.role in spared or name == SAVE_COUNTER
            if asks and (why := self._spared(name, live)) is not None:
                self._spare(why, live, stored)
            elif plain(stored, live):
                steps.append(Step(loaded, name, name, live, stored))
            else:
                steps.append(self._comparison.step([Route(stored, name, live)], live))

    def _place(self, live: Entry, claims: Sequence[Route]) -> None:
        if len(claims) > 1:
            claims = sorted(claims, key=lambda route: route.stored.name)
        if (why := self._spared(live.name, live)) is not None:
            self._spare(why, live, claims[0].stored if claims else None)
            for route in claims[1:]:
                self._spare(why, stored=route.stored)
            return
        # a value under its own name takes precedence over one found by an alias
        direct = [route for route in claims if not route.alias or route.rule] or claims
        listed = [route for route in direct if self._is_listed(route)]
        if len(listed) == len(direct):
            direct = direct[:1]
        for route in claims:
            if route in direct:
                continue
            if self._is_listed(route):
                # Keras writes a variable once for each layer that holds it
                twice = f"another copy of {live.name}, which Keras stores twice"
                spared = Status.EXCLUDED, "", route.stored.name, None, route.stored, Severity.NOTE
                self._steps.append(Step(*spared, twice, copy_of=direct[0].stored))
            else:
                reason = f"another name of {live.name}, which has its own value in the checkpoint"
                self._steps.append(self._second(route.stored, reason))
        if not direct:
            self._missing.append(live)
        elif joined := _joined(direct, self._policy):
            self._steps.append(self._comparison.step(joined, live))
        else:
            self._clash(live, direct)

    def _is_listed(self, route: Route) -> bool:
        """Whether the order in a layer says where a value goes, not a rule."""
        return not route.rule and self._layers.orders.layers(route.stored.name) is not None

    def _second(self, stored: Entry, reason: str) -> Step:
        """The step of a value that was another variable's, tied since: no policy passes over it."""
        found = Status.UNEXPECTED, "", stored.name, None, stored
        if (rule := self._expected[1].every(stored.name)) is not None:
            return Step(*found, Severity.NOTE, f"{reason}, as expected: {rule}")
        return Step(*found, Severity.ERROR, reason, _CLASH_HINT)

    def _clash(self, live: Entry, claims: Sequence[Route]) -> None:
        first, *others = sorted((route.stored for route in claims), key=lambda entry: entry.name)
        names = " and ".join(entry.name for entry in (first, *others))
        both = f"both {names}" if len(others) == 1 else f"{names} all"
        reason = f"{both} map to {live.name}"
        error = Severity.ERROR, reason, _CLASH_HINT
        self._steps.append(Step(Status.MISMATCH, live.name, first.name, live, first, *error))
        for other in others:
            self._steps.append(Step(Status.UNEXPECTED, "", other.name, None, other, *error))

    def _leave(self, route: Route) -> None:
        """The step of a stored value that has no live counterpart."""
        stored = route.stored
        if (spared := self._spared(route.target, stored)) is not None:
            # the model has no value to reset
            target = route.target if spared.status is Status.RESET else ""
            self._spare(spared._replace(status=Status.EXCLUDED, target=target), stored=stored)
        elif is_save_counter(stored):
            spared = _Spared(
                Status.EXCLUDED, "the objects given have no save counter", Severity.NOTE
            )
            self._spare(spared, stored=stored)
        else:
            reason = route.conflicts or self._layers.orders.why(stored.name)
            reason = reason or (route.rule and "the model has nothing at its position")
            if route.target != stored.name and not route.conflicts:
                reason = ", but ".join(
                    filter(None, (route.rule, f"the model has no {route.target}"))
                )
            self._unexpected.append((stored, reason, route.target))

    def _leave_plainly(self, wanted: Collection[Kind]) -> None:
        """The steps of the values in ``_left``, computed once per role or kind where possible."""
        if not self._left:
            return
        unmatched, live = self._unmatched, self._live.entries
        hinted = self._policy.on_unexpected == "error" and not unmatched.by_role
        rules = self._exclude or self._expected[1] or not self._include.everything
        ask_each = bool(hinted or rules)
        asked_roles = self._reset.keys() | self._kept.keys() | {Role.METRIC}
        if self._live.optimizers and self._policy.on_unexpected == "error":
            asked_roles |= OF_OPTIMIZERS  # each of another optimizer, maybe
        steps: dict[Kind | Role, Step] = {}
        for stored in self._left:
            name, role = stored.name, stored.role
            particular = name == SAVE_COUNTER or ("/lora_" in name and is_adapter(name))
            if ask_each or role in asked_roles or stored.of in live or particular:
                self._leave(Route(stored, name, None))
                continue
            alike = kind(stored) if wanted else role
            if alike not in steps:
                steps[alike] = unmatched.unexpected(stored, "", rival=alike in wanted)
            step = steps[alike]
            details = step.severity, step.reason, step.hint, name
            self._steps.append(Step(Status.UNEXPECTED, "", name, None, stored, *details))

    def _spared(self, name: str, entry: Entry) -> _Spared | None:
        """Why the policy does not load a value; ``name`` is its live name, after renaming."""
        if (rule := self._exclude.first(name)) is not None:
            return _Spared(Status.EXCLUDED, f"exclude: {rule}")
        if (reason := self._reset.get(entry.role)) is not None:
            return _Spared(Status.RESET, reason)
        if reason := self._unselected(name, entry):
            return _Spared(Status.EXCLUDED, reason)
        if is_save_counter(entry) and (reason := counter_left(self._policy, self._stored)):
            return _Spared(Status.EXCLUDED, reason, Severity.NOTE)
        return None

    def _unselected(self, name: str, entry: Entry) -> str:
        if entry.of and self._exclude:
            variable = self._variable(entry)
            if variable not in self._excluded:
                self._excluded[variable] = self._exclude.first(variable)
            if (rule := self._excluded[variable]) is not None:
                return f"exclude: {rule} matches its variable"
        holder = ""
        if self._holders and entry.role in OF_OPTIMIZERS:
            paths = (path for path in self._holders if name.startswith(f"{path}/"))
            holder = self._holders.get(next(paths, ""), "")
        if self._include.first(name, holder) is None:
            if holder and (rule := self._include.first(f"{holder}/\0")) is not None:
                return f"{rule} means the weights; name the optimizer to include it"
            return "no include rule selects it"
        return self._kept.get(entry.role, "")

    @cached_property
    def _holders(self) -> dict[str, str]:
        """Path of an optimizer, the outer ones first → the object with weights that has it."""
        found = {}
        for path in sorted({*self._live.optimizers, *self._stored.optimizers}, key=len):
            holder = path.rpartition("/")[0]
            entries = self._live.entries.values() if holder and holder not in found else ()
            if any(e.role is Role.WEIGHT and e.name.startswith(f"{holder}/") for e in entries):
                found[path] = holder
        return found

    def _variable(self, slot: Entry) -> str:
        """The live name of a slot's variable, after renaming, whether or not it exists."""
        live = slot.name in self._live.entries
        return slot.of if live else self._router.meant(slot.of)

    def _spare(
        self, spared: _Spared, live: Entry | None = None, stored: Entry | None = None
    ) -> None:
        status, reason, severity, target = spared
        names = live.name if live else "", stored.name if stored else ""
        self._steps.append(Step(status, *names, live, stored, severity, reason, "", target))

    def _idle_rules(self, routes: Sequence[Route]) -> Iterator[Problem]:
        rules = self._include, self._exclude, self._drop, self._renames, *self._expected
        if not any(rule.idle for rule in rules) and self._adaptations is None:
            return
        stored, live = sorted(self._stored.entries), sorted(self._live.entries)
        targets = (route.target for route in routes)
        either = sorted({*live, *targets, *(entry.name for entry in self._left)})
        stored_aliases, live_aliases = (also_known(side) for side in (self._stored, self._live))
        yield from self._include.unused(either, live_aliases)
        yield from self._exclude.unused(either, live_aliases)
        yield from self._drop.unused(stored, stored_aliases)
        yield from self._renames.unused(stored, self._drop, stored_aliases)
        if self._adaptations is not None:
            yield from self._adaptations.unused(live, live_aliases)
        yield from self._expected[0].unmet(live, "not missing", live_aliases)
        yield from self._expected[1].unmet(stored, "not unexpected", stored_aliases)


def _order(step: Step) -> tuple[str, str, str]:
    return step.name or step.source, step.source, step.target


def _joined(claims: Sequence[Route], policy: Policy) -> list[Route]:
    """The only claim, or those that one rule joins, in its order; empty if claims conflict."""
    if len(claims) == 1:
        return list(claims)
    rules = {route.adapt for route in claims}
    if len(rules) > 1 or min(rules) < 0 or policy.adapt[min(rules)].how == "split":
        return []
    ordered = sorted(claims, key=lambda route: route.part)
    return ordered if len({route.part for route in claims}) == len(claims) else []


def _same(one: Route, other: Route) -> bool:
    return (one.stored, one.adapt, one.part) == (other.stored, other.adapt, other.part)


def _goes_nowhere(route: Route, placed: Collection[str]) -> bool:
    """Whether a route without a live value needs a step; not if an alias led to one."""
    return bool(route.rule) or route.stored.name not in placed
