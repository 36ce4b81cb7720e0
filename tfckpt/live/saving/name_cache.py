"""What was found out about the objects of a checkpoint, for as long as they do not change.

Naming 10,000 values and gathering them for TensorFlow's saver takes a second; most saves of a run
find what the one before found. So that is kept, beside a
:class:`~tfckpt.live.objects.change_detection.Watch` of the objects, and used again where every one
of them is as it was. What was found is held until the checkpoint looks again: an object that was
taken away from a model lives until then.
"""

from __future__ import annotations

import contextlib
from operator import is_
from typing import TYPE_CHECKING, Any

from tfckpt.live.io.versions import untested
from tfckpt.live.objects.change_detection import Watch
from tfckpt.live.objects.collect import collect
from tfckpt.live.objects.thread_lock import live_objects
from tfckpt.live.saving.snapshot import take
from tfckpt.live.saving.tensor_sources import ChangedError
from tfckpt.live.variables.savers import any_registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.live.saving.snapshot import Gathered, Snapshot


class NameCache:
    """The names of a checkpoint's values, and where TensorFlow's saver finds them.

    Attributes:
        told: what was said of what is left out, each of which is said once.

    Args:
        keep: whether the objects may be held; otherwise all is found out each time.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self.told: set[str] = set()
        self._watch: Watch | None = None
        self._keywords: tuple[str, ...] = ()
        self._given: tuple[Any, ...] = ()
        self._live: Live | None = None
        self._gathered: Gathered | None = None

    def __deepcopy__(self, memo: Any) -> NameCache:
        return NameCache(keep=self._keep)  # a copy's objects are others

    def live(self, objects: Mapping[str, Any], root: Any = None) -> Live:
        """What :func:`~tfckpt.live.objects.collect.collect` says of these objects."""
        with live_objects():
            live = self._live_still(objects, root)
            if live is None:
                live = collect(objects, root)
                self._remember(objects, root, live)
            return live

    def snapshot(
        self,
        saver: Any,
        objects: Mapping[str, Any],
        root: Any,
        *,
        leave_out: bool,
        by_tensorflow: bool,
    ) -> Snapshot:
        """What ``snapshot.take`` gives, with as little gathering as may be."""
        live = self._live_still(objects, root)
        gathered = self._gathered
        if gathered is not None and not by_tensorflow and not any_registered():
            with contextlib.suppress(ChangedError):
                return gathered.snapshot()
            live = None
        if live is None:
            live = collect(objects, root)
        gathered, snapshot = take(
            saver, live, leave_out=leave_out, told=self.told, by_tensorflow=by_tensorflow
        )
        self._remember(objects, root, live, gathered if gathered.repeatable else None)
        return snapshot

    def _live_still(self, objects: Mapping[str, Any], root: Any) -> Live | None:
        """The names, where everything is as it was; nothing is known any more where it is not."""
        try:
            same = (
                self._watch is not None
                and self._keywords == tuple(objects)
                and all(map(is_, (root, *objects.values()), self._given))
                and self._watch.unchanged()
            )
        except Exception:  # an object that cannot be looked at is not known
            same = False
        if not same:
            self._forget()
        return self._live

    def _remember(
        self,
        objects: Mapping[str, Any],
        root: Any,
        live: Live,
        gathered: Gathered | None = None,
    ) -> None:
        self._forget()
        if not self._keep or untested():
            return
        given = (root, *objects.values())
        with contextlib.suppress(Exception):  # whatever an object says to being looked at
            self._watch = Watch(given)
            self._keywords, self._given = tuple(objects), given
            self._live, self._gathered = live, gathered

    def _forget(self) -> None:
        self._watch = self._live = self._gathered = None
        self._given = ()
