"""What people do to a model between a save and a restore.

An edit takes a description and a source of choices, and changes the description in place. Where it
has nothing to choose from, the choice is an IndexError. The numbers of layers stay with the layers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.pairs.describe import (
    ATTRIBUTED,
    AUTOMATIC,
    MERGES,
    NESTS,
    WEIGHTLESS,
    WEIGHTY,
    Item,
    next_uid,
    walk,
)

Choose = Callable[[Sequence[Any]], Any]  # one of several
NAMES = ("stem", "body", "neck", "head", "left", "right", "proj", "norm", "aux", "mid")


def fresh_name(model: Item, choose: Choose, op: str) -> str:
    """A name that nothing in the model has; one in four looks like one of Keras's own."""
    base = AUTOMATIC[op]
    looks = [base, *(f"{base}_{number}" for number in range(1, 5))]
    pool = looks if choose((False, False, False, True)) else NAMES
    taken = {each.name for each in walk(model)}
    return choose([name for name in pool if name not in taken] or [f"layer{next_uid(model)}"])


def _nests(model: Item, *ops: str) -> list[Item]:
    return [each for each in walk(model) if each.op in (ops or NESTS)]


def _inside(model: Item) -> list[tuple[Item, Item]]:
    """Each layer, behind the model that it is in."""
    return [(nest, each) for nest in _nests(model) for each in nest.inside]


def _single(item: Item) -> bool:
    return item.op not in (*MERGES, "embedding")


def _feed(model: Item, instead: Mapping[int, int]) -> None:
    """What a layer has fed is fed by another one."""
    for each in walk(model):
        each.inputs = tuple(instead.get(uid, uid) for uid in each.inputs)
        each.outputs = tuple(instead.get(uid, uid) for uid in each.outputs)


def none(model: Item, choose: Choose) -> None:
    """A program that is the same."""


def insert(model: Item, choose: Choose, ops: Sequence[str] = WEIGHTY) -> None:
    nest, beside = choose(_inside(model))
    new = Item(choose(ops), next_uid(model))
    new.name = fresh_name(model, choose, new.op) if choose((True, False)) else None
    after = nest.op == "functional" or beside.op == "embedding" or choose((True, False))
    if nest.op == "functional":
        _feed(model, {beside.uid: new.uid})
        new.inputs = (beside.uid,)
    elif nest.op in ATTRIBUTED:
        new.attribute, new.form, new.key = beside.attribute, beside.form, f"key{new.uid}"
        if new.form == "one":
            new.attribute = f"extra{new.uid}"
    nest.inside.insert(nest.inside.index(beside) + after, new)


def insert_relu(model: Item, choose: Choose) -> None:
    insert(model, choose, WEIGHTLESS)


def remove(model: Item, choose: Choose) -> None:
    nest, gone = choose(
        [
            (nest, each)
            for nest, each in _inside(model)
            if _single(each) and len(nest.inside) > 1 and (nest.op != "functional" or each.inputs)
            if not {*nest.outputs} >= {each.uid, *each.inputs}
        ]
    )
    _feed(model, dict.fromkeys([gone.uid], *gone.inputs) if gone.inputs else {})
    nest.inside.remove(gone)


def swap(model: Item, choose: Choose) -> None:
    """Two layers with weights change places, as whole lines of the program do."""
    one, other = choose(
        [
            (one, other)
            for nest in _nests(model)
            for one, other in itertools.combinations(nest.inside, 2)
            if _single(one) and _single(other) and (one.op, one.name) != (other.op, other.name)
            if not {one.op, other.op} & {*WEIGHTLESS}
        ]
    )
    for field in ("op", "uid", "name", "inside", "outputs"):
        mine, theirs = getattr(one, field), getattr(other, field)
        setattr(one, field, theirs)
        setattr(other, field, mine)
    # what was fed by a place is fed by it still
    _feed(model, {one.uid: other.uid, other.uid: one.uid})


def reorder_lines(model: Item, choose: Choose) -> None:
    """Two branches are written down in the other order; what feeds what stays."""
    nest, at = choose(
        [
            (nest, at)
            for nest in _nests(model, "functional")
            for at, (one, other) in enumerate(itertools.pairwise(nest.inside))
            if one.uid not in other.inputs and (one.op, one.name) != (other.op, other.name)
        ]
    )
    nest.inside[at], nest.inside[at + 1] = nest.inside[at + 1], nest.inside[at]


