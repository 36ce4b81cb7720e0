"""The data of one ``fit``: the current iterator, its position, and how the next batch is reached.

An iterator that TensorFlow can save is saved and restored. Of any other one, so many batches are
read again from its own beginning, with Python's and NumPy's generators and the variables of its
functions as they were there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.live import data, generators
from tfckpt.live.data import Captured, captured, together
from tfckpt.live.private import fit, tf_data
from tfckpt.training import fit_checks
from tfckpt.training.callback_state import States
from tfckpt.training.position import of_the_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfckpt.training.fits import Fits
    from tfckpt.training.position import Position
    from tfckpt.training.resumption import Resumption

_ARRAYS = "data/"
_OF_PYTHON = ("python", "numpy")


class Data:
    """What the train function takes its batches from."""

    def __init__(self, model: Any, number: int, fits: Fits) -> None:
        self._model, self._number, self._fits = model, number, fits
        self.dataset = fit.dataset_of(model)
        self.goes_on = fit.goes_on(model)
        self.iterator: Any = None
        self.pulled = self._validated = 0
        self._between = True  # epochs
        self._read_beside = [0, 0]  # there, of the data and for validation
        known = tf_data.is_dataset(self.dataset)  # a strategy's is opaque
        self._captured = captured(self.dataset) if known else Captured()
        made_by = fit.batches_object_of(model)
        self.source = States([] if made_by is None else [made_by])
        self.source.begins()
        self._first: dict[str, Any] = {}  # state before the first batch of the iterator
        self._content: str | None = None
        fits.passes[number] = 0

    @property
    def passes(self) -> int:
        return self._fits.passes[self._number]

    @property
    def element(self) -> str:
        """Dtypes and shapes of a batch."""
        return "" if self.dataset is None else data.element_of(self.dataset)

    @property
    def content(self) -> str:
        """A checksum of some of its values."""
        if self._content is None:
            self._content = data.content_of(self.dataset)
        return self._content

    # A training

    def epoch_begins(self) -> None:
        """Keras makes an iterator now, unless the last one goes on."""
        self._between = False
        if not self._first or not (self.goes_on and self.iterator is not None):
            self._begins_pass()

    def _begins_pass(self) -> None:
        state = generators.take()
        self._first = {
            "generators": {name: state[name] for name in _OF_PYTHON if name in state},
            "source": self.source.collect()[:2],
            "values": self._captured.read(),
        }

    def takes(self, iterator: Any) -> None:
        """The iterator of the next call."""
        if iterator is not self.iterator:
            self.iterator, self.pulled = iterator, 0
            self._fits.passes[self._number] += 1

    def read_beside(self, dataset: Any) -> bool:
        """A callback makes an iterator of data of ``fit``; whether that can be made up for."""
        validates, counts = dataset is not self.dataset, data.counts_passes(dataset)
        if counts:
            self._read_beside[validates] += self._between
            self._validated += validates
            self._fits.passes[self._number] += not validates
        if validates or self.iterator is None:
            return counts
        return data.kind_of(self.iterator, self._captured, seeded=True) == data.SAVED

    def epoch_ended(self) -> None:
        """Keras 3 makes an iterator then, which the next epoch may take its batches from."""
        self._between, self._read_beside = True, [0, 0]
        following = fit.next_iterator_of(self._model)
        if following is not None and following is not self.iterator:
            if self.goes_on:
                self._begins_pass()
                self.takes(following)
            else:
                self._fits.passes[self._number] += 1

    def validated(self) -> None:
        """An evaluation ends."""
        self._validated += fit.iterators_of_evaluation(self._model)

    def state(self, *, ended: bool, seeded: bool) -> tuple[dict[str, Any], Any, dict[str, Any]]:
        """What a position records of it; an iterator to save; arrays."""
        kind, held, values = data.SAVED, None, self._captured.read()
        source, arrays = self.source.collect()[:2]
        first = self._first.get("generators", {})
        again, validated_again = self._read_beside  # `on_epoch_begin` does, once more
        if self.iterator is not None:
            kind = data.kind_of(self.iterator, self._captured, seeded=seeded, passes=self.passes)
        if self.pulled and (not ended or self.goes_on):
            if kind == data.SAVED:
                pair = together(self.iterator, self._captured) if self._captured.handles else None
                held, values = pair or (self.iterator, [])
                kind = data.REPLAYED if self._captured.handles and pair is None else kind
            if kind != data.SAVED:
                held, values = None, self._first["values"]
                source, arrays = self._first["source"]
        fields = {
            "passes": self.passes - again,
            "pulled": self.pulled,
            "goes_on": self.goes_on,
            "validated": self._validated - validated_again,
            "inferred_steps": fit.inferred_steps(self._model),
            "data": kind,
            "source": source,
            "element": self.element,
            "content": self.content,
            "first": first,
        }
        return fields, held, arrays | {f"{_ARRAYS}{n}": value for n, value in enumerate(values)}

    def warnings(self) -> Iterator[str]:
        """Why another process would not get the same batches again, or did not get them."""
        if self.iterator is None:
            return
        if any(map(self._shared_with, self._fits.unread)):
            yield fit_checks.UNREAD
        if fit.validation_goes_on(self._model):
            yield fit_checks.VALIDATION_GOES_ON
        yield from fit_checks.about_data(self.iterator, self._captured, self._model)
        yield from fit_checks.about_calls(self._captured)

    def _shared_with(self, unread: tuple[Any, Captured]) -> set[int]:
        """Ids of the state of another dataset that this one goes on with."""
        mine = data.state_of(self.dataset, self._captured)
        return mine & data.state_of(*unread)

    # Back to the saved position

    def skip(self, passes: list[int]) -> None:
        """Nothing is left to train; but another ``fit`` may go on with the same data."""
        for number in passes[self._number : self._number + 1]:
            if data.counts_passes(self.dataset):
                data.count_passes(self.dataset, number)
            self._fits.passes[self._number] = number
        if tf_data.is_dataset(self.dataset):
            self._fits.unread.append((self.dataset, captured(self.dataset)))

    def seek_epoch(self, position: Position) -> Iterator[str]:
        """Before Keras makes an iterator: count those that it had made; says what takes its time.

        Validation data whose draws cannot be counted are read as often and as far as before.
        """
        earlier = max(0, position.passes - position.in_iterator)
        all_read = fit.is_keras3(self._model) or self.goes_on  # tf_keras makes one before
        epochs = position.epoch + 1 - position.initial_epoch
        data.count_passes(
            self.dataset,
            earlier,
            unread=0 if all_read else 1,
            alternates=position.passes > epochs,  # Keras 3 makes one at the end of an epoch, too
        )
        self._fits.passes[self._number] = earlier
        self._validated = position.validated
        fit.set_inferred_steps(self._model, position.inferred_steps)
        dataset, steps = fit.validation_data_of(self._model), fit.validation_steps_of(self._model)
        if self._validated and data.reads_again(dataset):
            exact = steps is None or not data.shuffles_twice(dataset)
            yield fit_checks.about_validation(self._validated, steps, exact=exact)
        data.count_passes(dataset, self._validated, batches=steps)

    def restore(self, position: Position, arrays: Mapping[str, Any]) -> None:
        """Before Keras makes an iterator, after all other state is restored."""
        self.restore_source(position, arrays)
        self._values = [value for name, value in arrays.items() if name.startswith(_ARRAYS)]
        if not position.in_iterator:
            self._assign(self._values)
        elif position.data == data.REPLAYED:
            generators.put(position.first)
        self._forget_unread(position)

    def restore_source(self, position: Position, arrays: Mapping[str, Any]) -> None:
        """What makes the batches; at the end of an epoch as Keras leaves it after callbacks."""
        self.source.restore(position.source, arrays)
        if position.ended and not position.goes_on and not position.stopped:
            fit.end_epoch(self._model)

    def skip_batches(self, position: Position, resumption: Resumption, *, same_end: bool) -> None:
        """Move a new iterator to the next batch."""
        if not position.pulled:
            return
        skipped = 0 if position.ended else position.calls * position.steps_per_execution
        fit.count_steps_seen(self._model, position.pulled - skipped)
        if position.data == data.SAVED and same_end:
            resumption.restore_iterator(self.iterator)
            self._assign(self._values)
        else:
            if position.data != data.SAVED:
                self._assign(self._values)
                self._first["values"] = self._values
            missing = position.pulled - data.pull(self.iterator, position.pulled)
            if missing >= position.steps_per_execution:
                what = f"the dataset ends before batch {position.pulled}"
                raise of_the_data(what, restored=True)
        self._first["generators"] = position.first
        self.pulled = position.pulled

    def _assign(self, values: list[Any]) -> None:
        if values and self._captured.fit(values):
            self._captured.assign(values)

    def _forget_unread(self, position: Position) -> None:
        """State of a skipped dataset that this one has restored is not missing."""
        mine = {*map(id, self._captured.handles)} if position.data == data.SAVED else set()
        unread, self._fits.unread = self._fits.unread, []
        for each in unread:
            shared = self._shared_with(each)
            if not shared or shared - mine:
                self._fits.unread.append(each)
