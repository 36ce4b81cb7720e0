"""Damage of each kind to the newest checkpoint of a run, decided by a kind and a number alone.

``damage(directory, "index", 17)`` does the same whenever it is called: that is how a case is named.
Forged kinds have valid checksums, all the way up: where the index is forged, the commit record is
left as it is, or sealed for the forged index, or taken away, so that the index alone speaks.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import TYPE_CHECKING, Any

from attacks.forging import mutate, plain_block, sealed_record, table
from attacks.state_files import ATTACKS

if TYPE_CHECKING:
    from pathlib import Path

SEED = 20241117
NEWEST = "ckpt-3"
RECORD = ".tfckpt.json"


def damage(directory: Path, kind: str, number: int) -> None:
    """Damage the newest checkpoint of a directory, or its state file; or attack by hand."""
    if kind in ATTACKS:
        ATTACKS[kind](directory / "checkpoint", directory.parent / "victim")
    else:
        _KINDS[kind](random.Random(f"{SEED} {kind} {number}"), directory)


def _file(name: str) -> Any:
    def change(rng: random.Random, directory: Path) -> None:
        path = directory / name
        path.write_bytes(mutate(rng, path.read_bytes()))

    return change


def _forged_index(rng: random.Random, directory: Path) -> None:
    from tfckpt.stored.bundles.table import read_table

    index = directory / f"{NEWEST}.index"
    pairs = list(read_table(index.read_bytes(), str(index)))
    bounds = [pairs[-1][0]]
    if rng.randrange(2):
        block = mutate(rng, plain_block(pairs))
    else:
        victim = rng.randrange(len(pairs))
        key, value = pairs[victim]
        if rng.randrange(4):
            value = mutate(rng, value or b"\0")
        else:
            key = mutate(rng, key or b"\0")
        pairs[victim] = (key, value)
        block = plain_block(pairs)
    index.write_bytes(table([block], bounds))
    record = directory / f"{NEWEST}{RECORD}"
    vouching = rng.randrange(3)
    if vouching == 1:
        record.unlink()
    elif vouching == 2:
        tree = json.loads(record.read_bytes())
        tree["index_sha256"] = hashlib.sha256(index.read_bytes()).hexdigest()
        record.write_bytes(sealed_record(tree))


def _forged_record(rng: random.Random, directory: Path) -> None:
    record = directory / f"{NEWEST}{RECORD}"
    tree = json.loads(record.read_bytes())
    tree.pop("sha256")
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        _alter(rng, tree)
    record.write_bytes(sealed_record(tree))


def _alter(rng: random.Random, tree: Any) -> None:
    """One place anywhere in it gets another value, loses it, or gets one more."""
    holders = [one for one in _holders(tree) if one]
    holder = rng.choice(holders)
    place = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    old = holder[place]
    how = rng.randrange(5)
    if how == 0:
        del holder[place]
    elif how == 1:
        other = rng.choice(holders)
        holder[place] = rng.choice(list(other.values() if isinstance(other, dict) else other))
    elif how == 2 and isinstance(holder, dict):
        holder[rng.choice(("extra", "", "../victim", place + "\0"))] = old
    elif how == 2:
        holder.append(old)
    else:
        holder[place] = _another(rng, old)
    if _cyclic(tree):
        holder[place] = None


def _another(rng: random.Random, old: Any) -> Any:
    values = [None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), "", "\0", [], {}]
    values += ["../../victim/ckpt-1", "/etc/passwd", "\ud800", "a" * 10_000, [[[[]]]], "*", "1"]
    if isinstance(old, str) and old:
        place = rng.randrange(len(old))
        values += 5 * [old[:place] + rng.choice("/.0azA-\n") + old[place + 1 :], old[:place]]
    if isinstance(old, int):
        values += 3 * [old + 1, old - 1, -old, old ^ (1 << rng.randrange(32))]
    return rng.choice(values)


def _holders(tree: Any) -> list[Any]:
    found, waiting = [], [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            found.append(one)
            waiting += one.values() if isinstance(one, dict) else one
    return found


def _cyclic(tree: Any) -> bool:
    try:
        json.dumps(tree)
    except (ValueError, RecursionError):
        return True
    return False


_KINDS = {
    "index": _file(f"{NEWEST}.index"),
    "forged index": _forged_index,
    "data": _file(f"{NEWEST}.data-00000-of-00001"),
    "state file": _file("checkpoint"),
    "record": _file(f"{NEWEST}{RECORD}"),
    "forged record": _forged_record,
}
KINDS = tuple(_KINDS)
