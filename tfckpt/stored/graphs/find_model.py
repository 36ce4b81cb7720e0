"""Which objects of a stored graph are the model and the optimizer of the live side.

The same model may have been given as the root, as a keyword or by ``save_weights`` on one side, and
otherwise on the other. A keyword that both sides have decides; another object, whose keyword is the
name that this one has here, stands aside as ``model~2``. Where there is none, a lone live model is
looked for: what has most of its attributes and layers, the root itself or a child, else what looks
like a model at all. Where several or nothing does, each object keeps its keyword, and a policy may
rename it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfckpt.core.inventory import Root
from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.stored.graphs.graph_layers import sequence_names
from tfckpt.stored.graphs.rename_roots import free_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfckpt.stored.graphs.reader import GraphReader


def components(
    reader: GraphReader, children: Mapping[str, int], live: Mapping[str, Root] | None
) -> dict[str, str]:
    """Edge of the root (``""`` for the root itself) → first component of the names below it.

    Args:
        reader: of the graph.
        children: what the root leads to.
        live: what the live side was given, by keyword; None where there is none.
    """
    found = _guess(reader, children) if live is None else _met(reader, children, live)
    taken = {*found.values(), *children}
    others = children.keys() - found.keys() if "" not in found else ()
    return found | {edge: free_name(edge, taken) for edge in others if edge in found.values()}


def given(
    reader: GraphReader,
    children: Mapping[str, int],
    components: Mapping[str, str],
    live: Mapping[str, Root],
) -> dict[str, Root]:
    """What :func:`components` found of the live side's objects, by the keyword in the file."""
    kinds = {root.component: root.kind for root in live.values()}
    # An object that was given by itself has attributes; no keyword has an underscore in front.
    by_itself = is_model(reader, 0) or any(edge.startswith("_") for edge in children)
    known = {""} if by_itself else {"", *children}
    return {
        edge: Root(component, kinds[component])
        for edge, component in components.items()
        if component in kinds and edge in known
    }


def _met(
    reader: GraphReader, children: Mapping[str, int], live: Mapping[str, Root]
) -> dict[str, str]:
    models = [keyword for keyword, root in live.items() if root.kind == MODEL]
    if len(models) != 1:
        return _by_keyword(children, live)
    (keyword,) = models
    place = _place(reader, children, keyword, live)
    if place is None or (place not in {MODEL, keyword, ""} and MODEL in children):
        return _by_keyword(children, live)
    found = {place: MODEL}
    for other, root in live.items():
        if other and other != keyword and other in children and other != place:
            found[other] = root.component
    return found | _solvers(reader, children, found)


def _guess(reader: GraphReader, children: Mapping[str, int]) -> dict[str, str]:
    if is_model(reader, 0):
        return {"": MODEL} | _solvers(reader, children, {})
    if reader.is_optimizer(0):
        return {"": OPTIMIZER}
    models = [edge for edge, node in children.items() if is_model(reader, node)]
    if len(models) != 1 or (MODEL in children and models != [MODEL]):
        return {}
    return {models[0]: MODEL} | _solvers(reader, children, {})


def _by_keyword(children: Mapping[str, int], live: Mapping[str, Root]) -> dict[str, str]:
    hint = {keyword: root.component for keyword, root in live.items()}
    if "" in hint and hint[""] and hint[""] not in children:
        return hint
    # A lone optimizer may have been given by another keyword on either side.
    return {k: c for k, c in hint.items() if k in children or (k and c not in children)}


def _place(
    reader: GraphReader, children: Mapping[str, int], keyword: str, live: Mapping[str, Root]
) -> str | None:
    """The edge to the lone live model, ``""`` for the root itself, None where it is not clear."""
    own = {
        edge: node
        for edge, node in children.items()
        if node and (edge == keyword or edge not in live)  # TensorFlow's root may be its own child
    }
    parts = {_unnumbered(part) for part in live[keyword].parts}
    alike = {edge: len(parts & _parts(reader, node)) for edge, node in own.items()}
    root = len(parts & (_layers(reader, 0) | _plain(own)))
    if keyword and keyword in own and alike[keyword] >= root:
        return keyword
    most = max(alike.values(), default=0)
    if is_model(reader, 0) or root > most:
        return ""
    nearest = [edge for edge, count in alike.items() if count == most]
    if not most:
        nearest = [edge for edge, node in own.items() if is_model(reader, node)]
    return nearest[0] if len(nearest) == 1 else None


def _parts(reader: GraphReader, index: int) -> set[str]:
    """The attributes and layers of a node, without the numbers of automatic names."""
    return _layers(reader, index) | _plain(reader.edges[index])


def _plain(edges: Iterable[str]) -> set[str]:
    return {_unnumbered(edge.lstrip("_")) for edge in edges}


def _layers(reader: GraphReader, index: int) -> set[str]:
    if not reader.is_sequence(index):
        return set()
    found = sequence_names(reader, reader.sequence_layers(index), reader.edges[index])
    return {_unnumbered(name) for names in found for name in names if name}


def _unnumbered(name: str) -> str:
    return re.sub(r"_\d+$", "", name.replace("/", "_"))


def _solvers(
    reader: GraphReader, children: Mapping[str, int], taken: Mapping[str, str]
) -> dict[str, str]:
    """The edges to the lone optimizer; where there are several, each keeps its keyword."""
    nodes = {edge: reader.inner(node) for edge, node in children.items()}
    solvers = {edge: node for edge, node in nodes.items() if reader.is_optimizer(node)}
    lone = len(set(solvers.values())) == 1
    return {edge: OPTIMIZER for edge in solvers if edge not in taken} if lone else {}


def is_model(reader: GraphReader, index: int) -> bool:
    """Whether a node shows that it is a Keras model; a subclassed one need not."""
    edges = reader.edges[index]
    return (
        reader.is_sequence(index)
        or index in reader.bookkeeping
        or "_compiled_trainable_state" in edges
        or (OPTIMIZER in edges and "train_function" in edges)
    )
