"""Undoes what changes in a model before ``fit`` has reached its saved position.

A step is run so that all variables exist, and undone at once, so that a ``fit`` that is refused or
fails on the way leaves the model as it was. Old values are kept in host memory, since a model may
fill the GPU.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Role
from tfckpt.live.building import build
from tfckpt.live.objects.collect import collect
from tfckpt.live.private import fit
from tfckpt.live.program_state import random_state
from tfckpt.live.variables.distributed import parts
from tfckpt.live.variables.variables import is_variable, on_host, raw
from tfckpt.training.state.trained import own_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tfckpt.training.state.extra_state import ExtraState


class Before:
    """The state of a model and of the process's random generators when ``fit`` begins."""

    def __init__(self, model: Any, objects: Mapping[str, Any], extra: ExtraState) -> None:
        self._model = model
        self._objects = objects
        self._extra = extra
        self._generators = random_state.take()
        self._reset = values_of(self._reset_by_keras())
        self._plain = extra.values()

    @contextlib.contextmanager
    def unchanged(self, but: frozenset[int] = frozenset()) -> Iterator[None]:
        """Restore the values of all existing variables after the body.

        ``but`` has ids of handles of variables to skip, which functions of the dataset use.
        """
        build.build_compiled(self._model)
        own = (*own_variables(self._model, self._objects), *self._counter())
        held = collect(self._objects).variables.values()
        kept = values_of([*held, *own, *self._extra.variables(but)])
        try:
            yield
        finally:
            assign_all(kept)

    def put_back(self) -> None:
        """Restore what Keras resets in each epoch, and what the dataset may have drawn from."""
        assign_all(self._reset)
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
        """tf_keras's step counter, which is not a variable of the model."""
        counter = fit.step_counter(self._model)
        return [] if counter is None else [counter]


def values_of(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Each variable with a copy of its value in host memory."""
    held = (part for each in variables if is_variable(each) for part in parts(raw(each)))
    return [(part, on_host(part.read_value())) for part in held]


def assign_all(values: Iterable[tuple[Any, Any]]) -> None:
    """Assign what :func:`values_of` has returned."""
    for variable, value in values:
        variable.assign(value)
