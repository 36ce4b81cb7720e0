"""The data of one ``fit``: which iterator is in use, how far it is, and how it is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.live.program_state import iterators
from tfckpt.live.program_state.captured import Captured, captured, together
from tfckpt.training import fit_checks
from tfckpt.training.state import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.training.state.position import Position
    from tfckpt.training.state.resumption import Resumption

_ARRAYS = "data/"


class Feed:
    """What the train function takes its batches from.

    Attributes:
        iterator: the one in use.
        iterators: how many there were, that one included.
        pulled: batches taken from it, or passed over.
        taken: of these, the ones that it was really asked for.
        ran_out: epoch and calls, wherever the data was at its end before Keras knew.
        content: a checksum of what the data is made of, "" where that is not known.
    """

    def __init__(self) -> None:
        self.iterator: Any = None
        self.iterators = self.pulled = self.taken = 0
        self.ran_out: list[list[int]] = []
        self.content = ""
        self._captured = Captured()
        self._first: list[Any] = []
        self._mark: Any = None

    def given(self, iterator: Any) -> bool:
        """Whether the train function was given another iterator than before."""
        if iterator is self.iterator:
            return False
        dataset = getattr(iterator, "_dataset", None)
        if dataset is not None and dataset is not getattr(self.iterator, "_dataset", None):
            self._captured = captured(dataset)
        if not self.iterators:
            self._first = self._captured.read()
        self.content = self.content or iterators.content_of(iterator)
        self.iterator = iterator
        self.iterators += 1
        self.pulled = self.taken = 0
        return True

    @property
    def element(self) -> str:
        """Types and shapes of a batch, "" before the first."""
        return "" if self.iterator is None else iterators.element_of(self.iterator)

    def judged(self) -> Iterator[str]:
        """What of the data another process would not give again."""
        yield from fit_checks.about_data(self.iterator, self._captured)
        yield from fit_checks.about_calls(self._captured)

    @property
    def handles(self) -> frozenset[int]:
        """Identities of the handles of variables that the data's functions read and write."""
        return frozenset(map(id, self._captured.handles))

    def saved(self, *, seeded: bool) -> tuple[str, Any, dict[str, Any]]:
        """How to come to the next batch again.

        Returns:
            The kind, what is saved of the iterator, and the variables that its functions use: as
            they are, or as they were at the first batch, where all are asked for again.
        """
        if self.iterator is None:
            return iterators.SAVED, None, {}
        about = self.iterator, self._captured
        kind = iterators.kind_of(*about, seeded=seeded, iterators=self.iterators)
        held, values = self.iterator if kind == iterators.SAVED else None, self._first
        if held is not None and self._captured.handles:
            pair = together(self.iterator, self._captured)
            kind = iterators.REPLAYED if pair is None else kind
            held, values = pair or (None, values)
        return kind, held, {f"{_ARRAYS}{place}": value for place, value in enumerate(values)}

    def before_first(self, target: Position, resumption: Resumption) -> None:
        """Before a batch is taken of a ``fit`` that is passed over."""
        if target.data == iterators.SAVED and not self.pulled:
            self._mark = iterators.mark(self.iterator)
        first = self.iterators == 1 and not self.pulled
        if target.data == iterators.REPLAYED and first and self._captured.handles:
            self._assign(resumption.arrays())

    def rest(self, target: Position) -> None:
        """After the step that is undone: nothing runs ahead, so that variables stay as assigned."""
        if target.data == iterators.SAVED and self._captured.handles:
            iterators.stop(self.iterator, self._mark)

    def come_to(self, target: Position, resumption: Resumption, *, same_end: bool) -> None:
        """To the batch that comes next; of an epoch that has ended, Keras may go on with it."""
        size = iterators.size_of(self.iterator)
        ran_out = [target.epoch, target.calls] in target.ran_out
        if target.ended and (ran_out or (size is not None and target.pulled >= size)):
            return
        if target.data == iterators.SAVED and same_end:
            resumption.place(self.iterator, self._mark)
        else:
            missing = target.pulled - self.taken
            if missing - iterators.pull(self.iterator, missing) >= target.steps_per_execution:
                raise refusals.of_the_data(f"the dataset ends before batch {target.pulled}")
        self.pulled = self.taken = target.pulled

    def resolve(self, target: Position, arrays: Mapping[str, Any]) -> None:
        """Everything else is assigned: so are the variables of the data's functions."""
        if target.data == iterators.SAVED:
            self._assign(arrays)

    def put_back(self) -> None:
        """The variables of the data's functions are what they were before the first batch."""
        if self.iterator is not None and self._first:
            iterators.stop(self.iterator, self._mark)
            self._captured.assign(self._first)

    def _assign(self, arrays: Mapping[str, Any]) -> None:
        values = [value for name, value in arrays.items() if name.startswith(_ARRAYS)]
        if values and self._captured.fit(values):
            self._captured.assign(values)
