"""Signals that ask a training process to end: it saves at the next step, and ends as it was asked.

Each scenario is a function that runs in a forked child, sends its signals to itself at the step
where they are to come, and tells what became of it. Nothing waits by the clock but the grace time.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zoo.forkserver import Outcome

SHORT = 0.05  # seconds of grace; by default so many that no test waits for them
ENDED = "SystemExit 143"


SCENARIOS: list[Any] = []


def scenario(expected: Any, **save: Any) -> Callable[..., Any]:
    """What a function returns in a child of its own, or the signal that ends the child."""

    def add(function: Callable[[Loop], Any]) -> Callable[[Loop], Any]:
        SCENARIOS.append(pytest.param(function, save, expected, id=function.__name__))
        return function

    return add


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def play(server, tmp_path) -> Callable[..., Outcome]:
    """``play(scenario, on_signal=["SIGINT"])``: how a child of its own ended."""

    def call(function: Callable[[Loop], Any], **save: Any) -> Outcome:
        where = str(tmp_path / "run")
        return server.run((__file__, "begin"), where, function.__name__, save, timeout=120.0)

    return call


# What runs in the children


def begin(directory: str, name: str, save: dict[str, Any]) -> Any:
    return globals()[name](Loop(directory, **save))


class Loop:
    """A loop of one's own: each step adds its number to the weight, and saves if due."""

    def __init__(self, directory: str, **save: Any) -> None:
        import tensorflow as tf

        import tfckpt

        self.directory = directory
        self.step, self.weight = tf.Variable(0), tf.Variable(0)
        save = {"on_signal": ["SIGTERM"], "grace_seconds": 1000, **save}
        manager, restore = {"directory": directory, "save": save}, {"directory": directory}
        config = {"version": 1, "manager": manager, "restore": restore}
        self.run = tfckpt.from_config(config, step=self.step, weight=self.weight)

    def go(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step.assign_add(1)
            self.weight.assign_add(self.step)
            self.run.save_if_due()

    def saved(self) -> int:
        return len(self.run.manager.checkpoints)


def come(number: int = signal.SIGTERM) -> None:
    """A signal comes; the Python half of its handler has run when this returns."""
    os.kill(os.getpid(), number)


def ending(function: Callable[[], Any]) -> str:
    """The exception that ended a call, with the status of a SystemExit."""
    try:
        function()
    except BaseException as error:
        status = f" {error.code}" if isinstance(error, SystemExit) else ""
        return f"{type(error).__name__}{status}"
    return "returned"


def hang() -> None:
    """In C++, where no Python runs in this thread."""
    import tensorflow as tf

    tf.queue.FIFOQueue(1, tf.int32).dequeue()


def put_in_the_way(loop: Loop) -> None:
    """A file, where the directory was."""
    shutil.rmtree(loop.directory)
    Path(loop.directory).write_text("in the way", encoding="utf-8")


def in_another_thread(do: Callable[[], Any]) -> None:
    thread = threading.Thread(target=do)
    thread.start()
    thread.join()


def is_back(number: int = signal.SIGTERM) -> bool:
    """Whether the handler is Python's own again."""
    return signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}


def until_a_signal(loop: Loop) -> Any:
    number = signal.Signals[loop.run.config.manager.save.on_signal[0]]
    loop.go(2)
    come(number)
    return [loop.saved(), ending(loop.go), loop.saved(), is_back(number)]


def resumed(loop: Loop) -> Any:
    loop.run.restore()
    return [int(loop.step), int(loop.weight)]


@pytest.mark.parametrize(
    ("name", "ended"),
    [("SIGTERM", ENDED), ("SIGUSR1", "SystemExit 138"), ("SIGINT", "KeyboardInterrupt")],
)
def test_a_loop_saves_at_the_next_step_and_ends_as_the_signal_means(play, name, ended) -> None:
    assert play(until_a_signal, on_signal=[name]).result() == [0, ended, 1, True]
    assert play(resumed).result() == [3, 1 + 2 + 3]


@scenario([ENDED, 2], every_steps=2)
def what_is_due_anyway_is_not_saved_twice(loop: Loop) -> Any:
    loop.go(3)
    come()
    return [ending(loop.go), loop.saved()]


@scenario([ENDED, 1])
def what_was_saved_by_hand_is_not_saved_again(loop: Loop) -> Any:
    loop.go()
    loop.run.save()
    come()
    return [ending(loop.run.save_if_due), loop.saved()]


@scenario([ENDED, 2])
def a_run_without_a_step_saves_whatever_it_knows(loop: Loop) -> Any:
    import tfckpt

    run = tfckpt.from_config(loop.run.config, weight=loop.weight)
    run.save()
    run.save_if_due()
    come()
    return [ending(run.save_if_due), len(run.manager.checkpoints)]


@scenario([1, True], every_steps=2)
def the_handlers_are_back_when_a_loop_is_synced(loop: Loop) -> Any:
    loop.go(2)
    loop.run.sync()
    return [loop.saved(), is_back()]


@scenario([ENDED, 1, True])
def a_signal_after_the_last_step_saves(loop: Loop) -> Any:
    loop.go(2)
    come()
    return [ending(loop.run.sync), loop.saved(), is_back()]


