"""Queries, keys and values that a file has as one value, and a model as three.

PyTorch's own attention has one after the other. Other programs keep the three of each head together
under the same names, so for them this is for a person to say.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tfckpt.core.inventory import Role
from tfckpt.core.text import natural
from tfckpt.planning.suggested import Candidates
from tfckpt.planning.suggestion.adapting import rules_for
from tfckpt.planning.suggestion.fewest_rules import numbered
from tfckpt.planning.suggestion.units import holder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning.checks.step import Step

_ROLES = ("query", "key", "value")
_ROLE = re.compile(r"(?<![a-z])(query|key|value|[qkv])(?![a-z])", re.IGNORECASE)
_FUSED = re.compile(r"(?<![a-z])(qkv|query_key_value|c_attn|in_proj)(?![a-z])")
_OF_PYTORCH = "in_proj"


class Fused(NamedTuple):
    """Values that may be parts of others.

    Attributes:
        parts: name of a stored value → the live ones that may be its parts.
        rules: which ``adapt`` rules make them so.
        certain: whether the names say which is whose, and in which order the parts are.
    """

    parts: dict[str, tuple[str, ...]]
    rules: list[dict[str, Any]]
    certain: bool

    def choices(self) -> tuple[Candidates, ...]:
        answer = "its query, key and value follow one another", {"adapt": self.rules}
        why = "nothing says whether the heads or the three come first"
        return tuple(
            Candidates(names[0], (f"a part of {whole}",), why, (whole, names[0]), (answer,))
            for whole, names in self.parts.items()
        )


def fused(errors: Iterable[Step], model: Inventory) -> Fused | None:
    """What is left on both sides as whole and parts, one for one; None if that is not so."""
    left = [step for step in errors if step.entry.role is Role.WEIGHT]
    stored = [x for step in left if (x := step.stored) is not None and step.live is None]
    live = [x for step in left if (x := step.live) is not None and step.stored is None]
    wholes = sorted((e for e in stored if _FUSED.search(e.name)), key=lambda e: natural(e.name))
    triples = sorted(_triples(live), key=lambda each: natural(each[0].name))
    parts: dict[str, tuple[str, ...]] = {}
    splits: list[dict[str, Any]] = []
    turned: set[str] = set()
    merged: set[str] = set()
    for bias in (False, True):
        old = [each for each in wholes if each.name.endswith("bias") == bias]
        new = [each for each in triples if each[0].name.endswith("bias") == bias]
        if len(old) != len(new):
            return None
        for whole, three in zip(old, new, strict=True):
            axis = _axis(whole, three, bias=bias)
            if axis is None:
                return None
            names = tuple(each.name for each in three)
            parts[whole.name] = names
            rule = _split(whole.name, names, axis)
            splits += [rule] if rule not in splits else []
            if axis == 0 and not bias:
                turned.update(names)
            merged.update(e.name for e in three if len(e.shape or ()) != len(whole.shape or ()))
    if not parts:
        return None
    transposes = rules_for(turned, model, {"how": "transpose"}) if turned else []
    reshapes = rules_for(merged, model, {"how": "reshape"}) if merged else []
    alike = len(splits) == len({name.endswith("bias") for name in parts})  # but for their numbers
    certain = alike and all(_OF_PYTORCH in name for name in parts)
    return Fused(parts, [*splits, *transposes, *reshapes], certain)


def _triples(live: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """Query, key and value of layers whose names differ in that word alone."""
    found: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in live:
        path = holder_of(entry.name)
        above, _, own = path.rpartition("/")
        roles = _ROLE.findall(own)
        if len(roles) == 1:
            role = next(each for each in _ROLES if each[0] == roles[0][0].lower())
            key = f"{above}/{_ROLE.sub('*', own)}", entry.name[len(path) :]
            found.setdefault(key, {})[role] = entry
    return [
        tuple(map(each.__getitem__, _ROLES)) for each in found.values() if len(each) == len(_ROLES)
    ]


def _axis(whole: Entry, parts: Sequence[Entry], *, bias: bool) -> int | None:
    """Along which axis the parts make up the whole."""
    shape, sizes = whole.shape or (), [math.prod(each.shape or ()) for each in parts]
    if bias:
        return 0 if shape == (sum(sizes),) else None
    width = (parts[0].shape or (0,))[0]
    if any((each.shape or (0,))[0] != width for each in parts) or not width:
        return None
    out = sum(sizes) // width
    return next((i for i, one in enumerate([(out, width), (width, out)]) if one == shape), None)


def _split(whole: str, parts: Sequence[str], axis: int) -> dict[str, Any]:
    """The rule for one value, or for all that differ from it in their numbers alone."""
    rules = [next(numbered(whole, part, ""), None) for part in parts]
    found = [rule for rule in rules if rule is not None]
    same = len(found) == len(parts)
    return {
        "how": "split",
        "checkpoint": found[0][0] if same else whole,
        "model": [rule[1] for rule in found] if same else list(parts),
        "axis": axis,
    }
