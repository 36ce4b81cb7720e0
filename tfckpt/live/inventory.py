"""The inventory of live objects: canonical names and their variables.

The first component of a name is the keyword of an object. The only Keras model is always ``model``
and its optimizer ``optimizer``, so a checkpoint of a compiled model alone and one written with
``Checkpoint(model=…, optimizer=…)`` have the same names.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core import names
from tfckpt.core.inventory import Dataset, Entry, Inventory, Role, Root
from tfckpt.core.names import Names, Node, NodeKind
from tfckpt.core.optimizer_names import promote_optimizer
from tfckpt.errors import NamingError, UntrackedError
from tfckpt.live import optimizers
from tfckpt.live.data import dataset_of
from tfckpt.live.flavors import flavor_of, is_optimizer
from tfckpt.live.orders import deep, deep_orders, own_orders, own_writing
from tfckpt.live.traits import Traits
from tfckpt.live.tree import Tree, check_listed, is_value
from tfckpt.live.variables import as_int, fixed_shape, is_variable, raw
from tfckpt.live.vocabularies import LayerVocabulary, derives

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SOURCE = "the live objects"
# experimental: it may go
_DVARIABLE: Any = getattr(getattr(tf.experimental, "dtensor", None), "DVariable", ())


@dataclasses.dataclass(frozen=True)
class Live:
    """Live objects and the names of their values."""

    inventory: Inventory
    variables: Mapping[str, Any]
    unbuilt: Mapping[str, Any]
    optimizers: Mapping[str, Any]
    plain: Mapping[str, Any]
    models: Mapping[str, Any]
    deriving: tuple[Any, ...]
    keras_roots: frozenset[str]
    layers: Mapping[str, Any]

    @property
    def roots(self) -> Mapping[str, Root]:
        """Keyword ("" for the root object) → its first component and kind."""
        return self.inventory.roots

    @property
    def weak_bases(self) -> frozenset[str]:
        """The automatic layer names in use, for the names of a stored object graph."""
        containers = self.inventory.containers.values()
        return frozenset(x.cls for each in containers for x in each.layers if x.auto)


def collect(objects: Mapping[str, Any], root: Any = None, *, orders: bool = False) -> Live:
    """Name every value of trackables, lists and dicts by keyword."""
    return gather(objects, root, orders=orders).live


def gather(objects: Mapping[str, Any], root: Any = None, *, orders: bool = False) -> Gathered:
    """Find every value of trackables, lists and dicts by keyword."""
    given = {"": root, **objects} if root is not None else dict(objects)
    roots = _roots(given)
    components = {roots[keyword].component: obj for keyword, obj in given.items()}
    return Gathered(components, roots, orders=orders)


def collect_as(given: Mapping[str, Any]) -> Live:
    """Name every value of objects whose first components are known."""
    return Gathered(given, {}).live


class Gathered:
    """Every value of live objects, named when the names are first asked for.

    Naming looks at nothing that training changes, unless the shape of a value may change: another
    thread can do it.

    Attributes:
        values: every variable, and every other object that holds a value.
        unbuilt: whether there are layers without their variables.
        plain: whether there are modules of TensorFlow's own kind.
        layers: all of Keras.
    """

    def __init__(
        self, given: Mapping[str, Any], roots: Mapping[str, Root], *, orders: bool = False
    ) -> None:
        self._models = {component: obj for component, obj in given.items() if is_model(obj)}
        self._roots, self._orders, self._tree = roots, orders, Tree()
        self._nodes = _nodes(self._tree, given, self._models)
        names.refuse_reserved(self._nodes, self._models)
        if names.MODEL in self._models:
            promote_optimizer(self._nodes)
        for optimizer, node in self._tree.optimizers:
            optimizers.finish(self._tree, optimizer, node)
        check_listed(self._tree)
        self._traits = Traits(self._tree)
        self._listed = _listed(self._tree)
        self._deriving = tuple(
            layer
            for layer, node, flavor in self._tree.layers
            if layer.built and _has_state(node) and derives(layer, flavor)
        )
        self.values = [*self._tree.variables, *self._tree.others]
        self.unbuilt = bool(self._tree.unbuilt)
        self.plain = bool(self._tree.plain)
        self.layers = [layer for layer, _, _ in self._tree.layers]

    @cached_property
    def live(self) -> Live:
        """The objects and the names of their values."""
        tree, models, nodes = self._tree, self._models, self._nodes
        self._traits.store()
        named = names.assign(nodes, keras_roots=models)
        entries, varying = _entries(named)
        inventory = Inventory(
            SOURCE,
            entries,
            named.containers,
            named.aliases,
            named.optimizers,
            complete=True,
            roots=_with_parts(self._roots, entries),
            own_orders=own_orders(tree, named) if self._orders else {},
            deep_orders=deep_orders(tree, named, models.values()) if self._orders else {},
            own_writing=own_writing(tree, named) if self._orders else frozenset(),
            listings=_listings(self._listed, named),
            private=named.private,
            varying=varying,
            datasets=_datasets(named),
            accumulation=_accumulation(_paths(named, tree.optimizers)),
        )
        return Live(
            inventory,
            {n.name: n.node.value for n in named.values},
            _paths(named, tree.unbuilt),
            _paths(named, tree.optimizers),
            _paths(named, tree.plain),
            models,
            self._deriving,
            frozenset(c for c, node in nodes.items() if tree.keras and _has_keras(node)),
            _paths(named, [(layer, node) for layer, node, _ in tree.layers]),
        )


def ungraphed(live: Live, stored: Inventory) -> Live:
    """The live values, with aliases for a file without an object graph.

    Such a file has no save counter. Its keys are names of variables, and TensorFlow restores each
    variable whose own name is a key. So a variable's own name becomes an alias. The names of a
    Keras model's variables depend on what was built before; they count only if the file holds
    exactly the model's weights, or exactly its weights and its optimizer's values.
    """
    inventory = live.inventory
    entries = {n: e for n, e in inventory.entries.items() if n != "save_counter"}
    keys = {e.key.removesuffix(":0"): e for e in stored.entries.values()}
    own = {
        name: raw(live.variables[name]).name.removesuffix(":0")
        for name in entries
        if is_variable(live.variables[name])
    }
    met = _met(own, keys)
    if not _all_fit(met, own, keys, live):  # try with the optimizers' values, then without
        own = {n: o for n, o in own.items() if entries[n].role in (Role.WEIGHT, Role.STATE)}
        keys = {key: e for key, e in keys.items() if e.role is Role.WEIGHT}
        met = _met(own, keys)
        if live.keras_roots and not _all_fit(met, own, keys, live):
            met = {}
    own_names = {entry.name: n for n, entry in met.items() if entry.name not in entries}
    aliases = {**inventory.aliases, **own_names}
    inventory = dataclasses.replace(inventory, entries=entries, aliases=aliases)
    return dataclasses.replace(live, inventory=inventory)


def _met(own: Mapping[str, str], keys: Mapping[str, Entry]) -> dict[str, Entry]:
    """Name → stored value under the variable's own name, if no other variable has that name."""
    times = Counter(own.values())
    return {name: keys[o] for name, o in own.items() if times[o] == 1 and o in keys}


