"""``python -m zoo.kinds [flavour] [words]``: measure the table and print it, in 80 columns."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import logging

from zoo.kinds.judge import (
    CASES,
    FLAVOURS,
    KINDS,
    by_tensorflow,
    expected,
    measure,
    way_of,
)


def main(*words: str) -> int:
    """Each kind by TensorFlow and by tfckpt, in the way that `make test` tries."""
    logging.set_verbosity(logging.ERROR)
    flavours = [each for each in FLAVOURS if each in words] or FLAVOURS
    parts = [word for word in words if word not in FLAVOURS] or [""]
    wrong = 0
    print(f"{'':28}" + "".join(f"{f:9}TensorFlow   " for f in flavours))
    for name in (name for name in KINDS if any(part in name for part in parts)):
        cells, details = [], []
        for flavour in flavours:
            cells += ["-", "-"]
            if (name, flavour) not in CASES:
                continue
            for place, way in ((-2, way_of(name, flavour)), (-1, by_tensorflow)):
                with tempfile.TemporaryDirectory() as directory:
                    found = measure(name, flavour, Path(directory), way)
                cells[place] = found.cell
                if way is not by_tensorflow and found.cell != expected(name, flavour).cell:
                    wrong += 1
                    details.append(f"  {flavour}: {', '.join(found.names)} {found.details}")
        print(
            f"{name:28}" + "".join(f"{cell:9}" for cell in cells),
            *details,
            sep="\n"[: bool(details)],
        )
    print(f"\n{wrong} other than expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
