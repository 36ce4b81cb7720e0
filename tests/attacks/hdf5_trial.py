"""Opens mutants of a file of Keras's, each in a child of its own, and says how each ended.

Run as a program: ``hdf5_trial.py FILE COUNT SEED``; it imports no TensorFlow, so it may fork. It
prints one JSON object per mutant: ``ended`` is ``same``, ``other``, ``refused``, or what it was.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

from tfckpt.errors import CheckpointError
from tfckpt.stored.formats.open import open_checkpoint

PATIENCE = 30  # seconds after which a mutant has hung


def content(path: str) -> dict[str, tuple[str, str, bytes]]:
    with open_checkpoint(path) as opened:
        entries = opened.inventory.entries.values()
        return {
            e.name: (e.dtype, str(e.shape), opened.values.read(e.key).tobytes()) for e in entries
        }


def mutant(whole: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(whole)
    kind = rng.randrange(4)
    if kind == 0:
        return bytes(damaged[: rng.randrange(len(damaged))])
    at = rng.randrange(len(damaged))
    if kind == 1:
        damaged[at : at + 8] = rng.randbytes(8)
    else:
        damaged[at] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def attempt(path: str, genuine: dict[str, tuple[str, str, bytes]]) -> str:
    try:
        found = content(path)
    except CheckpointError:
        return "refused"
    return "same" if found == genuine else "other"


def main(path: str, count: int, seed: int) -> None:
    whole, rng = Path(path).read_bytes(), random.Random(seed)
    genuine = content(path)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(count):
            place = str(Path(directory) / "mutant")
            Path(place).write_bytes(mutant(whole, rng))
            read, write = os.pipe()
            child = os.fork()
            if not child:
                signal.alarm(PATIENCE)
                try:
                    os.write(write, attempt(place, genuine).encode())
                except BaseException as error:
                    os.write(write, repr(error)[:500].encode())
                os._exit(0)
            os.close(write)
            _, status = os.waitpid(child, 0)
            said = os.read(read, 1000).decode()
            os.close(read)
            print(json.dumps({"mutant": number, "ended": said or f"status {status}"}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
