"""Describes the dataset of an iterator well enough to detect another one.

TensorFlow restores an iterator's position into any pipeline whose operations have the same names.
Its fingerprint of a dataset covers the whole pipeline, including functions and data in memory but
not the contents of files, and is the same in every process. It may differ each time the same
pipeline is built if it holds a cache in memory, a snapshot, or random numbers that each iteration
draws again.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Dataset
from tfckpt.live.private import tf_data

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 64 << 20  # a fingerprint copies data in memory: 1.5 s for 200 MiB
_known: weakref.WeakKeyDictionary[Any, Dataset] = weakref.WeakKeyDictionary()


def dataset_of(iterator: Any) -> Dataset | None:
    """The description of an iterator's dataset; None if it has none."""
    dataset = tf_data.dataset_of(iterator)
    if dataset is None:
        return None
    if dataset not in _known:
        elements = str(tf.nest.map_structure(str, iterator.element_spec))
        _known[dataset] = Dataset(elements, int(dataset.cardinality()), _fingerprint(dataset))
    return _known[dataset]


def _fingerprint(dataset: Any) -> str:
    pipeline = list(all_below(dataset))
    if any(map(tf_data.is_new_each_time, pipeline)) or sum(map(_size, pipeline)) > MOST_BYTES:
        return ""
    try:
        return str(int(dataset.fingerprint()))
    except (AttributeError, NotImplementedError, tf.errors.OpError):  # an older TensorFlow
        return ""


def _size(dataset: Any) -> int:
    """The bytes of the tensors that a dataset holds itself."""
    tensors = (each for each in tf_data.tensors_of(dataset) if isinstance(each, tf.Tensor))
    return sum(math.prod(each.shape) * each.dtype.size for each in tensors)


def all_below(*datasets: Any) -> Iterator[Any]:
    """Datasets and all their inputs, recursively, each once."""
    waiting, seen = list(datasets), set[int]()
    while waiting:
        dataset = waiting.pop()
        if id(dataset) not in seen:
            seen.add(id(dataset))
            yield dataset
            waiting += tf_data.inputs_of(dataset)
