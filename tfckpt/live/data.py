"""Training data: iterators that can be saved, and those that must be replayed.

TensorFlow saves an iterator with its shuffle buffer, but not the state of operations outside of it:
``tf.random`` operations, Python functions and generators, and variables, which are saved separately
(:mod:`tfckpt.live.data`). By default it refuses such a pipeline; Keras turns this
check off for its own pipelines over NumPy arrays, so it is requested explicitly here. The check
only sees operations that have run, so its answer is valid once a batch was taken.

A shuffle draws new seeds for every pass from a counter that all iterators of the dataset share.
Each iterator that is made counts one pass, except for a shuffle inside another shuffle or a repeat,
of which earlier passes are read again. Restoring an iterator whose shuffle was exhausted counts one
pass too many (tensorflow/core/kernels/data/shuffle_dataset_op.cc), which is corrected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import re
import time
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.core.inventory import Dataset
from tfckpt.live.by_tensorflow import restore_objects
from tfckpt.live.private import tf_data
from tfckpt.live.private.runtime import is_deterministic, operation, variable_dtype
from tfckpt.live.private.tensorflow import Trackable, as_iterator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# Operations with a state that TensorFlow never saves with an iterator.
_REFUSED = re.compile(
    r"Random(?!Dataset).*|TruncatedNormal|Multinomial|Rng.*|Stateful(?!PartitionedCall).*"
    r"|(Eager)?PyFunc"
)
RAN_OUT = (StopIteration, tf.errors.OutOfRangeError)
SAVED, COUNTED, REPLAYED = "saved", "counted", "replayed"
_SAMPLED = 4096  # numbers of a tensor, evenly spaced
_FAIL = tf.data.experimental.ExternalStatePolicy.FAIL.value
_IGNORE = tf.data.experimental.ExternalStatePolicy.IGNORE


def kind_of(iterator: Any, found: Captured, *, seeded: bool, passes: int = 1) -> str:
    """How to get back to the same batch: ``saved``, ``counted`` or ``replayed``.

    ``saved`` if the iterator can be saved; ``counted`` if a new one gives the same batches again;
    ``replayed`` if what it gives depends on more than that.
    """
    # A strategy's iterator cannot be inspected.
    if not isinstance(iterator, tf.data.Iterator) or not tf_data.shows_seeds():
        return REPLAYED
    dataset = tf_data.dataset_of(iterator)
    alone = passes == 1 and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    if _below_caches(dataset) or (seeded and not alone and not _one_pass(dataset)):
        return REPLAYED
    if (refusal := _refusal(iterator, found)) is None:
        return SAVED
    if not _draws_only(refusal, found):
        return REPLAYED
    if found.handles:
        return REPLAYED if found.stateful else SAVED
    options = dataset.options().experimental_external_state_policy
    return COUNTED if seeded or options != _IGNORE else SAVED


def _refusal(iterator: Any, found: Captured) -> str | None:
    """Why TensorFlow refuses to save an iterator, which it also logs; None if it saves it."""
    if any(map(_REFUSED.fullmatch, found.operations)):
        return ""
    try:
        tf.raw_ops.SerializeIterator(
            resource_handle=iterator._iterator_resource, external_state_policy=_FAIL
        )
    except tf.errors.OpError as error:
        return str(error.message)
    return None


def _draws_only(refusal: str, found: Captured) -> bool:
    """Whether TensorFlow refuses only because of random operations or variables."""
    operation = re.search(r"(\w+) is stateful", refusal)
    known = operation is None or operation[1] in found.operations
    others = ("PyFunc", "Generator", "Table")
    return known and not any(each in text for each in others for text in (refusal, *found.stateful))


def draws(iterator: Any, found: Captured, *, seeded: bool) -> bool:
    """Whether the dataset draws without a seed, so that another process gets another order.

    A shuffle inside a mapped function is not detected.
    """
    if not tf_data.shows_seeds() or (
        not seeded and kind_of(iterator, found, seeded=True) == COUNTED
    ):
        return True
    dataset = tf_data.dataset_of(iterator)
    return dataset is not None and any(unseeded for *_, unseeded in _shuffles(dataset))


def count_passes(
    dataset: Any,
    number: int,
    unread: int = 0,
    *,
    alternates: bool = False,
    batches: int | None = None,
) -> None:
    """Make a dataset draw as if it had been read so many times.

    Its shuffles count the iterators that are made of it, where each counts one pass; else, and to
    fill a cache that keeps an order, it is read: to its end, or so many batches. ``unread``
    iterators were made before the first that was read, and will be made again; of those that
    alternate, each second was not read.
    """
    if not isinstance(dataset, tf.data.Dataset):
        of_strategy = isinstance(dataset, tf.distribute.DistributedDataset)
        for _ in range(number if of_strategy else 0):
            iter(dataset)  # what is in it is not known; a shuffle counts each
        return
    shuffles = [each for each, *_ in _shuffles(dataset)]
    one_pass, kept = _one_pass(dataset), _below_caches(dataset)
    for _ in range(unread if number and kept and not {*map(id, shuffles)} - kept else 0):
        iter(dataset)  # only the cached order hangs on how many there are
    for count in range(number if shuffles or kept else 0):
        iterator = iter(dataset)
        if (not one_pass and not (alternates and count % 2)) or (kept and not count):
            pull(iterator, batches)
            if batches is not None:
                _wait_for_buffers(iterator)


def _wait_for_buffers(iterator: Any) -> None:
    """Wait until a pipeline has read ahead as far as it does in an evaluation, which draws, too."""
    before = None
    for _ in range(_TRIES):
        time.sleep(_PAUSE)
        try:
            now = tf.io.serialize_tensor(serialized(iterator._iterator_resource)).numpy()
        except tf.errors.OpError:  # unknown
            return
        if now == before:
            return
        before = now


def reads_again(dataset: Any) -> bool:
    """Whether :func:`count_passes` reads a dataset to make it draw as before."""
    if not isinstance(dataset, tf.data.Dataset):
        return False
    return not _one_pass(dataset) or bool(_below_caches(dataset))


def shuffles_twice(dataset: Any) -> bool:
    """Whether one shuffle is below another, so that what is read ahead draws at two places."""
    return len(list(_shuffles(dataset))) > 1


def counts_passes(dataset: Any) -> bool:
    """Whether the iterators that are made of a dataset are all that its later ones depend on."""
    return isinstance(dataset, tf.data.Dataset) and _one_pass(dataset)


def state_of(dataset: Any, found: Captured) -> set[int]:
    """Ids of what keeps state from iterator to iterator, and is not restored by counting these."""
    known = isinstance(dataset, tf.data.Dataset)
    shuffles = {id(each) for each, called, _ in _shuffles(dataset) if called} if known else set()
    return shuffles | set(map(id, found.handles))


def _below_caches(dataset: Any) -> set[int]:
    """Ids of the shuffles whose order a cache in memory holds, drawn in this process."""
    caches = (each for each in all_below(dataset) if tf_data.is_kept_in_memory(each))
    below = all_below(*(each for cache in caches for each in tf_data.inputs_of(cache)))
    return {id(each) for each in below if tf_data.seeds_of(each)}


def _one_pass(dataset: Any) -> bool:
    """Whether each new iterator counts exactly one pass of each shuffle."""
    return tf_data.shows_seeds() and not any(called for _, called, _ in _shuffles(dataset))


def _shuffles(dataset: Any) -> Iterator[tuple[Any, bool, bool]]:
    """Each shuffle, whether it is inside another or a repeat, and whether it has no seed."""
    pipeline = list(all_below(dataset))
    calling = [each for each in pipeline if tf_data.seeds_of(each) or tf_data.repeats(each)]
    inputs = (below for each in calling for below in tf_data.inputs_of(each))
    called = set(map(id, all_below(*inputs)))
    for each in pipeline:
        if (seeds := tf_data.seeds_of(each)) and tf_data.shuffles_each_time(each):
            yield each, id(each) in called, not any(map(int, seeds))


class DatasetsRead:
    """How often a program reads datasets that ``fit`` does not, from here on."""

    def __init__(
        self,
        counts: dict[int, tuple[Any, int]],
        own: Sequence[Any],
        reads_own: Callable[[Any], object],
    ) -> None:
        """``counts`` has the shuffles that were counted before.

        ``reads_own`` is called with one of ``own``, those of ``fit``, for each iterator of it.
        """
        self._counts, self._reads_own = counts, weakref.WeakMethod(reads_own)
        self._own = {id(each): one for one in reversed(own) for each in _drawing(one)}
        self.end = tf_data.on_each_iterator(self._note)

    def _note(self, dataset: Any) -> None:
        drawing = _drawing(dataset)
        for each in drawing:
            _, made = self._counts.get(id(each), (each, 0))
            self._counts[id(each)] = each, made + 1
        own = next((self._own[id(each)] for each in drawing if id(each) in self._own), None)
        if own is not None and (note := self._reads_own()) is not None:
            note(own)

    def made(self, dataset: Any) -> int | None:
        """The number of iterators; None if nothing depends on it, or ``fit`` makes them."""
        drawing = {id(each) for each in _drawing(dataset)}
        if not drawing or drawing & self._own.keys():
            return None
        return max(self._counts[each][1] if each in self._counts else 0 for each in drawing)

    def go_on(self, dataset: Any, number: int) -> None:
        """Make a dataset draw as after so many iterators."""
        if not 0 <= number <= _MOST_PASSES:
            raise ValueError(f"{number} iterators are too many")
        count_passes(dataset, number - (self.made(dataset) or 0))


def _drawing(dataset: Any) -> list[Any]:
    below = all_below(dataset) if tf_data.is_dataset(dataset) and tf_data.shows_seeds() else ()
    return [each for each in below if tf_data.seeds_of(each)]


def element_of(dataset: Any) -> str:
    """The dtypes and shapes of a batch, as a string to compare."""
    return str(tf.nest.map_structure(str, dataset.element_spec))


def content_of(dataset: Any) -> str:
    """A checksum of sampled numbers in the dataset's tensors; "" if it has none.

    Strings are ignored: file names may differ where the files do not.
    """
    checksum, found = 0, False
    for each in all_below(dataset) if tf_data.is_dataset(dataset) else ():
        for tensor in tf_data.tensors_of(each):
            if hasattr(tensor, "numpy") and tensor.dtype.is_numpy_compatible:
                array = np.asarray(tensor)  # without a copy
                if array.dtype.kind == "O" or not array.size:
                    continue
                indices = np.linspace(0, array.size - 1, _SAMPLED).astype(np.int64)
                sample = f"{array.dtype}{array.shape}".encode() + array.flat[indices].tobytes()
                checksum, found = zlib.crc32(sample, checksum), True
    return f"{checksum:08x}" if found else ""


def pull(iterator: Any, count: int | None) -> int:
    """Take and drop up to ``count`` batches, None for all; returns how many there were."""
    taken = 0
    with contextlib.suppress(*RAN_OUT):
        while count is None or taken < count:
            iterator.get_next()
            taken += 1
    return taken


class StoredState(tf.Module):  # type: ignore[misc]
    """The training state in a checkpoint besides the objects given to it."""

    def __init__(self, iterator: Any, arrays: Sequence[Any]) -> None:
        super().__init__()
        if iterator is not None:
            self.iterator = iterator
        for place, value in enumerate(arrays):
            setattr(self, f"array_{place}", tf.Variable(value, trainable=False))


def restore_iterator(prefix: str, key: str, iterator: Any) -> None:
    """Restore a new iterator from the state under a key, without counting another pass."""
    dataset, resource = tf_data.dataset_of(iterator), iterator._iterator_resource
    new = serialized(resource) if _one_pass(dataset) else None
    restore_objects(prefix, {key: SavedIterator(iterator)})
    if new is not None:
        with tf_data.unnoted():
            another = iter(dataset)._iterator_resource
        tf.raw_ops.DeserializeIterator(resource_handle=another, serialized=new)


def numbers_in(logs: Any) -> dict[str, float]:
    """The logs that are numbers."""
    found = {}
    for name, value in (logs or {}).items() if isinstance(logs, dict) else ():
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.kind in "fiu":
            found[str(name)] = float(array)
    return found


_MOST_PASSES = 1 << 20
_TRIES, _PAUSE = 100, 0.005
# These are stateful only through the functions that they call, or keep their state in the iterator;
# tables are only looked up.
_STATELESS = {
    *("Assert", "Case", "If", "PartitionedCall", "PrintV2", "StatefulPartitionedCall", "While"),
    *("LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2"),
}
_READ_ONLY = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"}


@dataclasses.dataclass(frozen=True)
class Captured:
    """The variables of a dataset's functions, in the order of the pipeline."""

    handles: tuple[Any, ...] = ()
    operations: frozenset[str] = frozenset()
    stateful: frozenset[str] = frozenset()
    races: bool = False

    def read(self) -> list[np.ndarray[Any, Any]]:
        """The values of the variables."""
        return [
            tf.raw_ops.ReadVariableOp(resource=each, dtype=variable_dtype(each)).numpy()
            for each in self.handles
        ]

    def assign(self, values: Sequence[Any]) -> None:
        """Assign values of the same shapes; no iterator may be prefetching."""
        for handle, value in zip(self.handles, values, strict=True):
            tensor = tf.constant(value, variable_dtype(handle))
            tf.raw_ops.AssignVariableOp(resource=handle, value=tensor)

    def fit(self, values: Sequence[Any]) -> bool:
        """Whether values have the same number and shapes as the variables."""
        shapes = [tuple(each.shape) for each in self.read()]
        return [np.shape(each) for each in values] == shapes


