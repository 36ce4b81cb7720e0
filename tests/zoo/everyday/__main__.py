"""``python -m zoo.everyday [flavour] [words]``: measure the table and print it."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import textwrap
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from zoo.everyday.judge import FLAVOURS, measure
from zoo.everyday.rows import ROWS
from zoo.everyday.shown import shares, table
from zoo.everyday.today import TODAY, expected


def main(*words: str) -> int:
    flavours = [each for each in FLAVOURS if each in words] or FLAVOURS
    parts = [word for word in words if word not in FLAVOURS]
    cells, wrong = {}, 0
    for name, row in ROWS.items():
        if parts and not any(part in name for part in parts):
            continue
        for flavour in (each for each in flavours if each in row.flavours):
            keras = importlib.import_module(flavour)
            with tempfile.TemporaryDirectory() as folder:
                found = measure(row, keras, Path(folder))
            cells[name, flavour] = found.cell
            if found.cell != (wanted := expected(name, flavour)):
                wrong += 1
                print(f"\n{name}, {flavour}: {found.cell}, expected {wanted}\n{found.details}")
    print(table(cells), end="\n\n")
    for name in dict.fromkeys(name for name, _ in cells):
        if name in TODAY:
            print(textwrap.fill(f"{name}: {TODAY[name].why}", 80, subsequent_indent="  "))
    print(f"\n{shares(cells)}; {wrong} other than expected")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
