"""``python -m benchmarks``: measures, and prints one table in Markdown."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: F401  imported before the first fork, as TensorFlow is

from benchmarks import directories, plans, saves
from benchmarks.measure import Settings, markdown

WORKLOADS = {"saves": saves.run, "plans": plans.run, "directories": directories.run}
PACKAGES = ("tfckpt", "tensorflow", "keras", "numpy")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes: whether all runs")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--directory", default=".", help="the file system that is measured")
    given = parser.parse_args()
    date, commit = time.strftime("%Y-%m-%d"), _commit()  # of what runs, whatever comes meanwhile
    gc.collect()
    gc.freeze()  # what the forked processes share is not walked again in each
    rows = []
    place = Path(given.directory).resolve()
    with tempfile.TemporaryDirectory(prefix="tfckpt-bench-", dir=place) as directory:
        for name in given.only or WORKLOADS:
            start = time.perf_counter()
            rows += WORKLOADS[name](Settings(given.quick, directory))
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    versions = [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
    print(f"{date}, commit {commit}, {os.cpu_count()} cores,", end=" ")
    print(f"Python {platform.python_version()}, {', '.join(versions)}\n")
    print(markdown(rows))


def _commit() -> str:
    command = ["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"
    return "unknown"


if __name__ == "__main__":
    main()
