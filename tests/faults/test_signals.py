"""Signals that ask a training process to end: it saves at the next step, and ends as it was asked.

Each scenario is a function that runs in a forked child, sends its signals to itself at the step
where they are to come, and tells what became of it. Nothing waits by the clock but the grace time.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
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

LONG = 1000.0  # seconds of grace that no test waits for
SHORT = 0.05


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.fixture
def run(server, tmp_path) -> Callable[..., Any]:
    """``run(scenario, …)``: its result, from a child of its own."""

    def call(scenario: Callable[..., Any], *arguments: Any) -> Any:
        return outcome(scenario, *arguments).result()

    def outcome(scenario: Callable[..., Any], *arguments: Any) -> Outcome:
        where = str(tmp_path / "run")
        return server.run((__file__, scenario.__name__), where, *arguments, timeout=120.0)

    call.outcome = outcome
    return call


# What runs in the children


def come(number: int = signal.SIGTERM) -> None:
    """A signal comes; the Python half of its handler has run when this returns."""
    os.kill(os.getpid(), number)


class Loop:
    """A loop of one's own: each step adds its number to the weight."""

    def __init__(
        self, directory: str, on_signal: Any = ("SIGTERM",), grace: float = LONG, **more: Any
    ) -> None:
        import tensorflow as tf

        import tfckpt

        self.step, self.weight = tf.Variable(0), tf.Variable(0)
        save = {"on_signal": list(on_signal), "grace_seconds": grace, **more}
        config = {
            "version": 1,
            "manager": {"directory": directory, "save": save},
            "restore": {"directory": directory, "if_none": "initialize"},
        }
        self.run = tfckpt.from_config(config, step=self.step, weight=self.weight)

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step.assign_add(1)
            self.weight.assign_add(self.step)

    def train_and_save(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.train()
            self.run.save_if_due()

    def saved(self) -> list[str]:
        return [Path(path).name for path in self.run.manager.checkpoints]


def ending(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ended a call: the name of an exception, and the status of a SystemExit."""
    try:
        function(*arguments)
    except BaseException as error:
        return [type(error).__name__, getattr(error, "code", None)]
    return ["returned", None]


def hang() -> None:
    """In C++, where no Python runs in this thread."""
    import tensorflow as tf

    tf.queue.FIFOQueue(1, tf.int32).dequeue()


def at_first_warning(do: Callable[[], None]) -> None:
    """``do`` when tfckpt says that it knows of the signal."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "saving at the next step" in record.getMessage():
                print(record.getMessage(), flush=True)
                do()

    logging.getLogger("absl").addHandler(Handler())


def is_default(number: int = signal.SIGTERM) -> bool:
    return signal.getsignal(number) == signal.SIG_DFL


# A loop


def loop_until(directory: str, name: str) -> Any:
    loop = Loop(directory, [name])
    loop.train_and_save(2)
    loop.train()
    come(signal.Signals[name])
    before = loop.saved()
    ended = ending(loop.run.save_if_due)
    back = signal.getsignal(signal.Signals[name]) in {signal.SIG_DFL, signal.default_int_handler}
    return [before, ended, loop.saved(), back, signal.set_wakeup_fd(-1)]


def resumed_loop(directory: str) -> Any:
    loop = Loop(directory)
    loop.run.restore()
    return [int(loop.step), int(loop.weight)]


@pytest.mark.parametrize(
    ("name", "ended"),
    [
        ("SIGTERM", ["SystemExit", 143]),
        ("SIGUSR1", ["SystemExit", 138]),
        ("SIGINT", ["KeyboardInterrupt", None]),
    ],
)
def test_a_loop_saves_at_the_next_step_and_ends_as_the_signal_means(run, name, ended) -> None:
    assert run(loop_until, name) == [[], ended, ["ckpt-1"], True, -1]
    assert run(resumed_loop) == [3, 1 + 2 + 3]


def signal_at_a_save(directory: str) -> Any:
    loop = Loop(directory, every_steps=2)
    loop.train_and_save(3)
    loop.train()
    come()
    return [ending(loop.run.save_if_due), loop.saved()]


def test_what_was_due_anyway_is_not_saved_twice(run) -> None:
    assert run(signal_at_a_save) == [["SystemExit", 143], ["ckpt-1", "ckpt-2"]]


def signal_after_a_save(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save()
    loop.run.save()
    come()
    return [ending(loop.run.save_if_due), loop.saved()]


def test_what_was_saved_at_this_step_is_not_saved_twice(run) -> None:
    assert run(signal_after_a_save) == [["SystemExit", 143], ["ckpt-1"]]


def without_a_counter(directory: str) -> Any:
    import tensorflow as tf

    import tfckpt

    save = {"on_signal": ["SIGTERM"]}
    config = {"version": 1, "manager": {"directory": directory, "save": save}}
    run = tfckpt.from_config(config, weight=tf.Variable(0))
    run.save()
    run.save_if_due()
    come()
    return [ending(run.save_if_due), len(run.manager.checkpoints)]


def test_a_run_without_a_step_saves_whatever_it_knows(run) -> None:
    assert run(without_a_counter) == [["SystemExit", 143], 2]


def signal_at_the_end(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save(2)
    come()
    return [ending(loop.run.sync), loop.saved(), is_default()]


def end_of_a_loop(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save(2)
    loop.run.sync()
    return [loop.saved(), is_default(), signal.set_wakeup_fd(-1)]


def test_sync_ends_a_loop(run) -> None:
    assert run(signal_at_the_end) == [["SystemExit", 143], ["ckpt-1"], True]
    assert run(end_of_a_loop) == [["ckpt-1"], True, -1]


def collected_run(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save()
    watched = not is_default()
    del loop
    gc.collect()
    return [watched, is_default(), signal.set_wakeup_fd(-1)]


def test_a_run_that_is_garbage_has_put_the_handlers_back(run) -> None:
    assert run(collected_run) == [True, True, -1]


# The second signal, and the end of the grace time


def second_signal(directory: str) -> None:
    loop = Loop(directory)
    loop.train_and_save()
    at_first_warning(come)
    come()
    hang()


def second_signal_of_another_kind(directory: str) -> None:
    loop = Loop(directory, ["SIGTERM", "SIGUSR1"])
    loop.train_and_save()
    at_first_warning(lambda: come(signal.SIGUSR1))
    come()
    hang()


def hang_through_the_grace(directory: str) -> None:
    loop = Loop(directory, grace=SHORT)
    loop.train_and_save()
    threading.Thread(target=come).start()  # some time while it hangs
    hang()


def test_a_second_signal_ends_a_step_that_hangs_at_once(run) -> None:
    outcome = run.outcome(second_signal)
    assert outcome.signal == signal.SIGTERM, outcome
    assert "SIGTERM: saving at the next step, at most 1000 s" in outcome.output
    outcome = run.outcome(second_signal_of_another_kind)
    assert outcome.signal == signal.SIGUSR1, outcome


def test_the_end_of_the_grace_time_ends_a_step_that_hangs(run) -> None:
    outcome = run.outcome(hang_through_the_grace)
    assert outcome.signal == signal.SIGTERM, outcome


# What the signal meant before


def own_handler(directory: str) -> Any:
    called = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append([number, loop.saved()]))
    loop = Loop(directory)
    loop.train_and_save()
    come()
    loop.train_and_save(2)  # goes on under the handler's control
    come()
    loop.train_and_save()
    loop.run.sync()
    come()
    return [called, int(loop.step)]


def own_handler_that_raises(directory: str) -> Any:
    def stop(number: int, frame: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGTERM, stop)
    loop = Loop(directory)
    loop.train_and_save()
    come()
    return [ending(loop.train_and_save), loop.saved(), signal.getsignal(signal.SIGTERM) is stop]


def test_a_handler_of_ones_own_is_called_after_the_save(run) -> None:
    once, twice = ["ckpt-1"], ["ckpt-1", "ckpt-2"]
    assert run(own_handler) == [[[15, once], [15, twice], [15, twice]], 4]


def test_what_a_handler_of_ones_own_raises_ends_training(run) -> None:
    assert run(own_handler_that_raises) == [["TimeoutError", None], ["ckpt-1"], True]


def ignored(directory: str) -> Any:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop = Loop(directory, ["SIGHUP"])
    loop.train_and_save()
    come(signal.SIGHUP)
    come(signal.SIGHUP)
    loop.train_and_save(2)
    come(signal.SIGHUP)
    loop.train_and_save()
    loop.run.sync()
    return [loop.saved(), signal.getsignal(signal.SIGHUP) == signal.SIG_IGN]


def test_an_ignored_signal_saves_and_training_goes_on(run) -> None:
    assert run(ignored) == [["ckpt-1", "ckpt-2"], True]


def chained(directory: str) -> Any:
    called = []
    loop = Loop(directory)
    loop.train_and_save()
    ours = signal.getsignal(signal.SIGTERM)

    def on_top(number: int, frame: Any) -> None:
        called.append(number)
        ours(number, frame)

    signal.signal(signal.SIGTERM, on_top)
    come()
    ended = ending(loop.train_and_save)
    return [called, ended, loop.saved(), signal.getsignal(signal.SIGTERM) is on_top]


def test_a_handler_that_was_put_on_top_stays(run) -> None:
    assert run(chained) == [[15], ["SystemExit", 143], ["ckpt-1"], True]


def two_loops(directory: str) -> Any:
    outer, inner = Loop(f"{directory}/outer"), Loop(f"{directory}/inner")
    outer.train_and_save()
    inner.train_and_save()
    come()
    ended = [ending(inner.train_and_save)]
    ended.append(ending(outer.train_and_save))
    del inner.run
    gc.collect()
    return [ended, outer.saved(), is_default(), signal.set_wakeup_fd(-1)]


def test_of_two_runs_one_inside_the_other_both_save(run) -> None:
    ended = [["returned", None], ["SystemExit", 143]]
    assert run(two_loops) == [ended, ["ckpt-1"], True, -1]


def other_wakeup(directory: str) -> Any:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    loop = Loop(directory)
    loop.train_and_save()
    come()
    ended = ending(loop.train_and_save)
    return [ended, list(os.read(reader, 9)), signal.set_wakeup_fd(-1) == writer]


def test_a_wakeup_descriptor_of_another_is_left_alone(run) -> None:
    assert run(other_wakeup) == [["SystemExit", 143], [15], True]


# Where it cannot work


def in_a_thread(directory: str) -> Any:
    loop, ended = Loop(directory), []

    def train() -> None:
        with contextlib.suppress(BaseException):
            loop.train()
            try:
                loop.run.save_if_due()
            except Exception as error:
                ended.append([type(error).__name__, str(error)])

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    return [ended, loop.saved(), is_default()]


def test_training_in_another_thread_is_refused(run) -> None:
    [[kind, message]], saved, default = run(in_a_thread)
    assert kind == "TfckptError"
    assert "SIGTERM" in message
    assert "main thread" in message
    assert (saved, default) == ([], True)


def abandoned_in_a_thread(directory: str) -> None:
    loop = Loop(directory)
    loop.train_and_save()
    thread = threading.Thread(target=loop.run.watch())
    thread.start()
    thread.join()
    come()


def test_handlers_given_up_in_another_thread_do_not_hold_a_signal_back(run) -> None:
    outcome = run.outcome(abandoned_in_a_thread)
    assert outcome.signal == signal.SIGTERM, outcome


def forked(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save()
    child = os.fork()
    if not child:
        come()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    loop.train_and_save()
    return [status, loop.saved(), is_default()]


def test_a_forked_child_can_be_ended_and_its_parent_trains_on(run) -> None:
    assert run(forked) == [-signal.SIGTERM, [], False]


def failing_save(directory: str) -> Any:
    loop = Loop(directory)
    loop.train_and_save()
    Path(directory).write_text("in the way", encoding="utf-8")
    come()
    first = ending(loop.train_and_save)
    Path(directory).unlink()
    return [first, ending(loop.train_and_save), loop.saved()]


def failing_save_then_hang(directory: str) -> None:
    loop = Loop(directory, grace=SHORT)
    loop.train_and_save()
    Path(directory).write_text("in the way", encoding="utf-8")
    come()
    with contextlib.suppress(OSError):
        loop.train_and_save()
    hang()


def test_a_save_that_fails_is_seen_and_the_retry_saves(run) -> None:
    assert run(failing_save) == [["SaveError", None], ["SystemExit", 143], ["ckpt-1"]]
    assert run(resumed_loop) == [3, 6]


def test_a_save_that_fails_does_not_outlive_the_grace_time(run) -> None:
    outcome = run.outcome(failing_save_then_hang)
    assert outcome.signal == signal.SIGTERM, outcome


def failure_in_the_background(directory: str) -> Any:
    from tfckpt import SaveError

    loop = Loop(directory)
    loop.train_and_save()
    manager, failures = loop.run.manager, [SaveError("the one before")]
    sync = manager.sync

    def fail_once() -> None:
        if failures:
            raise failures.pop()
        sync()

    manager.sync = fail_once
    come()
    return [ending(loop.train_and_save), loop.saved(), ending(loop.train_and_save)]


def test_a_background_save_that_failed_is_seen_and_the_present_one_made(run) -> None:
    first, *rest = run(failure_in_the_background)
    assert first == ["SaveError", None]
    assert rest[0] == ["ckpt-1"]
    assert rest[1] == ["SystemExit", 143]


# A whole process; one that needs no TensorFlow

PROCESS = """
import atexit, os, signal, sys
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
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout.readline() == "ready\n"
        one.terminate()
        out, _ = one.communicate(timeout=60)
    assert (one.returncode, out) == (143, "finally\natexit\n")
