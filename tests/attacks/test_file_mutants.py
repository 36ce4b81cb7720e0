"""Random damage and altered data: refused with the one error, or read exactly."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attacks.forging import mutate

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.bundle import Bundle

SEED = 20240229


def _damage_raw(forge: Any, tables: Any, rng: random.Random) -> None:
    forge.path.write_bytes(mutate(rng, forge.original))


def _damage_block(forge: Any, tables: Any, rng: random.Random) -> None:
    pairs = [(key, entry.SerializeToString()) for key, entry in forge.items().items()]
    block = mutate(rng, tables.plain_block(pairs))
    forge.path.write_bytes(tables.table([block], [pairs[-1][0]]))


def _damage_entry(forge: Any, tables: Any, rng: random.Random) -> None:
    pairs = [[key, entry.SerializeToString()] for key, entry in forge.items().items()]
    victim = rng.choice(pairs)
    if victim[1]:
        victim[1] = mutate(rng, victim[1])
    block = tables.plain_block([tuple(pair) for pair in pairs])
    forge.path.write_bytes(tables.table([block], [pairs[-1][0]]))


def _check_mutants(forge: Any, tables: Any, seed: int, count: int) -> None:
    print(f"seed {seed}: {count} forged indices")
    rng = random.Random(seed)
    refused = 0
    unsupported: list[str] = []
    for _ in range(count):
        damage = rng.choice((_damage_raw, _damage_block, _damage_entry))
        damage(forge, tables, rng)
        try:
            with Bundle.open(forge.prefix) as bundle:
                bundle.verify(bundle.entries)
                _assert_not_a_lie(bundle, forge.values)
        except DamagedCheckpointError:
            refused += 1
        except UnsupportedCheckpointError as error:
            # A newer version, a variant: forged, but sound.
            unsupported.append(str(error))
    assert all("version" in one or "can read a" in one for one in unsupported)
    assert refused > count / 2


def _assert_not_a_lie(bundle: Bundle, values: dict[str, Any]) -> None:
    """Under resealed checksums a key or a shape may be another, sound one; bytes may not."""
    stored = sorted(
        value.tobytes() if value.dtype != object else b"".join(value.ravel())
        for value in values.values()
    )
    read = sorted(
        value.tobytes() if value.dtype != object else b"".join(value.ravel())
        for value in map(bundle.read, bundle.entries)
    )
    assert all(one in stored for one in read)


def test_mutants_are_refused_or_read_exactly(forge: Any, tables: Any) -> None:
    _check_mutants(forge, tables, SEED, 300)


@pytest.mark.long
@pytest.mark.parametrize("offset", range(10))
def test_more_mutants(forge: Any, tables: Any, offset: int) -> None:
    _check_mutants(forge, tables, SEED + 1 + offset, 300)


def test_mutants_without_resealing_are_refused_or_read_exactly(forge: Any) -> None:
    rng = random.Random(SEED)
    for _ in range(300):
        forge.path.write_bytes(mutate(rng, forge.original))
        try:
            with Bundle.open(forge.prefix) as bundle:
                forge.assert_original(bundle)
        except DamagedCheckpointError:
            pass


def test_a_flipped_bit_of_the_data_is_found_and_named(forge: Any) -> None:
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    sound = shard.read_bytes()
    stored = {
        key: (entry.offset, entry.offset + entry.size)
        for key, entry in forge.items().items()
        if key and entry.size
    }
    for position in range(len(sound)):
        shard.write_bytes(
            sound[:position] + bytes([sound[position] ^ 0x10]) + sound[position + 1 :]
        )
        key = next(key for key, (start, end) in stored.items() if start <= position < end)
        name = "p/part" if key[:1] == b"\0" else key.decode()
        with Bundle.open(forge.prefix) as bundle:
            with pytest.raises(DamagedCheckpointError) as verified:
                bundle.verify(bundle.entries)
            with pytest.raises(DamagedCheckpointError) as read:
                bundle.read(name)
            assert verified.value.name == read.value.name == name
            for other in forge.values.keys() - {name}:
                assert np.array_equal(bundle.read(other), forge.values[other])


def test_shards_cut_at_every_length_are_refused(forge: Any) -> None:
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    sound = shard.read_bytes()
    for length in range(len(sound)):
        shard.write_bytes(sound[:length])
        with pytest.raises(DamagedCheckpointError, match="truncated") as caught:
            Bundle.open(forge.prefix)
        assert caught.value.path == str(shard)


READ_ALL = """
import sys
import tensorflow as tf
for prefix in sys.argv[1:]:
    reader = tf.train.load_checkpoint(prefix)
    for name in reader.get_variable_to_shape_map():
        try:
            reader.get_tensor(name)
        except Exception:
            pass
