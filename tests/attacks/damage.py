"""Damage of each kind to the newest checkpoint of a run, decided by a kind and a number alone.

``damage(directory, "index", 17)`` does the same whenever it is called: that is how a case is named.
Forged kinds have valid checksums, all the way up: where the index is forged, the commit record is
left as it is, or sealed for the forged index, or taken away, so that the index alone speaks.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

from attacks.forging import mutate, plain_block, sealed_record, table

SEED = 20241117
NEWEST = "ckpt-3"
RECORD = ".tfckpt.json"


def damage(directory: Path, kind: str, number: int) -> None:
    """Damage the newest checkpoint of a directory, or its state file; or attack that by hand."""
    state = directory / "checkpoint"
    if kind in STATE_FILES:
        STATE_FILES[kind](state, directory.parent / "victim")
    else:
        _KINDS[kind](random.Random(f"{SEED} {kind} {number}"), directory)


def _file(name: str) -> Any:
    def change(rng: random.Random, directory: Path) -> None:
        path = directory / name
        path.write_bytes(mutate(rng, path.read_bytes()))

    return change


def forge_index(rng: random.Random, directory: Path) -> None:
    """The newest index is another, its checksums valid; a record vouches for it, or is gone."""
    from tfckpt.stored.bundles.table import read_table

    index = max(directory.rglob("*.index"))
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
    record = index.with_suffix(RECORD)
    vouching = rng.randrange(3) * record.exists()
    if vouching == 1:
        record.unlink()
    elif vouching == 2:
        tree = json.loads(record.read_bytes())
        tree["index_sha256"] = hashlib.sha256(index.read_bytes()).hexdigest()
        record.write_bytes(sealed_record(tree))


def forge_record(rng: random.Random, directory: Path) -> None:
    """The newest record says something else, its checksum valid."""
    record = max(directory.glob(f"*{RECORD}"))
    tree = json.loads(record.read_bytes())
    tree.pop("sha256")
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        alter(rng, tree)
    record.write_bytes(sealed_record(tree))


def alter(rng: random.Random, tree: Any) -> None:
    """One place anywhere in a tree of JSON has another value, is gone, or there is one more."""
    holders, waiting = list[Any](), [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list) and one:
            holders.append(one)
            waiting += one.values() if isinstance(one, dict) else one
    if not holders:  # nothing is left of it
        return
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


def _cyclic(tree: Any) -> bool:
    try:
        json.dumps(tree)
    except (ValueError, RecursionError):
        return True
    return False


_KINDS = {
    "index": _file(f"{NEWEST}.index"),
    "forged index": forge_index,
    "data": _file(f"{NEWEST}.data-00000-of-00001"),
    "state file": _file("checkpoint"),
    "record": _file(f"{NEWEST}{RECORD}"),
    "forged record": forge_record,
}
KINDS = tuple(_KINDS)


# State files made to lead astray. What they name lies outside, or is gone, or is a pattern, or they
# are none: TensorFlow deletes what one names, and starts afresh without one.


def _naming(*names: str, newest: str = "ckpt-3") -> Any:
    """A state file in which these are the checkpoints; ``{victim}`` is the directory beside."""

    def attack(state: Path, victim: Path) -> None:
        paths = [name.format(victim=victim) for name in (*names, newest)]
        lines = [f'all_model_checkpoint_paths: "{path}"\n' for path in paths]
        lines += [f"all_model_checkpoint_timestamps: {1e9 + n}\n" for n in range(len(paths))]
        state.write_text(f'model_checkpoint_path: "{paths[-1]}"\n' + "".join(lines))

    return attack


def _content(data: bytes) -> Any:
    return lambda state, victim: state.write_bytes(data)


def _instead(make: Any) -> Any:
    """Something else of its name."""

    def attack(state: Path, victim: Path) -> None:
        state.unlink()
        make(state, victim)

    return attack


def _directory(state: Path, _: Path) -> None:
    state.mkdir()
    (state / "ckpt-9.index").write_bytes(b"")


_SOUND = b'model_checkpoint_path: "ckpt-3"\nall_model_checkpoint_paths: "ckpt-3"\n'
_TIMES = b"all_model_checkpoint_timestamps: %s\nlast_preserved_timestamp: %s\n"
STATE_FILES: dict[str, Any] = {
    "one level up": _naming("../victim/ckpt-1", "../victim/ckpt-3"),
    "up and down again": _naming("../run/../victim/ckpt-1", "./ckpt-1", "x/../ckpt-2"),
    "absolute": _naming("{victim}/ckpt-1", "{victim}/ckpt-3"),
    "the newest is outside": _naming("ckpt-1", newest="{victim}/ckpt-3"),
    "star": _naming("*", "../victim/*", "{victim}/ckpt*", newest="*"),
    "question mark": _naming("ckpt-?", "../victim/ckpt-?", newest="ckpt-?"),
    "brackets": _naming("ckpt-[0-9]", "../victim/ckpt-[0-9]", newest="ckpt-[3]"),
    "deleted files": _naming("ckpt-0", "ckpt-77", "ckpt-78", newest="ckpt-78"),
    "only deleted files": _naming(newest="ckpt-99"),
    "another name": _naming("model-1", "model-2", newest="model-2"),
    "huge number": _naming(newest=f"ckpt-{10**30}"),
    "the largest number": _naming(newest=f"ckpt-{2**63 - 1}"),
    "every path twice": _naming("ckpt-1", "ckpt-1", "ckpt-3", "ckpt-3"),
    "times in the future": _content(_SOUND + _TIMES % (b"1e300", b"1e300")),
    "times that are none": _content(_SOUND + _TIMES % (b"nan", b"-inf")),
    "a newline in a path": _content(b'model_checkpoint_path: "a\\nb"\n'),
    "a zero byte in a path": _content(b'model_checkpoint_path: "ckpt-3\\000"\n'),
    "surrogates": _content(b'model_checkpoint_path: "\\355\\240\\200"\n'),
    "empty": _content(b""),
    "one line feed": _content(b"\n"),
    "binary": _content(random.Random(1).randbytes(4096)),
    "zeros": _content(bytes(4096)),
    "twenty megabytes": _content(_SOUND + b'all_model_checkpoint_paths: "ckpt-1"\n' * 500_000),
    "one long string": _content(b'model_checkpoint_path: "' + b"a" * 10_000_000 + b'"'),
    "absent": _instead(lambda state, victim: None),
    "a directory": _instead(_directory),
    "a FIFO": _instead(lambda state, victim: os.mkfifo(state)),
    "a link outside": _instead(lambda state, victim: state.symlink_to(victim / "checkpoint")),
    "a link to nothing": _instead(lambda state, victim: state.symlink_to(victim / "new")),
    "a link to itself": _instead(lambda state, victim: state.symlink_to(state)),
    "a device": _instead(lambda state, victim: state.symlink_to("/dev/zero")),
}
