"""Which values may be created after a restore, and so are left to TensorFlow's delayed restoration.

It gets plain trackables as a whole if some of their variables may be created later, but never a
Keras object.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.inventory import Role
from tfckpt.live.io.tf_restore import put_back_on_failure
from tfckpt.live.private.tensorflow import initialize, restore_id, set_update_id, update_id
from tfckpt.live.variables.variables import is_variable, raw
from tfckpt.planning import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.live.restoring.restore import Prepared
    from tfckpt.planning import Step


def may_come(prepared: Prepared, objects: Mapping[str, Any], root: Any) -> bool:
    """Whether an object has no variable yet for a value that is stored below its keyword."""
    if no_variables(prepared):
        return True
    keywords = {*objects, *(tf.train.TrackableView.children(root) if root is not None else ())}
    return any(
        step.source.partition("/")[0] in keywords for step in prepared.plan.steps if not step.name
    )


def nothing_left(prepared: Prepared) -> bool:
    """Whether every stored value has a variable of its own, so that none is created later."""
    steps, variables = prepared.plan.steps, prepared.live.variables
    sources = {step.source for step in steps}
    return len(sources) == len(steps) == len(variables) and all(
        step.status is Status.LOADED and is_variable(variables[step.name]) and is_tensor(step)
        for step in steps
    )


def is_tensor(step: Step) -> bool:
    """Whether a tensor is stored, and not the state of an object, which TensorFlow reads."""
    return step.stored is None or step.stored.shape is not None


def no_variables(prepared: Prepared) -> bool:
    """Whether the objects have no variables yet."""
    return not prepared.live.variables.keys() - {"save_counter"}


def no_values_at_all(prepared: Prepared) -> bool:
    """Whether the objects have no variables, and the checkpoint no values for them."""
    left = any(step.status is Status.UNEXPECTED for step in prepared.plan.steps)
    return prepared.stored.graph and no_variables(prepared) and not left


def created_since(before: Live, now: Live) -> list[str]:
    """The names of values that were created since ``before``."""
    known = {id(variable) for variable in before.variables.values()}
    created = (name for name, variable in now.variables.items() if id(variable) not in known)
    roles = {name: entry.role for name, entry in now.inventory.entries.items()}
    return [name for name in created if name != "save_counter" and roles[name] != Role.VOCABULARY]


def restore_rest(read: Callable[[], Any], live: Mapping[str, Any], restored: Iterable[str]) -> Any:
    """Have TensorFlow (``read``) restore everything except the variables named in ``restored``.

    It skips an object with a higher ``_update_uid`` than its own
    (tensorflow/python/checkpoint/restore.py), and takes one with the same number for restored.
    """
    inner = [raw(live[name]) for name in restored]
    for variable in inner:  # a slot may not be initialized as a trackable
        initialize(variable)
    before = [update_id(variable) for variable in inner]
    for variable in inner:
        set_update_id(variable, sys.maxsize)
    try:
        with put_back_on_failure(obj for obj in live.values() if not is_variable(obj)):
            status = read()
        after = [restore_id(status)] * len(inner)
    except BaseException:
        after = before
        raise
    finally:
        for variable, uid in zip(inner, after, strict=True):
            set_update_id(variable, uid)
    return status
