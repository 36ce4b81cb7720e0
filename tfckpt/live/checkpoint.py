"""``tfckpt.Checkpoint``: TensorFlow's constructor, methods and files, safer underneath.

It is a ``tf.train.Checkpoint``, so that whatever takes one takes it too, and what it writes is an
ordinary checkpoint. Four things are different. A save has every variable, is on disk when ``save``
returns, and is told by its commit record. A restore matches by canonical name, is checked against
the structure, and happens completely or not at all.

Graph mode (``tf.compat.v1``) and remote paths are TensorFlow's own business as before: what cannot
be promised there is not.
"""

from __future__ import annotations

import contextlib
import copy
import os
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.errors import CheckpointNotFoundError, RestoreError
from tfckpt.live import delayed, save
from tfckpt.live.apply import Undo
from tfckpt.live.errors import NotFoundError
from tfckpt.live.inventory import collect
from tfckpt.live.restore import Prepared, carry_out, prepare, refuse
from tfckpt.live.status import LoadStatus
from tfckpt.live.variables import is_variable
from tfckpt.planning import Status
from tfckpt.policy import Policy
from tfckpt.stored.checkpoint import OBJECT_GRAPH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.save import About

TensorFlowManager: Any = tf.train.CheckpointManager
_SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
# What is missing or left over is for the status's assertions to judge, as in TensorFlow.
_READ = Policy(name="tfckpt.Checkpoint.read", api="read", expect_partial=True)
_RESTORE = Policy(name="tfckpt.Checkpoint.restore", expect_partial=True)


