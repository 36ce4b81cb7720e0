"""The fork server that other tests stand on: every way in which a child can end is told apart."""

from __future__ import annotations

import os
import signal
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module")
def light() -> Iterator[ForkServer]:
    with ForkServer(env={"GREETING": "hello"}, preload=()) as server:
        yield server


# Run in children


def add(left: int, right: int) -> int:
    print("adding")
    return left + right


def fail() -> None:
    raise ValueError("no such value")


def leave(code: int) -> None:
    os._exit(code)


def die(signum: int) -> None:
    os.kill(os.getpid(), signum)


def hang() -> None:
    threading.Event().wait()


def leave_a_child() -> int:
    pid = os.fork()
    if pid == 0:
        hang()
    return pid


def greeting() -> str:
    return os.environ["GREETING"]


def long_text(size: int) -> str:
    return "x" * size


def meet(directory: str, name: str, other: str) -> bool:
    """Whether the other is there at the same time."""
    Path(directory, name).touch()
    while not Path(directory, other).exists():
        time.sleep(0.005)
    return True


def train(keras_name: str, directory: str) -> list[float]:
    import importlib

    import tensorflow as tf

    import tfckpt

    keras = importlib.import_module(keras_name)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(tf.ones((8, 3)), tf.ones((8, 2)), verbose=0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), directory, max_to_keep=1)
    manager.save()
    saved = [float(value) for variable in model.weights for value in variable.numpy().ravel()]
    for variable in model.weights:
        variable.assign(variable * 0)
    manager.restore_or_initialize()
    restored = [float(value) for variable in model.weights for value in variable.numpy().ravel()]
    assert restored == saved
    return restored


# Tests


def test_a_value_and_the_output_come_back(light: ForkServer) -> None:
    outcome = light.run((HERE, "add"), 2, 3)
    assert (outcome.result(), outcome.output) == (5, "adding\n")


def test_an_error_a_status_a_signal_and_a_hang_are_told_apart(light: ForkServer) -> None:
    failed = light.run((HERE, "fail"))
    assert (failed.value, failed.error, failed.signal) == (None, "ValueError: no such value", None)
    assert "in fail" in failed.output
    assert light.run((HERE, "leave"), 3).error == "exited with status 3"
    assert light.run((HERE, "die"), signal.SIGABRT).signal == signal.SIGABRT
    hung = light.run((HERE, "hang"), timeout=0.2)
    assert (hung.timed_out, hung.signal) == (True, None)
    with pytest.raises(AssertionError, match="time was up"):
        hung.result()
    assert light.run("no.such.module:function").error.startswith("ModuleNotFoundError")
    assert light.run((HERE, "add"), 1, 1).result() == 2


def test_a_child_of_a_child_holds_nothing_up(light: ForkServer) -> None:
    os.kill(light.run((HERE, "leave_a_child"), timeout=30).result(), signal.SIGKILL)


def test_modules_by_name_environment_and_long_results(light: ForkServer) -> None:
    assert light.run((HERE, "greeting")).result() == "hello"
    assert light.run("os.path:join", "a", "b").result() == "a/b"
    assert len(light.run((HERE, "long_text"), 1 << 20).result()) == 1 << 20


def test_several_run_at_once_and_keep_their_order(light: ForkServer, tmp_path: Path) -> None:
    met = [((HERE, "meet"), str(tmp_path), a, b) for a, b in (("a", "b"), ("b", "a"))]
    assert [each.result() for each in light.run_many(met, workers=2)] == [True, True]
    sums = [((HERE, "add"), number, 1) for number in range(20)]
    assert [each.result() for each in light.run_many(sums, workers=3)] == list(range(1, 21))


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        ForkServer(preload=("no_such_module",)) as server,
        pytest.raises(RuntimeError, match="No module named 'no_such_module'"),
    ):
        server.run((HERE, "add"), 1, 2)


def test_children_of_one_import_train_save_and_restore(tmp_path: Path) -> None:
    flavours = [name for name in ("keras", "tf_keras") if find_spec(name)]
    with ForkServer(preload=("tensorflow", *flavours, "tfckpt")) as server:
        requests = [
            ((HERE, "train"), name, str(tmp_path / f"{name}{n}"))
            for name in flavours
            for n in (0, 1)
        ]
        for outcome in server.run_many(requests, workers=2):
            assert len(outcome.result()) == 8
