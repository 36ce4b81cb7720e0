"""``python -m zoo.kinds [flavour] [words]``: measure the table and print it, in 80 columns."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from zoo.forkserver import ForkServer
from zoo.kinds.judge import (
    BY_TENSORFLOW,
    CASES,
    FLAVOURS,
    PRELOAD,
    expected,
    measure,
    way_of,
)


def main(*words: str) -> int:
    """Each kind by TensorFlow and by tfckpt, in the way that `make test` tries."""
    parts = [word for word in words if word not in FLAVOURS] or [""]
    wrong = 0
    for flavour in [each for each in FLAVOURS if each in words] or FLAVOURS:
        kinds = [n for n, f in CASES if f == flavour and any(part in n for part in parts)]
        cases = [(n, way) for n in kinds for way in (way_of(n, flavour), BY_TENSORFLOW)]
        with ForkServer(preload=PRELOAD) as server, tempfile.TemporaryDirectory() as folder:
            found = measure(server, flavour, cases, Path(folder))
        print(f"{flavour:28}{'tfckpt':9}TensorFlow")
        for name in kinds:
            ours, theirs = found[name, way_of(name, flavour)], found[name, BY_TENSORFLOW]
            print(f"{name:28}{ours.cell:9}{theirs.cell}")
            if ours.cell != expected(name, flavour).cell:
                wrong += 1
                print(f"  {', '.join(ours.names)} {ours.details}")
    print(f"\n{wrong} other than expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
