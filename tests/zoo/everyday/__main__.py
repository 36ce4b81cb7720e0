"""``python -m zoo.everyday [tf1] [flavour] [words]``: measure and print a table, 80 wide."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from zoo.everyday import judge, tf1
from zoo.everyday.judge import FLAVOURS, shares
from zoo.everyday.rows import ROWS

TABLES = {"rows": (ROWS, judge.measure), "tf1": (tf1.FILES, tf1.measure)}


def main(*words: str) -> int:
    flavours = [each for each in FLAVOURS if each in words] or FLAVOURS
    parts = [word for word in words if word not in (*FLAVOURS, *TABLES)] or [""]
    table, measure = TABLES[next((word for word in words if word in TABLES), "rows")]
    rows = {name: row for name, row in table.items() if any(part in name for part in parts)}
    cells, wrong = {}, 0
    for name, row in rows.items():
        for flavour in (each for each in flavours if each in row.flavours):
            found = measure(row, importlib.import_module(flavour))
            cells[name, flavour] = found.cell
            if found.cell != row.expected:
                wrong += 1
                print(f"\n{name}, {flavour}: {found.cell}, not {row.expected}\n{found.details}")
    print(f"{'':34}{''.join(f'{flavour:12}' for flavour in FLAVOURS)}".rstrip())
    for name in rows:
        found = (f"{cells.get((name, flavour), '-'):12}" for flavour in FLAVOURS)
        print(f"{name:34}{''.join(found)}".rstrip())
    for name, row in rows.items():
        if row.today:
            print(textwrap.fill(f"{name}: {row.today[1]}", 80, subsequent_indent="  "))
    print(f"\n{shares(cells)}; {wrong} other than expected")
    if table is tf1.FILES:
        print(f"{tf1.without_thinking(cells):.1%} restored without a question, and whole")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