@as_iterator
class SavedIterator(Trackable):  # type: ignore[misc]
    """A trackable for an iterator that TensorFlow saves even if its functions have state.

    ``state`` is the serialized iterator, if it was taken already.
    """

    def __init__(self, iterator: Any, state: Any = None) -> None:
        self._resource = iterator._iterator_resource
        self._state = state

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {"_STATE": serialized(self._resource) if self._state is None else self._state}

    def _restore_from_tensors(self, tensors: Mapping[str, Any]) -> None:
        tf.raw_ops.DeserializeIterator(resource_handle=self._resource, serialized=tensors["_STATE"])


def serialized(resource: Any) -> Any:
    """The state of an iterator, ignoring state outside of it."""
    return tf.raw_ops.SerializeIterator(
        resource_handle=resource, external_state_policy=_IGNORE.value
    )


def captured(dataset: Any) -> Captured:
    """What the functions of a dataset and of its inputs capture and do."""
    handles: dict[int, Any] = {}
    all_operations: set[str] = set()
    races = False
    for each in all_below(dataset):
        for function in tf_data.functions_of(each):
            operations = set(_operations(function.graph))
            all_operations |= operations
            held = [one for one in function.captured_inputs if variable_dtype(one) is not None]
            handles.update((id(one), one) for one in held)
            parallel = any(one.startswith("Parallel") for one in operations)
            if (parallel or tf_data.calls_of(each) != 1) and not is_deterministic():
                races |= any(_keeps_state(one) and one not in _READ_ONLY for one in operations)
    stateful = frozenset(
        each for each in all_operations if _keeps_state(each) and not _of_a_variable(each)
    )
    return Captured(tuple(handles.values()), frozenset(all_operations), stateful, races)


