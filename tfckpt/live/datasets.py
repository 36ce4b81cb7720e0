"""What is known of the data set of an iterator: enough to tell another one.

TensorFlow restores an iterator's place into any pipeline whose operations have the same names. Its
fingerprint of a data set is of all that the pipeline is made of, functions and data in memory
included, and the same in every process; contents of files are no part of it.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.records import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 64 << 20  # of data in memory, which a fingerprint copies: 1.5 s for 200 MiB
_known: weakref.WeakKeyDictionary[Any, Dataset] = weakref.WeakKeyDictionary()


def dataset_of(iterator: Any) -> Dataset | None:
    """What is known of the data set, None for an iterator that has none."""
    dataset = getattr(iterator, "_dataset", None)
    if dataset is None:
        return None
    if dataset not in _known:
        elements = str(tf.nest.map_structure(str, iterator.element_spec))
        _known[dataset] = Dataset(elements, int(dataset.cardinality()), _fingerprint(dataset))
    return _known[dataset]


def _fingerprint(dataset: Any) -> str:
    if sum(_sizes(dataset)) > MOST_BYTES:
        return ""
    try:
        return str(int(dataset.fingerprint()))
    except (AttributeError, NotImplementedError, tf.errors.OpError):  # of an older TensorFlow
        return ""


def _sizes(dataset: Any) -> Iterator[int]:
    """The bytes of the tensors that a data set, or one below it, is made from."""
    for tensor in getattr(dataset, "_tensors", ()):
        if isinstance(tensor, tf.Tensor):
            yield math.prod(tensor.shape) * tensor.dtype.size
    for below in dataset._inputs():
        yield from _sizes(below)
