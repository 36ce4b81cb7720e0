"""What all workers of a strategy agree on before anything is written or assigned.

Under ``tf.distribute.MultiWorkerMirroredStrategy`` every worker saves and restores by the same
calls. The chief alone numbers, writes, commits and deletes; all take part in reading what is summed
over replicas, and return when the chief has committed, or raise what made it fail. A restore is
read and checked by all before the first assigns, and refused by all where one cannot, or has
another plan. Under any other strategy one process does all, and nothing here does anything: the
mirrored variables of one machine, TPUs, and parameter servers, whose coordinator saves and restores
alone.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf
from tensorflow.python.eager import context

from tfckpt.errors import RestoreError, SaveError, TfckptError
from tfckpt.live.distribution.workers import Workers
from tfckpt.live.objects.collect import collect
from tfckpt.live.variables.flavours import flavour_of
from tfckpt.live.variables.variables import is_variable, raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from typing_extensions import Self

    from tfckpt.core.inventory import Entry, Inventory
    from tfckpt.planning import Plan

_Result = TypeVar("_Result")


class Agreement:
    """What a save by all workers comes to; alone, there is nothing to agree on.

    Args:
        workers: None for a process of its own.
        meetings: how many there will be: a failure before the last one is told.
    """

    _what = "save"

    def __init__(self, workers: Workers | None, meetings: int) -> None:
        self.workers = workers
        self._left = meetings

    @property
    def chief(self) -> bool:
        """Whether this process decides."""
        return self.workers is None or self.workers.chief

    def meet(self, said: Any) -> list[Any]:
        """See :meth:`Workers.meet`."""
        if self.workers is None:
            return [said]
        left, self._left = self._left - 1, 0  # that a meeting fails is known to all
        heard = self.workers.meet(self._what, said, SaveError, last=not left)
        self._left = left
        return heard

    def same(self, inventory: Inventory) -> None:
        """All are about to read what is to be saved; returns where that is the same in all.

        Raises:
            SaveError: it is not, or a worker failed or did not come.
        """
        if self.workers is None:
            return
        entries = inventory.entries.values()
        told = hashlib.sha256(repr([(e.name, _type(e)) for e in entries]).encode()).hexdigest()
        for index, other in enumerate(heard := self.meet(told)):
            if other != heard[0]:
                self._left = 0
                raise SaveError(
                    f"the values of worker {index} differ from the chief's in names, dtypes or "
                    "shapes; nothing was written",
                    hint="build the same objects in every worker; tfckpt.inventory lists them",
                )

    def by_chief(
        self, work: Callable[[], None], undo: Callable[[], object] | None, inventory: Inventory
    ) -> Callable[[], None]:
        """The work where it is the chief's, else what waits for it, and raises if it fails.

        Args:
            work: writes, and undoes what it did where it fails.
            undo: of a worker that has waited in vain.
            inventory: what there is to write.
        """
        workers = self.workers
        if workers is None:
            return work
        key = workers.key()
        nbytes = sum(entry.nbytes for entry in inventory.entries.values())

        def wait() -> None:
            try:
                workers.hear(key, self._what, SaveError, nbytes)
            except BaseException:
                if undo is not None:
                    undo()
                raise

        def work_and_tell() -> None:
            try:
                work()
            except BaseException as error:
                workers.tell(key, error)
                raise
            workers.tell(key, None)

        return work_and_tell if workers.chief else wait

    def told_of(self, error: BaseException) -> None:
        """Make the others fail, too, where they wait."""
        if self.workers is not None and self._left:
            self.workers.fail(self._what, error)


@contextlib.contextmanager
def saving(workers: Workers | None, meetings: int = 1) -> Iterator[Agreement]:
    """One save of all workers, which fails in all of them where it fails in one."""
    agreement = Agreement(workers, meetings)
    try:
        yield agreement
    except Exception as error:
        agreement.told_of(error)
        raise


class Restoring:
    """A restore by all workers, who meet four times; alone, there is nothing to agree on.

    Between two meetings they do the same, variables are made, which is a collective, included. One
    that fails says so at the next meeting, and all end there: where it is the chief that tries one
    checkpoint after the other, with the next one, else with an error in all.

    Args:
        workers: None for a process of its own.
        choice: what the chief tells of the checkpoint, where the others wait for that.
        follows: whether this worker waits for the next choice where the chief passes on.
    """

    def __init__(self, workers: Workers | None, choice: Any = None, *, follows: bool = False):
        self._workers = workers
        self._choice = choice
        self._follows = follows
        self._unnamed = choice is not None
        self._left = 4

    def opened(self) -> None:
        """The checkpoint is open; returns where it is so in all workers.

        Raises:
            RestoreError: a worker cannot open it, is dead, or did not come.
        """
        if self._workers is not None and self._unnamed:
            self._unnamed = False
            left, self._left = self._left, 0
            self._workers.meet(CHOICE, self._choice, RestoreError)
            self._left = left
            self._workers.awaited = False
        self._meet(None)

    def meet_once_more(self) -> None:
        """``done`` will be called twice."""
        self._left += 1

    def planned(self, plan: Plan) -> None:
        """The plan is made and has no errors; returns where all have the same.

        Raises:
            RestoreError: a worker has another plan, or none.
        """
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
        """Everything was read and checked; returns where all are about to assign.

        Raises:
            RestoreError: a worker cannot.
        """
        self._meet(None)

    def done(self) -> None:
        """All values are assigned; returns where they are in all workers.

        Raises:
            RestoreError: a worker failed; nothing is to be left assigned.
        """
        self._meet(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Say at the next meeting that this worker failed.

        Raises:
            PassedOverError: so did the chief, who tries another checkpoint.
        """
        if isinstance(error, Exception) and self._workers and self._left and not self._unnamed:
            self._meet(None, error)

    def _meet(self, said: Any, failed: BaseException | None = None) -> list[Any]:
        workers = self._workers
        if workers is None:
            return [said]
        left, self._left = self._left - 1, 0
        mine = [said, "" if failed is None else f"{type(failed).__name__}: {failed}"[:_LONGEST]]
        heard = workers.meet("restore", mine, RestoreError, last=not left or bool(mine[1]))
        self._left = left
        errors = [(index, text) for index, (_, text) in enumerate(heard) if text]
        if not errors:
            return [one for one, _ in heard]
        self._left = 0
        index, text = errors[0]
        workers.awaited = self._choice is not None and index == 0
        if self._follows and index == 0:
            raise PassedOverError(text)
        if failed is not None:
            return []
        raise RestoreError(f"no worker restored anything, because worker {index} failed: {text}")