def _all_fit(
    met: Mapping[str, Entry], own: Mapping[str, str], keys: Mapping[str, Entry], live: Live
) -> bool:
    """Whether every stored value has a variable, and every Keras variable a stored value."""
    entries, missed = live.inventory.entries, own.keys() - met.keys()
    return (
        len(met) == len(keys)
        and not any(name.partition("/")[0] in live.keras_roots for name in missed)
        and all(entry.shape == entries[name].shape for name, entry in met.items())
    )


def _nodes(tree: Tree, given: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Node]:
    """Walk over the objects: first component → node."""
    nodes: dict[str, Node] = {}
    # Models first: a variable of a model is a weight, even if it is also passed elsewhere.
    for component, obj in sorted(given.items(), key=lambda item: (item[0] not in models, item[0])):
        try:
            node = tree.node(obj, Role.STATE)
        except RecursionError:
            hint = "Python's limit can be raised before: sys.setrecursionlimit(10_000)"
            message = f"{component}: its objects are nested too deeply"
            raise UntrackedError(message, hint=hint) from None
        if node is not None:
            nodes[component] = node
    return nodes


def _listed(tree: Tree) -> list[tuple[Node, list[Node]]]:
    """Each subclassed model, with the layers with values that it lists."""
    return [
        (node, [n for each in model.layers if (n := tree.node(each)) is not None and deep(each)])
        for model, node, flavor in list(tree.layers)
        if isinstance(model, flavor.model) and node.kind is not NodeKind.SEQUENCE
    ]


def _listings(
    listed: Iterable[tuple[Node, Iterable[Node]]], named: Names
) -> dict[str, tuple[str, ...]]:
    """The paths of these models → the paths of their layers."""
    paths = named.paths
    return {
        paths[id(model)]: tuple(paths[id(each)] for each in layers if id(each) in paths)
        for model, layers in listed
        if id(model) in paths
    }


