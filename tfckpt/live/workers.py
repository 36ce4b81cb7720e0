"""The workers of a ``tf.distribute.MultiWorkerMirroredStrategy``: they make the same calls.

At some points all exchange messages: each puts its own into the key-value store of TensorFlow's
coordination service, which runs in the chief, and reads those of all. So all know the same: that a
value differs, or that one failed. Only the chief numbers, writes, commits and deletes. Collectives
do not work for this: one that a worker does not join hangs, and aborting one ends the job.
TensorFlow's own barrier holds Python's interpreter lock while it waits.

No wait is longer than ``PATIENCE``; the wait for the end of a save gets another second for every
10 MB. Under any other strategy (mirrored variables of one machine, TPUs, and parameter servers,
whose coordinator saves and restores alone) one process does everything, and nothing is exchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import tensorflow as tf

from tfckpt.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CoverageError,
    DamagedCheckpointError,
    InUseError,
    NotBuiltError,
    RefusedError,
    RestoreError,
    SaveError,
    TfckptError,
    UnsupportedCheckpointError,
)
from tfckpt.live.flavors import flavor_of
from tfckpt.live.inventory import collect
from tfckpt.live.private import runtime
from tfckpt.live.variables import is_variable, raw
from tfckpt.stored.commits.numbering import SaveNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from typing_extensions import Self

    from tfckpt.core.inventory import Entry
    from tfckpt.live.inventory import Gathered
    from tfckpt.live.snapshot import Snapshot
    from tfckpt.planning import Plan

PATIENCE = 600.0
"""Seconds that a worker waits for the others."""
_SLOWEST = 10_000_000  # bytes that a save writes in a second
_POLL = 1.0
_LAST_WAIT = 10.0
_LONGEST = 20_000  # characters of an error
_T = TypeVar("_T")
_CHOICE = "choice of a checkpoint"
_RAISED_IN_ALL = (
    CheckpointNotFoundError,
    CoverageError,
    DamagedCheckpointError,
    InUseError,
    NotBuiltError,
    UnsupportedCheckpointError,
)


class PassedOverError(RestoreError):
    """The chief goes on to another checkpoint; this worker waits for it."""


PASSED_OVER = (CheckpointError, RefusedError, PassedOverError)
"""Errors after which another checkpoint may be tried."""


class Workers:
    """All workers, of which this process is one."""

    def __init__(self, extended: Any) -> None:
        self.index, self.count = int(extended._id_in_cluster), int(extended._num_workers)
        self._numbers: dict[str, int] = {}

    @property
    def chief(self) -> bool:
        """Whether this process decides, writes and deletes."""
        return self.index == 0

    def exchange(
        self,
        what: str,
        message: Any = None,
        error: BaseException | None = None,
        *,
        raises: type[TfckptError] = RestoreError,
        alike: tuple[type[TfckptError], ...] = _RAISED_IN_ALL,
        goes_on: bool = False,
        last: bool = False,
        of_chief: int | None = None,
    ) -> list[Any]:
        """Put a message or an error, and return the messages of all, in the order of the workers.

        Args:
            what: for what all are there.
            message: of plain JSON.
            error: why this worker fails. It raises nothing then, except that the chief goes on.
            raises: the class of the error in all if one fails.
            alike: classes of errors that are raised in all as they are.
            goes_on: the chief, which fails, tries another checkpoint.
            last: whether a process may end after it: the chief, in which the messages are, waits
                for the others to have read them.
            of_chief: the bytes that the chief writes before it puts its message, in a sequence of
                exchanges of their own; nobody waits for the others then.
        """
        stream, seconds = "", PATIENCE
        if of_chief is not None:
            stream, seconds = "after/", PATIENCE + of_chief / _SLOWEST
        number = self._numbers[stream] = self._numbers.get(stream, 0) + 1
        key = f"tfckpt/{stream}{number}"
        failed = None if error is None else [type(error).__name__, str(error)[:_LONGEST], goes_on]
        try:
            if of_chief is None or self.chief:
                _put(f"{key}/{self.index}", [what, message, failed])
            everyone = range(self.count) if of_chief is None else range(1)
            end = time.monotonic() + seconds
            found = [self._read(key, other, what, end, raises) for other in everyone]
            late = None if of_chief is not None else _get(f"{key}/late", 0)
            if last or late or any(theirs for *_, theirs in found):
                self._wait_until_read(key)
            if self.chief:  # all have read what was before
                with contextlib.suppress(tf.errors.OpError):
                    runtime.delete(f"tfckpt/{stream}{number - 1}")
        except tf.errors.OpError as lost:
            raise raises(
                f"worker {self.index} of {self.count} lost its connection to the chief or another "
                f"worker: {lost}",
                hint="restart all workers; they resume from the last checkpoint",
            ) from lost
        if late:
            raise raises(late)
        self._check(what, found, error, raises, alike)
        return [theirs for _, theirs, _ in found]

    def _read(
        self, key: str, other: int, what: str, end: float, raises: type[TfckptError]
    ) -> list[Any]:
        while True:
            left = end - time.monotonic()
            found: list[Any] | None = _get(f"{key}/{other}", min(max(left, 0), _POLL))
            if found is not None:
                return found
            if left <= 0:
                text = (
                    f"worker {other} of {self.count} did not join the {what} within {PATIENCE:g} "
                    "seconds; every worker must make the same calls"
                )
                with contextlib.suppress(tf.errors.AlreadyExistsError):
                    _put(f"{key}/late", text)
                raise raises(text)

    def _check(
        self,
        what: str,
        found: list[Any],
        error: BaseException | None,
        raises: type[TfckptError],
        alike: tuple[type[TfckptError], ...],
    ) -> None:
        """Raise where one failed, or came for something else."""
        for index, (_, _, failed) in enumerate(found):
            if not failed:
                continue
            kind, text, goes_on = failed
            if goes_on and not self.chief:
                raise PassedOverError(text)
            if error is None:
                who = "the chief" if index == 0 else f"worker {index}"
                cls = next((each for each in alike if each.__name__ == kind), raises)
                raise cls(f"{who} failed, so every worker fails: {text}")
            return
        for index, (came_for, *_) in enumerate(found):
            if came_for != what:
                raise raises(
                    f"worker {index} joined for the {came_for}, worker {self.index} for the "
                    f"{what}; every worker must make the same calls"
                )

    def _wait_until_read(self, key: str) -> None:
        """Have the chief wait briefly until all have read; with its process the messages end."""
        if not self.chief:
            _put(f"{key}/read/{self.index}", True)
            return
        end = time.monotonic() + _LAST_WAIT
        for other in range(1, self.count):
            while _get(f"{key}/read/{other}", _POLL / 10) is None and time.monotonic() < end:
                pass


class Together:
    """One save or restore that all workers make in step, or a single process alone.

    A worker that fails says so at the next exchange, where all end. ``passes`` are errors after
    which the chief tries another checkpoint.
    """

    def __init__(
        self,
        workers: Workers | None = None,
        what: str = "restore",
        raises: type[TfckptError] = RestoreError,
        *,
        passes: tuple[type[TfckptError], ...] = (),
    ) -> None:
        self.workers = workers
        self._what, self._raises, self._passes = what, raises, passes
        # A restore's error of one worker is not that of the others: theirs could be restored.
        self._alike = () if what == "restore" else _RAISED_IN_ALL
        self._open = workers is not None

    @property
    def chief(self) -> bool:
        """Whether this process decides."""
        return self.workers is None or self.workers.chief

    def exchange(self, step: str, message: Any = None, *, last: bool = False) -> list[Any]:
        """See :meth:`Workers.exchange`; ``last`` ends it."""
        if self.workers is None:
            return [message]
        self._open = False  # what fails here fails in all
        what = f"{step} of a {self._what}"
        found = self.workers.exchange(
            what, message, raises=self._raises, alike=self._alike, last=last
        )
        self._open = not last
        return found

    def agree(self, step: str, values: Any, differ: str, hint: str) -> None:
        """Check that all have the same values; raise the text about the worker that has others."""
        if self.workers is None:
            return
        text = hashlib.sha256(repr(values).encode()).hexdigest()
        received = self.exchange(step, text)
        for index, other in enumerate(received):
            if other != received[0]:
                self._open = False  # all see it
                raise self._raises(differ.format(index=index), hint=hint)

    def planned(self, plan: Plan) -> None:
        """Check that all have the same plan, but for paths: each may have another directory."""
        if self.workers is not None:
            steps = [
                (s.status.value, s.name, s.source, *map(_type, (s.live, *s.reads)), str(s.changes))
                for s in plan.steps
            ]
            self.agree(
                "plan",
                (sorted(steps), [origin.sha256 for origin in plan.origins]),
                "nothing was restored: the plan of worker {index} differs from the chief's, in "
                "values, shapes or the checkpoint itself",
                "build the same objects and restore the same checkpoint in every worker; "
                "`tfckpt plan` or the report of `plan()` shows what one worker would do",
            )

    def gathered(self, objects: Gathered) -> None:
        """Check that all have the same values to save."""
        if self.workers is not None:
            self.agree(
                "names",
                [(entry.name, _type(entry)) for entry in objects.live.inventory.entries.values()],
                "the values of worker {index} differ from the chief's in names, dtypes or shapes; "
                "nothing was written",
                "build the same objects in every worker; tfckpt.inventory lists them",
            )

    def number(self, taken: SaveNumber | None) -> SaveNumber | None:
        """The chief's number in all workers, None if it saves nothing."""
        numbers = self.exchange("number", taken and [taken.value, taken.counted])[0]
        return taken or (SaveNumber(*numbers) if numbers else None)

    @contextlib.contextmanager
    def chief_writes(self, snapshot: Snapshot) -> Iterator[None]:
        """In the chief, tell the others how the body ends; in these, wait for that after it."""
        if (workers := self.workers) is None:
            yield
            return
        self._open = False  # the end of the work says who fails
        nbytes = sum(entry.nbytes for entry in snapshot.live.inventory.entries.values())
        end = partial(workers.exchange, "end of a save", None)
        try:
            yield
        except BaseException as error:
            end(error, raises=SaveError, last=True, of_chief=nbytes)
            raise
        end(raises=SaveError, last=True, of_chief=nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, Exception) or not self._open or self.workers is None:
            return
        self._open = False
        goes_on = self.chief and isinstance(error, self._passes)
        try:
            self.workers.exchange(self._what, None, error, goes_on=goes_on)
        except PassedOverError:
            raise
        except TfckptError:  # the first error is raised
            return