def retype(model: Item, choose: Choose) -> None:
    item = choose([each for _, each in _inside(model) if each.op in WEIGHTY])
    item.op = choose([op for op in WEIGHTY if op != item.op])
    old, item.uid = item.uid, next_uid(model)
    _feed(model, {old: item.uid})


def rename_one(model: Item, choose: Choose) -> None:
    item = choose([each for _, each in _inside(model) if each.name is not None])
    item.name = fresh_name(model, choose, item.op)


def name_one(model: Item, choose: Choose) -> None:
    item = choose([each for _, each in _inside(model) if each.name is None])
    item.name = fresh_name(model, choose, item.op)


def rename_all(model: Item, choose: Choose) -> None:
    for _, each in _inside(model):
        each.name = fresh_name(model, choose, each.op)


def unname_all(model: Item, choose: Choose) -> None:
    choose([each for each in walk(model) if each.name is not None])
    for each in walk(model):
        each.name = None


def rename_attribute(model: Item, choose: Choose) -> None:
    nest, item = choose([(nest, each) for nest, each in _inside(model) if each.attribute])
    old, taken = item.attribute, {each.attribute for each in nest.inside}
    new = choose([name for name in ("encode", "decode", "extra") if name not in taken])
    for each in nest.inside:
        each.attribute = new if each.attribute == old else each.attribute


def reorder_arguments(model: Item, choose: Choose) -> None:
    merge = choose([each for each in walk(model) if each.op in MERGES])
    merge.inputs = merge.inputs[::-1]


def reorder_outputs(model: Item, choose: Choose) -> None:
    nest = choose([nest for nest in _nests(model) if len(nest.outputs) > 1])
    nest.outputs = nest.outputs[::-1]


def wrap(model: Item, choose: Choose) -> None:
    """Some layers in a row go into a Sequential of their own."""
    nest, at, size = choose(
        [
            (nest, at, size)
            for nest in _nests(model)
            for at in range(len(nest.inside))
            for size in (1, 2, 3)
            if at + size <= len(nest.inside) and _in_a_row(nest, nest.inside[at : at + size])
        ]
    )
    row = nest.inside[at : at + size]
    named = fresh_name(model, choose, "sequential") if choose((True, False)) else None
    alone = {"inputs": (), "attribute": "", "form": "one", "key": ""}
    new = Item("sequential", next_uid(model), named)
    for field in alone:
        setattr(new, field, getattr(row[0], field))
    _feed(model, {row[-1].uid: new.uid})
    new.inside = [dataclasses.replace(each, **alone) for each in row]
    nest.inside[at : at + size] = [new]


def _in_a_row(nest: Item, row: Sequence[Item]) -> bool:
    if not all(map(_single, row)) or any(each.op == "functional" for each in row):
        return False
    if nest.op != "functional":
        return True
    for one, other in itertools.pairwise(row):
        fed = [each for each in nest.inside if one.uid in each.inputs]
        if fed != [other] or len(other.inputs) > 1 or one.uid in nest.outputs:
            return False
    return bool(row[0].inputs)


def unwrap(model: Item, choose: Choose) -> None:
    rows = [(nest, each) for nest, each in _inside(model) if each.op == "sequential"]
    nest, gone = choose([(nest, each) for nest, each in rows if nest.op != "functional"])
    at = nest.inside.index(gone)
    for place, each in enumerate(gone.inside):
        each.attribute, each.form, each.key = gone.attribute, gone.form, gone.key
        if gone.attribute and gone.form == "one":
            each.attribute = f"{gone.attribute}{place}"
        if gone.form == "dict":
            each.key = f"{gone.key}{place}"
    nest.inside[at : at + 1] = gone.inside


def into_list(model: Item, choose: Choose) -> None:
    """Attributes become a list."""
    nest = choose([n for n in _nests(model, *ATTRIBUTED) if any(i.form == "one" for i in n.inside)])
    for each in nest.inside:
        if each.form == "one":
            each.attribute, each.form = "layers_", "list"


# Edits by name. Those of the second tuple may follow any other, and nothing becomes unclear by it.
FIRST = (
    *(none, insert, insert_relu, remove, swap, reorder_lines, retype),
    *(rename_one, name_one, rename_all, unname_all, rename_attribute),
    *(reorder_arguments, reorder_outputs, wrap, unwrap, into_list),
)
SECOND = (rename_one, name_one, insert_relu)
