"""``tfckpt.Checkpoint.restore``: assigns existing variables, and waits for those created later."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import CheckpointNotFoundError
from tfckpt.live.advice import (
    PolicyCall,
    adding_advice,
    log_once,
    log_restore,
    other_keyword,
)
from tfckpt.live.by_tensorflow import not_taken
from tfckpt.live.late import (
    Late,
    created_since,
    is_tensor,
    may_come,
    no_values_at_all,
    not_there_yet,
    nothing_left,
    restore_rest,
)
from tfckpt.live.paths import also
from tfckpt.live.remote import readable
from tfckpt.live.restore import Choice, carry_out, permitted, prepare
from tfckpt.live.save import synchronous
from tfckpt.live.status import LoadStatus, may_fail_an_assertion
from tfckpt.live.turns import assigning
from tfckpt.live.variables import is_variable
from tfckpt.live.workers import Together
from tfckpt.stored.bundles.keys import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfckpt.live.apply import Undo
    from tfckpt.live.companion import Companion
    from tfckpt.live.restore import Prepared
    from tfckpt.policy import Policy


def restore(
    companion: Companion,
    prefix: str,
    policy: Policy,
    options: Any,
    workers: Together | None = None,
    *,
    returned: bool = True,
) -> LoadStatus:
    """Restore the objects of a checkpoint, in step with the other workers if there are any.

    ``returned`` is whether the caller gets the status and can assert on it.
    """
    with adding_advice(call := PolicyCall.of(prefix, *companion.objects())):
        status = _restore(companion, prefix, policy, options, workers)
    log_restore(status, call, companion.logged, returned=returned)
    return status


def _restore(
    companion: Companion, prefix: str, policy: Policy, options: Any, workers: Together | None
) -> LoadStatus:
    objects, root = companion.objects()
    skip_slots = options is not None and options.experimental_skip_slot_variables
    workers = workers or Together(companion.workers())
    with contextlib.ExitStack() as stack:
        stack.enter_context(workers)
        try:
            choices = [Choice(prefix, policy)]
            prepared = stack.enter_context(
                prepare(choices, objects, root, skip_slots=skip_slots, workers=workers)
            )
        except CheckpointNotFoundError as error:
            raise also(error, tf.errors.NotFoundError(None, None, "")) from None
        plain = prepared.stored.graph and not prepared.live.keras_roots
        if plain and not nothing_left(prepared):
            return _plain(companion, prepared, options, workers)
        late = Late(prepared, objects, options, companion.live)
        waiting = bool(late.objects) or no_values_at_all(prepared)
        prepared = permitted(prepared, may_come=waiting)
        undo = carry_out(prepared, workers)
        with _assigned_by_tensorflow(undo, prepared.stored.prefix):
            later = late.read(prepared)
        if not may_fail_an_assertion(prepared.plan):
            undo.forget()
        companion.late = late
        log_once(companion.logged, prepared.stored.prefix, other_keyword(prepared))
        log_once(companion.logged, prepared.stored.prefix, not_there_yet(prepared, late))
        created = (lambda: created_since(prepared.live, companion.live())) if plain else None
        return LoadStatus(
            prepared.report(),
            undo,
            companion.comes_from(prepared),
            later=later,
            late=late,
            created=created,
        )


def _plain(companion: Companion, prepared: Prepared, options: Any, workers: Together) -> LoadStatus:
    """Restore objects without Keras; TensorFlow waits for values that may be created later."""
    prepared = permitted(prepared, may_come=may_come(prepared, *companion.objects()))
    live, assignments = prepared.live.variables, prepared.plan.assignments
    # TensorFlow restores tables and iterators too; a table chooses its own keys.
    by_tensorflow = [
        step.stored for step in assignments if step.stored and step.stored.shape is None
    ]
    prepared.stored.values.verify([*(e.key for e in by_tensorflow if e.nbytes), OBJECT_GRAPH])
    steps = [s for s in assignments if is_variable(live[s.name]) and is_tensor(s)]
    path = readable(prepared.stored.prefix, without=[s.stored.key for s in steps if s.stored])
    undo = carry_out(prepared, workers, objects=False)
    restored = [step.name for step in steps]
    others = live.keys() - set(restored)
    undo.watch(v for name, v in live.items() if name in others and is_variable(v))
    with _assigned_by_tensorflow(undo, prepared.stored.prefix):
        later = restore_rest(
            partial(companion.saver.restore, path, synchronous(options)), live, restored
        )
        workers.exchange("rest", last=True)
    undo.resolve()
    companion.late = None  # later values come from this checkpoint
    forget = companion.comes_from(prepared)
    return LoadStatus(prepared.report(), undo, forget, later=later)


@contextlib.contextmanager
def _assigned_by_tensorflow(undo: Undo, prefix: str) -> Iterator[None]:
    """Put old values back if the body raises."""
    try:
        with assigning():
            yield
    except BaseException as error:
        undo.roll_back()
        if isinstance(error, tf.errors.OpError):  # its NotFoundError would mean: no checkpoint
            raise not_taken(prefix, error) from error
        raise