def together(
    iterator: Any, found: Captured
) -> tuple[SavedIterator, list[np.ndarray[Any, Any]]] | None:
    """An iterator with the variable values for its next batch; None if they never stop changing.

    A prefetching pipeline pauses when its buffers are full.
    """
    values = found.read()
    for _ in range(_TRIES):
        state = serialized(iterator._iterator_resource)
        before, values = values, found.read()
        if all(map(np.array_equal, before, values)):
            return SavedIterator(iterator, state), values
    return None


def _operations(graph: Any) -> Iterator[str]:
    definition = graph.as_graph_def()
    for nodes in (definition.node, *(each.node_def for each in definition.library.function)):
        yield from (node.op for node in nodes)


def _keeps_state(name: str) -> bool:
    known = operation(name)
    is_stateful = known is not None and known.is_stateful
    return is_stateful and name not in _STATELESS and "Dataset" not in name


def _of_a_variable(name: str) -> bool:
    known = operation(name)
    return known is not None and any(each.name == "resource" for each in known.input_arg)


MOST_BYTES = 64 << 20  # a fingerprint copies data in memory: 1.5 s for 200 MiB
# Attributes of operations that are names, or the settings of a process.
_OF_A_PROCESS = frozenset(
    {"config", "config_proto", "container", "debug_name", "metadata", "shared_name", "token"}
)
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
    """A digest of operations and what they are given: TensorFlow's own is new in each call.

    Not of names and resources, which are new in each process.
    """
    if sum(map(_size, all_below(dataset))) > MOST_BYTES:
        return ""
    try:
        graph = tf_data.graph_of(dataset)
    except (AttributeError, tf.errors.OpError):  # an older TensorFlow, or too large
        return ""
    functions = {each.signature.name: each.node_def for each in graph.library.function}
    digest = hashlib.sha256()
    for part in _parts(graph.node, functions):
        digest.update(part)
    return digest.hexdigest()[:16]


def _parts(nodes: Sequence[Any], functions: dict[str, Any]) -> Iterator[bytes]:
    """Operations and attributes of a graph, and of each function where it is called first."""
    for node in nodes:
        yield f"{node.op} ".encode()
        for name, value in sorted(node.attr.items()):
            called = [*value.list.func, *([value.func] if value.HasField("func") else ())]
            for each in called:
                yield from _parts(functions.pop(each.name, ()), functions)
            resource = value.tensor.dtype == tf.resource.as_datatype_enum
            if not (called or resource or name in _OF_A_PROCESS or name.startswith("_")):
                yield f"{name} ".encode() + value.SerializeToString(deterministic=True)


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