ALONE = Together()


def agreed(
    workers: Workers | None,
    candidates: Generator[Any, None, None],
    send: Callable[[Any], Any],
    receive: Callable[[Any], Any],
) -> Generator[tuple[Any, Together], None, None]:
    """The candidates of the chief in all workers, each with those that try it together.

    ``send`` turns a candidate, or None at the end, into a message of plain JSON, and ``receive``
    turns it back. What fails is thrown into the generator, and by it into ``candidates``.
    """
    if workers is not None and not workers.chief:
        while (candidate := receive(workers.exchange(_CHOICE)[0])) is not None:
            with contextlib.suppress(PassedOverError):
                yield candidate, Together(workers)
        return
    try:
        for attempt in attempts(candidates):
            if workers is not None:
                workers.exchange(_CHOICE, send(attempt.candidate))
            with attempt as candidate:
                yield candidate, Together(workers, passes=PASSED_OVER)
    except Exception as error:
        if workers is not None:
            workers.exchange(_CHOICE, None, error, last=True)
        raise
    if workers is not None:
        workers.exchange(_CHOICE, send(None), last=True)


class Attempt(Generic[_T]):
    """One candidate: what fails in its block is passed over."""

    def __init__(self, candidate: _T) -> None:
        self.candidate = candidate
        self.error: Exception | None = None

    def __enter__(self) -> _T:
        return self.candidate

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        self.error = error if isinstance(error, PASSED_OVER) else None
        return self.error is not None