print("done")
"""


@pytest.mark.long
def test_what_is_not_refused_does_not_abort_tensorflow(forge: Any, tables: Any) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    shard = Path(f"{forge.prefix}.data-00000-of-00001").read_bytes()
    accepted = []
    for number in range(1500):
        rng.choice((_damage_block, _damage_entry))(forge, tables, rng)
        try:
            with Bundle.open(forge.prefix) as bundle:
                opaque = {"resource", "variant"} & {e.dtype for e in bundle.entries.values()}
                bundle.verify(bundle.entries)
        except (DamagedCheckpointError, UnsupportedCheckpointError):
            continue
        if not opaque and not bundle.missing_files:
            prefix = Path(forge.prefix).with_name(f"mutant-{number}")
            prefix.with_name(f"{prefix.name}.index").write_bytes(forge.path.read_bytes())
            prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(shard)
            accepted.append(str(prefix))
    assert accepted
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, *accepted], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


WRONG = "invalid string length|the string lengths"


def test_floats_declared_as_strings_are_not_read(forge: Any) -> None:
    items = forge.items()
    items[b"a/kernel"].dtype = 7
    forge.write_items(items)
    with Bundle.open(forge.prefix) as bundle, pytest.raises(DamagedCheckpointError, match=WRONG):
        bundle.read("a/kernel")


STRINGS = {
    "a length too long": b"\x7f\x00\x05",
    "lengths that do not add up": b"\x02\x00\x05",
    "a length of 64 bits": b"\xff\xff\xff",
}


@pytest.mark.parametrize("lengths", STRINGS.values(), ids=STRINGS.keys())
def test_a_string_whose_lengths_are_forged_is_refused(
    forge: Any, tables: Any, lengths: bytes
) -> None:
    import google_crc32c

    entry = forge.items()[b"d/text"]
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    packed = b"".join(struct.pack("<I", length) for length in lengths)
    checksum = struct.pack("<I", tables.mask(google_crc32c.value(packed)))
    data[entry.offset : entry.offset + 7] = lengths + checksum
    shard.write_bytes(data)
    with Bundle.open(forge.prefix) as bundle:
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match=WRONG) as caught:
                use("d/text")
            assert caught.value.name == "d/text"


def test_lengths_that_add_up_but_are_not_those_written_are_refused(forge: Any) -> None:
    offset = forge.items()[b"d/text"].offset
    shard = Path(f"{forge.prefix}.data-00000-of-00001")
    data = bytearray(shard.read_bytes())
    assert data[offset : offset + 3] == b"\x03\x00\x05"
    data[offset : offset + 3] = b"\x04\x00\x04"
    shard.write_bytes(data)
    with Bundle.open(forge.prefix) as bundle:
        for use in (bundle.read, lambda key: bundle.verify([key])):
            with pytest.raises(DamagedCheckpointError, match=WRONG):
                use("d/text")


def test_a_big_endian_checkpoint_is_refused_with_its_file(forge: Any) -> None:
    items = forge.items()
    items[b""].endianness = 1
    forge.write_items(items)
    with pytest.raises(UnsupportedCheckpointError, match="the highest byte") as caught:
        Bundle.open(forge.prefix)
    assert caught.value.path == f"{forge.prefix}.index"
    assert "save it again on a little-endian machine" in str(caught.value)
