"""What is known of the data set of an iterator: enough to tell another one.

TensorFlow restores an iterator's place into any pipeline whose operations have the same names. Its
fingerprint of a data set is of all that the pipeline is made of, functions and data in memory
included, and the same in every process; contents of files are no part of it. It may be another one
whenever the same pipeline is made where one of three operations is in it: a cache in memory, a
snapshot, and random numbers that each iteration draws anew.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Dataset

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
    pipeline = list(all_below(dataset))
    if any(map(_is_new_each_time, pipeline)) or sum(map(_size, pipeline)) > MOST_BYTES:
        return ""
    try:
        return str(int(dataset.fingerprint()))
    except (AttributeError, NotImplementedError, tf.errors.OpError):  # of an older TensorFlow
        return ""


def _is_new_each_time(dataset: Any) -> bool:
    """Whether TensorFlow may give it another fingerprint whenever it is made."""
    name = type(dataset).__name__
    in_memory = name == "CacheDataset" and not dataset._filename.numpy()
    return in_memory or name == "_SnapshotDataset" or bool(getattr(dataset, "_rerandomize", False))


def _size(dataset: Any) -> int:
    """The bytes of the tensors that a data set itself is made from."""
    tensors = (each for each in getattr(dataset, "_tensors", ()) if isinstance(each, tf.Tensor))
    return sum(math.prod(each.shape) * each.dtype.size for each in tensors)


def all_below(*datasets: Any) -> Iterator[Any]:
    """Data sets and all that they take from, each once."""
    waiting, seen = list(datasets), set[int]()
    while waiting:
        dataset = waiting.pop()
        if id(dataset) not in seen:
            seen.add(id(dataset))
            yield dataset
            waiting += dataset._inputs()
