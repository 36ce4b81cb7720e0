"""Commands in fresh processes, beside the same through TensorFlow, or beside the start of Python.

``inspect`` lists what a checkpoint holds; ``verify`` reads all of it and checks each checksum, as
TensorFlow does where it reads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import tfckpt
from benchmarks import subjects
from benchmarks.contestants import Tfckpt
from benchmarks.measure import Result, Settings, clock, in_turns, results_in_child

ROUNDS = 3
COMMAND = "import sys; from tfckpt.cli.main import main; sys.exit(main())"
LIST = """
import sys, tensorflow
for name, shape in tensorflow.train.list_variables(sys.argv[1]):
    print(name, shape)
"""
READ = """
import sys, tensorflow
reader = tensorflow.train.load_checkpoint(sys.argv[1])
for name in reader.get_variable_to_shape_map():
    reader.get_tensor(name)
"""
INSPECT, VERIFY = "tfckpt inspect", "tfckpt verify"
HELP, LISTING, NUMPY = "tfckpt --help", "tfckpt list", "python -c 'import numpy'"
LIST_NAME, READ_NAME = "TensorFlow, list_variables", "TensorFlow, read all"
TRANSFORMER, SMALL = "transformer, 109M + Adam", "30,000 × 1 KiB"
LITTLE = "50 checkpoints of 10 × 1 KiB"
LITTLE_ROUNDS = 15


def run(settings: Settings) -> list[Result]:
    return results_in_child(_large, settings) + results_in_child(_little, settings)


def _little(settings: Settings) -> list[Result]:
    """Where there is little to read, and the start is all that there is."""
    directory = str(Path(settings.disk, "runs"))
    objects = subjects.values(10, 1 << 10).objects
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(**objects), directory, max_to_keep=None)
    for _ in range(50):
        newest = manager.save()
    turns = {
        "python -c pass": partial(_seconds, "pass"),
        NUMPY: partial(_seconds, "import numpy"),
        HELP: partial(_seconds, COMMAND, "--help"),
        LISTING: partial(_seconds, COMMAND, "list", directory),
        INSPECT: partial(_seconds, COMMAND, "inspect", newest),
    }
    rounds = dict.fromkeys(turns, settings.rounds(LITTLE_ROUNDS))
    found = in_turns("startup", f"{LITTLE}, disk", turns, rounds, settings)
    shutil.rmtree(directory)
    return found


def _large(settings: Settings) -> list[Result]:
    found = []
    for case in (TRANSFORMER,) if settings.quick else (TRANSFORMER, SMALL):
        writer = Tfckpt(_subject(case, settings), settings.disk)
        writer.save()
        prefix = writer.prefix
        turns = {
            "python -c pass": partial(_seconds, "pass"),
            INSPECT: partial(_seconds, COMMAND, "inspect", prefix),
        }
        if not settings.quick:
            turns[LIST_NAME] = partial(_seconds, LIST, prefix)
        if case == TRANSFORMER:
            turns[VERIFY] = partial(_seconds, COMMAND, "verify", prefix)
            turns[READ_NAME] = partial(_seconds, READ, prefix)
        rounds = dict.fromkeys(turns, settings.rounds(ROUNDS))
        found += in_turns("startup", f"{case}, disk", turns, rounds, settings)
        writer.clear()
    return found


def _subject(case: str, settings: Settings) -> subjects.Subject:
    if case == TRANSFORMER:
        return subjects.transformer(small=settings.quick)
    return subjects.values(60 if settings.quick else 30_000, 1 << 10)


def _seconds(code: str, *arguments: str) -> dict[str, float]:
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    command = [sys.executable, "-c", code, *arguments]
    run = partial(subprocess.run, command, check=True, capture_output=True, env=env)
    return {"ms": clock(run)}
