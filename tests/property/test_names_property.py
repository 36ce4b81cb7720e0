"""What holds for the names of every tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tfckpt.core.inventory import ATTRIBUTES, Entry, Inventory, Role
from tfckpt.core.names import Names, Node, NodeKind, assign, walk

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

EDGES = ("a", "_a", "__a", "b", "kernel", "depthwise_kernel", "0", "1", "x/y", "x")
LABELS = (("dense", "dense"), ("dense_4", "dense"), ("conv", "conv"), ("head", ""), ("", ""))
KEYWORDS = ("model", "generator", "step", "optimizer")


@st.composite
def trees(draw: Callable[..., Any]) -> dict[str, Node]:
    """Roots of a graph in which nodes are shared, cycles included, as live objects have them."""
    size = draw(st.integers(1, 9))
    kinds = st.sampled_from((NodeKind.VALUE, NodeKind.GROUP, NodeKind.GROUP, NodeKind.SEQUENCE))
    nodes = [Node(draw(kinds)) for _ in range(size)]
    for index, node in enumerate(nodes):
        if node.kind is NodeKind.VALUE:
            node.role = draw(st.sampled_from((Role.WEIGHT, Role.WEIGHT, Role.SEED)))
            continue
        node.label, node.base = draw(st.sampled_from(LABELS))
        if node.kind is NodeKind.SEQUENCE:
            later = nodes[index + 1 :]  # no model is a layer of its own layers
            node.layers = _layers(
                draw(st.lists(st.sampled_from(later), max_size=4) if later else st.just([]))
            )
        edges = draw(st.lists(st.sampled_from(EDGES), max_size=4, unique=True))
        node.children = [(edge, draw(st.sampled_from(nodes))) for edge in edges]
    keywords = draw(st.lists(st.sampled_from(KEYWORDS), min_size=1, unique=True))
    return {keyword: draw(st.sampled_from(nodes)) for keyword in keywords}


def _layers(found: list[Node]) -> list[Node]:
    """Each once and of different names, as Keras demands."""
    by_label = {node.label: node for node in found if node.kind is not NodeKind.VALUE}
    return list(by_label.values())


def named(roots: dict[str, Node]) -> Names:
    return assign(roots, {keyword for keyword in roots if keyword in {"model", "generator"}})


def reachable(roots: dict[str, Node]) -> dict[int, Node]:
    return {
        id(node): node
        for root in roots.values()
        for node in walk(root)
        if node.kind is NodeKind.VALUE
    }


@given(trees())
def test_every_value_has_exactly_one_name(roots) -> None:
    found = named(roots).values
    assert {id(name.node) for name in found} == reachable(roots).keys()
    assert len({id(name.node) for name in found}) == len(found)
    assert len({name.name for name in found}) == len(found)


@given(trees(), st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order_of_attributes_and_keywords(
    roots, order: random.Random
) -> None:
    before = {id(name.node): name.name for name in named(roots).values}
    for root in roots.values():
        for node in walk(root):
            order.shuffle(node.children)
    keywords = list(roots)
    order.shuffle(keywords)
    again = named({keyword: roots[keyword] for keyword in keywords})
    assert {id(name.node): name.name for name in again.values} == before


@given(trees())
def test_every_alias_leads_to_the_values_of_what_it_stands_for(roots) -> None:
    names = named(roots)
    entries = {n.name: Entry(n.name, n.role, "float32", ()) for n in names.values}
    inventory = Inventory("", entries, aliases=names.aliases)
    for alias, path in names.aliases.items():
        assert path not in names.aliases
        for name, entry in entries.items():
            other = alias + name[len(path) :]
            if (name + "/").startswith(path + "/") and other not in entries:
                assert inventory.find(other) is entry


@given(trees())
def test_a_stack_lists_the_layers_that_its_names_go_through(roots) -> None:
    names = named(roots)
    for path, held in names.containers.items():
        assert len({layer.place for layer in held.layers}) == len(held.layers)
        if held.kind != ATTRIBUTES:  # the trees have slashes in these, Python has none
            assert all("/" not in layer.place for layer in held.layers), path
