"""The variables that the functions of a data pipeline read and write.

An augmentation layer keeps its seed in one, ``tf.random.Generator`` its state; the functions
capture only handles. TensorFlow refuses to save such an iterator, because pipelines prefetch: the
variables have values for batches that the training has not seen yet. An iterator pauses while it is
serialized, so variables with equal values before and after belong to the serialized state.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.live.objects.datasets import all_below
from tfckpt.live.private import tf_data
from tfckpt.live.private.runtime import is_deterministic, operation, variable_dtype
from tfckpt.live.private.tensorflow import Trackable, as_iterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_IGNORE = tf.data.experimental.ExternalStatePolicy.IGNORE.value
_TRIES = 100
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
        self._resource = tf_data.resource_of(iterator)
        self._state = state

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {"_STATE": serialized(self._resource) if self._state is None else self._state}

    def _restore_from_tensors(self, tensors: Mapping[str, Any]) -> None:
        tf.raw_ops.DeserializeIterator(resource_handle=self._resource, serialized=tensors["_STATE"])


def serialized(resource: Any) -> Any:
    """The state of an iterator, ignoring state outside of it."""
    return tf.raw_ops.SerializeIterator(resource_handle=resource, external_state_policy=_IGNORE)


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
        state = serialized(tf_data.resource_of(iterator))
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