def attempts(candidates: Generator[_T, None, None]) -> Iterator[Attempt[_T]]:
    """Each candidate, until one does not fail.

    What fails is thrown into ``candidates``, which raises or has another one.
    """
    with contextlib.closing(candidates):
        candidate = next(candidates, None)
        while candidate is not None:
            yield (attempt := Attempt(candidate))
            if attempt.error is None:
                return
            try:
                candidate = candidates.throw(attempt.error)
            except StopIteration:
                return


def workers_of(variables: Iterable[Any]) -> Workers | None:
    """The workers that hold copies of these variables; None for a single process."""
    if not in_cluster():
        return None
    for variable in filter(is_variable, variables):
        strategy = getattr(raw(variable), "distribute_strategy", None)
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            continue
        if strategy.extended._num_workers < 2:
            continue
        if not runtime.uses_service():
            raise TfckptError(
                "the workers of this strategy cannot coordinate a save or restore: TensorFlow's "
                "coordination service is off",
                hint="do not turn it off with configure_coordination_service",
            )
        return _workers.setdefault("workers", Workers(strategy.extended))
    return None


_workers: dict[str, Workers] = {}
"""One object for the process: exchanges are counted over all saves and restores."""


def workers_among(objects: Mapping[str, Any], root: Any = None) -> Workers | None:
    """The workers that hold copies of the variables of these objects, or None."""
    return workers_of(collect(objects, root).variables.values()) if in_cluster() else None


def in_cluster() -> bool:
    """Whether this process may be one of several workers, by TensorFlow's configuration."""
    return runtime.has_service()


def strategy_without_fit(model: Any) -> tuple[str, bool]:
    """The model's strategy if ``fit`` with a callback does not work under it, and if it is Keras 3.

    "" for any other strategy or object. Keras 3 has no ``fit`` under these strategies
    (keras#20585); tf_keras calls no batch callbacks under parameter servers
    (tf_keras/src/callbacks.py).
    """
    flavor = flavor_of(model)
    strategy = getattr(model, "distribute_strategy", None) if flavor else None
    if flavor is None or strategy is None:
        return "", False
    keras3 = flavor.name == "keras"
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "ParameterServerStrategy", keras3
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if keras3 and several and strategy.extended._num_workers > 1:
        return "MultiWorkerMirroredStrategy", keras3
    return "", keras3


def _type(entry: Entry | None) -> tuple[Any, ...]:
    return () if entry is None else (entry.role.value, entry.dtype, entry.shape, entry.crc32c)


def _put(key: str, value: Any) -> None:
    runtime.put(key, json.dumps(value))


def _get(key: str, seconds: float) -> Any:
    """The value of a key; None after a timeout."""
    try:
        text = runtime.get(key, max(int(seconds * 1000), 1))
    except tf.errors.DeadlineExceededError:
        return None
    return json.loads(text)
