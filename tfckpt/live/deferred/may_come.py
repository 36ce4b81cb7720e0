"""What may come to exist after a restore, and is left to TensorFlow's delayed restoration.

Plain trackables some of whose variables may come to exist later are given to it as a whole; a Keras
object never is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.live.io.tf_restore import put_back_on_failure
from tfckpt.live.variables.variables import is_variable, raw
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.live.restoring.restore import Prepared
    from tfckpt.planning import Step


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
