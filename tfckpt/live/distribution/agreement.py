"""Agreement of all workers of a strategy before anything is written or assigned.

Under ``tf.distribute.MultiWorkerMirroredStrategy`` every worker makes the same save and restore
calls. Only the chief numbers, writes, commits and deletes. All workers take part in reading values
that are summed over replicas, and return when the chief has committed, or raise the chief's error.
A restore is read and checked by all before the first assigns, and refused by all if one fails or
has another plan. Under any other strategy (mirrored variables of one machine, TPUs, and parameter
servers, whose coordinator saves and restores alone) one process does everything, and this module
does nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

from tfckpt.errors import RestoreError, SaveError, TfckptError
from tfckpt.live.distribution.workers import Workers
from tfckpt.live.objects.collect import collect
from tfckpt.live.private.runtime import count_of, has_service, uses_service
from tfckpt.live.variables.flavors import flavor_of
from tfckpt.live.variables.variables import is_variable, raw
from tfckpt.stored.commits.numbering import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Self

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan

_Result = TypeVar("_Result")


class Agreement:
    """One save by all workers, or by a single process (``workers`` is None).

    A failure before the last of ``meetings`` meetings is sent to the others.
    """

    _what = "save"

    def __init__(self, workers: Workers | None, meetings: int) -> None:
        self.workers = workers
        self._left = meetings

    @property
    def chief(self) -> bool:
        """Whether this process decides."""
        return self.workers is None or self.workers.chief

    def meet(self, message: Any) -> list[Any]:
        """See :meth:`Workers.meet`."""
        if self.workers is None:
            return [message]
        left, self._left = self._left - 1, 0  # a failed meeting is known to all
        received = self.workers.meet(self._what, message, SaveError, last=not left)
        self._left = left
        return received

    def ticket(self, taken: Ticket | None) -> Ticket | None:
        """The chief's number in all workers, None if it saves nothing.

        It is given back if a worker does not join.
        """
        with taken or contextlib.nullcontext():
            numbers = self.meet(taken and taken.numbers)[0]
        return taken or (Ticket(*numbers) if numbers else None)

    def same(self, inventory: Inventory) -> None:
        """Check that all workers have the same values to save."""
        if self.workers is None:
            return
        entries = inventory.entries.values()
        message = hashlib.sha256(repr([(e.name, _type(e)) for e in entries]).encode()).hexdigest()
        for index, other in enumerate(received := self.meet(message)):
            if other != received[0]:
                self._left = 0
                raise SaveError(
                    f"the values of worker {index} differ from the chief's in names, dtypes or "
                    "shapes; nothing was written",
                    hint="build the same objects in every worker; tfckpt.inventory lists them",
                )

    def by_chief(
        self, work: Callable[[], None], ticket: Ticket, inventory: Inventory
    ) -> Callable[[], None]:
        """The chief's work; in other workers, a function that waits for it and raises its error."""
        workers = self.workers
        if workers is None:
            return work
        key = workers.message_key()
        nbytes = sum(entry.nbytes for entry in inventory.entries.values())

        def wait() -> None:
            with ticket:
                workers.wait_for_outcome(key, self._what, SaveError, nbytes)

        def work_and_send() -> None:
            try:
                work()
            except BaseException as error:
                workers.send_outcome(key, error)
                raise
            workers.send_outcome(key, None)

        return work_and_send if workers.chief else wait

    def report_failure(self, error: BaseException) -> None:
        """Send the error to waiting workers, so that they fail too."""
        if self.workers is not None and self._left:
            self.workers.fail(self._what, error)


@contextlib.contextmanager
def saving(workers: Workers | None, meetings: int = 1) -> Iterator[Agreement]:
    """One save of all workers; if it fails in one, it fails in all."""
    agreement = Agreement(workers, meetings)
    try:
        yield agreement
    except Exception as error:
        agreement.report_failure(error)
        raise


