"""The state of the global random generators of the process.

Keras 3 draws from a global seed generator if a layer or operation has none of its own. TensorFlow
seeds every eager random operation from a generator that the global seed initializes. Datasets
written in Python shuffle with Python's and NumPy's generators. Saving creates no generator of
Keras or TensorFlow that was not used yet.
"""

from __future__ import annotations

import base64
import random
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.errors import DamagedCheckpointError
from tfckpt.live.private.keras import global_seed_state
from tfckpt.live.private.runtime import global_generator, global_seed, seeds_of_operations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY = "generators"  # of a record that a loop of one's own has saved
_SHAPE_OF_KERAS = (2,)


def take() -> dict[str, Any]:
    """The state of each generator, as JSON values."""
    found: dict[str, Any] = {"python": _packed(random.getstate())}
    name, words, *rest = np.random.get_state(legacy=True)
    if name == "MT19937":
        found["numpy"] = [_text(np.asarray(words)), *rest]
    if global_seed() is not None:
        found["tensorflow"] = _packed(seeds_of_operations().getstate())
    if (variable := global_seed_state()) is not None:
        found["keras"] = np.asarray(variable).tolist()
    if (generator := global_generator()) is not None:
        found["generator"] = generator.state.numpy().tolist()
    return found


def state_of(obj: Any) -> Any:
    """The variable of a ``tf.random.Generator``; None for anything else."""
    return obj.state if isinstance(obj, tf.random.Generator) else None


def put(saved: Mapping[str, Any]) -> None:
    """Restore the state of each generator, all of them or none."""
    for assign in checked(saved):
        assign()


def restore(saved: Mapping[str, Any], prefix: str) -> None:
    """Restore what the record of a checkpoint has; raises a DamagedCheckpointError."""
    for assign in of_record(saved, prefix):
        assign()


def of_record(saved: Mapping[str, Any], prefix: str) -> list[Callable[[], object]]:
    """:func:`checked`, for the record of a checkpoint."""
    try:
        return checked(saved)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        what = f"the commit record's 'training' has an invalid random generator state: {error}"
        raise DamagedCheckpointError(what, path=prefix) from None


def checked(saved: Mapping[str, Any]) -> list[Callable[[], object]]:
    """The functions that restore each generator, after checking every state; changes nothing."""
    found: list[Callable[[], object]] = []
    if "tensorflow" in saved and global_seed() is not None:
        found.append(partial(seeds_of_operations().setstate, _python_state(saved["tensorflow"])))
    if "keras" in saved and "keras" in sys.modules:
        found.append(partial(_put_keras, _state_of(saved["keras"], _SHAPE_OF_KERAS)))
    if "generator" in saved:
        state = tf.random.get_global_generator().state
        found.append(partial(state.assign, _state_of(saved["generator"], state.shape)))
    if "numpy" in saved:
        text, *rest = saved["numpy"]
        words = ("MT19937", _words(text), *rest)
        np.random.RandomState().set_state(words)
        found.append(partial(np.random.set_state, words))
    if "python" in saved:  # last, because creating Keras's generator draws from it
        found.append(partial(random.setstate, _python_state(saved["python"])))
    return found


def _put_keras(state: Any) -> None:
    global_seed_state(make=True).assign(state)


def _python_state(packed: Any) -> tuple[Any, ...]:
    state = _unpacked(packed)
    random.Random().setstate(state)  # noqa: S311 (raises if it is not valid)
    return state


def _state_of(numbers: Any, shape: Any) -> np.ndarray[Any, Any]:
    state = np.asarray(numbers)
    if state.shape != tuple(shape) or state.dtype.kind not in "iu":
        raise ValueError(f"expected integers of shape {tuple(shape)}")
    return state


def _packed(state: tuple[Any, ...]) -> list[Any]:
    version, words, gauss = state
    return [version, _text(np.array(words, np.uint32)), gauss]


def _unpacked(packed: Any) -> tuple[Any, ...]:
    version, text, gauss = packed
    return version, tuple(_words(text).tolist()), gauss


def _text(words: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(words.astype("<u4").tobytes()).decode()


def _words(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), "<u4").astype(np.uint32)
