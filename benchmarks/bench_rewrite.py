"""What a rewrite or a conversion holds in memory, whatever the size of the checkpoint.

Run it with ``python benchmarks/bench_rewrite.py [GIB] [DIRECTORY]``; it needs room for two
checkpoints of that size, 4 GiB by default, and removes both. Values are of 64 MiB. Each command is
a process of its own; its peak of resident memory is what the kernel says of it. `inspect` shows
what Python and NumPy themselves take.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
VALUE = 64 * MIB
COMMANDS = (
    ("inspect", "big-1"),
    ("verify", "big-1"),
    ("rewrite", "big-1", "new-1"),
    ("rewrite", "big-1", "new-1", "--shard_size", "500M"),
    ("rewrite", "big-1", "new-1", "--cast", "bfloat16"),
    ("convert", "big-1", "new.safetensors"),
    ("convert", "big-1", "new.npz"),
)


def make(prefix: str, gib: float) -> None:
    import numpy as np

    from tfckpt.stored.bundles.encode import encode_object_graph
    from tfckpt.stored.bundles.writer import BundleWriter
    from tfckpt.stored.graphs.graph_writer import key_of, made_of

    names = [f"model/layer_{n}/kernel" for n in range(int(gib * 1024 * MIB / VALUE))]
    value = np.random.default_rng(0).standard_normal(VALUE // 4, np.float32)
    with BundleWriter(prefix) as writer:
        for name in names:
            writer.add(key_of(name), value)
        graph = np.array(encode_object_graph(made_of(names)), object)
        writer.add("_CHECKPOINTABLE_OBJECT_GRAPH", graph)
        writer.finish()


def measure(command: tuple[str, ...], directory: Path) -> tuple[float, float]:
    """Seconds, and the peak of resident memory in MiB."""
    began = time.perf_counter()
    code = "import sys; from tfckpt.cli.main import main; sys.exit(main())"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *command], cwd=directory, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{' '.join(command)}: exit status {child.returncode}"
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    gib = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    place = sys.argv[2] if len(sys.argv) > 2 else None
    directory = Path(tempfile.mkdtemp(dir=place))
    try:
        # In a process of its own: what this one has held, the kernel counts for its children.
        maker = multiprocessing.get_context("spawn").Process(
            target=make, args=(f"{directory}/big-1", gib)
        )
        maker.start()
        maker.join()
        print(f"{gib:g} GiB in values of {VALUE // MIB} MiB\n")
        print(f"{'command':<44}{'seconds':>9}{'peak MiB':>10}")
        for command in COMMANDS:
            seconds, peak = measure(command, directory)
            print(f"{' '.join(command):<44}{seconds:>9.1f}{peak:>10.0f}")
            for file in directory.glob("new*"):
                file.unlink()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
