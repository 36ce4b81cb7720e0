"""Puts optimizers back into the state before they were built.

Only building a Keras optimizer shows which slots it has. So the live one is built for a plan, and
put back if nothing is restored into it: it was built for all variables of its model, and the
program may want to train only some of them. Keras has no call for this; a build changes only
attributes and the contents of lists, dicts and sets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tfckpt.live.private.tensorflow import update_snapshot
from tfckpt.live.variables.flavors import is_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable

_CONTAINERS = (list, dict, set)


class Unbuilt:
    """Remembers the state of optimizers, and puts it back."""

    def __init__(self) -> None:
        self._put_back: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._put_back)

    def keep(self) -> None:
        """Forget the old state; the optimizers stay built."""
        self._put_back.clear()

    def put_back(self) -> None:
        for put_back in self._put_back:
            put_back()
        self.keep()

    def take(self, obj: Any) -> None:
        """Remember an optimizer and what it holds: lists, the inner optimizer, and so on."""
        wrapper, obj = obj, getattr(obj, "__wrapped__", obj)  # a dict tracked by TensorFlow
        if id(obj) in self._seen:
            return
        self._seen[id(obj)] = obj
        for content in (*_content(obj), getattr(obj, "__dict__", None)):
            if content is not None:
                self._take_content(content)
        if wrapper is not obj:  # otherwise no save accepts it any more
            self._put_back.append(partial(update_snapshot, wrapper))

    def _take_content(self, content: Any) -> None:
        # Python's own methods: those of Keras and TensorFlow track changes.
        if isinstance(content, dict):
            held = dict.copy(content)
            self._put_back.append(lambda: (dict.clear(content), dict.update(content, held)))
            values = [*held.values()]
        elif isinstance(content, list):
            values = list.copy(content)
            self._put_back.append(lambda: list.__setitem__(content, slice(None), values))
        else:
            values = [*set.copy(content)]
            self._put_back.append(lambda: (set.clear(content), set.update(content, values)))
        for value in values:
            if isinstance(value, _CONTAINERS) or is_optimizer(value) or _is_tracker(value):
                self.take(value)


def _content(obj: Any) -> tuple[Any, ...]:
    return (obj,) if isinstance(obj, _CONTAINERS) else ()


def _is_tracker(obj: Any) -> bool:
    """Whether it is Keras 3's tracker of variables (keras/src/utils/tracking.py)."""
    return type(obj).__name__ == "Tracker" and type(obj).__module__.startswith("keras.")
