"""A restore holds the values once beside the model's, and a few of them with `verify: none`.

Measured in processes of their own: the high-water mark of resident memory is set back before the
restore (Documentation/filesystems/proc.rst of Linux: clear_refs) and read after it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
SIDE = 2048  # 16 MiB of float32
LARGEST = SIDE * SIDE * 4
SLACK = 32 * MIB  # names, plans, the interpreter's own growth

SCRIPT = """
import gc, importlib, json, resource, sys

options = json.loads(sys.argv[1])

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

if "path" not in options:
    print(tfckpt.Checkpoint(model=model).save(options["save"]))
    raise SystemExit
gc.collect()
if "address_space" in options:
    most = status("VmSize:") + options["address_space"]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS:")
if "address_space" in options:
    try:
        tfckpt.restore(options["path"], model=model)
    except tfckpt.RestoreError as error:
        print(json.dumps({"error": str(error)}))
        raise SystemExit
if "policy" in options:
    report = tfckpt.restore(options["path"], model=model, policy=options["policy"])
else:
    report = tfckpt.Checkpoint(model=model).restore(options["path"]).assert_consumed().report
peak = status("VmHWM:") - before
assert len(report.plan.assignments) >= options["count"]
stored = tf.train.load_checkpoint(options["path"])
for name in stored.get_variable_to_shape_map():
    for n in range(options["count"]):
        if f"/layers/{n}/" in name or f"layer-{n}/" in name or f"layer_with_weights-{n}/" in name:
            assert (stored.get_tensor(name) == model.layers[n].kernel.numpy()).all(), name
print(json.dumps({"peak": peak}))
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


@linux
@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
@pytest.mark.parametrize("options", [{}, {"policy": {}}, {"policy": {"verify": "values"}}])
def test_a_restore_holds_the_values_once_beside_the_model(sixteen, flavour, options) -> None:
    result = restored(sixteen, 16, flavour, **options)
    assert result["peak"] < 16 * LARGEST + SLACK


@linux
@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
def test_without_verification_a_few_values_are_held(sixteen, flavour) -> None:
    result = restored(sixteen, 16, flavour, policy={"verify": "none"})
    assert result["peak"] < 4 * LARGEST + SLACK


@linux
def test_where_there_is_no_memory_the_error_names_the_way_out(sixteen) -> None:
    result = restored(sixteen, 16, address_space=8 * LARGEST)
    assert "not enough memory for the new values" in result["error"]
    assert "`verify: none` in a policy" in result["error"]