@scenario([False, True])
def the_handlers_are_back_when_a_run_is_garbage(loop: Loop) -> Any:
    loop.go()
    before = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    del loop.run
    gc.collect()
    return [before, is_back()]


@scenario([False])
def a_signal_that_waits_when_a_run_is_garbage_has_its_grace_time(loop: Loop) -> Any:
    loop.go()
    come()
    del loop.run
    gc.collect()
    return [is_back()]


@scenario(signal.SIGTERM)
def a_second_signal_ends_a_step_at_once(loop: Loop) -> None:
    loop.go()
    come()
    come()
    hang()


@scenario(signal.SIGUSR1, on_signal=["SIGTERM", "SIGUSR1"])
def a_second_signal_of_another_kind_ends_it_too(loop: Loop) -> None:
    loop.go()
    come()
    come(signal.SIGUSR1)
    hang()


@scenario(signal.SIGTERM, grace_seconds=SHORT)
def the_end_of_the_grace_time_ends_a_step_that_hangs(loop: Loop) -> None:
    loop.go()
    come()
    hang()


@scenario([[[15, 1], [15, 2], [15, 2]], 3])
def a_handler_of_ones_own_is_called_after_the_save(loop: Loop) -> Any:
    called = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append([number, loop.saved()]))
    loop.go()
    come()
    loop.go()  # goes on under the handler's control
    come()
    loop.go()
    loop.run.sync()
    come()
    return [called, int(loop.step)]


@scenario([2, True], on_signal=["SIGHUP"])
def an_ignored_signal_saves_and_training_goes_on(loop: Loop) -> Any:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop.go()
    come(signal.SIGHUP)
    come(signal.SIGHUP)
    loop.go(2)
    come(signal.SIGHUP)
    loop.go()
    loop.run.sync()
    return [loop.saved(), signal.getsignal(signal.SIGHUP) == signal.SIG_IGN]


@scenario([[15], ENDED, True])
def a_handler_that_was_put_on_top_stays(loop: Loop) -> Any:
    called = []
    loop.go()
    ours = signal.getsignal(signal.SIGTERM)

    def on_top(number: int, frame: Any) -> None:
        called.append(number)
        ours(number, frame)

    signal.signal(signal.SIGTERM, on_top)
    come()
    return [called, ending(loop.go), signal.getsignal(signal.SIGTERM) is on_top]


@scenario(["returned", 1, ENDED, 1, True])
def of_two_runs_one_inside_the_other_both_save(outer: Loop) -> Any:
    inner = Loop(f"{outer.directory}/inner")
    outer.go()
    inner.go()
    come()
    ended = [ending(inner.go), inner.saved(), ending(outer.go), outer.saved()]
    del inner.run
    gc.collect()
    return [*ended, is_back()]


@scenario([["TfckptError"], 0, True])
def training_in_another_thread_is_refused(loop: Loop) -> Any:
    ended = []
    in_another_thread(lambda: ended.append(ending(loop.go)))
    return [ended, loop.saved(), is_back()]


@scenario(signal.SIGTERM)
def handlers_given_up_in_another_thread_hold_no_signal_back(loop: Loop) -> None:
    loop.go()
    in_another_thread(loop.run.saves.watch())
    come()


@scenario([-signal.SIGTERM, "returned", 0])
def a_forked_child_can_be_ended_and_its_parent_trains_on(loop: Loop) -> Any:
    loop.go()
    child = os.fork()
    if not child:
        come()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, ending(loop.go), loop.saved()]


@scenario(["SaveError", ENDED, 1])
def a_save_that_fails_is_seen_and_the_retry_saves(loop: Loop) -> Any:
    loop.go()
    put_in_the_way(loop)
    come()
    first = ending(loop.go)
    Path(loop.directory).unlink()
    return [first, ending(loop.go), loop.saved()]


@scenario(signal.SIGTERM, grace_seconds=SHORT)
def a_save_that_fails_does_not_outlive_the_grace_time(loop: Loop) -> None:
    loop.go()
    put_in_the_way(loop)
    come()
    ending(loop.go)
    hang()


@scenario(["SaveError", 1, ENDED])
def a_background_save_that_failed_is_seen_and_this_one_made(loop: Loop) -> Any:
    import tfckpt

    loop.go()
    sync, failures = loop.run.manager.sync, [tfckpt.SaveError("the one before")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()
        sync()

    loop.run.manager.sync = fail_once
    come()
    return [ending(loop.go), loop.saved(), ending(loop.go)]


@pytest.mark.parametrize(("function", "save", "expected"), SCENARIOS)
def test_scenario(play, function, save, expected) -> None:
    outcome = play(function, **save)
    if isinstance(expected, signal.Signals):
        assert outcome.signal == expected, outcome
    else:
        assert outcome.result() == expected


PROCESS = """
import atexit
from tfckpt.manager.signals import Signals
atexit.register(print, "atexit")
signals = Signals(["SIGTERM"], 1000)
signals.install()
try:
    print("ready", flush=True)
    while not signals.received:
        pass
    signals.leave()
finally:
    print("finally")
"""


def test_the_status_of_the_process_tells_the_signal_and_all_is_cleaned_up() -> None:
    command = [sys.executable, "-c", PROCESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "finally\natexit\n")