class Restoring:
    """One restore by all workers, who meet four times, or by a single process.

    Between two meetings all do the same work, including collectives such as creating variables. A
    worker that fails reports it at the next meeting, where all end: with an error in all, or, if
    the chief is trying one checkpoint after the other, with the next checkpoint.
    """

    def __init__(self, workers: Workers | None, choice: Any = None, *, follows: bool = False):
        self._workers = workers
        self._choice = choice
        self._follows = follows
        self._unnamed = choice is not None
        self._left = 4

    def opened(self) -> None:
        """Wait until all workers have opened the checkpoint."""
        if self._workers is not None and self._unnamed:
            self._unnamed = False
            left, self._left = self._left, 0
            self._workers.meet(CHOICE, self._choice, RestoreError)
            self._left = left
            self._workers.awaited = False
        self._meet(None)

    def meet_once_more(self) -> None:
        """Expect two calls of ``done``."""
        self._left += 1

    def planned(self, plan: Plan) -> None:
        """Check that all workers have the same plan, without errors."""
        if self._workers is None:
            return
        for index, digest in enumerate(digests := self._meet(_digest(plan))):
            if digest != digests[0]:
                self._left = 0
                raise RestoreError(
                    f"nothing was restored: the plan of worker {index} differs from the chief's, "
                    "in values, shapes or the checkpoint itself",
                    hint="build the same objects and restore the same checkpoint in every worker; "
                    "`tfckpt plan` or the report of `plan()` shows what one worker would do",
                )

    def ready(self) -> None:
        """Wait until all workers have read and checked everything."""
        self._meet(None)

    def done(self) -> None:
        """Wait until all workers have assigned all values."""
        self._meet(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Report at the next meeting that this worker failed."""
        if isinstance(error, Exception) and self._workers and self._left and not self._unnamed:
            self._meet(None, error)

    def _meet(self, message: Any, failed: BaseException | None = None) -> list[Any]:
        workers = self._workers
        if workers is None:
            return [message]
        left, self._left = self._left - 1, 0
        mine = [message, "" if failed is None else f"{type(failed).__name__}: {failed}"[:_LONGEST]]
        received = workers.meet("restore", mine, RestoreError, last=not left or bool(mine[1]))
        self._left = left
        errors = [(index, text) for index, (_, text) in enumerate(received) if text]
        if not errors:
            return [message for message, _ in received]
        self._left = 0
        index, text = errors[0]
        workers.awaited = self._choice is not None and index == 0
        if self._follows and index == 0:
            raise PassedOverError(text)
        if failed is not None:
            return []
        raise RestoreError(f"no worker restored anything, because worker {index} failed: {text}")


class PassedOverError(RestoreError):
    """The chief cannot read a checkpoint; this worker waits for the next choice."""


ALONE = Restoring(None)
CHOICE = "choice of a checkpoint"
_LONGEST = 20_000  # characters of an error


@contextlib.contextmanager
def chooses(workers: Workers | None) -> Iterator[None]:
    """The chief tries checkpoints, each through ``Restoring`` with a choice.

    If that fails before the others have received a choice, it fails for them too.
    """
    if workers is not None:
        workers.awaited = True
    try:
        yield
    except Exception as error:
        if workers is not None and workers.awaited:
            workers.fail(CHOICE, error)
        raise


def chose_nothing(workers: Workers | None, message: Any) -> None:
    """Send to the others that the chief restores no checkpoint."""
    if workers is not None and workers.awaited:
        workers.meet(CHOICE, message, RestoreError, last=True)


def choices_of_chief(workers: Workers) -> Iterator[Any]:
    """What the chief sends, one message after the other until the caller leaves the loop."""
    while True:
        yield workers.meet(CHOICE, None, RestoreError)[0]


def workers_of(variables: Iterable[Any]) -> Workers | None:
    """The workers that hold copies of these variables; None for a single process."""
    if not in_cluster():
        return None
    for variable in filter(is_variable, variables):
        strategy = getattr(raw(variable), "distribute_strategy", None)
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            continue
        if count_of(strategy.extended) < 2:
            continue
        if not uses_service():
            raise TfckptError(
                "the workers of this strategy cannot coordinate a save or restore: TensorFlow's "
                "coordination service is off",
                hint="do not turn it off with configure_coordination_service",
            )
        return _workers.setdefault("workers", Workers(strategy.extended))
    return None


def workers_among(objects: Mapping[str, Any], root: Any = None) -> Workers | None:
    """The workers that hold copies of the variables of these objects, or None."""
    return workers_of(collect(objects, root).variables.values()) if in_cluster() else None


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
    if keras3 and several and count_of(strategy.extended) > 1:
        return "MultiWorkerMirroredStrategy", keras3
    return "", keras3


def in_cluster() -> bool:
    """Whether this process may be one of several workers, by TensorFlow's configuration."""
    return has_service()


_workers: dict[str, Workers] = {}
"""One object for the process: meetings are counted over all saves and restores."""


def _digest(plan: Plan) -> str:
    """A checksum of a plan, without paths: a directory may be mounted elsewhere in each worker."""
    steps = [
        (s.status.value, s.name, s.source, *(_type(e) for e in (s.live, *s.reads)), str(s.changes))
        for s in plan.steps
    ]
    whole = repr((sorted(steps), [origin.sha256 for origin in plan.origins]))
    return hashlib.sha256(whole.encode()).hexdigest()


def _type(entry: Entry | None) -> tuple[Any, ...]:
    return () if entry is None else (entry.role.value, entry.dtype, entry.shape, entry.crc32c)
