"""The fork server that other tests stand on: every way in which a child can end is told apart."""

from __future__ import annotations

import os
import signal
import threading
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
