"""What people do to a model between a save and a restore.

An edit takes a description and a source of choices, changes the description in place and returns
whether it could. The numbers of the layers stay with the layers.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Choose = Callable[[Sequence[Any]], Any]  # one of several

NAMES = ("stem", "body", "neck", "head", "left", "right", "proj", "norm", "aux", "mid")


def fresh_name(model: Item, choose: Choose, op: str) -> str:
    """A name that nothing in the model has; one in four looks like one of Keras's own."""
    base = AUTOMATIC[op]
    looks = [base, *(f"{base}_{number}" for number in range(1, 5))]
    pool = looks if choose((False, False, False, True)) else NAMES
    taken = {each.name for each in walk(model)}
    free = [name for name in pool if name not in taken]
    return choose(free or [f"layer{next_uid(model)}"])


def nests(model: Item) -> list[Item]:
    return [each for each in walk(model) if each.op in NESTS]


def _chosen(model: Item, choose: Choose, suits: Callable[[Item], bool]) -> tuple[Item, Item] | None:
    """A layer of which something is true, and the model it is in."""
    found = [(nest, each) for nest in nests(model) for each in nest.inside if suits(each)]
    return choose(found) if found else None


def _single(item: Item) -> bool:
    return item.op not in (*MERGES, "embedding")


def none(model: Item, choose: Choose) -> bool:
    return True


def _insert(model: Item, choose: Choose, ops: Sequence[str]) -> bool:
    found = [nest for nest in nests(model) if nest.inside]
    nest = choose(found)
    start = 1 if nest.inside[0].op == "embedding" else 0
    at = choose(range(start, len(nest.inside) + 1)) if nest.op != "functional" else 0
    op = choose(ops)
    new = Item(
        op, next_uid(model), fresh_name(model, choose, op) if choose((True, False)) else None
    )
    if nest.op == "functional":
        before = choose(nest.inside)
        at = nest.inside.index(before) + 1
        new.inputs = (before.uid,)
        for each in nest.inside:
            each.inputs = tuple(new.uid if uid == before.uid else uid for uid in each.inputs)
        nest.outputs = tuple(new.uid if uid == before.uid else uid for uid in nest.outputs)
    elif nest.op in ATTRIBUTED:
        beside = nest.inside[min(at, len(nest.inside) - 1)]
        if beside.form == "one":
            taken = {each.attribute for each in nest.inside}
            new.attribute = next(f"extra{n}" for n in range(99) if f"extra{n}" not in taken)
        else:
            new.attribute, new.form = beside.attribute, beside.form
            new.key = f"key{new.uid}"
    nest.inside.insert(at, new)
    return True


def insert(model: Item, choose: Choose) -> bool:
    return _insert(model, choose, WEIGHTY)


def insert_relu(model: Item, choose: Choose) -> bool:
    return _insert(model, choose, WEIGHTLESS)


def remove(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, _single)
    if found is None or len(found[0].inside) < 2:
        return False
    nest, gone = found
    if nest.op == "functional":
        if not gone.inputs:
            return False
        (before,) = gone.inputs
        for each in nest.inside:
            each.inputs = tuple(before if uid == gone.uid else uid for uid in each.inputs)
        nest.outputs = tuple(before if uid == gone.uid else uid for uid in nest.outputs)
        if len(set(nest.outputs)) < len(nest.outputs):
            return False
    nest.inside.remove(gone)
    return True


def swap(model: Item, choose: Choose) -> bool:
    """Two layers with weights change places, as whole lines of the program do."""
    pairs = [
        (one, other)
        for nest in nests(model)
        for at, one in enumerate(nest.inside)
        for other in nest.inside[at + 1 :]
        if _single(one) and _single(other) and (one.op, one.name) != (other.op, other.name)
        if not {one.op, other.op} & {*WEIGHTLESS}
    ]
    if not pairs:
        return False
    one, other = choose(pairs)
    layer = ("op", "uid", "name", "inside", "outputs", "outputs_as")
    _exchange(model, one, other, layer)
    return True


def _exchange(model: Item, one: Item, other: Item, fields: Sequence[str]) -> None:
    # what is fed by a place is fed by it still
    both = {one.uid: other.uid, other.uid: one.uid}
    for field in fields:
        mine, theirs = getattr(one, field), getattr(other, field)
        setattr(one, field, theirs)
        setattr(other, field, mine)
    for nest in nests(model):
        if one in nest.inside:
            for each in nest.inside:
                each.inputs = tuple(both.get(uid, uid) for uid in each.inputs)
            nest.outputs = tuple(both.get(uid, uid) for uid in nest.outputs)


def reorder_lines(model: Item, choose: Choose) -> bool:
    """Two branches are written down in the other order; what feeds what stays."""
    pairs = [
        (nest, at)
        for nest in nests(model)
        if nest.op == "functional"
        for at in range(len(nest.inside) - 1)
        if nest.inside[at].uid not in nest.inside[at + 1].inputs
        and (nest.inside[at].op, nest.inside[at].name)
        != (nest.inside[at + 1].op, nest.inside[at + 1].name)
    ]
    if not pairs:
        return False
    nest, at = choose(pairs)
    nest.inside[at], nest.inside[at + 1] = nest.inside[at + 1], nest.inside[at]
    return True


