"""Values that are restored when their variables are created: TensorFlow waits for them.

That is sound for plain objects, such as a ``tf.Module`` that creates its variables in its first
call. Next to Keras objects, only what has a keyword of its own and holds no Keras object is left to
it; for all else the variables must exist before the restore, and what is left out is named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from absl import logging

from tfckpt.core.inventory import Role
from tfckpt.core.text import listed
from tfckpt.errors import SaveError
from tfckpt.live.by_tensorflow import not_taken, put_back_on_failure, readable
from tfckpt.live.flavors import is_v1
from tfckpt.live.inventory import collect
from tfckpt.live.private.graph import TRACKED
from tfckpt.live.private.tensorflow import forget, silence, waiting
from tfckpt.live.rebuild import ancestors
from tfckpt.live.turns import assigning, live_objects
from tfckpt.live.variables import is_variable, raw
from tfckpt.planning import Severity, Status
from tfckpt.planning.checks.step import NothingRestored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfckpt.live.apply import Undo
    from tfckpt.live.inventory import Live
    from tfckpt.live.restore import Prepared
    from tfckpt.planning import Step

_UNSAVED = {Role.METRIC, Role.SEED, Role.VOCABULARY}  # by files of plain TensorFlow
_COMES_LATER = "restored when its variable is created"


class Late:
    """The plain objects beside Keras ones whose variables TensorFlow restores when they come."""

    def __init__(
        self, prepared: Prepared, objects: Mapping[str, Any], options: Any, now: Callable[[], Live]
    ) -> None:
        """Before the restore is carried out; ``now`` returns the current values of the objects."""
        self._prefix, self._options, self._now = prepared.stored.prefix, options, now
        self.left_out = prepared.stored.inventory.left_out
        self._wanted = {step.source.partition("/")[0] for step in _left_over(prepared)}
        self._wanted -= prepared.live.keras_roots | {"save_counter"}
        if not prepared.stored.graph:
            self._wanted.clear()
        # The slots of a tf.compat.v1 optimizer wait for the variables, which are restored already.
        self.objects = {n: o for n, o in objects.items() if n in self._wanted and not is_v1(o)}
        self.awaited: set[str] | None = None  # the only values to wait for
        self._since = sys.maxsize  # TensorFlow's number of the first restore of these

    def waits_for(self, name: str) -> bool:
        """Whether the variable of a stored value may still be created."""
        return name.partition("/")[0] in self.objects

    def read(self, prepared: Prepared) -> Any:
        """Let TensorFlow restore the rest when it can; returns its status, or None."""
        if not self.objects:
            return None
        live = prepared.live.variables
        steps = [s for s in prepared.plan.assignments if is_variable(live[s.name]) and is_tensor(s)]
        names = [step.name for step in steps]
        if self.awaited is not None:  # what a policy excludes is not read
            names = [name for name, value in live.items() if is_variable(value)]
        status = restore_rest(lambda: self._read(self.objects), live, names)
        self._since = status._checkpoint.restore_uid
        if (awaited := self.awaited) is not None:
            for name, obj, edge, _ in [*_waiting(prepared.live)]:
                if not any(f"{each}/".startswith(f"{name}/") for each in awaited):
                    forget(obj, edge)
        return status

    def take(self, keyword: str, obj: Any) -> None:
        """Restore an object that was added to the checkpoint after the restore."""
        if keyword not in self._wanted or keyword in self.objects:
            return  # e.g. attributes that TensorFlow sets during a restore
        with live_objects():
            if collect({keyword: obj}).keras_roots:
                logging.warning(
                    "%s: '%s' was not restored: it is a Keras object that was added after the "
                    "restore; call restore again",
                    self._prefix,
                    keyword,
                )
                return
            self.objects[keyword] = obj
            self._since = min(self._since, self._read({keyword: obj})._checkpoint.restore_uid)

    def stop(self) -> None:
        """Restore nothing more that is added."""
        self._wanted.clear()

    def created(self) -> set[str]:
        """The names of the values that were created and restored later."""
        created = {n: v for n, v in self._now().variables.items() if self.waits_for(n)}
        inner = {name: raw(v) if is_variable(v) else v for name, v in created.items()}
        return {
            name
            for name, variable in inner.items()
            if getattr(variable, "_update_uid", -1) >= self._since
        }

    def _read(self, objects: Mapping[str, Any]) -> Any:
        status = tf.train.Checkpoint(**objects).read(readable(self._prefix), self._options)
        silence(status)  # of the other objects
        return status


def awaiting(prepared: Prepared) -> tuple[Prepared, Late | None]:
    """Leave to TensorFlow what plain objects have not made yet, where a policy asks for it.

    That is what a run that goes on has saved, or what an object without any variable lacks. All
    else is refused by the plan: the object has no such variable any more.
    """
    (source, *others), objects = prepared.sources, prepared.objects
    if others or prepared.waits or not prepared.live.plain:
        return prepared, None
    late = Late(prepared, objects, None, partial(collect, objects))
    plain, names = prepared.live.plain, prepared.live.variables
    holding = {name.rpartition("/")[0] for name in names}

    def waits(step: Step) -> bool:
        if step.status is not Status.UNEXPECTED:
            return False
        at = next((at for at in ancestors(step.source) if at in plain), "")
        return bool(at) and (source.resumes or at not in holding) and late.waits_for(step.source)

    awaited = late.awaited = {step.source for step in prepared.plan.steps if waits(step)}
    if not awaited:
        return prepared, None
    steps = (
        step._replace(severity=Severity.NOTE, reason=_COMES_LATER, hint="")
        if step.source in awaited
        else step
        for step in prepared.plan.steps
    )
    left = (each for each in prepared.plan.problems if not isinstance(each, NothingRestored))
    plan = dataclasses.replace(prepared.plan, steps=tuple(steps), problems=tuple(left))
    return dataclasses.replace(prepared, plan=plan), late


@contextlib.contextmanager
def assigned_by_tensorflow(undo: Undo, prefix: str) -> Iterator[None]:
    """Put old values back if the body raises."""
    try:
        with assigning():
            yield
    except BaseException as error:
        undo.roll_back()
        if isinstance(error, tf.errors.OpError):  # its NotFoundError would mean: no checkpoint
            raise not_taken(prefix, error) from error
        raise


def refuse_waiting(live: Live) -> None:
    """Raise a SaveError while a value waits for its variable: the new file would not have it."""
    found = {name: path for name, obj, edge, path in _waiting(live)}
    if found:
        name, path = min(found.items())
        raise SaveError(
            f"{_values(len(found))} of {path} still {'waits' if len(found) == 1 else 'wait'} for "
            f"a variable, the first is '{name}': a save now would lose it",
            hint="call what creates it before this save, as `module(batch)`; if it will not come, "
            "call expect_partial() of what `restore` returned, or name it in exclude_checkpoint",
        )


def _waiting(live: Live) -> Iterator[tuple[str, Any, str, str]]:
    """Name, holder, attribute and checkpoint of what TensorFlow restores when it comes."""
    held = [*live.plain.items()]
    for at, obj in held:  # which grows by the lists and dicts in it
        for edge, path in waiting(obj).items():
            yield f"{at}/{edge.lstrip('_')}", obj, edge, path
        for edge, child in getattr(obj, "__dict__", {}).get(TRACKED, ()):
            if isinstance(child, (list, tuple, dict)):
                held.append((f"{at}/{edge.lstrip('_')}", child))


def not_there_yet(prepared: Prepared, late: Late) -> str:
    """The stored values whose variables would have to exist before the restore; "" for none."""
    if not prepared.stored.graph:
        return ""
    plain, live = prepared.live.plain, prepared.live.optimizers
    left = [step.source for step in _left_over(prepared) if step.status is Status.UNEXPECTED]
    optimizers = {
        path: [name for name in left if name.startswith(f"{path}/")]
        for path in prepared.stored.inventory.optimizers.keys() - live.keys()
    }
    of_optimizers = {name for names in optimizers.values() for name in names}
    others = [
        name
        for name in left
        if name not in of_optimizers
        and not late.waits_for(name)
        and any(above in plain for above in ancestors(name))
    ]
    texts = []
    if of_optimizers:
        paths = listed(sorted(path for path, names in optimizers.items() if names))
        texts.append(
            f"{_values(len(of_optimizers))} of {paths} stay in the checkpoint, since no object has "
            "this optimizer: to restore it, pass it under this name, or compile the model first"
        )
    if others:
        texts.append(
            f"{_values(len(others))} stay in the checkpoint, since no object has these variables "
            f"yet: {listed(others)}; to restore them, create them first, then restore"
        )
    return "; ".join(texts)


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"


def _left_over(prepared: Prepared) -> list[Step]:
    return [step for step in prepared.plan.steps if not step.name]


def may_come(prepared: Prepared, objects: Mapping[str, Any], root: Any) -> bool:
    """Whether an object has no variable yet for a value that is stored below its keyword."""
    if no_variables(prepared):
        return True
    keywords = {*objects, *(tf.train.TrackableView.children(root) if root is not None else ())}
    return any(step.source.partition("/")[0] in keywords for step in _left_over(prepared))


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
    return bool(prepared.stored.graph and no_variables(prepared) and not left)


def created_since(before: Live, now: Live) -> list[str]:
    """The names of values that were created since ``before``."""
    known = {id(variable) for variable in before.variables.values()}
    created = (name for name, variable in now.variables.items() if id(variable) not in known)
    roles = {name: entry.role for name, entry in now.inventory.entries.items()}
    return [name for name in created if name != "save_counter" and roles[name] not in _UNSAVED]


def restore_rest(read: Callable[[], Any], live: Mapping[str, Any], restored: Iterable[str]) -> Any:
    """Have TensorFlow (``read``) restore everything except the variables named in ``restored``.

    It skips an object with a higher ``_update_uid`` than its own
    (tensorflow/python/checkpoint/restore.py), and takes one with the same number for restored.
    """
    inner = [raw(live[name]) for name in restored]
    for variable in inner:  # a slot may not be initialized as a trackable
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