class PassedOverError(RestoreError):
    """The chief cannot read a checkpoint; the next choice is to be waited for."""


ALONE = Restoring(None)
CHOICE = "choice of a checkpoint"
_LONGEST = 20_000  # characters of an error


def chosen(
    workers: Workers | None,
    decide: Callable[[], _Result],
    follow: Callable[[Any], _Result],
    nothing: Callable[[_Result], Any],
) -> _Result:
    """What comes of a restore whose checkpoint the chief chooses.

    Args:
        workers: None for a process of its own.
        decide: tries and restores, where that is the chief's, each by ``Restoring`` with a choice.
        follow: restores what was told.
        nothing: what is told where ``decide`` chose nothing.
    """
    if workers is None:
        return decide()
    while not workers.chief:
        told = workers.meet(CHOICE, None, RestoreError)[0]
        with contextlib.suppress(PassedOverError):
            return follow(told)
    workers.awaited = True
    try:
        result = decide()
    except Exception as error:
        if workers.awaited:
            workers.fail(CHOICE, error)
        raise
    if workers.awaited:
        workers.meet(CHOICE, nothing(result), RestoreError, last=True)
    return result


def workers_of(variables: Iterable[Any]) -> Workers | None:
    """The workers that hold copies of these variables; None where this process is alone.

    Raises:
        TfckptError: the strategy was told to do without the coordination service.
    """
    if not in_cluster():
        return None
    for variable in filter(is_variable, variables):
        strategy = getattr(raw(variable), "distribute_strategy", None)
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            continue
        if strategy.extended._num_workers < 2:
            continue
        if not context.context().coordination_service.service_type:
            raise TfckptError(
                "the workers of this strategy cannot coordinate a save or restore: TensorFlow's "
                "coordination service is off",
                hint="do not turn it off with configure_coordination_service",
            )
        return _known.setdefault("workers", Workers(strategy.extended))
    return None


def workers_among(objects: Mapping[str, Any], root: Any = None) -> Workers | None:
    """The same, of the variables that given objects have."""
    return workers_of(collect(objects, root).variables.values()) if in_cluster() else None


def strategy_without_fit(model: Any) -> tuple[str, bool]:
    """The strategy under which a model has no ``fit`` with a callback, and whether it is Keras 3's.

    ``""`` for any other strategy, and for what is no model. Keras 3 has no ``fit`` there at all
    (keras#20585), tf_keras calls no callback for batches of parameter servers
    (tf_keras/src/callbacks.py).
    """
    flavour = flavour_of(model)
    strategy = getattr(model, "distribute_strategy", None) if flavour else None
    if flavour is None or strategy is None:
        return "", False
    keras3 = flavour.name == "keras"
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return "ParameterServerStrategy", keras3
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if keras3 and several and strategy.extended._num_workers > 1:
        return "MultiWorkerMirroredStrategy", keras3
    return "", keras3


def in_cluster() -> bool:
    """Whether this process may be one of several workers; a look at what TensorFlow was told."""
    return context.context().coordination_service is not None


_known: dict[str, Workers] = {}
"""Meetings are counted for the process, whatever it saves and restores."""


def _digest(plan: Plan) -> str:
    """What a plan comes to; paths may differ, since a directory may be mounted anywhere."""
    steps = [
        (s.status.value, s.name, s.source, *(_type(e) for e in (s.live, *s.reads)), str(s.changes))
        for s in plan.steps
    ]
    whole = repr((sorted(steps), [origin.sha256 for origin in plan.origins]))
    return hashlib.sha256(whole.encode()).hexdigest()


def _type(entry: Entry | None) -> tuple[Any, ...]:
    return () if entry is None else (entry.role.value, entry.dtype, entry.shape, entry.crc32c)
