"""Inventories in a line, and what is suggested for two of them, read and planned anew."""

from __future__ import annotations

import yaml

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy, load_policy
from zoo.entries import layer as entries_layer
from zoo.entries import sequence


def inventory(entries, *layers):
    """The layers of `model` in order: a name, with a star for an automatic one."""
    held = {"model": sequence(*map(layer, layers))} if layers else {}
    return Inventory("runs/ckpt-1", {entry.name: entry for entry in entries}, held)


def layer(text):
    return entries_layer(text, **({} if text.endswith("*") else {"cls": "dense"}))


CONV = {"kernel": (3, 3, 8, 32), "bias": (32,)}
DENSE = {"kernel": (20, 32), "bias": (32,)}
SQUARE = {"kernel": (8, 8), "bias": (8,)}
HEAD = {"kernel": (8, 3), "bias": (3,)}
TORCH = {"weight": (32, 20), "bias": (32,)}


def both(stored, live):
    return (s if isinstance(s, Inventory) else inventory(s) for s in (stored, live))


def suggested(stored, live, **policy):
    """The keys that are suggested, once they have been seen to work; None for none."""
    stored, live = both(stored, live)
    found = suggest(Policy(**policy), stored, live)
    if found is None or found.policy is None:
        return None
    keys = yaml.safe_load(found.yaml)
    assert make_plan(load_policy(policy | keys), stored, live).ok
    return keys


def choices(stored, live):
    found = suggest(Policy(), *both(stored, live))
    assert found is not None
    assert found.policy is None
    return {choice.live: choice.stored for choice in found.choices}


def rename(*pairs):
    return {"rename": [{"checkpoint": old, "model": new} for old, new in pairs]}


def torch(**modules):
    return [
        Entry(f"model/{name.replace('__', '.')}.{word}", Role.WEIGHT, "float32", shape, 4)
        for name, shapes in modules.items()
        for word, shape in shapes.items()
    ]
