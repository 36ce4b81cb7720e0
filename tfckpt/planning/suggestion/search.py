"""From a refused plan to the policy that restores what the evidence makes certain, and no more.

A policy is only the way to write the pairs down: the plainest one whose plan restores exactly these
pairs. Then dtypes and the optimizer, and last what has no counterpart is left out, layer by layer.
If something that would stay new may be something that would be left, nothing is suggested but the
question, with answers that are whole policies. Everything was planned before it is shown.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.core.fewest import holder_of, last_word, renaming, selecting
from tfckpt.core.inventory import Role, rebased
from tfckpt.core.selectors import Selector
from tfckpt.errors import PolicyError
from tfckpt.planning.checks.one_sided import OF_OPTIMIZERS, is_adapter
from tfckpt.planning.checks.step import QUANTIZE_HINT, Status, is_save_counter
from tfckpt.planning.ema import Averages
from tfckpt.planning.matching.seeds import layer_of, seed_of
from tfckpt.planning.planner import make_plan
from tfckpt.planning.suggested import Answer, Candidates, Suggestion, leaving, which_is_which
from tfckpt.planning.suggestion.fitting import axes_of, merges, permuted
from tfckpt.planning.suggestion.ladder import MOVED, Ladder
from tfckpt.policy.adapt import OfVariable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfckpt.core.inventory import Inventory
    from tfckpt.planning.plan import Plan
    from tfckpt.planning.suggestion.ladder import LayerNode, Nodes
    from tfckpt.policy import Policy
    from tfckpt.policy.adapt import PlanContext

    Keys = dict[str, Any]
    Names = dict[str, str]  # stored name → live name

_MOST_VALUES = 60_000
_MOST_EFFORT = 200_000  # values, in all plans
_MOST_SCOPES, _MOST_RULES = 3, 200
_EITHER = 2  # layers that may have changed places
_LEAST_SHARE = 0.3  # of the weights of the smaller side; less is another model
_RESETS: tuple[Any, ...] = ({"hyperparameters": "config"}, {"iterations": "restore"}, "reset")
# How the pairs are written, the plainest way first: by which names, and with which rules.
_FORMS = (
    *(("", ""), ("", "one"), ("name", ""), ("structure", ""), ("", "few")),
    *(("", "layers"),) * 3,
    ("name", "layers"),
)
_ORDER = ("api", "match", "rename", "adapt", "exclude", "exclude_checkpoint")
_ALIKE = "the shapes are equal, and neither a name nor the order makes it certain"


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
        self._file = stored
        self._stored = Averages(policy, stored, live).stored if policy.ema else stored
        self._live = live
        self._known = known
        self._effort = 0
        rules = (rule for rule in policy.adapt if isinstance(rule, OfVariable))
        self._adapted = [Selector(rule.model) for rule in rules]

    def run(self) -> Suggestion | None:
        if len(self._stored.entries) + len(self._live.entries) > _MOST_VALUES:
            gave_up = f"no policy was searched for, among more than {_MOST_VALUES:,} values"
            return Suggestion({}, gave_up=gave_up)
        plan = self._planned({})
        if plan is None or plan.ok or any(step.hint == QUANTIZE_HINT for step in plan.errors):
            return None
        bare = plan
        if "include" in self._policy.model_fields_set:
            policy = self._policy.model_copy(update={"include": ("**",), "ema": None})
            bare = make_plan(policy, self._stored, self._live, self._known)
        self._plan, self._ladder = plan, Ladder(self._stored, self._live, plan, bare)
        if self._ladder.scopes and (found := self._of_scopes()):
            return found
        if questions := self._ladder.questions():
            return self._asked(questions)
        return self._written(self._ladder.names())

    # Questions

    def _of_scopes(self) -> Suggestion | None:
        """Which of several parts of one side the other one is."""
        pairs, answers = self._ladder.scopes, []
        of_model = len({live for _, live in pairs}) > 1
        key = "exclude" if of_model else "exclude_checkpoint"
        for pair in pairs[:_MOST_SCOPES]:
            less = {key: [f"{other[of_model]}/**" for other in pairs if other != pair]}
            found = suggest(self._with(less), self._file, self._live, self._known)
            if found is not None and found.policy is not None:
                found = dataclasses.replace(found, changes=_both(less, found.changes))
                answers.append(Answer(which_is_which([pair]), found))
        why = "layers of the same shapes are in each"
        parts = {live: tuple(old for old, new in pairs if new == live) for _, live in pairs}
        choices = (Candidates(live, old, why, may_be_new=of_model) for live, old in parts.items())
        return Suggestion({}, choices=tuple(choices), answers=tuple(answers)) if answers else None

    def _asked(self, questions: Sequence[tuple[Nodes, Nodes]]) -> Suggestion:
        """All that is open; answers to all: in order, from the end or exchanged, by name, new."""
        paths = [(tuple(a.path for a in olds), news) for olds, news in questions]
        choices = [Candidates(b.path, olds, _ALIKE) for olds, news in paths for b in news]
        in_order: list[tuple[LayerNode, LayerNode]] = []
        from_end: list[tuple[LayerNode, LayerNode]] = []
        by_name: list[tuple[LayerNode, LayerNode]] = []
        for olds, news in questions:
            at = {b.path: b for b in news}
            back = news if len(olds) == len(news) == _EITHER else news[::-1]
            in_order += zip(olds, news, strict=False)
            from_end += zip(olds[::-1], back, strict=False)
            by_name += [(a, at[a.path]) for a in olds if a.path in at]
        answers: list[Answer] = []
        for rows in (in_order, from_end[::-1], by_name, ()):
            found = self._written(self._ladder.names(rows))
            others = [other.suggestion.changes for other in answers]
            if found is not None and found.policy is not None and found.changes not in others:
                answers.append(Answer(which_is_which([(a.path, b.path) for a, b in rows]), found))
        return Suggestion({}, choices=tuple(choices), answers=tuple(answers))

    def _either_way(self, names: Names, kernels: Mapping[tuple[str, str], object]) -> Suggestion:
        """Square kernels of PyTorch, and no other one shows the order of their axes."""
        ways = ("a kernel is (in, out) in it, as in Keras", "it is (out, in), as in PyTorch")
        found = [(way, self._written(names, turn=bool(turn))) for turn, way in enumerate(ways)]
        answers = tuple(Answer(way, each) for way, each in found if each and each.policy)
        why = "it is square, and no other kernel shows the order of its axes"
        square = [pair for pair, fits in kernels.items() if fits == (True, True)]
        sides = ((new, (f"{old} as it is", f"{old} transposed")) for old, new in square)
        choices = tuple(Candidates(new, either, why, may_be_new=False) for new, either in sides)
        return Suggestion({}, choices=choices, answers=answers)

    # Policies

    def _with(self, changes: Mapping[str, Any]) -> Policy:
        """The policy with changed keys; rules are added to those that it has."""
        keys = self._policy.model_dump(mode="python", by_alias=True, exclude_unset=True)
        return type(self._policy)(**_both(keys, changes))

    def _planned(self, changes: Mapping[str, Any]) -> Plan | None:
        """The plan with changed keys; None if they contradict the policy, or after long work."""
        self._effort += len(self._stored.entries) + len(self._live.entries)
        if self._effort > _MOST_EFFORT:
            return None
        try:
            policy = self._with(changes).model_copy(update={"ema": None})
            return make_plan(policy, self._stored, self._live, self._known)
        except PolicyError:
            return None

    def _written(self, names: Names, *, turn: bool | None = None) -> Suggestion | None:
        """The lines whose plan restores exactly these, and leaves the rest."""
        if turn is None:
            kernels = {pair: fits for pair in names.items() if (fits := self._as_kernel(*pair))}
            known = [(False, True) in kernels.values(), (True, False) in kernels.values()]
            if known[0] == known[1] and (True, True) in kernels.values():
                return self._either_way(names, kernels)
            turn = known[0]
        seeds = self._seeds(names)
        found = self._placed(names | seeds, turn=turn) if seeds else None
        found = found or self._placed(names, turn=turn)
        if found is None:
            renamed = sum(old != new for old, new in names.items())
            gave_up = f"{renamed:,} values have other names, for which no few rules were found"
            return Suggestion({}, gave_up=gave_up) if renamed else None
        if any("on_dtype_mismatch: cast" in step.hint for step in found[1].errors):
            found = self._better(*found, {"on_dtype_mismatch": "cast"})
        return self._without_rest(*self._with_optimizer(*found))

    def _placed(self, names: Names, *, turn: bool) -> tuple[Keys, Plan] | None:
        """The plainest keys whose plan restores these values and no others."""
        stored, live = self._stored.entries, self._live.entries
        clash = {*names.values()} & stored.keys() - names.keys()
        clash = {name for name in clash if stored[name].role in MOVED}
        always = {
            "adapt": self._adapting(names, turn=turn),
            "exclude_checkpoint": selecting(clash, self._file.entries.keys() - clash),
        }
        always = {key: value for key, value in always.items() if value}
        layered = [name for name, entry in stored.items() if entry.role in MOVED]
        done = {"": {*self._ladder.fixed}, "name": {*names}, "structure": {*names}}
        found: dict[object, list[tuple[str, str]] | None] = {}
        for match, form in _FORMS:
            keys: Keys = {"match": match} if match else {}
            if form:
                plainly, at = form == "layers", (match, form == "layers", len(done[match]))
                if at not in found:
                    found[at] = renaming(names, done[match], layered, live, plainly=plainly)
                if not (rules := found[at]) or (form == "one" and len(rules) > 1):
                    continue
                keys["rename"] = [{"checkpoint": old, "model": new} for old, new in rules]
            plan = self._planned(keys | always)
            lacks = {*names} if plan is None else _lacks(plan, names)
            if plan is not None and not lacks:
                return keys | always, plan
            done[match] -= lacks
        return None

    def _seeds(self, names: Names) -> Names:
        """Stored seed → live seed of those without a counterpart: a seed moves with its layer."""
        lone = (Status.MISSING, Status.UNEXPECTED)
        steps = [s for s in self._plan.steps if s.entry.role is Role.SEED and s.status in lone]
        old, new = {s.source for s in steps if s.stored}, {s.name for s in steps if s.live}
        layers = dict(self._ladder.taken)
        for a, b in names.items():
            layers[a := holder_of(a)] = (b := holder_of(b))
            if last_word(a) == last_word(b) and a.count("/") > 1:  # a part of a layer
                layers.setdefault(holder_of(a), holder_of(b))
        moved = {seed: rebased(layer_of(seed), layers) for seed in old}
        found = {seed: name for seed, to in moved.items() if to and (name := seed_of(to)) in new}
        old, new = old - found.keys(), new - {*found.values()}
        return found | (dict(zip(old, new, strict=True)) if len(old) == len(new) == 1 else {})

    def _as_kernel(self, old: str, new: str) -> tuple[bool, bool] | None:
        """Whether a kernel of PyTorch fits as it is, and transposed; None if it is none."""
        stored, live = self._stored.entries[old], self._live.entries[new]
        axes = () if self._is_known(old, new) else axes_of(stored, live)
        shapes = stored.shape, permuted(stored.shape, axes)
        plain, turned = (x == live.shape or merges(x, live.shape) for x in shapes)
        return (plain, turned) if axes else None

    def _is_known(self, old: str, new: str) -> bool:
        """Whether the plan, or a rule of the policy, says in which shape a value goes there."""
        return old in self._ladder.fixed or any(rule.matches(new) for rule in self._adapted)

    def _adapting(self, names: Names, *, turn: bool) -> list[Keys]:
        """Rules for what another library, or another layer, keeps in another shape."""
        groups: dict[tuple[int, ...], set[str]] = {}
        for old, new in names.items():
            stored, live = self._stored.entries[old], self._live.entries[new]
            if live.role is not Role.WEIGHT or self._is_known(old, new):
                continue
            fits = self._as_kernel(old, new)
            axes = axes_of(stored, live) if fits and fits[1] and (turn or not fits[0]) else ()
            if axes:
                groups.setdefault(axes, set()).add(new)
            if permuted(stored.shape, axes) != live.shape:
                groups.setdefault((), set()).add(new)
        found = []
        for axes, each in sorted(groups.items(), reverse=True):
            others = self._live.entries.keys() - each
            words = dict.fromkeys(map(last_word, sorted(each)))
            alone = words.keys().isdisjoint(map(last_word, others))
            texts = [f"**/{word}" for word in words] if alone else selecting(each, others)
            how: Keys = {"how": "transpose"} if axes else {"how": "reshape"}
            how |= {"axes": list(axes)} if len(axes) > 2 else {}
            found += [{"model": text, **how} for text in texts]
        return found

    def _better(self, keys: Keys, plan: Plan, more: Keys) -> tuple[Keys, Plan]:
        """With more changed keys, if their plan has fewer errors."""
        found = self._planned(_both(keys, more))
        faults = len(plan.errors) + len(plan.problems)
        if found is None or len(found.errors) + len(found.problems) >= faults:
            return keys, plan
        return _both(keys, more), found

    def _with_optimizer(self, keys: Keys, plan: Plan) -> tuple[Keys, Plan]:
        errors = [step for step in plan.errors if step.entry.role in OF_OPTIMIZERS]
        if errors and not any(e.role in OF_OPTIMIZERS for e in self._live.entries.values()):
            names = {s.source for s in plan.steps if s.stored and s.stored.role in OF_OPTIMIZERS}
            dropped = selecting(names, self._file.entries.keys() - names)
            return self._better(keys, plan, {"exclude_checkpoint": dropped})
        kept = any(step.entry.role is Role.SLOT for step in plan.assignments)
        if kept and all(step.status is not Status.SUSPECT for step in errors):
            return keys, plan  # those of variables that are left out go with them
        for reset in _RESETS if errors else ():
            better, found = self._better(keys, plan, {"optimizer": reset})
            if not any(step.entry.role in OF_OPTIMIZERS for step in found.errors):
                return better, found
        return keys, plan

    def _without_rest(self, keys: Keys, plan: Plan) -> Suggestion | None:
        """Without what has no counterpart; None if that is not enough, or leaves nothing."""
        stored, live = self._stored.entries, self._live.entries
        lone = (s for s in plan.errors if s.status is not Status.SUSPECT or not s.stored)
        new = {s.name for s in lone if s.live}
        counter = {name for name in new if is_save_counter(live[name])}
        layers = {holder_of(n) for n in new if live[n].role is Role.WEIGHT and not is_adapter(n)}
        weights = {n for n, e in live.items() if e.role is Role.WEIGHT and holder_of(n) in layers}
        new = (new - counter) | weights  # a head is restored whole or not at all
        # of the same name, and left with it
        unused = {s.source for s in plan.errors if s.stored and not s.live} - new
        more: Keys = {"api": "read"} if counter else {}
        if unused:
            more["exclude_checkpoint"] = selecting(unused, self._file.entries.keys() - unused)
        for roles in (frozenset({Role.SLOT}), frozenset[Role]()):  # they go with their variable
            seen = {n for n, e in live.items() if e.role not in roles}
            exclude = {"exclude": selecting(new & seen, seen - new)} if new else {}
            better = _both(keys, more | exclude)
            few = max(map(len, better.values()), default=0) <= _MOST_RULES
            found = self._planned(better) if few else None
            if found is not None and found.ok:
                break
        restored = sum(s.entry.role is Role.WEIGHT for s in found.assignments) if found else 0
        sides = [sum(e.role is Role.WEIGHT for e in side.values()) for side in (stored, live)]
        # another vocabulary: each word would have the row of another one
        other = any(s.entry.role is Role.VOCABULARY and s.stored and s.live for s in plan.errors)
        if found is None or not found.ok or other or restored < max(1, _LEAST_SHARE * min(sides)):
            return None
        better = {key: better[key] for key in _ORDER if key in better} | better
        nodes = [(name, self._ladder.old.holder(name)) for name in unused]
        lost = {
            node.path if node else holder_of(name)
            for name, node in nodes
            if stored[name].role in MOVED
        }
        left = leaving(sorted(layers), sorted(lost), plan, better)
        policy = self._with(better)
        found = make_plan(policy, self._file, self._live, self._known) if policy.ema else found
        return Suggestion(better, policy, found, left=left) if found.ok else None


def _both(keys: Mapping[str, Any], more: Mapping[str, Any]) -> Keys:
    """Changed keys, and more of them: what is listed is joined."""
    both = dict(keys)
    for key, value in more.items():
        if isinstance(value, list):
            both[key] = [*both.get(key, ()), *value]
        else:
            both[key] = {**(both.get(key) or {}), **value} if isinstance(value, dict) else value
    return both


def _lacks(plan: Plan, names: Names) -> set[str]:
    """The stored names of what a plan does not restore of these, or restores besides."""
    both = (s for s in plan.steps if s.stored and s.live and s.status is not Status.SUSPECT)
    got = {s.source: s.name for s in both}
    moved = {s.source: s.name for s in plan.assignments if s.entry.role in MOVED}
    return {old for old, _ in (names.items() - got.items()) | (moved.items() - names.items())}
