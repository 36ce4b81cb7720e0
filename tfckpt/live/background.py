"""One save at a time beside the training, whose failure nobody can miss.

A failure is raised by the next call that starts or waits for a save, and said at the end of the
process at the latest, which waits for a save under way: the interpreter joins its threads first.
"""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from absl import logging

if TYPE_CHECKING:
    from collections.abc import Callable

_unreported: set[Background] = set()


class Background:
    """At most one piece of work at a time, in a thread."""

    def __init__(self) -> None:
        self._work: Future[None] | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None and not self._work.done()

    def start(self, work: Callable[[], None]) -> None:
        """Begin; what was under way is finished."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        try:
            threading.Thread(target=run, name="tfckpt-save").start()
        except RuntimeError:  # no more threads can be had
            run()
        self._work = future
        _unreported.add(self)

    def failure(self) -> BaseException | None:
        """Wait for what is under way; its failure, which :meth:`finish` is still to raise."""
        return None if self._work is None else self._work.exception()

    def finish(self) -> None:
        """Wait for what is under way, and raise its failure."""
        error = self.failure()
        self._work = None
        _unreported.discard(self)
        if error is not None:
            raise error


def _forget() -> None:
    """In a forked child: the thread is the parent's, and so is what it does."""
    for each in _unreported:
        each._work = None
    _unreported.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@atexit.register
def _say_at_exit() -> None:
    for each in tuple(_unreported):
        if (error := each.failure()) is not None:
            logging.error("the last save, in the background, failed: %s", error)
