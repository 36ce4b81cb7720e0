"""Builds what has no variables yet as it was built before the save.

A save records of each layer that has variables the arguments of its ``build``, the scope of their
names and, in tf_keras, the specs of its first call; of each optimizer the variables that it trains.
A restore builds the unbuilt layers that its plan has values for, each by its own ``build``, in the
order of their first variables. No ``call`` runs, but where a layer made variables in it: that one
is traced. A layer of another class, or without a record, is not built, and refused: TensorFlow
would restore it when its variables are created; in Keras 3 that registers a kernel twice and
silently leaves one of them random (tf#82209).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.core.builds import Builds, LayerBuild
from tfckpt.core.inventory import Role
from tfckpt.errors import NotBuiltError
from tfckpt.live.flavors import flavor_of, has_named_slots, is_optimizer, name_of
from tfckpt.live.inventory import is_model
from tfckpt.live.optimizers import is_built, trained_in
from tfckpt.live.private import building as private
from tfckpt.live.private.either_keras import (
    others_of,
    trainable_in_modules,
    trainable_of,
    with_layers_below,
)
from tfckpt.live.variables import is_variable, parts, path, raw
from tfckpt.planning import Status
from tfckpt.planning.matching.rules import selects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Self

    from tfckpt.live.inventory import Live
    from tfckpt.planning import Plan, Step

    Walk = Callable[[], Live]

_WALKED = ("variables", "unbuilt", "layers", "optimizers")
_OF_KERAS = frozenset({Role.WEIGHT, Role.SLOT})
_MADE = frozenset({Role.WEIGHT, Role.STATE})
CALL_IT = "call the model once on a batch before restoring: model(batch)"


# What a save records


def builds_of(live: Live, trainable: frozenset[int]) -> Builds:
    """How the layers and optimizers of a save were built; ``trainable`` are ids of variables."""
    first = _first_variables(live)
    ranks = {number: rank for rank, number in enumerate(sorted({n for n, _ in first.values()}))}
    layers = {}
    for at, (number, variable) in first.items():
        layer, rank = live.layers[at], ranks[number]
        flavor = flavor_of(layer)
        if flavor is None or not layer.built:
            continue
        if flavor.name == "keras":
            name = parts(raw(variable))[0].name
            layers[at] = private.of_keras(layer, rank, path(variable), name)
        else:
            layers[at] = private.of_tf_keras(layer, rank, variable.name)
    unbuilt = [at for at, layer in live.unbuilt.items() if private.has_own_build(layer)]
    return Builds(layers, *_trained_by_name(live, trainable), tuple(unbuilt))


def _first_variables(live: Live) -> dict[str, tuple[int, Any]]:
    """Path of each layer with variables in or below it → the first of them, with its number."""
    found: dict[str, tuple[int, Any]] = {}
    # A feature space asks to be adapted, whatever values it has.
    spaces = [at for at, layer in live.layers.items() if hasattr(layer, "get_encoded_features")]
    for at, layer in live.layers.items():
        for variable in (*trainable_of(layer)[:1], *others_of(layer)[:1]):  # in their order
            if not is_variable(variable) or any(f"{at}/".startswith(f"{s}/") for s in spaces):
                continue
            first = private.number_of(parts(raw(variable))[0]), variable
            for above in (at, *ancestors(at)):
                if above in live.layers and (above not in found or first[0] < found[above][0]):
                    found[above] = first
    return {at: found[at] for at in live.layers if at in found}


def _trained_by_name(
    live: Live, trainable: frozenset[int]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """What each optimizer trains, and what an only one does not."""
    names = {id(variable): name for name, variable in live.variables.items()}
    found = {}
    for at, optimizer in live.optimizers.items():
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        flavor = flavor_of(inner)
        if flavor is None or flavor.name != "keras" or has_named_slots(inner):
            trained = [*trained_in(at, live)]
        else:
            trained = [names.get(id(variable), "") for variable in trainable_of(inner)]
        if trained and all(trained):
            found[at] = tuple(trained)
    if len(found) != 1 or len(live.optimizers) != 1:
        return found, ()
    ((trained_names),) = found.values()
    could = {names.get(each, "") for each in trainable}
    return found, tuple(sorted(could.difference(trained_names, [""])))


def trainables(layer: Any) -> Iterator[Any]:
    """The variables of a layer itself that may be trained now."""
    variables = (*trainable_of(layer), *trainable_in_modules(layer))
    return (each for each in variables if layer.trainable and each.trainable)


# What a restore builds


def build_layers(
    plan: Plan, live: Live, recorded: Mapping[str, Builds], building: Building, walk: Walk
) -> Live:
    """Build the unbuilt layers that a plan has values for; returns the live values afterwards.

    ``recorded`` has how they were built, by source of the plan. What then has all that it had
    before the save is not among the ``unbuilt`` any more.
    """
    rebuild = _Rebuild(plan, live, recorded, walk)
    if not rebuild.how:
        return live
    building.begins(live)
    while rebuild.builds_layers() or rebuild.traces_a_call():
        pass
    return rebuild.finished()


class _Rebuild:
    """Layers that are built step by step; by their paths, since a ``build`` may make more of them.

    Attributes:
        how: path of each object that lacks variables → how what was saved there was built.
    """

    def __init__(self, plan: Plan, live: Live, recorded: Mapping[str, Builds], walk: Walk) -> None:
        self.how, self._wanted = dict[str, LayerBuild](), dict[str, None]()
        self._live, self._walk, self._policies = live, walk, plan.policies
        self._known = {at for builds in recorded.values() for at in builds.unbuilt}
        self._built, self._traced = set[int](), set[int]()
        for step in plan.steps:
            if step.status is not Status.UNEXPECTED or step.entry.role not in _MADE:
                continue
            if (builds := recorded.get(step.origin or plan.source)) is None:
                continue
            self._wanted[step.target] = None
            for here, there in zip(ancestors(step.target), ancestors(step.source), strict=False):
                if here not in self.how and there in builds.layers:
                    self.how[here] = builds.layers[there]

    def builds_layers(self) -> bool:
        """Call the ``build`` of each layer whose turn it is; returns whether there were any."""
        found = [
            at
            for at, layer in self._live.unbuilt.items()
            if self._fits(at) and id(layer) not in self._built
            if self.how[at].shapes is not None and private.has_own_build(layer)
        ]
        for at in sorted(found, key=lambda at: self.how[at].rank):
            if not self._live.layers[at].built:  # another one's `build` may have built it
                self._carry_out(private.build, at)
            self._built.add(id(self._live.layers[at]))
        if found:
            self._live = self._walk()
        return bool(found)

    def traces_a_call(self) -> bool:
        """Trace the innermost call that may make what is missing; returns whether there is one."""
        calls = {at for name in (*self._missing(), *self._new()) if (at := self._call_above(name))}
        if not calls:
            return False
        at = max(calls, key=lambda each: each.count("/"))
        self._carry_out(private.trace, at)
        self._traced.add(id(self._live.layers[at]))
        self._live = self._walk()
        return True

    def finished(self) -> Live:
        """The live values; a NotBuiltError if a layer that was built may make more in its call."""
        left = [name for name in self._missing() if id(self._above(name)[1]) not in self._traced]
        open_ = [name for name in left if id(self._above(name)[1]) in self._built]
        if open_:
            raise NotBuiltError(
                f"{len(open_)} values have no variables yet, the first is '{open_[0]}': they are "
                "made in a call whose arguments the checkpoint does not know",
                hint=CALL_IT,
            )
        unbuilt = {}
        for at, layer in self._live.unbuilt.items():
            if not self._fits(at) or any(name.startswith(f"{at}/") for name in left):
                unbuilt[at] = layer
            else:
                private.has_all(layer, self.how[at], flavor_of(layer))
        return dataclasses.replace(self._live, unbuilt=unbuilt)

    def _fits(self, at: str) -> bool:
        return at in self.how and type(self._live.layers[at]).__name__ == self.how[at].cls

    def _missing(self) -> list[str]:
        """The values that the plan selects and no object has a variable for."""
        find = self._live.inventory.find
        return [name for name in self._wanted if find(name) is None]

    def _new(self) -> list[str]:
        """The layers that the checkpoint does not have, of which a plan has to know the values."""
        return [
            at
            for at, layer in self._live.unbuilt.items()
            if at not in self.how and at not in self._known and private.has_own_build(layer)
            if not hasattr(layer, "adapt")
            and all(selects(policy, f"{at}/kernel") for policy in self._policies)
        ]

    def _above(self, name: str) -> tuple[str, Any]:
        """The innermost layer above a value or layer, with its path."""
        at = next((at for at in ancestors(name) if at in self._live.layers), "")
        return at, self._live.layers.get(at)

    def _call_above(self, name: str) -> str:
        """The path of the layer whose call may make a value or layer; "" for none that is known."""
        at, layer = self._above(name)
        if not at or not self._fits(at) or id(layer) in self._traced:
            return ""
        of_keras = getattr(flavor_of(layer), "name", "") == "keras"
        return at if getattr(self.how[at], "shapes" if of_keras else "specs") is not None else ""

    def _carry_out(self, build: Callable[..., None], at: str) -> None:
        layer, live = self._live.layers[at], self._live
        around = (live.layers.get(above) for above in (at, *ancestors(at)))
        found = (getattr(each, "distribute_strategy", None) for each in around)
        strategy = next(filter(None, found), None) or strategy_of(live.variables.values())
        try:
            with strategy.scope():
                build(layer, self.how[at], flavor_of(layer))
        except Exception as error:  # a user's class may raise anything
            raise NotBuiltError(
                f"{at} ({type(layer).__name__}) cannot be built as it was before the save: {error}",
                hint=CALL_IT,
            ) from error


def strategy_of(variables: Iterable[Any]) -> Any:
    """The tf.distribute.Strategy that variables were created under."""
    inner = (raw(each) for each in variables if is_variable(each))
    known = (getattr(each, "distribute_strategy", None) for each in inner)
    return next(filter(None, known), None) or tf.distribute.get_strategy()


def ancestors(name: str) -> Iterator[str]:
    """The ancestors of a name, the longest first."""
    while name := name.rpartition("/")[0]:
        yield name


# What is still not built


def trainable_now(model: Any, live: Live) -> list[Any]:
    """The trainable variables of a model, unless it is not built and may make more."""
    if model.built:
        return list(model.trainable_variables)
    if _may_make(model, live):
        return []
    return [each for layer in with_layers_below(model) for each in trainables(layer)]


def check_built(live: Live, plan: Plan) -> None:
    """Refuse, in one message, objects without variables that the checkpoint may have values for."""
    if not (live.unbuilt or live.optimizers):
        return
    left = [s for s in plan.steps if s.status is Status.UNEXPECTED and s.entry.role in _OF_KERAS]
    if not left:
        return
    tree = _NameTree(step.name for step in plan.assignments)
    weights = [
        step
        for step in left
        if step.entry.role is not Role.SLOT and not _is_closed(step.target, live)
    ]
    slots = [step for step in left if step.entry.role is Role.SLOT]
    found: dict[str, tuple[str, str]] = {}
    for at in sorted(live.unbuilt, key=lambda at: at.count("/")):
        layer = live.unbuilt[at]
        if any(at.startswith(f"{above}/") for above in found):
            continue
        theirs = _theirs(at, weights, tree if _has_weights(layer, at) else None)
        if theirs:
            model = live.models.get(at.partition("/")[0])
            alone = not is_model(layer) and (model is None or model.built)
            found[at] = theirs, _how_to_build(layer, "layer" if alone else "model")
    for at, optimizer in live.optimizers.items():
        if not is_built(optimizer, at, live) and (theirs := _theirs(at, slots, None)):
            legacy = has_named_slots(optimizer)
            how = "take a step" if legacy else "call optimizer.build(model.trainable_variables)"
            hint = f"{how} before restoring; or pass the model it trains to the checkpoint, too"
            late = {step.entry.of for step in slots} - live.inventory.entries.keys()
            if lazy := [x for x in live.plain if any(of.startswith(f"{x}/") for of in late)]:
                hint = f"call {min(lazy, key=len)} once, which makes its variables, then {hint}"
            found[at] = theirs, hint
    objects = {**live.unbuilt, **live.optimizers}
    named = {at: f"{at} ({_described(objects[at])})" for at in found}
    if not found:
        return
    lacking = "no variables yet, but the checkpoint has"
    lines = [f"{len(found)} objects have {lacking} values:"] if len(found) > 1 else []
    colon = ":" if lines else f" has {lacking}"
    lines += [f"{named[at]}{colon} {theirs}" for at, (theirs, _) in found.items()]
    hints = dict.fromkeys(hint for _, hint in found.values())
    raise NotBuiltError("\n  ".join(lines), hint="\n  ".join(hints))


def _is_closed(name: str, live: Live) -> bool:
    """Whether a value lies below a layer of which nothing can get variables any more."""
    at = next((at for at in ancestors(name) if at in live.layers), "")
    return bool(at) and not _may_make(live.layers[at], live)


def _may_make(layer: Any, live: Live) -> bool:
    """Whether a call of a layer may make variables in it, or in a layer below."""
    unbuilt = set(map(id, live.unbuilt.values()))
    below = (each for each in with_layers_below(layer) if id(each) in unbuilt)
    return any(private.has_own_build(each) or _has_own_call(each) for each in below)


def _has_own_call(layer: Any) -> bool:
    flavor = flavor_of(layer)
    return flavor is None or type(layer).call not in {flavor.layer.call, flavor.model.call}


def _described(obj: Any) -> str:
    name = type(obj).__name__
    return name if is_optimizer(obj) else f"{name} {name_of(obj)!r}"


def _how_to_build(layer: Any, what: str) -> str:
    """The line that creates the variables of a model or layer."""
    if hasattr(layer, "set_vocabulary"):
        return "set its vocabulary before restoring: set_vocabulary(words, idf_weights)"
    if hasattr(layer, "get_encoded_features"):
        return "adapt it before restoring: feature_space.adapt(dataset)"
    return (
        f"call the {what} once on a batch before restoring: {what}(tf.zeros([1, ...])); or give "
        "its input spec under `build:` in the policy"
    )


def _theirs(path: str, left: list[Step], tree: _NameTree | None) -> str:
    """How many unused values belong to the object at ``path``, or may by their position."""
    certain = [step for step in left if step.target.startswith(path + "/")]
    possible = [step for step in left if tree and tree.beside(path, step.target)]
    for relation, found in (("for it", certain), ("that may belong to it", possible)):
        if found:
            return f"{_count(len(found))} {relation}, the first is '{found[0].source}'"
    return ""


def _count(values: int) -> str:
    return "1 value" if values == 1 else f"{values} values"


class _NameTree:
    """The restored names as a tree.

    An object without variables and an unused stored value may be the same thing under two names if
    their paths leave the tree at the same node: a model saved as ``net=`` and given as ``model=``,
    or a layer whose attribute was renamed.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._paths = {path for name in names for path in ancestors(name)}

    def beside(self, path: str, name: str) -> bool:
        """Whether the value of that name may belong to the object of that path."""
        branch = self._leaves_at(path)
        below = name.removeprefix(branch).strip("/")
        return path not in self._paths and branch == self._leaves_at(name) and "/" in below

    def _leaves_at(self, name: str) -> str:
        return next((path for path in ancestors(name) if path in self._paths), "")


