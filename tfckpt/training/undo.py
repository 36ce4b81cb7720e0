"""What changes before a ``fit`` is where it was saved, put back.

A step is taken so that all variables exist. What it does to them is put back at once, so that a
``fit`` that is refused, or ends by any exception on its way, leaves the model as it was. Values are
kept in the host's memory: beside a model that fills a GPU there is no room for them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.live.building import build
from tfckpt.live.objects.collect import collect
from tfckpt.live.program_state import random_state
from tfckpt.live.variables.distributed import parts
from tfckpt.live.variables.variables import is_variable, on_host, raw
from tfckpt.training.state.trained import own_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.training.state.extra_state import ExtraState


class Before:
    """A model and the process's random generators, as they are when ``fit`` begins.

    Args:
        model: that ``fit`` trains.
        objects: of the run.
        extra: what neither of them holds.
    """

    def __init__(self, model: Any, objects: Mapping[str, Any], extra: ExtraState) -> None:
        self._model = model
        self._objects = objects
        self._extra = extra
        self._generators = random_state.take()
        self._reset = _values(self._reset_by_keras())
        self._plain = extra.values()

    @contextlib.contextmanager
    def unchanged(self, but: frozenset[int] = frozenset()) -> Iterator[None]:
        """Variables that exist keep their values, whatever assigns others to them inside.

        Args:
            but: identities of the handles of those that the functions of the data use.
        """
        build.build_compiled(self._model)
        own = (*own_variables(self._model, self._objects), *self._counter())
        held = collect(self._objects).variables.values()
        kept = _values([*held, *own, *self._extra.variables(but)])
        try:
            yield
        finally:
            _assign(kept)

    def put_back(self) -> None:
        """What Keras resets in each epoch, and what the data may have drawn from."""
        _assign(self._reset)
        random_state.put(self._generators)
        self._extra.put_back(self._plain)

    def _reset_by_keras(self) -> Iterator[Any]:
        for objects in (self._objects, {"model": self._model}):
            live = collect(objects)
            for name, entry in live.inventory.entries.items():
                if entry.role is Role.METRIC:
                    yield live.variables[name]
        yield from self._counter()

    def _counter(self) -> list[Any]:
        """tf_keras's count of steps, which is no value of the model's."""
        counter = getattr(self._model, "_train_counter", None)
        return [] if counter is None else [counter]


def _values(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    held = (part for each in variables if is_variable(each) for part in parts(raw(each)))
    return [(part, on_host(part.read_value())) for part in held]


def _assign(values: Iterable[tuple[Any, Any]]) -> None:
    for variable, value in values:
        variable.assign(value)