def retype(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: each.op in WEIGHTY)
    if found is None:
        return False
    _, item = found
    item.op = choose([op for op in WEIGHTY if op != item.op])
    _renumber(model, item, next_uid(model))
    return True


def _renumber(model: Item, item: Item, uid: int) -> None:
    old, item.uid = item.uid, uid
    for nest in nests(model):
        if item in nest.inside:
            for each in nest.inside:
                each.inputs = tuple(uid if fed == old else fed for fed in each.inputs)
            nest.outputs = tuple(uid if made == old else made for made in nest.outputs)


def rename_one(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: each.name is not None)
    if found is None:
        return False
    found[1].name = fresh_name(model, choose, found[1].op)
    return True


def name_one(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: each.name is None)
    if found is None:
        return False
    found[1].name = fresh_name(model, choose, found[1].op)
    return True


def rename_all(model: Item, choose: Choose) -> bool:
    for each in walk(model):
        if each is not model:
            each.name = fresh_name(model, choose, each.op)
    return True


def unname_all(model: Item, choose: Choose) -> bool:
    named = [each for each in walk(model) if each.name is not None]
    for each in named:
        each.name = None
    return bool(named)


def rename_attribute(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: bool(each.attribute))
    if found is None:
        return False
    nest, item = found
    old = item.attribute
    free = [n for n in ("encode", "decode", "extra") if n not in {i.attribute for i in nest.inside}]
    new = choose(free)
    for each in nest.inside:
        if each.attribute == old:
            each.attribute = new
    return True


def reorder_arguments(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: each.op in MERGES)
    if found is None:
        return False
    found[1].inputs = found[1].inputs[::-1]
    return True


def reorder_outputs(model: Item, choose: Choose) -> bool:
    found = [nest for nest in nests(model) if len(nest.outputs) > 1]
    if not found:
        return False
    nest = choose(found)
    nest.outputs = nest.outputs[::-1]
    return True


def outputs_as_dict(model: Item, choose: Choose) -> bool:
    if model.op != "functional" or model.outputs_as == "dict":
        return False
    model.outputs_as = "dict"
    return True


def wrap(model: Item, choose: Choose) -> bool:
    """Some layers in a row go into a Sequential of their own."""
    rows = [
        (nest, at, size)
        for nest in nests(model)
        for at in range(len(nest.inside))
        for size in (1, 2, 3)
        if at + size <= len(nest.inside) and _in_a_row(nest, nest.inside[at : at + size])
    ]
    if not rows:
        return False
    nest, at, size = choose(rows)
    row = nest.inside[at : at + size]
    named = fresh_name(model, choose, "sequential") if choose((True, False)) else None
    first, last = row[0], row[-1]
    inside = [
        dataclasses.replace(each, inputs=(), attribute="", form="one", key="") for each in row
    ]
    new = dataclasses.replace(
        Item("sequential", next_uid(model), named, first.inputs),
        attribute=first.attribute,
        form=first.form,
        key=first.key,
        inside=inside,
    )
    nest.inside[at : at + size] = [new]
    for each in nest.inside:
        each.inputs = tuple(new.uid if uid == last.uid else uid for uid in each.inputs)
    nest.outputs = tuple(new.uid if uid == last.uid else uid for uid in nest.outputs)
    return True


def _in_a_row(nest: Item, row: Sequence[Item]) -> bool:
    if not all(map(_single, row)) or any(each.op == "functional" for each in row):
        return False
    if nest.op != "functional":
        return True
    if not row[0].inputs:
        return False
    for one, other in itertools.pairwise(row):
        fed = [each for each in nest.inside if one.uid in each.inputs]
        if fed != [other] or len(other.inputs) > 1 or one.uid in nest.outputs:
            return False
    return True


def unwrap(model: Item, choose: Choose) -> bool:
    found = _chosen(model, choose, lambda each: each.op == "sequential")
    if found is None or found[0].op == "functional":
        return False
    nest, gone = found
    at = nest.inside.index(gone)
    row = gone.inside
    for place, each in enumerate(row):
        each.attribute, each.form, each.key = gone.attribute, gone.form, gone.key
        if gone.attribute and gone.form == "one":
            each.attribute = f"{gone.attribute}{place}"
        if gone.form == "dict":
            each.key = f"{gone.key}{place}"
    nest.inside[at : at + 1] = row
    return True


def into_list(model: Item, choose: Choose) -> bool:
    """Attributes become a list."""
    found = [
        n for n in nests(model) if n.op in ATTRIBUTED and any(i.form == "one" for i in n.inside)
    ]
    if not found:
        return False
    nest = choose(found)
    if any(each.attribute == "layers_" for each in nest.inside):
        return False
    for each in nest.inside:
        if each.form == "one":
            each.attribute, each.form = "layers_", "list"
    return True


# Edits by name. Those of the second tuple may follow any other, and nothing becomes unclear by it.
FIRST = (
    none,
    insert,
    insert_relu,
    remove,
    swap,
    reorder_lines,
    retype,
    rename_one,
    name_one,
    rename_all,
    unname_all,
    rename_attribute,
    reorder_arguments,
    reorder_outputs,
    outputs_as_dict,
    wrap,
    unwrap,
    into_list,
)
SECOND = (rename_one, name_one, insert_relu)