class Checkpoint(tf.train.Checkpoint):  # type: ignore[misc]
    r"""Saves and restores models, optimizers and other trackables, completely or not at all.

    Args:
        root: one object whose children are the checkpoint's, as in ``tf.train.Checkpoint``.
        **kwargs: objects by keyword: Keras models and optimizers of either flavour, variables,
            ``tf.Module``\ s, iterators, lists and dicts of them.

    Raises:
        ValueError: an argument is not trackable, or ``root`` has another child of that name.

    >>> import keras, tempfile, tfckpt
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="out")])
    >>> checkpoint = tfckpt.Checkpoint(model=model)
    >>> path = checkpoint.save(tempfile.mkdtemp() + "/ckpt")
    >>> print(checkpoint.restore(path).assert_consumed().report.counts)
    {<Status.LOADED: 'LOADED'>: 3}
    """

    def save(self, file_prefix: Any, options: Any = None) -> str:
        """Save under the next number that no file beside ``file_prefix`` has used.

        Args:
            file_prefix: ``directory/ckpt`` becomes ``directory/ckpt-12``.
            options: ``tf.train.CheckpointOptions``.

        Returns:
            The path, without ``.index``. The checkpoint is complete and on disk.

        Raises:
            SaveError: it could not be written; no file of it is left, no counter has moved.
        """
        if not tf.executing_eagerly() or save.is_remote(os.fspath(file_prefix)):
            return str(super().save(file_prefix, options))
        counter = self.save_counter
        before = counter.read_value()
        counter.assign(save.last_number(os.fspath(file_prefix), int(before)))
        try:
            return str(super().save(file_prefix, _synchronous(options)))
        except BaseException:
            counter.assign(before)
            raise

    def _write(self, file_prefix: Any, options: Any = None, about: About | None = None) -> str:
        # CheckpointManager, save and write all come through here.
        prefix = str(os.fspath(file_prefix))
        if not tf.executing_eagerly() or save.is_remote(prefix):
            return str(super()._write(prefix, options))
        options = _synchronous(options)
        callbacks = options.experimental_write_callbacks or ()
        options.experimental_write_callbacks = None
        saver, view = self._saver, self._saver._graph_view
        with save.writing(prefix):
            live = collect(*self._tfckpt_objects())
            saver._graph_view = whole = save.whole_view(view, live)
            try:
                super()._write(prefix, options)
            finally:
                saver._graph_view = view
            save.commit_files(prefix, live, whole, about)
        save.run_callbacks(callbacks, prefix)
        return prefix

    def restore(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``save`` wrote, completely or not at all.

        Args:
            save_path: the path that ``save`` returned, or the directory of a SavedModel. None means
                that there is none, as from ``tf.train.latest_checkpoint``.
            options: ``tf.train.CheckpointOptions``.

        Returns:
            A status with TensorFlow's four assertions, and ``report``.

        Raises:
            CheckpointNotFoundError: there is no checkpoint of that name.
            DamagedCheckpointError: a needed value cannot be trusted.
            NotBuiltError: a Keras object has no variables yet; the message says how to build it.
            RefusedError: shapes or dtypes differ, somebody else's weights stand at a layer's
                position, or nothing would be restored.
        """
        if save_path is None or not tf.executing_eagerly() or save.is_remote(os.fspath(save_path)):
            return super().restore(save_path, options)
        self._maybe_create_save_counter()
        return self._tfckpt_restore(_variables_of(os.fspath(save_path)), _RESTORE, options)

    def read(self, save_path: Any, options: Any = None) -> Any:
        """Restore from what ``write`` wrote: as ``restore``, without ``save_counter``."""
        if save_path is None or not tf.executing_eagerly() or save.is_remote(os.fspath(save_path)):
            return super().read(save_path, options)
        return self._tfckpt_restore(os.fspath(save_path), _READ, options)

    def _tfckpt_restore(self, prefix: str, policy: Policy, options: Any) -> LoadStatus:
        objects, root = self._tfckpt_objects()
        skip_slots = options is not None and options.experimental_skip_slot_variables
        with contextlib.ExitStack() as stack:
            try:
                prepared = stack.enter_context(
                    prepare(prefix, policy, objects, root, skip_slots=skip_slots)
                )
            except CheckpointNotFoundError as error:
                raise NotFoundError(error) from None
            if not prepared.live.keras_roots:
                return self._tfckpt_plain(prepared, options)
            plan = prepared.plan
            differs = any(s.status in {Status.MISSING, Status.UNEXPECTED} for s in plan.steps)
            undo = carry_out(prepared, keep_all=differs)
            waiting = _waiting(prepared, objects)
            later = delayed.restore_later(prefix, waiting, options) if waiting else None
            return LoadStatus(
                prepared.report(), undo, later=later, created=lambda: collect(waiting).variables
            )

    def _tfckpt_plain(self, prepared: Prepared, options: Any) -> LoadStatus:
        """Objects without a Keras object among them: TensorFlow restores, guarded."""
        plan = prepared.plan
        if plan.errors or not (plan.ok or self._tfckpt_may_come(prepared)):
            refuse(plan)
        prepared.stored.bundle.verify(
            step.stored.key for step in plan.assignments if step.stored and step.stored.dtype
        )
        undo = Undo(keep_all=True)
        undo.watch(filter(is_variable, prepared.live.variables.values()))
        try:
            later = super().read(prepared.stored.prefix, _synchronous(options))
        except Exception as error:
            undo.roll_back()
            raise RestoreError(f"{prepared.stored.prefix}: {error}") from error
        undo.settle()
        return LoadStatus(prepared.report(), undo, later=later, plain=True)

    def _tfckpt_may_come(self, prepared: Prepared) -> bool:
        """Whether TensorFlow may find a value where no name matches.

        It may where an object given has no variable yet for a value that is stored below its
        keyword, and in a checkpoint of TF1, whose values it finds by the variables' own names.
        """
        live, entries = prepared.live, prepared.stored.bundle.entries
        if OBJECT_GRAPH not in entries:
            own = {v.name.removesuffix(":0") for v in live.variables.values() if is_variable(v)}
            return bool(own & entries.keys())
        if not live.variables.keys() - {"save_counter"}:
            return True
        objects, root = self._tfckpt_objects()
        given = {*objects, *(tf.train.TrackableView.children(root) if root is not None else ())}
        return any(
            step.source.partition("/")[0] in given for step in prepared.plan.steps if not step.name
        )

    def _tfckpt_objects(self) -> tuple[dict[str, Any], Any]:
        """The objects by keyword, and the root object."""
        if self._root is None:
            return dict(tf.train.TrackableView.children(self)), None
        root = self._root() if isinstance(self._root, weakref.ref) else self._root
        attached = {name: ref for name, ref in self._attached_dependencies if name != "root"}
        return attached, root


def _synchronous(options: Any) -> Any:
    """A copy of the options that saves before it returns: an acknowledged path exists."""
    options = copy.copy(options) if options is not None else tf.train.CheckpointOptions()
    options.experimental_enable_async_checkpoint = False
    return options


def _variables_of(path: str) -> str:
    """The checkpoint inside a SavedModel directory, or the path itself."""
    if any(os.path.exists(os.path.join(path, name)) for name in _SAVED_MODELS):  # noqa: PTH110, PTH118 (a prefix is no Path)
        return os.path.join(path, "variables", "variables")  # noqa: PTH118
    return path


def _waiting(prepared: Prepared, objects: Mapping[str, Any]) -> dict[str, Any]:
    """The plain objects for which the checkpoint has values that they have no variable for yet."""
    unmatched = {s.source.partition("/")[0] for s in prepared.plan.steps if not s.name}
    keras = prepared.live.keras_roots
    return {
        keyword: obj
        for keyword, obj in objects.items()
        if keyword in unmatched and keyword not in keras and keyword != "save_counter"
    }
