"""What lookup layers look up, and bins of Discretization, as values that are saved and compared.

Neither Keras keeps a vocabulary in a variable: it is in a table without a state, made anew with
``set_vocabulary`` and ``adapt`` (index_lookup.py of both), so that TensorFlow's checkpoints and
``.weights.h5`` have none. tfckpt saves it under its extra child. A layer that has words keeps
those, whoever calls it; one that has none yet takes those that are stored. Bins that tf_keras makes
from a variable of the layer come with that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.core.inventory import Entry, Role
from tfckpt.live.variables.variables import Trackable
from tfckpt.stored.bundles.writing.shard import index_checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.live.variables.flavours import Flavour


VARIABLE_VALUE = "VARIABLE_VALUE"


class LayerVocabulary(Trackable):  # type: ignore[misc]
    """The words of a lookup layer, without mask and OOV, as what a variable is to a checkpoint."""

    name = "vocabulary"

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._before: list[dict[str, Any]] = []
        self._read: tuple[Any, np.ndarray] | None = None

    @property
    def _value(self) -> LayerVocabulary:
        return self

    @property
    def dtype(self) -> Any:
        return tf.as_dtype(self._layer.vocabulary_dtype)

    @property
    def shape(self) -> Any:
        return tf.TensorShape(self.numpy().shape)

    def entry(self, name: str) -> Entry:
        """What an inventory says of it: with the checksum that the index would have."""
        words = self.numpy()
        return Entry(
            name, Role.VOCABULARY, self.dtype.name, words.shape, crc32c=index_checksum(words)
        )

    def numpy(self) -> np.ndarray:
        """The words in their order; strings as bytes."""
        layer, dtype = self._layer, self.dtype.as_numpy_dtype
        table = layer.lookup_table
        if int(table.size()) == 0:
            return np.empty(0, dtype)
        if self._read is None or self._read[0] is not table:  # it never changes
            keys, values = (each.numpy() for each in table.export())
            words, places = (values, keys) if layer.invert else (keys, values)
            self._read = table, np.asarray(words[np.argsort(places)], dtype)
        return self._read[1]

    def read_value(self) -> Any:
        return tf.constant(self.numpy(), self.dtype)

    def assign(self, value: Any) -> None:
        """Give them to a layer that has none; or take back what was given.

        Raises:
            ValueError: it has others, or does not take these.
        """
        new, now = np.asarray(value), self.numpy()
        if np.array_equal(new, now):
            return
        if not new.size and self._before:
            self._take_back()
            return
        if now.size:
            raise ValueError("the layer already has other words, or another order of them")
        self._before.append({name: getattr(self._layer, name) for name in self._attributes()})
        try:
            self._fill(new)
        except (ValueError, RuntimeError) as error:
            self._take_back()
            raise ValueError(str(error)) from error

    def _take_back(self) -> None:
        for name, before in self._before.pop().items():
            setattr(self._layer, name, before)

    def _attributes(self) -> tuple[str, ...]:
        return ("lookup_table", "_frozen_vocab_size")

    def _fill(self, words: np.ndarray) -> None:
        layer = self._layer
        count = len(words) + layer._token_start_index()
        if layer.max_tokens is not None and count > layer.max_tokens:
            raise ValueError(f"{count} words, but max_tokens is {layer.max_tokens}")
        if layer.output_mode == "tf_idf":
            raise ValueError(
                "with output_mode='tf_idf' a vocabulary needs its weights: call "
                "set_vocabulary(words, idf_weights) before restoring"
            )
        layer.lookup_table = layer._lookup_table_from_tokens(tf.constant(words, self.dtype))
        layer._record_vocabulary_size()

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {VARIABLE_VALUE: self.read_value()}


class Bins(LayerVocabulary):
    """The boundaries of a Discretization layer."""

    name = "bin_boundaries"

    @property
    def dtype(self) -> Any:
        return tf.float64

    def numpy(self) -> np.ndarray:
        found = self._layer.bin_boundaries
        return np.asarray([] if found is None else found, np.float64)

    def _attributes(self) -> tuple[str, ...]:
        return ("bin_boundaries",)

    def _fill(self, words: np.ndarray) -> None:
        self._layer.bin_boundaries = words.tolist()


def vocabularies(layer: Any, flavour: Flavour) -> Iterator[LayerVocabulary]:
    """What a layer looks up, where no variable of its tells."""
    if not tf.executing_eagerly():
        return
    if isinstance(layer, flavour.lookups):
        words = LayerVocabulary(layer)
        try:
            words.numpy()
        except (AttributeError, NotImplementedError, tf.errors.OpError):
            return  # a table elsewhere, which cannot be read, is no reason not to save the rest
        yield words
    elif isinstance(layer, flavour.bins) and not (flavour.saves_bins and layer.num_bins):
        yield Bins(layer)
