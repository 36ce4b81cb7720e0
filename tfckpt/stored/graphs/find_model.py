"""Which objects of a stored graph correspond to the live model and optimizer.

The same model may have been saved as the root object, under a keyword or by ``save_weights``, and
be restored in another of these ways. A keyword that both sides have decides; a different stored
object that already has the resulting name becomes ``model~2``. Without a common keyword, a lone
live model corresponds to the object that shares most of its attributes and layers, the root or one
of its children; if none shares any, to the only object that looks like a Keras model. If several or
none do, each object keeps its keyword, and a policy may rename it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import Root, unnumbered
from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.core.text import free_name
from tfckpt.stored.graphs.graph_layers import sequence_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.stored.graphs.reader import GraphReader


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
    models = [keyword for keyword, root in live.items() if root.kind == MODEL]
    if len(models) != 1:
        return _by_keyword(children, live)
    (keyword,) = models
    edge = _model_edge(reader, children, keyword, live)
    if edge is None or (edge not in {MODEL, keyword, ""} and MODEL in children):
        return _by_keyword(children, live)
    components = {edge: MODEL}
    for other, root in live.items():
        if other and other != keyword and other in children and other != edge:
            components[other] = root.component
    return components | _lone_optimizer(reader, children, components)


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
    if "" in hint and hint[""] and hint[""] not in children:
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
    if is_model(reader, 0) or root > most:
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
