"""What holds for the names of every tree, every listing and every file of keys."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfckpt.core.inventory import ATTRIBUTES, Entry, Inventory, Role
from tfckpt.core.name_tree import ordered, rows, tree
from tfckpt.core.names import Names, Node, NodeKind, assign, walk
from tfckpt.stored.formats.tf1 import name_keys

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


@given(trees(), st.randoms(use_true_random=False))
def test_what_holds_for_the_names_of_every_tree(roots, order: random.Random) -> None:
    names = named(roots)
    values = [node for root in roots.values() for node in walk(root)]
    values = [node for node in values if node.kind is NodeKind.VALUE]
    # every value has exactly one name
    assert {id(name.node) for name in names.values} == {id(node) for node in values}
    assert len({id(name.node) for name in names.values}) == len(names.values)
    assert len({name.name for name in names.values}) == len(names.values)
    # every alias leads to the values of what it stands for
    entries = {n.name: Entry(n.name, n.role, "float32", ()) for n in names.values}
    inventory = Inventory("", entries, aliases=names.aliases)
    for alias, path in names.aliases.items():
        assert path not in names.aliases
        for name, entry in entries.items():
            other = alias + name[len(path) :]
            if (name + "/").startswith(path + "/") and other not in entries:
                assert inventory.find(other) is entry
    # a stack lists the layers that its names go through
    for path, held in names.containers.items():
        assert len({layer.place for layer in held.layers}) == len(held.layers)
        if held.kind != ATTRIBUTES:  # the trees have slashes in these, Python has none
            assert all("/" not in layer.place for layer in held.layers), path
    # names do not depend on the order of attributes and keywords
    before = {id(name.node): name.name for name in names.values}
    for root in roots.values():
        for node in walk(root):
            order.shuffle(node.children)
    keywords = list(roots)
    order.shuffle(keywords)
    again = named({keyword: roots[keyword] for keyword in keywords})
    assert {id(name.node): name.name for name in again.values} == before


LONG = "9" * 30
PARTS = st.sampled_from(["", "a", "0", "00", "1", "01", "2", "10", "a_2", "a_10", "٣", "²", LONG])
NAMES = st.lists(
    st.one_of(
        st.lists(PARTS, min_size=1, max_size=4).map("/".join).filter(bool),
        st.integers(0, 120).map(lambda depth: "/".join(["d"] * depth + ["leaf"])),
    ),
    unique=True,
    max_size=30,
)


def entries(names):
    return [Entry(n, Role.WEIGHT, "float32", (i,), 4 * i) for i, n in enumerate(names, 1)]


@given(NAMES)
def test_every_value_is_in_a_listing_once_and_in_the_sums_above_it(names):
    values = entries(names)
    assert sorted(one.name for one in ordered(values)) == sorted(names)
    root = tree(values)
    assert (root.count, root.nbytes) == (len(values), sum(one.nbytes for one in values))
    for row in rows(root, fold=False):
        if row.entry is not None:
            assert row.name == row.entry.name
            continue
        below = [e for e in values if e.name == row.name or e.name.startswith(f"{row.name}/")]
        assert (row.count, row.nbytes) == (len(below), sum(one.nbytes for one in below))


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ("a_10 b a_2 c a", "a_2 b a_10 c a"),
        ("x/10 x/9 x/1", "x/1 x/9 x/10"),
        (f"a_{LONG} a_2 ² ٣", f"a_2 a_{LONG} ² ٣"),
    ],
)
def test_siblings_that_differ_in_a_number_ascend_and_no_other_moves(names: str, shown: str) -> None:
    assert [one.name for one in ordered(entries(names.split()))] == shown.split()


WORDS = [
    "", "dense", "dense_4", "kernel", "Adam", "Adam_1", "RMSProp_2", "m", "v", "training", "iter",
    "Adafactor", "ExponentialMovingAverage", "lstm_cell", "recurrent_kernel", "forward_a",
    "backward_a", "w_slot_vr", "w_slot_v", "w", "global_step", "beta1_power", "beta1_power_7", "~2",
    "multi_head_attention", "query", "adam_m", "learning_rate", "é", "a:0", ":0",
]  # fmt: skip
KEYS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("/".join) | st.text(max_size=9)
SHAPES = st.sampled_from([(), (3,), (4,), (3, 4)])


class Value(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    nbytes: int = 4
    crc32c: int | None = None


@given(st.dictionaries(KEYS, SHAPES, max_size=12), st.randoms())
@example({"//kernel": (3,), "///": (3,), "a//kernel": (3,), "//": ()}, None)  # was read without end
def test_every_key_is_one_value_and_their_order_says_nothing(shapes, random) -> None:
    def named(keys: list[str]) -> Inventory:
        return name_keys("here", {key: Value("float32", shapes[key]) for key in keys})

    keys = sorted(shapes)
    inventory = named(keys)
    assert sorted(entry.key for entry in inventory.entries.values()) == keys
    for name, entry in inventory.entries.items():
        assert entry.name == name
        assert (entry.shape, entry.dtype) == (shapes[entry.key], "float32")
        if entry.of:
            variable = inventory.entries[entry.of]
            assert entry.role is Role.SLOT
            assert variable.role is Role.WEIGHT
            assert set(entry.shape) <= set(variable.shape)
    again = named(random.sample(keys, len(keys)) if random else keys[::-1])
    first, second = (
        {e.key: e.name for e in each.entries.values() if "~" not in e.name}
        for each in (inventory, again)
    )
    shared = first.keys() & second.keys()
    assert {key: first[key] for key in shared} == {key: second[key] for key in shared}
