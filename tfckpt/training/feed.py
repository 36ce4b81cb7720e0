"""The dataset iterators of one ``fit``: the current one, its position, and how it is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.live.private import fit, tf_data
from tfckpt.live.program_state import iterators
from tfckpt.live.program_state.captured import Captured, captured, together
from tfckpt.training import fit_checks
from tfckpt.training.state import refusals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfckpt.training.state.fits import Fits
    from tfckpt.training.state.position import Position
    from tfckpt.training.state.resumption import Resumption

_ARRAYS = "data/"


class Feed:
    """What the train function takes its batches from."""

    def __init__(self, model: Any, fit: int, fits: Fits) -> None:
        self._model, self._fit, self._fits = model, fit, fits
        fits.passes[fit] = 0
        self._made: Any = None  # the last one that was counted
        self.iterator: Any = None
        self.iterators = self.pulled = self.taken = 0
        self.ran_out: list[list[int]] = []
        self.content = ""
        self._captured = Captured()
        self._first: list[Any] = []
        self._mark: Any = None

    def takes(self, iterator: Any) -> bool:
        """Take over the iterator of a call; whether it is another one than before."""
        if iterator is self.iterator:
            return False
        self._count(iterator)
        dataset = tf_data.dataset_of(iterator)
        if dataset is not None and dataset is not tf_data.dataset_of(self.iterator):
            self._captured = captured(dataset)
        if not self.iterators:
            self._first = self._captured.read()
        self.content = self.content or iterators.content_of(iterator)
        self.iterator = iterator
        self.iterators += 1
        self.pulled = self.taken = 0
        return True

    def _count(self, iterator: Any) -> None:
        if iterator is not None and iterator is not self._made:
            self._made = iterator
            self._fits.passes[self._fit] += 1

    def epoch_ended(self) -> None:
        """Keras 3 makes an iterator then that it may never train from."""
        self._count(fit.next_iterator_of(self._model))

    def pass_over(self, passes: Sequence[int]) -> None:
        """Nothing is left to train; but another ``fit`` may go on with the same data."""
        for number in passes[self._fit : self._fit + 1]:
            iterators.count_passes(fit.dataset_of(self._model), number)
            self._fits.passes[self._fit] = number
        dataset = fit.dataset_of(self._model)
        if tf_data.is_dataset(dataset):  # a strategy's is opaque
            self._fits.unread.append((dataset, captured(dataset)))

    @property
    def element(self) -> str:
        """Dtypes and shapes of a batch; "" before the first."""
        return "" if self.iterator is None else iterators.element_of(self.iterator)

    @property
    def position(self) -> dict[str, Any]:
        """What a position records of it."""
        return {
            "iterators": self.iterators,
            "pulled": self.pulled,
            "ran_out": self.ran_out,
            "element": self.element,
            "content": self.content,
        }

    def warnings(self) -> Iterator[str]:
        """Why another process would not get the same batches again, or did not get them."""
        if any(map(self._shared_with, self._fits.unread)):
            yield fit_checks.UNREAD
        yield from fit_checks.about_data(self.iterator, self._captured)
        yield from fit_checks.about_calls(self._captured)

    def _shared_with(self, unread: tuple[Any, Captured]) -> set[int]:
        """Ids of the state of another dataset that this one goes on with."""
        mine = tf_data.dataset_of(self.iterator), self._captured
        return iterators.state_of(*mine) & iterators.state_of(*unread)

    @property
    def handles(self) -> frozenset[int]:
        """Ids of the handles of variables that the dataset's functions read and write."""
        return frozenset(map(id, self._captured.handles))

    def saved(self, *, seeded: bool) -> tuple[str, Any, dict[str, Any]]:
        """How to get to the next batch again: kind, object to save, variables of the functions.

        The variables have their current values, or if all batches will be read again, the values
        that they had before the first batch.
        """
        if self.iterator is None:
            return iterators.SAVED, None, {}
        kind = iterators.kind_of(
            self.iterator, self._captured, seeded=seeded, iterators=self.iterators
        )
        held, values = self.iterator if kind == iterators.SAVED else None, self._first
        if held is not None and self._captured.handles:
            pair = together(self.iterator, self._captured)
            kind = iterators.REPLAYED if pair is None else kind
            held, values = pair or (None, values)
        return kind, held, {f"{_ARRAYS}{index}": value for index, value in enumerate(values)}

    def before_first(self, target: Position, resumption: Resumption) -> None:
        """Prepare to read a batch of a ``fit`` that is passed over."""
        if target.data == iterators.SAVED and not self.pulled:
            self._mark = iterators.mark(self.iterator)
        first = self.iterators == 1 and not self.pulled
        if target.data == iterators.REPLAYED and first and self._captured.handles:
            self._assign(resumption.arrays())

    def rest(self, target: Position) -> None:
        """After the step that is undone: stop prefetching, which would change variables."""
        if target.data == iterators.SAVED and self._captured.handles:
            iterators.stop(self.iterator, self._mark)

    def come_to(self, target: Position, resumption: Resumption, *, same_end: bool) -> None:
        """Move to the next batch; Keras may use the iterator beyond the end of an epoch."""
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
        """Assign the variables of the dataset's functions, after all others."""
        if target.data == iterators.SAVED:
            self._assign(arrays)
        unread, self._fits.unread = self._fits.unread, []
        for each in unread:
            shared = self._shared_with(each)
            if not shared or shared - self.handles:
                self._fits.unread.append(each)

    def put_back(self) -> None:
        """Give the variables of the dataset's functions their values before the first batch."""
        if self.iterator is not None and self._first:
            iterators.stop(self.iterator, self._mark)
            self._captured.assign(self._first)

    def _assign(self, arrays: Mapping[str, Any]) -> None:
        values = [value for name, value in arrays.items() if name.startswith(_ARRAYS)]
        if values and self._captured.fit(values):
            self._captured.assign(values)
