"""Restores an optimizer that a model is compiled with after its restore.

TensorFlow waits for an object to be attached to a restored one
(``Trackable._deferred_dependencies``), and then restores it by position. Here that only serves as
the notification; the optimizer is restored by name, as if it had existed from the start.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import logging

from tfckpt.core.names import MODEL, OPTIMIZER
from tfckpt.core.text import listed, one_line
from tfckpt.errors import CheckpointError, RefusedError, RestoreError
from tfckpt.live.private.tensorflow import deferred, uid, update_id, waits
from tfckpt.planning import Status
from tfckpt.stored.bundles.bundle import Bundle
from tfckpt.stored.graphs.keys import OBJECT_GRAPH, object_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tfckpt.live.restoring.restore import Prepared

    Restore = Callable[[str], set[str] | None]

_HINT = "To restore all of it, compile the model before the restore, as it was when saved"


class HeldOptimizer(NamedTuple):
    """An optimizer that only the checkpoint has, and the model attribute where it may appear."""

    path: str
    model: Any
    edge: str
    names: set[str]


def optimizers_to_come(prepared: Prepared) -> list[HeldOptimizer]:
    """The optimizers that only the checkpoint has, each as an attribute of a restored model.

    An optimizer that was saved under its own keyword does not belong to the model.
    """
    live, stored = prepared.live, prepared.stored.inventory
    unused = {s.source for s in prepared.plan.steps if s.status is Status.UNEXPECTED}
    found, attributes = [], None
    for path in stored.optimizers.keys() - live.optimizers.keys():
        names = {name for name in unused if name.startswith(f"{path}/")}
        component, _, edge = (f"{MODEL}/{path}" if path == OPTIMIZER else path).partition("/")
        model = live.models.get(component)
        if model is None or not names or not edge.isidentifier():
            continue
        if attributes is None and prepared.stored.graph:
            attributes = _attributes_of_models(prepared)
        keys = {stored.entries[name].key for name in names}
        if attributes is None or keys & attributes.get((component, edge), set()):
            found.append(HeldOptimizer(path, model, edge, names))
    return found


def _attributes_of_models(prepared: Prepared) -> dict[tuple[str, str], set[str]]:
    """First component of a live model's names, stored attribute → the keys of its own values."""
    values = prepared.stored.values
    if not isinstance(values, Bundle) or OBJECT_GRAPH in values.lost:
        return {}
    nodes = object_graph(values).nodes
    keyword_nodes = {child.local_name: child.node_id for child in nodes[0].children} | {"": 0}
    keywords = {
        root.component: keyword
        for side in (prepared.live, prepared.stored.inventory)
        for keyword, root in side.roots.items()
        if keyword in keyword_nodes
    }
    return {
        (component, attribute.local_name): {
            value.checkpoint_key
            for child in nodes[attribute.node_id].children
            for value in nodes[child.node_id].attributes
        }
        for component, keyword in keywords.items()
        for attribute in nodes[keyword_nodes[keyword]].children
    }


def hold_optimizers(
    prepared: Prepared, held: Sequence[HeldOptimizer], restore: Restore
) -> set[str]:
    """Wait for optimizers; returns the names of their values.

    Replaces what an earlier restore waits for on the same models. ``restore`` takes the path of an
    optimizer that exists by then, and returns the names that it restored, or None if the restore
    was undone.
    """
    for model in prepared.live.models.values() if waits() else ():
        for edge, waiting in list(deferred(model).items()):
            if any(isinstance(waiter, _Waiting) for waiter in waiting):
                del deferred(model)[edge]
    for path, model, edge, names in held:
        deferred(model)[edge] = [_Waiting(model, edge, path, names, restore)]
    return {name for each in held for name in each.names}


class _Waiting:
    """Stands in for a ``CheckpointPosition``; TensorFlow calls it when the object is attached."""

    def __init__(
        self, model: Any, edge: str, path: str, names: Collection[str], restore: Restore
    ) -> None:
        self.checkpoint = self
        self.restore_uid = uid()
        self._model, self._edge, self._path = model, edge, path
        self._names, self._restore = names, restore

    def is_simple_variable(self) -> bool:
        return False

    def restore(self, optimizer: Any, reader: Any = None) -> None:
        """Restore the optimizer, before its first use."""
        if update_id(optimizer) > self.restore_uid:  # restored since, from another checkpoint
            return
        try:
            with _attached(self._model, self._edge, optimizer):
                restored = self._restore(self._path)
        except (CheckpointError, RestoreError) as error:
            plan = error.plan if isinstance(error, RefusedError) else None
            reason = plan.errors[0].reason if plan is not None and plan.errors else str(error)
            logging.warning(
                "%s was not restored and starts from scratch: %s. %s",
                self._path,
                one_line(reason),
                _HINT,
            )
            return
        # Keras 3 wraps it into a loss-scale optimizer later; that one is not waited for.
        missing = sorted(set(self._names) - restored) if restored is not None else []
        if missing:
            text = f"{len(missing)} values were not restored: {listed(missing)}"
            logging.warning("%s: %s. %s", self._path, text, _HINT)


@contextlib.contextmanager
def _attached(model: Any, edge: str, optimizer: Any) -> Iterator[None]:
    """Set the attribute temporarily: Keras sets it only after TensorFlow's restore."""
    attributes = vars(model)
    before = {edge: attributes[edge]} if edge in attributes else {}
    attributes[edge] = optimizer
    try:
        yield
    finally:
        del attributes[edge]
        attributes.update(before)
