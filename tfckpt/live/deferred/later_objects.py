"""Values that are created after a restore, next to Keras objects.

TensorFlow delays what does not belong to Keras: a ``tf.Module`` that creates its variables in its
first call, the slots of a ``tf.compat.v1.train`` optimizer. Each is bound to its stored values
wherever it hangs. An optimizer that a model is compiled with later is restored by name
(:mod:`tfckpt.live.deferred.optimizer_state`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.core.names import escaped
from tfckpt.live.deferred.may_come import is_tensor, restore_rest
from tfckpt.live.deferred.tf_bindings import bind_some
from tfckpt.live.io.local_copies import readable
from tfckpt.live.objects.collect import collect
from tfckpt.live.objects.thread_lock import live_objects
from tfckpt.live.private.tensorflow import restore_id, was_updated
from tfckpt.live.saving.save import synchronous
from tfckpt.live.variables.flavors import is_v1
from tfckpt.live.variables.variables import is_variable, raw
from tfckpt.planning import Status
from tfckpt.stored.graphs.keys import edges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.live.restoring.apply import Undo
    from tfckpt.live.restoring.restore import Prepared

    Found = dict[str, tuple[list[str], Any]]


class DeferredObjects:
    """What a restore has left to be restored later."""

    held: Collection[str] = ()
    stopped = False

    def __init__(
        self, prepared: Prepared, objects: Mapping[str, Any], options: Any, now: Callable[[], Live]
    ) -> None:
        """Before the restore is carried out; ``now`` returns the current values of the objects."""
        self._options, self._now = options, now
        graph = prepared.stored.graph
        self._wanted = {step.source.partition("/")[0] for step in _left_over(prepared)}
        self._wanted -= prepared.live.keras_roots | {"save_counter"}
        self.left_out = prepared.stored.inventory.left_out
        self._prefix = prepared.stored.prefix
        self._since = sys.maxsize  # TensorFlow's number of the first restore of these
        self._undone: list[Undo] = []
        self._restored: set[str] = set()
        self.objects = {n: obj for n, obj in objects.items() if graph and n in self._wanted}
        inner = _inner(prepared, objects) if graph else {}
        self._inner = {
            p: entry for p, entry in inner.items() if p.partition("/")[0] not in self.objects
        }

    def __bool__(self) -> bool:
        """Whether anything may be created later."""
        return bool(self.objects or self._inner)

    def waits_for(self, name: str) -> bool:
        """Whether the variable of a stored value may still be created."""
        return name in self.held or self._is_below(name)

    def bind(self, prepared: Prepared, saver: Any) -> Any:
        """Let TensorFlow restore the rest when it can; returns its status, or None.

        Called after the restore was carried out; ``saver`` is TensorFlow's ``TrackableSaver``.
        """
        if not self:
            return None
        live = prepared.live.variables
        given = (([keyword], obj) for keyword, obj in self.objects.items())
        steps = [s for s in prepared.plan.assignments if is_variable(live[s.name]) and is_tensor(s)]
        path = readable(self._prefix, without=[s.stored.key for s in steps if s.stored])
        stored = path, prepared.stored.values, synchronous(self._options)
        restored = [(edges(s.stored.key), raw(live[s.name])) for s in steps if s.stored]

        def read() -> Any:
            found = [*given, *self._inner.values()]
            bound = bind_some(saver, *stored, objects=found, variables=restored)
            return bound or self._read(self.objects)

        status = restore_rest(read, live, [step.name for step in steps])
        self._since = restore_id(status)
        return status

    def take(self, keyword: str, obj: Any) -> None:
        """Restore an object that was added to the checkpoint after the restore."""
        if keyword not in self._wanted or keyword in self.objects:
            return  # e.g. attributes that TensorFlow sets during a restore
        with live_objects():
            self._take(keyword, obj)

    def _take(self, keyword: str, obj: Any) -> None:
        if collect({keyword: obj}).keras_roots:
            logging.warning(
                "%s: '%s' was not restored: it is a Keras object that was added after the restore; "
                "call restore again",
                self._prefix,
                keyword,
            )
            return
        self.objects[keyword] = obj
        self._since = min(self._since, restore_id(self._read({keyword: obj})))

    def add(self, undo: Undo, names: Iterable[str]) -> None:
        """Note an optimizer that was restored later, from stored values of these names."""
        self._undone.append(undo)
        self._restored.update(names)

    def take_back(self) -> bool:
        """Restore nothing more and undo what was restored later; whether all of it was undone."""
        self._wanted, self.stopped = set(), True
        put_back = [undo.take_back() for undo in self._undone]  # every one, even if one fails
        return all(put_back)

    def created(self) -> set[str]:
        """The names of the values that were created and restored later."""
        created = {n: v for n, v in self._now().variables.items() if self._is_below(n)}
        inner = {name: raw(v) if is_variable(v) else v for name, v in created.items()}
        restored = {n for n, v in inner.items() if was_updated(v, self._since)}
        return restored | self._restored

    def _is_below(self, name: str) -> bool:
        above = (name[:at] for at, char in enumerate(name) if char == "/")
        return name.partition("/")[0] in self.objects or any(
            path in self._inner for path in ("", *above)
        )

    def _read(self, objects: Mapping[str, Any]) -> Any:
        return tf.train.Checkpoint(**objects).read(readable(self._prefix), self._options)


def _left_over(prepared: Prepared) -> list[Any]:
    return [step for step in prepared.plan.steps if not step.name]


def _inner(prepared: Prepared, objects: Mapping[str, Any]) -> Found:
    """Path of each plain object with unused stored values → its stored edges, and the object."""
    live, found = prepared.live, {}
    for step in _left_over(prepared):
        if step.status is not Status.UNEXPECTED or step.stored is None:
            continue
        parts = step.source.split("/")
        for depth in range(len(parts) - 1, -1, -1):
            path, below = "/".join(parts[:depth]), parts[depth:]
            if path not in live.plain:
                continue
            all_edges = edges(step.stored.key)
            stored_edges, rest = all_edges[: -len(below)], all_edges[-len(below) :]
            if [escaped(e).lstrip("_") for e in rest] == [part.lstrip("_") for part in below]:
                found[path] = stored_edges, live.plain[path]
            break
    tops = {step.source.partition("/")[0] for step in _left_over(prepared)}
    for keyword, obj in objects.items():
        component = live.roots[keyword].component if keyword in live.roots else keyword
        if is_v1(obj) and component in tops:
            found[component] = [keyword], obj
    return found
