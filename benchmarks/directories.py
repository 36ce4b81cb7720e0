"""What many checkpoints cost in a directory, and a command beside the import of TensorFlow."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from functools import partial
from typing import Any

import tensorflow as tf

import tfckpt
from benchmarks import subjects
from benchmarks.measure import Row, Settings, Spent, clock, in_child, median, medians, rows_in_child
from tfckpt.cli.main import main

MANY, VALUES = 2_000, 1_000
COMMAND = "import sys; from tfckpt.cli.main import main; sys.exit(main())"
ROUNDS, GOAL = 5, "≤ 300"


def run(settings: Settings) -> list[Row]:
    return [*rows_in_child(_crowded, settings), *_inspected(settings)]


def _crowded(settings: Settings) -> list[Row]:
    directory = f"{settings.directory}/many"
    checkpoint = tfckpt.Checkpoint(value=tf.Variable(0.0))
    manager = tfckpt.CheckpointManager(checkpoint, directory, None, durable=False)
    alone = median(manager.save, ROUNDS, settings)
    for _ in range(MANY // 100 if settings.quick else MANY):
        manager.save()
    crowded = median(manager.save, ROUNDS, settings)
    page = f"{settings.directory}/page.html"
    calls = {
        "`tfckpt list`": partial(_command, "list", directory),
        "`tfckpt doctor`": partial(_command, "doctor", directory),
        "`tfckpt report`": partial(_command, "report", directory, "--html", page, "--force"),
        "retention": manager.retention,
    }
    rows = [
        Row(f"{what}, {MANY:,} checkpoints, ms", median(call, ROUNDS, settings), goal=GOAL)
        for what, call in calls.items()
    ]
    more = Spent(1000 * (crowded.cpu - alone.cpu) / MANY)
    return [*rows, Row("a save, for each thousand checkpoints beside it, ms", more, goal="≤ 2")]


def _command(*arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        if status := main(["tfckpt", *arguments]):
            raise RuntimeError(f"tfckpt {arguments[0]} ended with {status}")


def _inspected(settings: Settings) -> list[Row]:
    prefix = f"{settings.directory}/values/ckpt"
    in_child(_saved, prefix)

    def spent(code: str, *arguments: str) -> dict[str, Spent]:
        command = [sys.executable, "-c", code, *arguments]
        run = partial(subprocess.run, command, check=True, capture_output=True, env=os.environ)
        return {"": clock(run)}

    turns: dict[str, Any] = {
        "ours": partial(spent, COMMAND, "inspect", prefix),
        "import": partial(spent, "import tensorflow"),
    }
    found = medians(turns, ROUNDS, settings)
    what = f"`tfckpt inspect`, {VALUES:,} values, beside `import tensorflow`, ms"
    return [Row(what, found["ours"][""], found["import"][""], goal="≥ 17 ×")]


def _saved(prefix: str) -> str:
    return tfckpt.Checkpoint(**subjects.values(VALUES, 1 << 10).objects).write(prefix)
