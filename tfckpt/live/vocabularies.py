"""Vocabularies of lookup layers and bins of Discretization, as values to save and compare.

Neither Keras flavor keeps a vocabulary in a variable: it is in a stateless table, rebuilt by
``set_vocabulary`` and ``adapt`` (index_lookup.py of both), so TensorFlow's checkpoints and
``.weights.h5`` do not contain it. tfckpt saves it under its extra child. A layer that has a
vocabulary keeps it; one that has none takes the stored one. Bins that tf_keras derives from a
variable of the layer are restored with that variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from tfckpt.core.inventory import Entry, Role
from tfckpt.live.private.either_keras import (
    VOCABULARY_ATTRIBUTES,
)
from tfckpt.live.private.tensorflow import Trackable
from tfckpt.live.variables import is_variable, parts, raw
from tfckpt.stored.bundles.write import index_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfckpt.live.flavors import Flavor

VARIABLE_VALUE = "VARIABLE_VALUE"


class LayerVocabulary(Trackable):  # type: ignore[misc]
    """The vocabulary of a lookup layer, without mask and OOV tokens, in the role of a variable."""

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
        """The inventory entry, with the checksum that the index would have."""
        words = self.numpy()
        return Entry(
            name, Role.VOCABULARY, self.dtype.name, words.shape, crc32c=index_checksum(words)
        )

    def numpy(self) -> np.ndarray:
        """The vocabulary in order; strings as bytes."""
        layer, dtype = self._layer, self.dtype.as_numpy_dtype
        table = layer.lookup_table
        if int(table.size()) == 0:
            return np.empty(0, dtype)
        if self._read is None or self._read[0] is not table:  # it never changes
            keys, values = (each.numpy() for each in table.export())
            words, indices = (values, keys) if layer.invert else (keys, values)
            self._read = table, np.asarray(words[np.argsort(indices)], dtype)
        return self._read[1]

    def read_value(self) -> Any:
        return tf.constant(self.numpy(), self.dtype)

    def assign(self, value: Any) -> None:
        """Set the vocabulary of a layer that has none; an empty value undoes that."""
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
        return VOCABULARY_ATTRIBUTES

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


def vocabularies(layer: Any, flavor: Flavor) -> Iterator[LayerVocabulary]:
    """The vocabulary or bins of a layer, unless a variable holds them."""
    if not tf.executing_eagerly():
        return
    if isinstance(layer, flavor.lookups):
        words = LayerVocabulary(layer)
        try:
            words.numpy()
        except (AttributeError, NotImplementedError, tf.errors.OpError):
            return  # a remote table that cannot be read must not block the save
        yield words
    elif isinstance(layer, flavor.bins) and not (flavor.saves_bins and layer.num_bins):
        yield Bins(layer)


def derives(layer: Any, flavor: Flavor) -> bool:
    """Whether a layer caches values derived from its variables."""
    return _finalizes(layer, flavor) or _loads_itself(layer)


def derive_again(layers: Iterable[Any], models: Iterable[Any]) -> None:
    """Have layers recompute derived values, and models drop functions traced with old ones."""
    found = False
    for layer in layers:
        found = True
        _derive_again(layer)
    if found:
        for model in models:
            model.predict_function = model.test_function = None


def _derive_again(layer: Any) -> None:
    """Recompute; a layer may fail to load what it saves, as one that reads an older format."""
    held = [part for v in filter(is_variable, layer.variables) for part in parts(raw(v))]
    restored = [part.read_value() for part in held]
    try:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()
        if not _loads_itself(layer):
            return
        values: dict[str, Any] = {}
        layer.save_own_variables(values)
        layer.load_own_variables(values)
    except Exception as error:
        logging.warning(
            "the variables of the layer %r were restored, but what it computes from them may be "
            "out of date, because its own loading raised %s: %s",
            layer.name,
            type(error).__name__,
            error,
        )
    for part, value in zip(held, restored, strict=True):
        part.assign(value)


def _finalizes(layer: Any, flavor: Flavor) -> bool:
    own = getattr(type(layer), "finalize_state", None)
    return own is not None and own is not getattr(flavor.layer, "finalize_state", None)


def _loads_itself(layer: Any) -> bool:
    """Whether a user class overrides ``load_own_variables``."""
    cls: Any = type(layer)
    owner = next(c for c in cls.__mro__ if "load_own_variables" in vars(c))
    return owner.__module__.partition(".")[0] not in {"keras", "tf_keras"}
