"""Signals that ask a training process to end: it saves at the next step, and ends as it was asked.

Each scene is a line of words, or a function, which sends its signals to its own process at the
step where they are to come, and tells what became of it. One that a signal ends has a forked child
of its own. Nothing waits by the clock but the grace time.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.forkserver import ForkServer

SHORT = {"grace_seconds": 0.05}  # by default so many that no test waits for them
ENDED = "SystemExit 143"


class Loop:
    """A loop of one's own: each step adds its number to the weight, and saves if due.

    Its methods are the words of the scenes; what one returns is told.
    """

    def __init__(self, directory: str, **save: Any) -> None:
        import tensorflow as tf

        import tfckpt

        self.directory = directory
        self.step, self.weight = tf.Variable(0), tf.Variable(0)
        save = {"on_signal": ["SIGTERM"], "grace_seconds": 1000, **save}
        self.number = signal.Signals[save["on_signal"][0]]
        manager, restore = {"directory": directory, "save": save}, {"directory": directory}
        self.config = {"version": 1, "manager": manager, "restore": restore}
        self.run = tfckpt.from_config(self.config, step=self.step, weight=self.weight)

    def go(self) -> None:
        self.step.assign_add(1)
        self.weight.assign_add(self.step)
        self.run.save_if_due()

    def end(self) -> str:
        """One more step, and how it ends."""
        return ending(self.go)

    def come(self) -> None:
        """The signal comes; the Python half of its handler has run when this returns."""
        os.kill(os.getpid(), self.number)

    def other_comes(self) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    def hang(self) -> None:
        """In C++, where no Python runs in this thread."""
        import tensorflow as tf

        tf.queue.FIFOQueue(1, tf.int32).dequeue()

    def save(self) -> None:
        self.run.save()

    def due(self) -> str:
        """The end of a step in which nothing changes."""
        return ending(self.run.save_if_due)

    def sync(self) -> None:
        self.run.sync()

    def sync_ends(self) -> str:
        return ending(self.run.sync)

    def drop(self) -> None:
        del self.run
        gc.collect()

    def saved(self) -> int:
        return len(self.run.manager.checkpoints)

    def back(self) -> bool:
        """Whether the handler is Python's own again."""
        return signal.getsignal(self.number) in {signal.SIG_DFL, signal.default_int_handler}

    def resumed(self) -> list[int]:
        again = Loop(self.directory)
        again.run.restore()
        return [int(again.step), int(again.weight)]

    def without_step(self) -> None:
        """From now on the run knows of no step."""
        import tfckpt

        self.run = tfckpt.from_config(self.config, weight=self.weight)

    def block(self) -> None:
        """A file, where the directory was."""
        shutil.rmtree(self.directory)
        Path(self.directory).write_text("in the way", encoding="utf-8")

    def unblock(self) -> None:
        Path(self.directory).unlink()

    def ignore(self) -> None:
        signal.signal(self.number, signal.SIG_IGN)

    def ignored(self) -> bool:
        return signal.getsignal(self.number) == signal.SIG_IGN

    def end_in_thread(self) -> str:
        ended: list[str] = []
        thread = threading.Thread(target=lambda: ended.append(self.end()))
        thread.start()
        thread.join()
        return ended[0]


def ending(function: Callable[[], Any]) -> str:
    """The exception that ended a call, with the status of a SystemExit."""
    try:
        function()
    except BaseException as error:
        status = f" {error.code}" if isinstance(error, SystemExit) else ""
        return f"{type(error).__name__}{status}"
    return "returned"


# What words do not say


def a_handler_of_ones_own_is_called_after_the_save(loop: Loop) -> Any:
    called = []
    signal.signal(signal.SIGTERM, lambda number, frame: called.append([number, loop.saved()]))
    for word in ("go", "come", "go", "come", "go", "sync", "come"):  # it goes on, as it says
        getattr(loop, word)()
    return [called, int(loop.step)]


