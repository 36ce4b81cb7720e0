"""From a refused plan to the policy that restores the most with the fewest lines.

Each step of the search is a policy that is planned: what its plan still refuses says what to try
next. First what goes where: by position, if that alone is right, else by rules. Then the optimizer
and dtypes, and last what must be left out because nothing fits it. A layer that something fits is
never left out: where several fit and nothing distinguishes them, a person decides.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.core.selectors import Selector
from tfckpt.core.text import listed
from tfckpt.errors import PolicyError
from tfckpt.planning.checks.step import QUANTIZE_HINT, Status, is_save_counter
from tfckpt.planning.checks.unmatched import is_adapter
from tfckpt.planning.planner import make_plan
from tfckpt.planning.suggested import Candidates, Suggestion
from tfckpt.planning.suggestion.adapting import adapting, is_table_of_words
from tfckpt.planning.suggestion.fewest_rules import rename_rules, selectors
from tfckpt.planning.suggestion.loose import pair_loose
from tfckpt.planning.suggestion.order import on_branches
from tfckpt.planning.suggestion.pairing import candidates, pair, scopes_of
from tfckpt.planning.suggestion.seeds import paired_seeds
from tfckpt.planning.suggestion.units import Unit, holder_of, nests, parts, units
from tfckpt.planning.suggestion.words import UNUSED
from tfckpt.policy.adapt import OfVariable, PlanContext

if TYPE_CHECKING:
    from tfckpt.core.inventory import Container, Entry, Inventory
    from tfckpt.planning.plan import Plan
    from tfckpt.planning.suggestion.adapting import Adapting
    from tfckpt.planning.suggestion.pairing import Pairing
    from tfckpt.policy import Policy

_KEYS = (
    "api",
    "match",
    "rename",
    "adapt",
    "exclude",
    "exclude_checkpoint",
    "on_dtype_mismatch",
    "optimizer",
)
_FUSED = re.compile(r"(?<![a-z])(qkv|query_key_value|c_attn|in_proj)(?![a-z])")
_PROJECTION = re.compile(r"(?<![a-z])(query|key|value|[qkv])(?![a-z])")
_MOST_VALUES = 60_000
_LEAST_SHARE = 0.3  # of the weights of the smaller side; less is another model
_OF_OPTIMIZERS = frozenset({Role.SLOT, Role.ITERATIONS, Role.HYPERPARAMETER})
_MOST_SCOPES = 3
_MOST_PLANS = 8  # of a model inside of another one
_Shapes = dict[str, Counter[tuple[int, ...]]]
_RESETS: tuple[Any, ...] = (
    {"hyperparameters": "config"},
    {"iterations": "restore"},
    "reset",
)


def suggest(
    policy: Policy, stored: Inventory, live: Inventory, known: PlanContext | None = None
) -> Suggestion | None:
    """What would make the restore of ``stored`` into ``live`` possible.

    None if the policy is fine, if the two are different models, or if nothing helps.
    """
    return _Search(policy, stored, live, known).run()


class _Search:
    def __init__(
        self, policy: Policy, stored: Inventory, live: Inventory, known: PlanContext | None
    ) -> None:
        self._policy = policy
        self._stored = stored
        self._live = live
        self._known = known
        self._adapted = [
            Selector(rule.model) for rule in policy.adapt if isinstance(rule, OfVariable)
        ]
        self._either_way: tuple[Candidates, ...] = ()

    def run(self) -> Suggestion | None:
        if len(self._stored.entries) + len(self._live.entries) > _MOST_VALUES:
            gave_up = f"no policy was searched for, among more than {_MOST_VALUES:,} values"
            return Suggestion({}, gave_up=gave_up)
        base = self._planned({})
        if base is None or base.ok or any(step.hint == QUANTIZE_HINT for step in base.errors):
            return None
        pairing = self._pairing(base)
        changes, plan = self._placed(base, pairing)
        moved = sum(old != new for old, new in pairing.names.items())
        if moved and not changes:
            gave_up = f"{moved:,} values have other names, for which no few rules were found"
            return Suggestion({}, gave_up=gave_up)
        changes, plan = self._cast(changes, plan)
        changes, plan = self._with_optimizer(changes, plan)
        if whole := _fused(plan):
            sentence = (
                f"{whole} has query, key and value in one: an adapt rule, how: split, divides it"
            )
            return Suggestion(changes, gave_up=sentence)
        which = pairing.choices or self._open(plan)
        if choices := which or self._either_way or self._shifted(plan):
            by_names = self._by_names(changes, plan) if which else None
            if self._either_way:
                changes.pop("adapt", None)  # part of the answers
            settled = by_names is not None and (
                all(choice.stored == (choice.live,) for choice in choices)  # nothing else fits
                or self._names_settle(by_names.changes)
            )
            choices = self._scopes(choices) or choices
            asked = Suggestion(changes, choices=choices, by_names=by_names)
            found = by_names if settled else (which and self._nested()) or asked
        else:
            found = self._without_rest(changes, plan)
        if pairing.gave_up:
            found = dataclasses.replace(found or Suggestion({}), gave_up=pairing.gave_up)
        return found

    def _nested(self) -> Suggestion | None:
        """If all of one side is a model inside of the other one, in one place or in several."""
        models = _models(self._stored), _models(self._live)
        sure = self._places(models, {})
        found = sure or self._places(models, {"match": "name"})
        rules: dict[str, list[str]] = {}
        for old, new in found:
            rules.setdefault(old, []).append(new)
        both = list(rules.items()) if len(rules) == 1 < len(found) else []
        each = [(old, [new]) for old, new in found]
        ways = []
        for old, paths in [*both, *each][:_MOST_SCOPES]:
            targets = [f"{path}/**" for path in paths]
            rule = {"checkpoint": f"{old}/**", "model": targets[0] if len(paths) == 1 else targets}
            keys = {"rename": [rule]} if sure else {"rename": [rule], "match": "name"}
            if (plan := self._planned(keys)) is None:
                return None
            changes, plan = self._with_optimizer(*self._cast(keys, plan))
            if (one := self._without_rest(changes, plan)) is None:
                return None
            if sure and len(found) == 1:
                return one
            verb = "is" if len(paths) == 1 else "are each"
            what = f"{listed(paths)} {verb} {old} of the checkpoint"
            names = "" if sure else ", and layers with the same name are the same"
            ways.append((f"{what}{names}{f'; {one.left}' * bool(one.left)}", one.changes))
        why = "all layers of the smaller one are in the other, " + (
            "in this order" if sure else "by their names, though not by their order"
        )
        choices = (Candidates(new, tuple(rules), why, ("", ""), tuple(ways)) for _, new in found)
        return Suggestion({}, choices=tuple(choices)) if ways else None

    def _places(
        self, models: tuple[_Shapes, _Shapes], how: Mapping[str, Any]
    ) -> list[tuple[str, str]]:
        """Where all of one side may be in the other: path in the checkpoint, path in the model."""
        pairs = sorted(
            (-min(held.total(), wanted.total()), old, new)
            for old, held in models[0].items()
            for new, wanted in models[1].items()
            if old != new and "/" not in min(old, new, key=len)
            if held <= wanted or wanted <= held
        )
        for least, same in itertools.groupby(pairs[:_MOST_PLANS], lambda pair: pair[0]):
            found = []
            for _, old, new in same:
                rule = {"checkpoint": f"{old}/**", "model": f"{new}/**"}
                plan = self._planned({"rename": [rule], **how})
                if plan is not None and _moved(plan, f"{old}/", f"{new}/") == -least:
                    found.append((old, new))
            if found:
                return found
        return []

    def _scopes(self, choices: Sequence[Candidates]) -> tuple[Candidates, ...]:
        """One choice for all layers, where each is one in one of several scopes; else ()."""
        ways = []
        scopes = scopes_of(choices)
        for scope in scopes[:_MOST_SCOPES]:
            less = {"exclude_checkpoint": [f"{other}/**" for other in scopes if other != scope]}
            found = suggest(self._with(less), self._stored, self._live, self._known)
            more = found.changes if found is not None else {}
            less["exclude_checkpoint"] += more.get("exclude_checkpoint", [])
            ways.append((f"it is {scope}", {**more, **less}))
        if not ways:
            return ()
        live = choices[0].live.rpartition("/")[0] if len(choices) > 1 else choices[0].live
        why = "each has layers of these shapes"
        return (Candidates(live, scopes, why, ("", ""), tuple(ways)),)

    def _by_names(self, changes: Mapping[str, Any], plan: Plan) -> Suggestion | None:
        """If layers with one name are the same layer; None if that does not tell all apart."""
        changes, plan = self._better(changes, plan, {"match": "name"})
        return None if self._open(plan) else self._without_rest(changes, plan)

    def _names_settle(self, changes: Mapping[str, Any]) -> bool:
        """Whether nothing speaks against the names but layers of a class that one side lacks."""
        less = {key: value for key, value in changes.items() if key != "match"}
        stored = _of_classes_of(self._live, self._stored)
        live = _of_classes_of(self._stored, self._live)
        plan = make_plan(self._with(less), stored, live, self._known)
        return not any(step.status is Status.SUSPECT for step in plan.errors)

    def _with(self, changes: Mapping[str, Any]) -> Policy:
        """The policy with changed keys; rules are added to those that it has."""
        keys = self._policy.model_dump(mode="python", by_alias=True, exclude_unset=True)
        for key, value in changes.items():
            before = keys.get(key)
            if isinstance(value, Mapping):
                keys[key] = {**(before or {}), **value}
            elif isinstance(value, list):
                keys[key] = [*(before or ()), *value]
            else:
                keys[key] = value
        return type(self._policy)(**keys)

    def _planned(self, changes: Mapping[str, Any]) -> Plan | None:
        """The plan with changed keys; None if they contradict what the policy says."""
        try:
            return make_plan(self._with(changes), self._stored, self._live, self._known)
        except PolicyError:
            return None

    def _pairing(self, base: Plan) -> Pairing:
        matched = {s.source: s.name for s in base.assignments if s.entry.role is Role.WEIGHT}
        spared = {Status.EXCLUDED, Status.RESET}
        left = {n for s in base.steps if s.status in spared for n in (s.name, s.source)}
        sides = (self._stored, self._live), (self._live, self._stored)
        old, new = (
            [x for x in units(side, nests(other)) if not left & {e.name for e in x.values.values()}]
            for side, other in sides
        )
        restored = {s.name for s in base.assignments}
        suspects = {
            step.name.rpartition("/")[0]
            for step in base.steps
            if step.status is Status.SUSPECT and step.stored is not None
        }
        branching = on_branches(self._stored, self._live, new)
        if not any(unit.kind for unit in old):
            new = [part for unit in new for part in parts(unit)]
        found = pair(old, new, matched, restored, suspects=suspects, branching=branching)
        if found.choices:
            return found
        used = {*matched, *restored, *found.names, *found.names.values()}
        rest = (
            [x for x in side if not used & {e.name for e in x.values.values()}]
            for side in (old, new)
        )
        return dataclasses.replace(found, names={**found.names, **pair_loose(*rest)})

    def _placed(self, base: Plan, pairing: Pairing) -> tuple[dict[str, Any], Plan]:
        """By one rule, or by position if that does the same as the pairs, or by several rules."""
        if not pairing.names:
            return {}, base
        done = {s.source: s.name for s in base.assignments if s.entry.role is Role.WEIGHT}
        done = {old: new for old, new in done.items() if pairing.names.get(old, new) == new}
        wanted = {**done, **pairing.names}
        wanted |= self._seeds(base, wanted)
        names = rename_rules(wanted, self._stored.entries, self._live.entries, done)
        if names is None or len(names) > 1:
            by_position = {"match": "structure"}
            plan = self._planned(by_position)
            if plan is not None and _weights(plan).items() >= wanted.items():
                return by_position, plan
        if names is None:
            return {}, base
        changes: dict[str, Any] = {}
        if names:
            changes["rename"] = [{"checkpoint": old, "model": new} for old, new in names]
        left = {old: new for old, new in wanted.items() if not self._is_adapted(new)}
        adapted = adapting(left, self._stored, self._live)
        if adapted.rules:
            changes["adapt"] = adapted.rules
        plan = self._planned(changes)
        if adapted.either_way and plan is not None:
            turned = adapting(left, self._stored, self._live, transposed=True)
            self._either_way = _ways(left, adapted, turned)
        return (changes, plan) if plan is not None else ({}, base)

    def _is_adapted(self, name: str) -> bool:
        return any(selector.matches(name) for selector in self._adapted)

    def _seeds(self, base: Plan, weights: Mapping[str, str]) -> dict[str, str]:
        """Stored seed → live seed, of those that are left."""
        left = [
            step.name or step.source
            for step in base.steps
            if step.entry.role is Role.SEED and step.status in (Status.MISSING, Status.UNEXPECTED)
        ]
        old, new = ([x for x in left if x in side.entries] for side in (self._stored, self._live))
        return paired_seeds(old, new, weights)

    def _cast(self, changes: dict[str, Any], plan: Plan) -> tuple[dict[str, Any], Plan]:
        casts = any(
            step.status is Status.MISMATCH and "on_dtype_mismatch: cast" in step.hint
            for step in plan.errors
        )
        return (
            self._better(changes, plan, {"on_dtype_mismatch": "cast"}) if casts else (changes, plan)
        )

    def _with_optimizer(self, changes: dict[str, Any], plan: Plan) -> tuple[dict[str, Any], Plan]:
        errors = [step for step in plan.errors if step.entry.role in _OF_OPTIMIZERS]
        if not errors:
            return changes, plan
        if not any(entry.role in _OF_OPTIMIZERS for entry in self._live.entries.values()):
            names = {s.source for s in plan.steps if s.stored and s.stored.role in _OF_OPTIMIZERS}
            others = self._stored.entries.keys() - names
            return self._better(changes, plan, {"exclude_checkpoint": selectors(names, others)})
        kept = any(step.entry.role is Role.SLOT for step in plan.assignments)
        if kept and all(step.status is not Status.SUSPECT for step in errors):
            return changes, plan  # those of variables that are left out go with them
        for resets in _RESETS:
            better, found = self._better(changes, plan, {"optimizer": resets})
            if not any(step.entry.role in _OF_OPTIMIZERS for step in found.errors):
                return better, found
        return changes, plan

    def _open(self, plan: Plan) -> tuple[Candidates, ...]:
        """What is left on both sides and fits, though nothing says that it is the same."""
        left: tuple[dict[str, dict[str, Entry]], ...] = ({}, {})
        lone = [step for step in plan.errors if step.stored is None or step.live is None]
        # on both sides, and yet without a counterpart: a rule of the policy keeps them apart
        apart = {s.name for s in lone if s.live} & {s.source for s in lone if s.stored}
        for step in plan.errors:
            if (step.name or step.source) in apart:
                continue
            for entry, side in zip((step.stored, step.live), left, strict=True):
                if entry is not None and entry.role is Role.WEIGHT:
                    path = holder_of(entry.name)
                    side.setdefault(path, {})[entry.name[len(path) + 1 :]] = entry
        if not all(left):
            return ()
        stored = _units(left[0], self._stored, self._live)
        live = _units(left[1], self._live, self._stored)
        return candidates(stored, live)

    def _shifted(self, plan: Plan) -> tuple[Candidates, ...]:
        """Layers without names of other inputs and units: those before them may be others, too."""
        automatic = [unit.path for unit in units(self._live) if unit.automatic]
        found = []
        for step in plan.errors:
            if step.status is Status.MISMATCH and step.entry.role is Role.WEIGHT and step.stored:
                shapes = step.entry.shape or (), step.stored.shape or ()
                apart = sum(a != b for a, b in zip(*shapes, strict=False))
                path = holder_of(step.name)
                if len(shapes[0]) == len(shapes[1]) and apart > 1 and path in automatic:
                    new = (f"{path} is new, and those before it are the same", _leaving(path))
                    why = "it has other inputs and units, as if a layer had come before it"
                    found.append(Candidates(path, (path,), why, ("", ""), (new,)))
        return tuple(found)

    def _without_rest(self, changes: Mapping[str, Any], plan: Plan) -> Suggestion | None:
        """Without what nothing fits; None if that is not enough, or leaves nothing."""
        new, unused = set(), set()
        for step in plan.errors:
            if step.live is not None and step.status is not Status.SUSPECT:
                new.add(step.name)
            elif step.live is None and step.stored is not None:
                unused.add(step.source)
        counter = {name for name in new if is_save_counter(self._live.entries[name])}
        whole = _whole_layers(new - counter, self._live)
        rest: dict[str, Any] = {"api": "read"} if counter else {}
        if whole:
            rest["exclude"] = selectors(whole, self._live.entries.keys() - whole)
        if unused:
            unused -= whole  # of the same name, and left with it
            if unused:
                rest["exclude_checkpoint"] = _unused_selectors(unused, self._stored)
        better, found = self._better(changes, plan, rest) if rest else (changes, plan)
        left = []
        weights = {n for n in whole if self._live.entries[n].role is Role.WEIGHT}
        if weights:
            paths = selectors(weights, self._live.entries.keys() - weights)
            shown = listed([path.removesuffix("/**") for path in paths], 3)
            left.append(f"{shown} {'stays' if len(paths) == 1 else 'stay'} new")
        left += [
            f"of {step.name}, an adapt rule with how: vocabulary moves the rows by their words"
            for step in plan.errors
            if step.stored is not None and step.live is not None
            if is_table_of_words(step.stored, step.live)
        ][:1]
        if changes.get("optimizer") == "reset":
            left.append("the optimizer starts from scratch")
        if not found.ok or not self._is_same_model(found):
            return None
        better = {key: better[key] for key in _KEYS if key in better}
        return Suggestion(better, self._with(better), found, left="; ".join(left))

    def _better(
        self, changes: Mapping[str, Any], plan: Plan, more: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Plan]:
        """With more changed keys, if their plan has fewer errors."""
        both = dict(changes)
        for key, value in more.items():
            both[key] = [*both.get(key, ()), *value] if isinstance(value, list) else value
        found = self._planned(both)
        if found is None or _faults(found) >= _faults(plan):
            return dict(changes), plan
        return both, found

    def _is_same_model(self, plan: Plan) -> bool:
        restored = sum(step.entry.role is Role.WEIGHT for step in plan.assignments)
        sides = [
            sum(entry.role is Role.WEIGHT for entry in side.entries.values())
            for side in (self._stored, self._live)
        ]
        return restored > 0 and restored >= _LEAST_SHARE * min(sides)


def _models(side: Inventory) -> _Shapes:
    """Path → the shapes of all weights in it, of each container with several layers."""
    found: _Shapes = {}
    for name, entry in side.entries.items():
        if entry.role is Role.WEIGHT:
            for path in itertools.accumulate(name.split("/")[:-1], "{}/{}".format):
                if path in side.containers and len(side.containers[path].layers) > 1:
                    found.setdefault(path, Counter())[tuple(entry.shape or ())] += 1
    return found


def _moved(plan: Plan, old: str, new: str) -> int:
    pairs = ((s.source, s.name) for s in plan.assignments if s.entry.role is Role.WEIGHT)
    return sum(a.startswith(old) and b.startswith(new) for a, b in pairs)


def _of_classes_of(other: Inventory, one: Inventory) -> Inventory:
    """An inventory whose containers have the layers of those classes that the other one has."""
    kept: dict[str, Container] = {}
    for path, held in one.containers.items():
        classes = {x.cls for x in other.containers[path].layers} if path in other.containers else ()
        kept[path] = held._replace(layers=tuple(x for x in held.layers if x.cls in classes))
    return dataclasses.replace(one, containers=kept)


def _units(
    values: Mapping[str, dict[str, Entry]], inventory: Inventory, other: Inventory
) -> list[Unit]:
    """A unit for each path, of the class of the layer that it is in."""
    within = units(inventory, nests(other))
    kinds = {e.name: unit.kind for unit in within for e in unit.values.values()}
    return [
        Unit(path, below, kinds[next(iter(below.values())).name]) for path, below in values.items()
    ]


def _fused(plan: Plan) -> str:
    """A stored value that may hold query, key and value, which the model lacks; ``""`` for none."""
    left = [step for step in plan.errors if step.entry.role is Role.WEIGHT]
    if not any(step.stored is None and _PROJECTION.search(step.name) for step in left):
        return ""
    names = (step.source for step in left if step.live is None)
    return next((name for name in names if _FUSED.search(name)), "")


def _faults(plan: Plan) -> int:
    return len(plan.errors) + len(plan.problems)


def _ways(
    pairs: Mapping[str, str], plain: Adapting, transposed: Adapting
) -> tuple[Candidates, ...]:
    """Kernels that fit as they are and transposed, for a person."""
    answers = (
        ("a kernel is (in, out) in it, as in Keras", _adds(plain.rules)),
        ("it is (out, in), as in PyTorch", _adds(transposed.rules)),
    )
    names = {new: old for old, new in pairs.items()}
    return tuple(
        Candidates(
            new,
            (f"{names[new]} as it is", "transposed"),
            "it is square, and no other kernel shows the order of its axes",
            (names[new], new),
            answers,
        )
        for new in plain.either_way
    )


def _leaving(path: str) -> Mapping[str, Any]:
    return {"exclude": [f"{path}/**"]}


def _adds(rules: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return {"adapt": rules} if rules else {}


def _weights(plan: Plan) -> dict[str, str]:
    """Stored name → live name of what is restored, without optimizers."""
    return {
        step.source: step.name
        for step in plan.assignments
        if step.entry.role in (Role.WEIGHT, Role.SEED)
    }


def _whole_layers(names: set[str], live: Inventory) -> set[str]:
    """With the other weights of their layers: a head is restored whole or not at all.

    New low-rank factors leave the kernel beside them as it was trained.
    """
    weights = {x for x in names if live.entries[x].role is Role.WEIGHT and not is_adapter(x)}
    layers = {name.rpartition("/")[0] for name in weights}
    whole = {
        name
        for name, entry in live.entries.items()
        if entry.role is Role.WEIGHT and name.rpartition("/")[0] in layers
    }
    return names | whole


def _unused_selectors(names: set[str], stored: Inventory) -> list[str]:
    """Selectors for stored values; a word for those that only other libraries keep."""
    found = []
    for word in sorted(UNUSED):
        if words := {name for name in names if name.replace(".", "/").endswith(f"/{word}")}:
            found.append(f"re:.*{word}")
            names = names - words
    return found + selectors(names, stored.entries.keys() - names)
