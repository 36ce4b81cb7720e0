"""A restore reads once where there is memory, and does with little where there is not.

Measured in processes of their own: the high-water mark of resident memory is set back before the
restore (Documentation/filesystems/proc.rst of Linux: clear_refs) and read after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tfckpt.live.restoring.incoming import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
SIDE = 2048  # 16 MiB of float32
LARGEST = SIDE * SIDE * 4
SLACK = 32 * MIB  # names, plans, the interpreter's own growth

SCRIPT = """
import gc, importlib, json, os, resource, sys

options = json.loads(sys.argv[1])
if "group" in options:
    group, limit, usage = options["group"]
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))

import tensorflow as tf
import tfckpt

keras = importlib.import_module(options["flavour"])
model = keras.Sequential([keras.Input((2048,))] + [
    keras.layers.Dense(2048, use_bias=False, name=f"layer_{n}") for n in range(options["count"])
])

def status(field):
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10

def number(path):
    with open(path) as file:
        return int(file.read())

if "path" not in options:
    print(tfckpt.Checkpoint(model=model).save(options["save"]))
    raise SystemExit
gc.collect()
if "address_space" in options:
    most = status("VmSize:") + options["address_space"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
if "group" in options:
    with open(f"{group}/{limit}", "w") as file:
        file.write(str(number(f"{group}/{usage}") + options["memory"]))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS:")
if "policy" in options:
    config = {"version": 1, "restore": {"path": options["path"], "policy": options["policy"]}}
    report = tfckpt.restore(config, model=model)
else:
    report = tfckpt.Checkpoint(model=model).restore(options["path"]).assert_consumed().report
peak = status("VmHWM:") - before
assert len(report.plan.assignments) >= options["count"]
stored = tf.train.load_checkpoint(options["path"])
for name in stored.get_variable_to_shape_map():
    for n in range(options["count"]):
        if f"/layers/{n}/" in name or f"layer-{n}/" in name or f"layer_with_weights-{n}/" in name:
            assert (stored.get_tensor(name) == model.layers[n].kernel.numpy()).all(), name
print(json.dumps({"peak": peak, "read_twice": report.read_twice, "text": str(report)}))
"""

linux = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="no /proc/self/clear_refs to write to"
)


def run(**options: Any) -> str:
    if options["flavour"] == "tf_keras":
        pytest.importorskip("tf_keras")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(options)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def restored(path: str, count: int, flavour: str = "keras", **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(path=path, count=count, flavour=flavour, **options))
    return result


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of 256 MiB in 16 values."""
    return run(flavour="keras", save=str(tmp_path_factory.mktemp("run") / "ckpt"), count=16)


@pytest.fixture(scope="module")
def forty_eight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of 768 MiB in 48 values."""
    return run(flavour="keras", save=str(tmp_path_factory.mktemp("large") / "ckpt"), count=48)


@linux
@pytest.mark.parametrize(("flavour", "verify"), [("keras", "values"), ("tf_keras", "checksums")])
def test_a_restore_needs_no_second_copy_of_the_model(sixteen, flavour, verify) -> None:
    policy = {"verify": verify, "max_memory": "1 MiB"}
    result = restored(sixteen, 16, flavour, policy=policy)
    assert result["peak"] < limit([LARGEST] * 16) + SLACK < 16 * LARGEST
    assert result["read_twice"] >= 16 * LARGEST - limit([LARGEST] * 16)
    assert "MiB were read twice, for want of memory to hold them" in result["text"]


@linux
@pytest.mark.parametrize("options", [{}, {"policy": {}}, {"policy": {"max_memory": "257MiB"}}])
def test_where_there_is_memory_everything_is_read_once(sixteen, options) -> None:
    result = restored(sixteen, 16, **options)
    assert result["read_twice"] == 0
    assert "twice" not in result["text"]
    assert result["peak"] < 16 * LARGEST + SLACK


@linux
@pytest.mark.long
def test_the_bound_does_not_grow_with_the_model(forty_eight) -> None:
    result = restored(forty_eight, 48, policy={"max_memory": "1 MiB"})
    assert result["peak"] < 2 * LARGEST + 48 * LARGEST // 10 + SLACK


@contextlib.contextmanager
def control_group(name: str) -> Iterator[tuple[str, str, str]]:
    """A control group of this name, and its files for the limit and for what is used."""
    for mount, limit_file, usage in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ):
        group = Path(mount) / name
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / limit_file).exists():
                yield str(group), limit_file, usage
                return
        finally:
            group.rmdir()
    pytest.skip("no control group with a limit on memory can be made")


# What is left besides the variables, as a share of the model.
shares = pytest.mark.parametrize("share", [0.3, pytest.param(0.6, marks=pytest.mark.long), 1.5])
MODEL = 48 * LARGEST


@linux
@shares
def test_a_limit_on_the_address_space(forty_eight, share) -> None:
    left = int(share * MODEL)
    result = restored(forty_eight, 48, address_space=left, policy={})
    assert result["peak"] <= left
    assert result["read_twice"] >= MODEL - left


@linux
@shares
def test_a_limit_of_a_control_group(forty_eight, share) -> None:
    left = int(share * MODEL)
    with control_group(f"tfckpt-{os.getpid()}") as group:
        result = restored(forty_eight, 48, group=group, memory=left, policy={})
    assert result["read_twice"] >= MODEL - left