def _has_keras(node: Node) -> bool:
    """Whether there is a layer or optimizer below; these have labels, plain trackables do not."""
    return any(
        below.kind is NodeKind.OPTIMIZER or (below.kind is not NodeKind.VALUE and below.label)
        for below in names.walk(node)
    )


def _has_state(layer: Node) -> bool:
    return any(child.role is not Role.VOCABULARY for _, child in layer.children)


def is_model(obj: Any) -> bool:
    flavor = flavor_of(obj)
    return flavor is not None and isinstance(obj, flavor.model)


def _roots(given: Mapping[str, Any]) -> dict[str, Root]:
    """Keyword → the first component of its values' names, and the kind of the object."""
    roots = {keyword: names.escaped(keyword) for keyword in given}
    models = {id(obj): keyword for keyword, obj in given.items() if is_model(obj)}
    solvers = {id(obj): keyword for keyword, obj in given.items() if is_optimizer(obj)}
    if len(models) == 1:
        (keyword,) = models.values()
        roots[keyword] = names.MODEL
        if len(solvers) == 1:
            (keyword,) = solvers.values()
            roots[keyword] = names.OPTIMIZER
    if roots.get("") == "":
        if flavor_of(given[""]) is not None:
            roots[""] = names.OPTIMIZER if is_optimizer(given[""]) else names.MODEL
        elif is_value(given[""]):
            roots[""] = names.ROOT
    taken: dict[str, str] = {}
    for keyword, component in roots.items():
        other = taken.setdefault(component, keyword)
        if other != keyword and given[other] is not given[keyword]:
            loser = keyword if keyword == component else other
            raise NamingError(
                f"the keyword {loser!r} is reserved for the only "
                f"{'model' if component == names.MODEL else 'optimizer'} given; "
                "use another keyword for this object"
            )
    kinds = dict.fromkeys(models.values(), names.MODEL)
    kinds |= dict.fromkeys(solvers.values(), names.OPTIMIZER)
    return {keyword: Root(c, kinds.get(keyword, "")) for keyword, c in roots.items()}


def _with_parts(roots: Mapping[str, Root], found: Iterable[str]) -> dict[str, Root]:
    parts: dict[str, set[str]] = {}
    for component, part, *_ in (name.split("/", 2) for name in found if "/" in name):
        parts.setdefault(component, set()).add(part)
    return {
        keyword: dataclasses.replace(root, parts=frozenset(parts.get(root.component, ())))
        for keyword, root in roots.items()
    }


_Varying = dict[str, tuple[int | None, ...] | None]


def _entries(named: Names) -> tuple[dict[str, Entry], _Varying]:
    """An entry for each value, and the declared shapes of those with unknown dimensions."""
    entries: dict[str, Entry] = {}
    varying: _Varying = {}
    for name, node, role, slot, of in named.values:
        if role in (Role.OBJECT, Role.ITERATOR):
            entries[name] = Entry(name, role, "", None)
            continue
        if isinstance(node.value, LayerVocabulary):
            entries[name], varying[name] = node.value.entry(name), (None,)
            continue
        variable = raw(node.value)
        if isinstance(variable, _DVARIABLE):
            raise UntrackedError(
                f"{name}: its parts are on the devices of a DTensor mesh, which tfckpt does not "
                "save or restore",
                hint="nothing was done; use tf.train.Checkpoint for variables of DTensor",
            )
        shape = fixed_shape(variable)
        if shape is None:  # it still holds a value of some shape
            declared = variable.shape
            varying[name] = None if declared.rank is None else tuple(declared.as_list())
            shape = tuple(map(int, tf.shape(variable, tf.int64)))
        dtype, size = _dtype(variable.dtype)
        nbytes = math.prod(shape) * size
        entries[name] = Entry(name, role, dtype, shape, nbytes, slot=slot, of=of)
    return entries, varying


@lru_cache(64)
def _dtype(dtype: tf.DType) -> tuple[str, int]:
    """The name of a dtype and the bytes of an element."""
    return dtype.base_dtype.name, dtype.size


def _accumulation(live: Mapping[str, Any]) -> dict[str, int]:
    counts = {path: getattr(one, "gradient_accumulation_steps", None) for path, one in live.items()}
    return {path: as_int(count) for path, count in counts.items() if count}


def _datasets(named: Names) -> dict[str, Dataset]:
    iterators = ((n.name, n.node.value) for n in named.values if n.role is Role.ITERATOR)
    found = ((name, dataset_of(iterator)) for name, iterator in iterators)
    return {name: dataset for name, dataset in found if dataset is not None}


def _paths(named: Names, found: list[tuple[Any, Node]]) -> dict[str, Any]:
    return {named.paths[id(node)]: obj for obj, node in found if id(node) in named.paths}
