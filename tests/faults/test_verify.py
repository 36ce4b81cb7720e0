"""`tfckpt verify` against random damage: what it names is what was changed, and nothing else."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.bundles.index import slice_key
from tfckpt.tools.verification import verify_one

SEED = 20261120


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one committed checkpoint, in several data files."""
    import tensorflow as tf

    import tfckpt

    directory = tmp_path_factory.mktemp("sound")
    numbers = np.random.default_rng(SEED)
    values: dict[str, Any] = {
        f"value_{n}": tf.Variable(numbers.normal(size=(n + 1, 40)).astype("float32"))
        for n in range(8)
    }
    values["half"] = tf.Variable(numbers.normal(size=300), dtype=tf.bfloat16)
    values["text"] = tf.Variable(["first", "second" * 50, ""])
    checkpoint = tfckpt.Checkpoint(**values)
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=1500)
    options = tf.train.CheckpointOptions(experimental_sharding_callback=policy)
    tfckpt.CheckpointManager(checkpoint, directory, None).save(options=options)
    assert len(list(directory.glob("*.data-*"))) > 2
    return directory


def damage(directory: Path, chance: random.Random) -> tuple[str, list[Path]]:
    """Change what is stored at random; how, and in which files."""
    files = sorted(directory.glob("ckpt-1.*"))
    shards = [file for file in files if ".data-" in file.name]
    how = chance.choice(["flip", "flip", "truncate", "swap"])
    if how == "swap":
        one, other = chance.sample(shards, 2)
        contents = one.read_bytes(), other.read_bytes()
        other.write_bytes(contents[0])
        one.write_bytes(contents[1])
        return how, [one, other]
    # Half of the time data, which is most of a real checkpoint.
    file = chance.choice(shards if chance.random() < 0.5 else files)
    content = bytearray(file.read_bytes())
    if how == "flip":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    else:
        del content[chance.randrange(len(content)) :]
    file.write_bytes(content)
    return how, [file]


def altered(prefix: str, sound: str) -> set[str]:
    """The names of the values whose bytes are no longer what they were."""
    found = set()
    with Bundle.open(sound) as bundle:
        shards = bundle.index.num_shards
        for key, entry in bundle.entries.items():
            # What is larger than a data file may be is in several, in slices.
            keys = [slice_key(key, extents) for extents in entry.slices]
            for part in [bundle.index.pieces[one] for one in keys] or [entry]:
                file, end = f".data-{part.shard:05d}-of-{shards:05d}", part.offset + part.nbytes
                now, then = Path(prefix + file).read_bytes(), Path(sound + file).read_bytes()
                if now[part.offset : end] != then[part.offset : end]:
                    found.add(key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"))
    return found


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.long)])
def test_every_damage_is_found_and_the_value_named(count: int, sound: Path, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    kinds = set()
    for trial in range(count):
        directory = tmp_path / str(trial)
        shutil.copytree(sound, directory)
        prefix = f"{directory}/ckpt-1"
        how, files = damage(directory, chance)
        verdict = verify_one(prefix)
        where = f"trial {trial}: {how} of {[file.name for file in files]}"
        assert verdict.faults, where
        assert {fault.file for fault in verdict.faults} <= {*map(str, files)}, where
        if ".data-" in files[0].name:
            assert {fault.name for fault in verdict.faults} == altered(prefix, f"{sound}/ckpt-1"), (
                where
            )
        kinds.add((how, files[0].suffix[:5]))
        shutil.rmtree(directory)
    assert len(kinds) >= 5


def test_what_is_sound_is_fine(sound: Path) -> None:
    verdict = verify_one(f"{sound}/ckpt-1")
    assert verdict.faults == ()
    assert verdict.values == 12  # with the counter of saves and the object graph
