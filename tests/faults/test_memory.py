"""A restore needs little more memory than its largest values, whatever the size of the model.

Measured in processes of their own: the high-water mark of resident memory is set back before the
restore (Documentation/filesystems/proc.rst of Linux: clear_refs) and read after it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfckpt.live.restoring.incoming import limit

MIB = 1 << 20
SIDE = 2048  # 16 MiB of float32
LARGEST = SIDE * SIDE * 4
SLACK = 32 * MIB  # names, plans, the interpreter's own growth

SCRIPT = """
import gc, importlib, sys
import tensorflow as tf
import tfckpt

flavour, what, path, count, verify = sys.argv[1:]
keras = importlib.import_module(flavour)
model = keras.Sequential([keras.Input((2048,))] + [
    keras.layers.Dense(2048, use_bias=False, name=f"layer_{n}") for n in range(int(count))
])

def status(field):
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10

if what == "save":
    print(tfckpt.Checkpoint(model=model).save(path))
else:
    config = {"version": 1, "restore": {"path": path, "policy": {"verify": verify}}}
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS:")
    if what == "run":
        report = tfckpt.restore(config, model=model)
    else:
        report = tfckpt.Checkpoint(model=model).restore(path).assert_consumed().report
    print(status("VmHWM:") - before)
    assert len(report.plan.assignments) >= int(count)
"""

linux = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="no /proc/self/clear_refs to write to"
)


def run(*arguments: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    return done.stdout.splitlines()[-1]


def growth(path: str, flavour: str, what: str, count: int, verify: str = "checksums") -> int:
    if flavour == "tf_keras":
        pytest.importorskip("tf_keras")
    return int(run(flavour, what, path, str(count), verify))


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of 256 MiB in 16 values."""
    return run("keras", "save", str(tmp_path_factory.mktemp("run") / "ckpt"), "16", "")


@linux
@pytest.mark.parametrize(
    ("flavour", "what", "verify"),
    [("keras", "run", "values"), ("tf_keras", "checkpoint", "checksums")],
)
def test_a_restore_needs_no_second_copy_of_the_model(sixteen, flavour, what, verify) -> None:
    needed = growth(sixteen, flavour, what, 16, verify)
    assert needed < limit([LARGEST] * 16) + SLACK < 16 * LARGEST


@linux
@pytest.mark.long
def test_the_bound_does_not_grow_with_the_model(tmp_path) -> None:
    path = run("keras", "save", str(tmp_path / "ckpt"), "48", "")
    needed = growth(path, "keras", "checkpoint", 48)
    assert needed < 2 * LARGEST + 48 * LARGEST // 10 + SLACK
