"""The previous ``fit`` in the same process, of the same model or of another one.

Objects in memory distinguish a restarted program from one that continues. After a finished ``fit``
of the same model the next one follows, whoever made its callback. After an interruption, a notebook
cell was run again, unless the model was compiled again and other layers are trainable now. Another
model, after a finished ``fit``, may be one of several that were meant to be trained separately.
"""

from __future__ import annotations

import dataclasses
import weakref
from typing import TYPE_CHECKING, Any

from tfckpt.live.private.either_keras import with_layers_below
from tfckpt.training.fit_hooks import own_train_function

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTRIBUTE = "_tfckpt_earlier"  # of the model, so that both are freed together
_over: dict[str, weakref.ref[Any]] = {}  # directory → the model whose `fit` finished last


@dataclasses.dataclass(frozen=True)
class Earlier:
    """The last ``fit`` of a model in this process."""

    directory: str
    run: Any
    function: Any
    trainable: Mapping[int, bool]

    def is_followed_by_another(self, model: Any) -> bool:
        """Whether the ``fit`` that begins is a new one, not the interrupted one run again."""
        if not self.run.fits.interrupted:
            return True
        if self.function == own_train_function(model):  # a method is another object each time
            return False
        now = _trainable(model)
        return any(now.get(layer, flag) != flag for layer, flag in self.trainable.items())


def earlier(model: Any, directory: str) -> Earlier | None:
    """The last ``fit`` of a model, if it saved into the same directory."""
    last = vars(model).get(_ATTRIBUTE)
    return last if isinstance(last, Earlier) and last.directory == directory else None


def remember(model: Any, directory: str, run: Any) -> None:
    """Record that a ``fit`` of the model has begun."""
    _over.pop(directory, None)
    vars(model)[_ATTRIBUTE] = Earlier(directory, run, own_train_function(model), _trainable(model))


def is_over(model: Any, directory: str) -> None:
    """Record that a ``fit`` of the model has finished."""
    _over[directory] = weakref.ref(model)


def of_another_model(model: Any, directory: str) -> bool:
    """Whether the last ``fit`` that finished with this directory trained another model."""
    return directory in _over and _over[directory]() is not model


def _trainable(model: Any) -> dict[int, bool]:
    return {id(layer): layer.trainable for layer in with_layers_below(model)}
