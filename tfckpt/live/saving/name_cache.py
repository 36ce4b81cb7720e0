"""Caches the names of a checkpoint's values for as long as its objects do not change.

Naming 10,000 values and gathering them for TensorFlow's saver takes a second, and most saves of a
run find the same as the one before. So the result is kept with a
:class:`~tfckpt.live.objects.change_detection.Watch` of the objects, and reused if none of them has
changed. It is held until the next look: an object removed from a model lives until then.
"""

from __future__ import annotations

import contextlib
from operator import is_
from typing import TYPE_CHECKING, Any

from tfckpt.live.objects.change_detection import Watch
from tfckpt.live.objects.collect import collect
from tfckpt.live.objects.thread_lock import live_objects
from tfckpt.live.private.tensorflow import any_saver
from tfckpt.live.private.versions import untested
from tfckpt.live.saving.snapshot import take
from tfckpt.live.saving.tensor_sources import ChangedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.objects.collect import Live
    from tfckpt.live.saving.snapshot import Gathered, Snapshot


class NameCache:
    """The names of a checkpoint's values, and where TensorFlow's saver finds them.

    Without ``keep`` no object is referenced, and nothing is cached.

    Attributes:
        logged: the warnings that were logged, each of which is logged once.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self.logged: set[str] = set()
        self._watch: Watch | None = None
        self._keywords: tuple[str, ...] = ()
        self._objects: tuple[Any, ...] = ()
        self._live: Live | None = None
        self._gathered: Gathered | None = None

    def __deepcopy__(self, memo: Any) -> NameCache:
        return NameCache(keep=self._keep)  # a copy's objects are others

    def live(self, objects: Mapping[str, Any], root: Any = None) -> Live:
        """The result of :func:`~tfckpt.live.objects.collect.collect` for these objects."""
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
        """The result of ``snapshot.take``; gathers again only if something has changed."""
        live = self._live_still(objects, root)
        gathered = self._gathered
        if gathered is not None and not by_tensorflow and not any_saver():
            with contextlib.suppress(ChangedError):
                return gathered.snapshot()
            live = None
        if live is None:
            live = collect(objects, root)
        gathered, snapshot = take(
            saver, live, leave_out=leave_out, logged=self.logged, by_tensorflow=by_tensorflow
        )
        self._remember(objects, root, live, gathered if gathered.repeatable else None)
        return snapshot

    def _live_still(self, objects: Mapping[str, Any], root: Any) -> Live | None:
        """The cached names if nothing has changed; else clears the cache."""
        try:
            same = (
                self._watch is not None
                and self._keywords == tuple(objects)
                and all(map(is_, (root, *objects.values()), self._objects))
                and self._watch.unchanged()
            )
        except Exception:  # an object that raises counts as changed
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
        roots = (root, *objects.values())
        with contextlib.suppress(Exception):  # whatever a user's object raises
            self._watch = Watch(roots)
            self._keywords, self._objects = tuple(objects), roots
            self._live, self._gathered = live, gathered

    def _forget(self) -> None:
        self._watch = self._live = self._gathered = None
        self._objects = ()