def a_forked_child_can_be_ended_and_its_parent_trains_on(loop: Loop) -> Any:
    loop.go()
    child = os.fork()
    if not child:
        loop.come()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, loop.end(), loop.saved()]


def a_background_save_that_failed_is_seen_and_this_one_made(loop: Loop) -> Any:
    import tfckpt

    loop.go()
    sync, failures = loop.run.manager.sync, [tfckpt.SaveError("the one before")]

    def fail_once() -> None:
        if failures:
            raise failures.pop()
        sync()

    loop.run.manager.sync = fail_once
    loop.come()
    return [loop.end(), loop.saved(), loop.end()]


# What is done, what is told or which signal ends the process, and the options of `save`
SCENES: list[tuple[Any, Any, dict[str, Any]]] = [
    # It saves at the next step, and ends as the signal means.
    ("go go come saved end saved back resumed", [0, ENDED, 1, True, [3, 6]], {}),
    ("go come end resumed", ["SystemExit 138", [2, 3]], {"on_signal": ["SIGUSR1"]}),
    ("go come end resumed back", ["KeyboardInterrupt", [2, 3], True], {"on_signal": ["SIGINT"]}),
    # What is saved anyway is not saved twice.
    ("go go go come end saved", [ENDED, 2], {"every_steps": 2}),
    ("go save come due saved", [ENDED, 1], {}),
    ("without_step save due come due saved", ["returned", ENDED, 2], {}),
    # The handlers are back after the training, and a signal that waits is not lost.
    ("go go sync saved back", [1, True], {"every_steps": 2}),
    ("go go come sync_ends saved back", [ENDED, 1, True], {}),
    ("go back drop back", [False, True], {}),
    ("go come drop back", [False], {}),
    # A second signal, and the end of the grace time, end a step at once.
    ("go come come hang", signal.SIGTERM, {}),
    ("go come other_comes hang", signal.SIGUSR1, {"on_signal": ["SIGTERM", "SIGUSR1"]}),
    ("go come hang", signal.SIGTERM, SHORT),
    ("go block come end hang", signal.SIGTERM, SHORT),
    ("go block come end unblock end saved", ["SaveError", ENDED, 1], {}),
    # Handlers of others, other threads, other processes.
    ("ignore go come come go go come go sync saved ignored", [2, True], {"on_signal": ["SIGHUP"]}),
    (a_handler_of_ones_own_is_called_after_the_save, [[[15, 1], [15, 2], [15, 2]], 3], {}),
    ("end_in_thread saved back", ["TfckptError", 0, True], {}),
    (a_forked_child_can_be_ended_and_its_parent_trains_on, [-15, "returned", 0], {}),
    (a_background_save_that_failed_is_seen_and_this_one_made, ["SaveError", 1, ENDED], {}),
]


def play(directory: str, numbers: list[int]) -> list[Any]:
    """In a child."""
    told = []
    for number in numbers:
        scene, _, save = SCENES[number]
        loop = Loop(f"{directory}/{number}", **save)
        words = scene.split() if isinstance(scene, str) else ()
        found = [getattr(loop, word)() for word in words] or scene(loop)
        told.append([each for each in found if each is not None])
        for each in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return told


def test_scenes(tmp_path: Path) -> None:
    killed = [n for n, (_, expected, _) in enumerate(SCENES) if isinstance(expected, int)]
    lives = sorted({*range(len(SCENES))} - {*killed})
    children = [lives[::2], lives[1::2], *([number] for number in killed)]
    with ForkServer() as server:
        requests = [((__file__, "play"), str(tmp_path), numbers) for numbers in children]
        outcomes = server.run_many(requests, timeout=120.0)
    wrong = []
    for numbers, outcome in zip(children, outcomes, strict=True):
        told = [outcome.signal] if outcome.value is None else outcome.value
        expected = [SCENES[number][1] for number in numbers]
        wrong += [] if told == expected else [f"{told}, not {expected}; {outcome}"]
    assert not wrong, "\n".join(wrong)
