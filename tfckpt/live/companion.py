"""What tfckpt keeps of a checkpoint, and one save from the snapshot to the commit.

A save claims the directory and takes a ticket (``Checkpoint.save``, ``CheckpointManager.save``).
:meth:`Companion.save` takes the snapshot; ``write`` writes, reads back and commits; then the
caller's last step deletes what no rule keeps or writes the state file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.core.gc_pause import gc_paused
from tfckpt.errors import SaveError
from tfckpt.live import generators
from tfckpt.live.inventory import collect
from tfckpt.live.lineage import Lineage
from tfckpt.live.private.tensorflow import attached_to, root_of, saver_of
from tfckpt.live.save import (
    as_save_errors,
    by_tensorflow,
    completed_metadata,
    run_callbacks,
    synchronous,
    write,
)
from tfckpt.live.snapshot import take
from tfckpt.live.turns import Background, live_objects
from tfckpt.live.workers import Together, workers_among
from tfckpt.stored.bundles.write import BACKGROUND
from tfckpt.stored.io.files import same_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.live.inventory import Live
    from tfckpt.live.late import Late
    from tfckpt.live.restore import Prepared
    from tfckpt.live.save import RecordMetadata, SaveOptions
    from tfckpt.live.workers import Workers
    from tfckpt.stored.commits.numbering import Ticket


class Companion:
    """What tfckpt keeps of a ``tfckpt.Checkpoint``, which TensorFlow does not."""

    def __init__(self, checkpoint: Any) -> None:
        self._checkpoint = checkpoint
        self.background = Background()
        self.lineage = Lineage()
        self.logged: set[str] = set()
        self.late: Late | None = None
        self.resumes_in = ""  # directory from which a restore goes on with the random generators

    @property
    def saver(self) -> Any:
        """TensorFlow's own."""
        return saver_of(self._checkpoint)

    def objects(self) -> tuple[dict[str, Any], Any]:
        """The objects by keyword, and the root object."""
        root = root_of(self._checkpoint)
        if root is None:
            return dict(tf.train.TrackableView.children(self._checkpoint)), None
        attached = attached_to(self._checkpoint)
        objects = {name: ref for name, ref in attached if name != "root"}
        return objects, root() if isinstance(root, weakref.ref) else root

    def live(self) -> Live:
        """The current values of the objects."""
        with live_objects():
            return collect(*self.objects())

    def workers(self) -> Workers | None:
        """The workers that make the same calls; None for a single process."""
        return workers_among(*self.objects())

    def comes_from(self, prepared: Prepared) -> Callable[[], None]:
        """Record the restore, and go on with its random generators; returns what undoes that."""
        before, drawn = self.lineage, dict[str, Any]()
        record, prefix = prepared.stored.record, prepared.stored.prefix
        saved = record.training.get(generators.KEY) if record and self.resumes_in else None
        # Each of several workers draws from its own.
        if saved and same_directory(prefix, self.resumes_in) and self.workers() is None:
            drawn = generators.take()
            generators.restore(saved, prefix)
        self.lineage = before.after(prepared)

        def undo() -> None:
            self.lineage = before
            generators.put(drawn)

        return undo

    def save(
        self,
        prefix: str,
        target: str,
        options: Any,
        save_options: SaveOptions,
        ticket: Ticket,
        *,
        metadata: RecordMetadata | None = None,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Take a snapshot now, and write it now or in the background."""
        with (
            ticket,
            Together(self.workers(), "save", SaveError) as together,
            live_objects(),
        ):
            ticket.begin()
            in_background = options is not None and options.experimental_enable_async_checkpoint
            options = synchronous(options)
            callbacks = options.experimental_write_callbacks or ()
            options.experimental_write_callbacks = None
            with gc_paused(), as_save_errors(prefix):
                live = self.live()
                together.gathered(live.inventory)
                snapshot = take(
                    self.saver,
                    live,
                    leave_out=save_options.on_unsavable == "warn",
                    logged=self.logged,
                    by_tensorflow=by_tensorflow(options),
                )
                metadata = completed_metadata(metadata, snapshot, self.lineage, target)
            together.exchange("snapshot")

        in_background = in_background and not snapshot.savers  # these write live objects directly
        if in_background:
            save_options = dataclasses.replace(save_options, chunk=BACKGROUND)

        def commit() -> None:
            # Registered savers read live objects while they write.
            with ticket, live_objects() if snapshot.savers else contextlib.nullcontext():
                write(target, snapshot, options, save_options, metadata, mark=ticket.mark)
            if then is not None:
                then()
            run_callbacks(callbacks, prefix)

        work = together.by_chief(commit, ticket, snapshot.live.inventory)
        if in_background:
            self.background.start(work)
        else:
            work()
