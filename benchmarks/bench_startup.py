"""How fast `tfckpt inspect` answers, in units of `python -c 'import tensorflow'`.

Both in fresh processes, in turn, in one run: a checkpoint of 1,000 values and some sixty megabytes,
printed to a pipe. The ratio is what counts; the goal is a tenth.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 7
VALUES = 1000
WRITE = f"""
import sys, tensorflow as tf
blocks = [
    tf.train.Checkpoint(**{{n: tf.Variable(tf.random.normal([128, 125])) for n in "abcd"}})
    for _ in range({VALUES} // 4)
]
model = tf.train.Checkpoint(**{{f"block_{{n}}": one for n, one in enumerate(blocks)}})
tf.train.Checkpoint(model=model).write(sys.argv[1])
"""
INSPECT = "import sys; from tfckpt.cli.main import main; sys.exit(main())"


def seconds(*arguments: str) -> float:
    """How long a command of Python takes, from its start to its end."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=env)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        prefix = f"{directory}/ckpt-1"
        subprocess.run([sys.executable, "-c", WRITE, prefix], check=True, capture_output=True)
        runs = {
            "python -c pass": ("-c", "pass"),
            "python -c 'import numpy'": ("-c", "import numpy"),
            f"tfckpt inspect, {VALUES:,} values": ("-c", INSPECT, "inspect", prefix),
            "python -c 'import tensorflow'": ("-c", "import tensorflow"),
        }
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, arguments in runs.items():
                taken[name].append(seconds(*arguments))
    middle = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in middle.items():
        print(f"{name:<32}{median:8.3f} s  ({min(taken[name]):.3f} to {max(taken[name]):.3f})")
    *_, inspect, tensorflow = middle.values()
    ratio = inspect / tensorflow
    print(f"inspect : import tensorflow = {ratio:.3f}, or 1 : {1 / ratio:.1f}")


if __name__ == "__main__":
    main()
