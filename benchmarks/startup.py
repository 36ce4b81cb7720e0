"""Commands in fresh processes, beside the same through TensorFlow.

``inspect`` lists what a checkpoint holds; ``verify`` reads all of it and checks each checksum, as
TensorFlow does where it reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

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
LIST_NAME, READ_NAME = "TensorFlow, list_variables", "TensorFlow, read all"
TRANSFORMER, SMALL = "transformer, 109M + Adam", "30,000 × 1 KiB"


def run(settings: Settings) -> list[Result]:
    return results_in_child(_run, settings)


def _run(settings: Settings) -> list[Result]:
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
