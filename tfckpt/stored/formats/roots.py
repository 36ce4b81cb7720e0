"""Which stored objects correspond to the live model and optimizer.

A lone model is ``model`` whatever its keyword, so the first component of a name depends on what
else is saved. The same model may have been saved as the root object, under a keyword or by
``save_weights``, and be restored in another of these ways. A keyword that both sides have decides;
a different stored object that already has the resulting name becomes ``model~2``, which no live
object has, or gets its own keyword in front. A model saved alone as ``teacher=`` must not be
restored into the student of a program that has both; an encoder saved with a decoder is still the
encoder when it is restored alone.

In a graph of plain TensorFlow, without a common keyword, a lone live model corresponds to the
object that shares most of its attributes and layers, the root or one of its children; if none
shares any, to the only object that looks like a Keras model. If several or none do, each object
keeps its keyword, and a policy may rename it. A lone module of plain TensorFlow corresponds to the
root in the same way, and to no other keyword than its own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Root, rebased, unnumbered
from tfckpt.core.names import METRICS, MODEL, OPTIMIZER, SEED
from tfckpt.core.optimizer_names import slot_tail
from tfckpt.core.text import free_name
from tfckpt.stored.formats.graph_layers import sequence_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.stored.formats.graph_reader import GraphReader


def components(
    reader: GraphReader, children: Mapping[str, int], live: Mapping[str, Root] | None
) -> dict[str, str]:
    """Edge of the root (``""`` for the root itself) → first component of the names below it.

    ``live`` has the live objects by keyword; None if there are no live objects.
    """
    components_by_edge = (
        _guess(reader, children) if live is None else _from_live(reader, children, live)
    )
    used = set(components_by_edge.values())
    taken = (used | children.keys()).__contains__
    others = children.keys() - components_by_edge.keys() if "" not in components_by_edge else set()
    return components_by_edge | {edge: free_name(edge, taken) for edge in others & used}


def live_roots(
    reader: GraphReader,
    children: Mapping[str, int],
    components: Mapping[str, str],
    live: Mapping[str, Root],
) -> dict[str, Root]:
    """The live objects that :func:`components` found in the file, by the keyword in the file."""
    kinds = {root.component: root.kind for root in live.values()}
    # An object saved as the root has attributes; a keyword never begins with an underscore.
    is_root = is_model(reader, 0) or any(edge.startswith("_") for edge in children)
    edges = {""} if is_root else {"", *children}
    return {
        edge: Root(component, kinds[component])
        for edge, component in components.items()
        if component in kinds and edge in edges
    }


def _from_live(
    reader: GraphReader, children: Mapping[str, int], live: Mapping[str, Root]
) -> dict[str, str]:
    keyword = _lone(live)
    edge = None if keyword is None else _model_edge(reader, children, keyword, live)
    if keyword is None or edge is None or (edge not in {MODEL, keyword, ""} and MODEL in children):
        return _by_keyword(children, live)
    if edge and live[keyword].kind != MODEL:
        return _by_keyword(children, live)
    components = {edge: live[keyword].component}
    for other, root in live.items():
        if other and other != keyword and other in children and other != edge:
            components[other] = root.component
    if not edge and live[keyword].kind != MODEL:
        return components  # an optimizer that the root leads to is the module's
    return components | _lone_optimizer(reader, children, components)


def _lone(live: Mapping[str, Root]) -> str | None:
    """The keyword of the lone model, or else of the lone module; None if there are several."""
    models = [keyword for keyword, root in live.items() if root.kind == MODEL]
    modules = [keyword for keyword, root in live.items() if not root.kind and root.parts]
    found = models or modules
    return found[0] if len(found) == 1 and (models or found[0]) else None


def _guess(reader: GraphReader, children: Mapping[str, int]) -> dict[str, str]:
    if is_model(reader, 0):
        return {"": MODEL} | _lone_optimizer(reader, children, {})
    if reader.is_optimizer(0):
        return {"": OPTIMIZER}
    models = [edge for edge, node in children.items() if is_model(reader, node)]
    if len(models) != 1 or (MODEL in children and models != [MODEL]):
        return {}
    return {models[0]: MODEL} | _lone_optimizer(reader, children, {})


def _by_keyword(children: Mapping[str, int], live: Mapping[str, Root]) -> dict[str, str]:
    hint = {keyword: root.component for keyword, root in live.items()}
    if "" in hint and hint[""] not in children:
        return hint
    # A lone optimizer may have different keywords in the model and in the checkpoint.
    return {k: c for k, c in hint.items() if k in children or (k and c not in children)}


def _model_edge(
    reader: GraphReader, children: Mapping[str, int], keyword: str, live: Mapping[str, Root]
) -> str | None:
    """The edge to the lone live model, ``""`` for the root itself, None if it is ambiguous."""
    candidates = {
        edge: node
        for edge, node in children.items()
        if node and (edge == keyword or edge not in live)  # TensorFlow's root may be its own child
    }
    parts = {_unnumbered(part) for part in live[keyword].parts}
    shared = {edge: len(parts & _parts(reader, node)) for edge, node in candidates.items()}
    root = len(parts & (_layers(reader, 0) | _plain(candidates)))
    if keyword and keyword in candidates and shared[keyword] >= root:
        return keyword
    most = max(shared.values(), default=0)
    if root > most or (is_model(reader, 0) and live[keyword].kind == MODEL):
        return ""
    nearest = [edge for edge, count in shared.items() if count == most]
    if not most:
        nearest = [edge for edge, node in candidates.items() if is_model(reader, node)]
    return nearest[0] if len(nearest) == 1 else None


def _parts(reader: GraphReader, index: int) -> set[str]:
    """The attributes and layers of a node, without the numbers of automatic names."""
    return _layers(reader, index) | _plain(reader.edges[index])


def _plain(edges: Iterable[str]) -> set[str]:
    return {_unnumbered(edge.lstrip("_")) for edge in edges}


def _layers(reader: GraphReader, index: int) -> set[str]:
    if not reader.is_sequence(index):
        return set()
    layer_names = sequence_names(reader, reader.sequence_layers(index), reader.edges[index])
    return {_unnumbered(name) for names in layer_names for name in names if name}


def _unnumbered(name: str) -> str:
    return unnumbered(name.replace("/", "_"))


def _lone_optimizer(
    reader: GraphReader, children: Mapping[str, int], taken: Mapping[str, str]
) -> dict[str, str]:
    """The edges to the lone optimizer; empty if there are several: each keeps its keyword."""
    nodes = {edge: reader.inner(node) for edge, node in children.items()}
    optimizers = {edge: node for edge, node in nodes.items() if reader.is_optimizer(node)}
    lone = len(set(optimizers.values())) == 1
    return {edge: OPTIMIZER for edge in optimizers if edge not in taken} if lone else {}


def is_model(reader: GraphReader, index: int) -> bool:
    """Whether a node is certainly a Keras model; a subclassed model may not show it."""
    edges = reader.edges[index]
    return (
        reader.is_sequence(index)
        or index in reader.bookkeeping
        or "_compiled_trainable_state" in edges
        or (OPTIMIZER in edges and "train_function" in edges)
    )


def moved_to(inventory: Inventory, live: Mapping[str, Root]) -> Inventory:
    """The inventory, renamed to the components that the same live objects have.

    >>> from tfckpt.core.inventory import Entry, Inventory, Role, Root
    >>> kernel = Entry("model/a/kernel", Role.WEIGHT, "float32", (2,))
    >>> lone = Inventory("", {kernel.name: kernel}, roots={"teacher": Root("model", "model")})
    >>> both = {name: Root(name, "model") for name in ("student", "teacher")}
    >>> list(moved_to(lone, both).entries)
    ['teacher/a/kernel']
    """
    targets = _targets(inventory, live)
    if all(old == new for old, new in targets.items()):
        return inventory
    return rename_heads(inventory, _heads(inventory, targets))


def _targets(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """Stored first component, or path of an attribute of the root object → its new name."""
    stored, taken = inventory.roots, {root.component for root in live.values()}
    targets = _parts_of_root(inventory, live) | _root_as_module(inventory, live)
    # Common keywords come first: the others must not take their names.
    for keyword, root in sorted(stored.items(), key=lambda item: item[0] not in live):
        if not root.component:
            continue
        if keyword in live and live[keyword].component:
            targets[root.component] = live[keyword].component
            continue
        target = root.component
        several = sum(other.kind == root.kind for other in live.values()) > 1
        if keyword and root.kind and several:
            target = keyword
        if target in targets.values():
            target = free_name(target, (taken | set(targets.values())).__contains__)
        targets.setdefault(root.component, target)
    return targets


def _parts_of_root(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """Attributes of the stored root object that are the live objects of the same keyword."""
    root, targets = inventory.roots.get(""), dict[str, str]()
    if root is None or "" in live:
        return targets
    for keyword in live.keys() - inventory.roots.keys():
        path = f"{root.component}/{keyword}"
        path = rebased(path, inventory.aliases) or path
        part, whole = (_below(inventory, each) for each in (path, root.component))
        live_parts = live[keyword].parts
        if (
            live[keyword].component
            and live_parts & part
            and len(live_parts & part) >= len(live_parts & whole)
        ):
            targets[path] = live[keyword].component
    return targets


def _root_as_module(inventory: Inventory, live: Mapping[str, Root]) -> dict[str, str]:
    """The attributes of a stored root object, below the lone live module that it is."""
    root, keyword = inventory.roots.get(""), _lone(live)
    if root is None or root.component or not keyword or keyword in inventory.roots:
        return {}
    tops = {name.partition("/")[0] for name in (*inventory.entries, *inventory.aliases)}
    parts = tops - {root.component for root in inventory.roots.values()}
    component, live_parts = live[keyword].component, live[keyword].parts
    attribute = _below(inventory, component) & live_parts if component in parts else set()
    if len(parts & live_parts) <= len(attribute):
        return {}
    return {part: f"{component}/{part}" for part in ("", *parts)}


def _below(inventory: Inventory, path: str) -> set[str]:
    """The next component of the names below a path."""
    start = path + "/"
    names = (name for name in inventory.entries if name.startswith(start))
    return {name[len(start) :].partition("/")[0] for name in names}


def _heads(inventory: Inventory, targets: Mapping[str, str]) -> dict[str, str]:
    kinds = {root.component: root.kind for root in inventory.roots.values()}
    heads: dict[str, str] = {}
    for old, new in targets.items():
        heads[old] = new
        if old == new or kinds.get(old) != MODEL:
            continue
        # These are at the top for a lone model, and below the model if there are several.
        owned = [SEED, METRICS]
        if OPTIMIZER not in (targets if old == MODEL else targets.values()):
            owned.append(OPTIMIZER)
        for component in owned:
            stored = component if old == MODEL else f"{old}/{component}"
            heads[stored] = component if new == MODEL else f"{new}/{component}"
    return heads


def rename_heads(inventory: Inventory, heads: Mapping[str, str]) -> Inventory:
    """The inventory with the prefixes of all names replaced at once: ``heads`` maps old → new."""

    def name(old: str) -> str:
        moved = rebased(old, heads) if old else heads.get("")
        return old if moved is None else moved

    def entry(each: Entry) -> Entry:
        if not each.of:
            return each._replace(name=name(each.name))
        of = name(each.of)
        # `~2` where two have the name
        head, _, repeated = each.name.rpartition(slot_tail(each.of))
        if not head.endswith(f"/{each.slot}"):
            return each._replace(name=name(each.name), of=of)
        return each._replace(name=name(head) + slot_tail(of) + repeated, of=of)

    entries: dict[str, Entry] = {}
    for each in map(entry, inventory.entries.values()):
        free = free_name(each.name, entries.__contains__)
        entries[free] = each._replace(name=free)
    return dataclasses.replace(
        inventory,
        entries=entries,
        containers={name(path): held for path, held in inventory.containers.items()},
        aliases={name(path): name(target) for path, target in inventory.aliases.items()},
        optimizers={name(path): label for path, label in inventory.optimizers.items()},
        accumulation={name(path): each for path, each in inventory.accumulation.items()},
        roots={
            keyword: dataclasses.replace(root, component=name(root.component))
            for keyword, root in inventory.roots.items()
        },
        private=inventory.private
        and {name(path): edge for path, edge in inventory.private.items()},
        left_out={name(path): reason for path, reason in inventory.left_out.items()},
    )
