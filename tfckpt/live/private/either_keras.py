"""What Keras 3 and tf_keras have in common: variables, layers, vocabularies, callbacks.

Seen in Keras 3.1 to 3.15 and tf_keras 2.16 to 2.21.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfckpt.live.private.tensorflow import changed, optional

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


# Variables


def is_variable(cls: type) -> bool:
    """Whether a class of trackables, not of tf.Variables, is one of variables of Keras 3's.

    ``keras.Variable`` is their class only since Keras 3.7.
    """
    if hasattr(cls, "_deferred_initialize"):
        return True
    return issubclass(cls, getattr(sys.modules.get("keras"), "Variable", ()))


# Layers


def check_layer(package: str, layer: Any, names: Iterable[str]) -> None:
    """Check on a plain layer that every layer has some attributes."""
    for name in names:
        if not hasattr(layer, name):
            raise changed(package, f"'Layer' has no attribute {name!r}")


def with_layers_below(layer: Any) -> list[Any]:
    """A layer and all layers below it."""
    return [*layer._flatten_layers()]


def trainable_of(layer: Any) -> Sequence[Any]:
    """A layer's own trainable variables, as if it were not frozen."""
    found = getattr(layer, "_trainable_variables", None)  # Keras 3
    return found or getattr(layer, "_trainable_weights", None) or ()  # tf_keras


def others_of(layer: Any) -> Sequence[Any]:
    """A layer's own other variables."""
    found = getattr(layer, "_non_trainable_variables", None)
    return found or getattr(layer, "_non_trainable_weights", None) or ()


def trainable_in_modules(layer: Any) -> list[Any]:
    """The variables of the plain modules that a layer of tf_keras holds, which it trains, too."""
    found: list[Any] = []
    for held in getattr(layer, "_self_tracked_trackables", ()):
        if isinstance(held, tf.Module) and not hasattr(held, "_flatten_layers"):
            with contextlib.suppress(ValueError):  # a dict whose keys TensorFlow cannot sort
                found += held.trainable_variables
    return found


def calls_of(layer: Any) -> Sequence[Any]:
    """The calls of a layer on symbolic tensors."""
    return getattr(layer, "_inbound_nodes", ())


# Files


class _GroupRecorder(set[int]):
    """In place of a file, and of the set of what is written: the group of each object.

    And whether it has values of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, tuple[str, bool]] = {}
        self._group: str | None = None
        self._holds = False

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: Any = None) -> _GroupRecorder:
        self._group, self._holds = path, False
        return self

    def __setitem__(self, key: str, value: Any) -> None:
        self._holds = True  # nothing is written

    def add(self, one: int) -> None:
        super().add(one)
        if self._group is not None:
            self.found[one], self._group = (self._group, self._holds), None


def groups_of(package: str, model: Any) -> Mapping[int, tuple[str, bool]]:
    """The id of each object in a model → the group of a file for it, and whether that has values.

    As Keras would write it.
    """
    library = f"{package}.src.saving.saving_lib"
    if (walk := optional(library, "_save_state")) is None:
        return {}
    store = optional(library, "H5IOStore")  # Keras 3 asks for its class
    recorder = type("Recorder", (_GroupRecorder, store), {})()
    recorder.update([id(getattr(model, "optimizer", None))])  # it would copy all that it has
    with contextlib.suppress(Exception):  # a layer may write its values itself, by a user's code
        walk(model, recorder, None, "", recorder)
    found: Mapping[int, tuple[str, bool]] = recorder.found
    return found


# Vocabularies of lookup layers, which are set again as the layer sets them

VOCABULARY_ATTRIBUTES = ("lookup_table", "_frozen_vocab_size")
