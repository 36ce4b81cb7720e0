"""The ``fit`` before this one in the same process: of the same model, or of another one.

A program that starts again is told from one that goes on by what is in memory. The same model,
compiled again, is in its next phase, be it with a callback of its own; after an interruption, its
cell was run again, unless other layers are to be trained now. Another model, after a ``fit`` that
was over, may be the next of several that were meant to be trained apart.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import TYPE_CHECKING, Any

from tfckpt.training.keras_internals import own_train_function

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTRIBUTE = "_tfckpt_earlier"  # on the model, with which it goes
_over: dict[str, weakref.ref[Any]] = {}  # directory → the model whose `fit` was over last


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The last ``fit`` of a model in this process.

    Attributes:
        directory: that it saved into.
        run: that it was of.
        function: what it trained by; made anew where the model is compiled again. None in a loop
            of one's own.
        trainable: which of the model's layers were, by their ids.
    """

    directory: str
    run: Any
    function: Any
    trainable: Mapping[int, bool]

    def is_followed_by_another(self, model: Any) -> bool:
        """Whether the one that begins is another one, and not the same again."""
        if self.function == own_train_function(model):  # a method is another object each time
            return False
        now = _trainable(model)
        other_layers = any(now.get(layer, flag) != flag for layer, flag in self.trainable.items())
        return other_layers or not self.run.fits.interrupted


def earlier(model: Any, directory: str) -> Earlier | None:
    """The last ``fit`` of a model, where it saved into the same directory."""
    found = vars(model).get(_ATTRIBUTE)
    return found if isinstance(found, Earlier) and found.directory == directory else None


def remember(model: Any, directory: str, run: Any) -> None:
    """Another one of the model has begun."""
    _over.pop(directory, None)
    vars(model)[_ATTRIBUTE] = Earlier(directory, run, own_train_function(model), _trainable(model))


def is_over(model: Any, directory: str) -> None:
    """It has come to its end."""
    _over[directory] = weakref.ref(model)


def of_another_model(model: Any, directory: str) -> bool:
    """Whether what was trained into a directory to its end, in this process, is another model."""
    return directory in _over and _over[directory]() is not model


def _trainable(model: Any) -> dict[int, bool]:
    return {id(layer): layer.trainable for layer in model._flatten_layers()}