def _has_weights(layer: Any, path: str) -> bool:
    """Whether its class may create weights; an activation's does not."""
    flavor = flavor_of(layer)
    default = getattr(flavor, "layer", type(layer)).build
    below = [layer, *layer._flatten_layers(include_self=False)]
    return "/" not in path or any(
        is_model(each) or type(each).build is not default for each in below
    )


# What is taken back


# How each kind of collection is filled, past what a class of TensorFlow's or Keras's overrides.
_PUT: Mapping[type, Any] = {list: list.extend, dict: dict.update, set: set.update}


class Building:
    """What a restore builds, taken back if the body raises, or ``always``."""

    def __init__(self, walk: Walk, *, always: bool = False) -> None:
        self._walk, self._always = walk, always
        self._live: Live | None = None
        self._attributes = list[tuple[Any, dict[str, Any]]]()
        self._contents = dict[int, tuple[Any, Any]]()
        self._wrappers = dict[int, tuple[Any, dict[str, Any]]]()

    def begins(self, live: Live) -> None:
        """Keep the attributes of the objects, once, before the first of them is built."""
        if self._live is None:
            self._live = live
            held = [*live.layers.values(), *live.optimizers.values(), *live.plain.values()]
            inner = (getattr(each, "inner_optimizer", None) for each in live.optimizers.values())
            held += filter(None, inner)
            trackers = [tracker for obj in held for tracker in private.trackers_of(obj)]
            for obj in (*held, *trackers):
                self._keep_attributes(obj)
            for counts in private.counts_of_names():
                self._keep_contents(counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._live is None or not (self._always or error is not None):
            return
        for obj, attributes in self._attributes:
            vars(obj).clear()
            vars(obj).update(attributes)
        for value, content in self._contents.values():
            type(content).clear(value)
            _PUT[type(content)](value, content)
        for wrapper, kept in self._wrappers.values():
            private.put_back(wrapper, kept)
        try:
            now = self._walk()
            same = all(getattr(now, e).keys() == getattr(self._live, e).keys() for e in _WALKED)
        except Exception:  # a user's class may raise anything
            same = False
        if not same:
            logging.warning(
                "what was built for the restore could not be taken back: before another one, or "
                "before training, create the objects again"
            )

    def _keep_attributes(self, obj: Any) -> None:
        if hasattr(obj, "__dict__"):
            self._attributes.append((obj, attributes := dict(vars(obj))))
            for value in attributes.values():
                self._keep_contents(value)

    def _keep_contents(self, value: Any) -> None:
        if (of_wrapper := private.wrapped(value)) is not None and id(value) not in self._wrappers:
            self._wrappers[id(value)] = value, of_wrapper[1]
            for each in of_wrapper[1].values():
                self._keep_contents(each)
        value = value if of_wrapper is None else of_wrapper[0]
        kind = next((each for each in _PUT if issubclass(type(value), each)), None)
        if kind is None or id(value) in self._contents:
            return
        self._contents[id(value)] = value, kind(value)
        if type(value) is not kind:
            self._keep_attributes(value)
        for inner in dict.values(value) if kind is dict else kind(value):
            self._keep_contents(inner)
