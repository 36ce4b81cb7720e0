"""The parts of tf.data's datasets and iterators: what is in a pipeline, and what it draws from.

Seen in TensorFlow 2.16 to 2.21. ``shows_seeds`` tries them on a small dataset: where it fails, what
a dataset draws from is unknown, and it counts as one that must be replayed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

with needed("tensorflow"):
    from tensorflow.python.data.ops import iterator_ops


def dataset_of(iterator: Any) -> Any:
    """The dataset of an iterator; None for a strategy's, or one made inside a function."""
    return getattr(iterator, "_dataset", None)


def is_dataset(obj: Any) -> bool:
    """Whether it is a dataset; a strategy's, which cannot be inspected, does not count."""
    return isinstance(obj, tf.data.Dataset)


def is_iterator(obj: Any) -> bool:
    return isinstance(obj, tf.data.Iterator)


def is_module(obj: Any) -> bool:
    return isinstance(obj, tf.Module)


def is_eager_tensor(obj: Any) -> bool:
    return isinstance(obj, tf.Tensor) and hasattr(obj, "numpy")


def as_tensor(array: Any) -> Any:
    return tf.constant(array)


def inputs_of(dataset: Any) -> Sequence[Any]:
    """The datasets that a dataset reads."""
    found: Sequence[Any] = dataset._inputs()
    return found


def functions_of(dataset: Any) -> Sequence[Any]:
    """The traced functions that a dataset calls, each as ``function`` of a wrapper."""
    return [each.function for each in dataset._functions()]


def tensors_of(dataset: Any) -> Sequence[Any]:
    """The tensors that a dataset holds itself; none where that is unknown."""
    found: Sequence[Any] = getattr(dataset, "_tensors", ())
    return found


def calls_of(dataset: Any) -> int:
    """How many calls of its function a dataset runs at once: 1 one after the other."""
    unknown = 2 if "Parallel" in type(dataset).__name__ else 1
    calls = getattr(dataset, "_num_parallel_calls", unknown)
    return 1 if calls is None else int(calls)


def graph_of(dataset: Any) -> Any:
    """The graph that makes a dataset, without a state outside of it."""
    ignore = tf.data.experimental.ExternalStatePolicy.IGNORE.value
    text = tf.raw_ops.DatasetToGraphV2(
        input_dataset=dataset._variant_tensor, external_state_policy=ignore
    )
    return tf.compat.v1.GraphDef.FromString(text.numpy())


def is_kept_in_memory(dataset: Any) -> bool:
    """Whether it is a cache in memory, which each process fills itself."""
    if type(dataset).__name__ != "CacheDataset":
        return False
    file = getattr(dataset, "_filename", None)  # "" for a cache in memory
    return file is None or not file.numpy()


def repeats(dataset: Any) -> bool:
    return type(dataset).__name__ == "_RepeatDataset"


def seeds_of(dataset: Any) -> list[Any]:
    """The two seeds of a shuffle; empty for other datasets."""
    seeds = [getattr(dataset, name, None) for name in ("_seed", "_seed2")]
    return [] if None in seeds else seeds


def shuffles_each_time(dataset: Any) -> bool:
    """Whether a shuffle draws another order for each iterator."""
    return bool(getattr(dataset, "_reshuffle_each_iteration", True))


_noted: dict[Any, Any] = {}  # who notes each iterator, while somebody does → nothing
_begun: list[Any] = []  # how an iterator begins without them
_noting = threading.local()


def on_each_iterator(note: Callable[[Any], object]) -> Callable[[], None]:
    """Have a method called with the dataset of each iterator; returns what ends that."""
    weak = weakref.WeakMethod(note, _forget)
    if not _begun:
        _begun.append(iterator_ops.OwnedIterator.__init__)
        iterator_ops.OwnedIterator.__init__ = _begin
    _noted[weak] = None
    return functools.partial(_forget, weak)


def _begin(self: Any, dataset: Any = None, *args: Any, **more: Any) -> None:
    _begun[0](self, dataset, *args, **more)
    if dataset is None or getattr(_noting, "on", False):
        return  # one that is made while another is noted is not the program's
    with unnoted():
        for note in filter(None, [weak() for weak in [*_noted]]):
            note(dataset)


@contextlib.contextmanager
def unnoted() -> Iterator[None]:
    """Iterators that are made inside the block are not the program's."""
    _noting.on = True
    try:
        yield
    finally:
        _noting.on = False


def _forget(weak: Any) -> None:
    _noted.pop(weak, None)
    if not _noted and iterator_ops.OwnedIterator.__init__ is _begin:  # else another one calls it
        iterator_ops.OwnedIterator.__init__ = _begun.pop()


@functools.cache
def shows_seeds() -> bool:
    """Whether iterators show their datasets, and datasets their inputs and seeds; tried once."""
    source = tf.data.Dataset.range(2)
    once = source.shuffle(2, seed=7, reshuffle_each_iteration=False)
    shuffled, repeated = once.shuffle(2, seed=7), once.repeat(2)
    return (
        dataset_of(iter(shuffled)) is shuffled
        and list(inputs_of(shuffled)) == [once]
        and not seeds_of(source)
        and any(map(int, seeds_of(shuffled)))
        and shuffles_each_time(shuffled)
        and not shuffles_each_time(once)
        and repeats(repeated)
    )
