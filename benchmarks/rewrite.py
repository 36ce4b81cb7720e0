"""What a rewrite or a conversion holds in memory, whatever the size of the checkpoint.

Values are of 64 MiB. Each command is a process of its own, and its peak of resident memory what the
kernel says of it (proc_pid_status(5), ``VmHWM``). `inspect` shows what Python and NumPy take.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import MIB, Result, Settings, in_child
from tfckpt.stored.bundles.index_encoder import encode_object_graph
from tfckpt.stored.bundles.writing.write import BundleWriter
from tfckpt.stored.graphs.writer import graph_of_names, key_of

VALUE, COUNT = 64 * MIB, 12
CODE = """
import sys
from tfckpt.cli.main import main
status = main()
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(status)
"""
COMMANDS = (
    ("inspect", "big-1"),
    ("verify", "big-1"),
    ("rewrite", "big-1", "new-1"),
    ("rewrite", "big-1", "new-1", "--shard_size", "500M"),
    ("rewrite", "big-1", "new-1", "--cast", "bfloat16"),
    ("convert", "big-1", "new.safetensors"),
    ("convert", "big-1", "new.npz"),
)


def run(settings: Settings) -> list[Result]:
    count, nbytes = (2, MIB) if settings.quick else (COUNT, VALUE)
    directory = Path(settings.disk, "rewrite")
    directory.mkdir()
    in_child(make, f"{directory}/big-1", count, nbytes)
    found = []
    case = f"{count} × {nbytes // MIB} MiB, disk"
    for command in COMMANDS[-1:] if settings.quick else COMMANDS:
        seconds, highest = measure(command, directory)
        where = "rewrite", case, " ".join(command)
        found.append(Result(*where, "s", (seconds,)))
        found.append(Result(*where, "peak MiB", (highest,)))
        for file in directory.glob("new*"):
            file.unlink()
    shutil.rmtree(directory)
    return found


def make(prefix: str, count: int, nbytes: int) -> None:
    names = [f"model/layer_{n}/kernel" for n in range(count)]
    value = np.random.default_rng(0).standard_normal(nbytes // 4, np.float32)
    with BundleWriter(prefix) as writer:
        for name in names:
            writer.add(key_of(name), value)
        graph = np.array(encode_object_graph(graph_of_names(names)), object)
        writer.add("_CHECKPOINTABLE_OBJECT_GRAPH", graph)
        writer.finish()


def measure(command: tuple[str, ...], directory: Path) -> tuple[float, float]:
    """Seconds, and the peak of resident memory in MiB, as the command's process itself sees it."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", CODE, *command],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - began
    return seconds, int(done.stderr.split("VmHWM:")[1].split()[0]) / 1024
