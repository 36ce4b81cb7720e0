"""What only TensorFlow can restore, left to TensorFlow.

Iterators, lookup tables and other trackables that are no variables are restored by their own
methods, each alone, through a chain of empty checkpoints that spells its path in the stored graph.
Plain trackables some of whose variables may come to exist later are given to TensorFlow's delayed
restoration as a whole; a Keras object never is.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.live.aliases import readable
from tfckpt.live.inventory import collect
from tfckpt.live.turns import live_objects
from tfckpt.live.variables import is_variable, raw
from tfckpt.planning import Status
from tfckpt.records import Role
from tfckpt.stored.graphs.keys import edges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from tfckpt.live.apply import Undo
    from tfckpt.live.inventory import Live
    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Step


def restore_objects(prefix: str, objects: Mapping[str, Any]) -> None:
    """Restore each object from the place that its key names.

    Args:
        prefix: of the checkpoint.
        objects: checkpoint key → live object.
    """
    for key, obj in objects.items():
        chain = obj
        for edge in reversed(edges(key)):
            holder = tf.train.Checkpoint()
            setattr(holder, edge, chain)
            chain = holder
        chain.read(readable(prefix)).assert_existing_objects_matched().expect_partial()


@contextlib.contextmanager
def put_back_on_failure(objects: Iterable[Any]) -> Iterator[None]:
    """Where something inside fails, each object has the state again that it has now.

    An iterator that refuses a state is at its end afterwards.
    """
    before = [_what_puts_back(obj) for obj in objects]
    try:
        yield
    except BaseException:
        for put_back in before:
            put_back()
        raise


def _what_puts_back(obj: Any) -> Callable[[], object]:
    """Does nothing for an object whose state cannot be saved."""
    try:
        state = obj._serialize_to_tensors()
    except Exception:  # whatever a class of the user's raises
        return lambda: None
    return partial(obj._restore_from_tensors, state)


def may_come(prepared: Prepared, objects: Mapping[str, Any], root: Any) -> bool:
    """Whether TensorFlow may find a value where no name matches.

    It may where an object given has no variable yet for a value that is stored below its keyword.
    """
    if nothing_here(prepared):
        return True
    given = {*objects, *(tf.train.TrackableView.children(root) if root is not None else ())}
    return any(
        step.source.partition("/")[0] in given for step in prepared.plan.steps if not step.name
    )


def nothing_left(prepared: Prepared) -> bool:
    """Whether every stored value is for a variable of its own that exists: none can come later."""
    steps, variables = prepared.plan.steps, prepared.live.variables
    sources = {step.source for step in steps}
    return len(sources) == len(steps) == len(variables) and all(
        step.status is Status.LOADED and is_variable(variables[step.name]) and is_tensor(step)
        for step in steps
    )


def is_tensor(step: Step) -> bool:
    """Whether what is stored is a tensor; what an object or its saver wrote, TensorFlow reads."""
    return step.stored is None or step.stored.shape is not None


def nothing_here(prepared: Prepared) -> bool:
    """Whether there is no variable yet."""
    return not prepared.live.variables.keys() - {"save_counter"}


def nothing_at_all(prepared: Prepared) -> bool:
    """Whether there is no variable, and the checkpoint has no value that one could be given."""
    left = any(step.status is Status.UNEXPECTED for step in prepared.plan.steps)
    return prepared.stored.graph and nothing_here(prepared) and not left


def came_since(before: Live, now: Live) -> list[str]:
    """The values that objects have now and had not then."""
    known = {id(variable) for variable in before.variables.values()}
    found = (name for name, variable in now.variables.items() if id(variable) not in known)
    roles = {name: entry.role for name, entry in now.inventory.entries.items()}
    return [name for name in found if name != "save_counter" and roles[name] != Role.VOCABULARY]


def restore_rest(read: Callable[[], Any], live: Mapping[str, Any], restored: Iterable[str]) -> Any:
    """What TensorFlow restores now and later, past the variables that have their values already.

    It passes over an object with a higher ``_update_uid`` than its own
    (tensorflow/python/checkpoint/restore.py), and takes one with that very number for restored.

    Args:
        read: calls TensorFlow.
        live: canonical name → variable or other trackable.
        restored: the names of those variables.
    """
    inner = [raw(live[name]) for name in restored]
    for variable in inner:  # a slot may never have been asked for its parts
        variable._maybe_initialize_trackable()
    before = [variable._update_uid for variable in inner]
    for variable in inner:
        variable._update_uid = sys.maxsize
    try:
        with put_back_on_failure(obj for obj in live.values() if not is_variable(obj)):
            status = read()
        after = [status._checkpoint.restore_uid] * len(inner)
    except BaseException:
        after = before
        raise
    finally:
        for variable, uid in zip(inner, after, strict=True):
            variable._update_uid = uid
    return status


class Late:
    """What is restored later, beside Keras objects.

    Attributes:
        objects: keyword → plain trackable for which the checkpoint has values that it has no
            variables for yet, those given and those that came since.
        held: the names of stored values that wait for an optimizer.
        left_out: names of what the checkpoint's writer could not save, each with the reason.
        stopped: whether nothing more is restored: the restore was taken back.
    """

    held: Collection[str] = ()
    stopped = False

    def __init__(self, prepared: Prepared, objects: Mapping[str, Any], options: Any) -> None:
        steps = prepared.plan.steps
        self._wanted = {step.source.partition("/")[0] for step in steps if not step.name}
        self._wanted -= prepared.live.keras_roots | {"save_counter"}
        self.left_out = prepared.stored.inventory.left_out
        self._prefix, self._options = prepared.stored.prefix, options
        self._undone: list[Undo] = []
        self._restored: set[str] = set()
        self.objects = {name: obj for name, obj in objects.items() if name in self._wanted}

    def waits_for(self, name: str) -> bool:
        """Whether a stored value may yet come to have a variable, below an object given."""
        return name in self.held or name.partition("/")[0] in self.objects

    def bind(self) -> Any:
        """TensorFlow's status of what it restores when it can, None where there is nothing."""
        return self._read(self.objects) if self.objects else None

    def take(self, keyword: str, obj: Any) -> None:
        """An object given to the checkpoint after the restore."""
        with live_objects():
            self._take(keyword, obj)

    def _take(self, keyword: str, obj: Any) -> None:
        if keyword not in self._wanted or keyword in self.objects:
            return
        if collect({keyword: obj}).keras_roots:
            logging.warning(
                "%s: %s is not restored: a Keras object is not restored late; call restore again",
                self._prefix,
                keyword,
            )
            return
        self.objects[keyword] = obj
        self._read({keyword: obj})

    def add(self, undo: Undo, names: Iterable[str]) -> None:
        """An optimizer has come, and was restored from stored values of these names."""
        self._undone.append(undo)
        self._restored.update(names)

    def take_back(self) -> bool:
        """Restore nothing more, and put back what has come; whether all of it could be."""
        self._wanted, self.stopped = set(), True
        put_back = [undo.take_back() for undo in self._undone]  # each of them, whatever one says
        return all(put_back)

    def created(self) -> set[str]:
        """The names of the values that have come to exist."""
        return {*collect(self.objects).variables, *self._restored}

    def _read(self, objects: Mapping[str, Any]) -> Any:
        return tf.train.Checkpoint(**objects).read(readable(self._prefix), self._options)
