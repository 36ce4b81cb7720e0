"""The random generators that belong to the process and to no object.

Keras 3 draws from a global seed generator wherever a layer or an operation has none of its own;
TensorFlow gives every random operation that runs by itself a seed from a generator that the global
seed has started. Python's and NumPy's are what data sets written in Python shuffle with. A
generator of Keras's or TensorFlow's that was never asked for is not made here.
"""

from __future__ import annotations

import base64
import random
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from tensorflow.python.eager import context
from tensorflow.python.ops import stateful_random_ops

if TYPE_CHECKING:
    from collections.abc import Mapping


def global_seed() -> int | None:
    """What ``tf.random.set_seed`` was given last."""
    seed = context.global_seed()
    return None if seed is None else int(seed)


def take() -> dict[str, Any]:
    """The state of each, as JSON values."""
    found: dict[str, Any] = {"python": _packed(random.getstate())}
    name, words, *rest = np.random.get_state(legacy=True)
    if name == "MT19937":
        found["numpy"] = [_text(np.asarray(words)), *rest]
    if global_seed() is not None:
        found["tensorflow"] = _packed(context.context()._rng.getstate())
    if (variable := _keras_state()) is not None:
        found["keras"] = np.asarray(variable).tolist()
    if stateful_random_ops.global_generator is not None:
        found["generator"] = stateful_random_ops.global_generator.state.numpy().tolist()
    return found


def put(saved: Mapping[str, Any]) -> None:
    """Give each the state it had.

    Raises:
        ValueError: that is none.
        TypeError: that is none.
    """
    if "tensorflow" in saved and global_seed() is not None:
        context.context()._rng.setstate(_unpacked(saved["tensorflow"]))
    if "keras" in saved and (variable := _keras_state(make=True)) is not None:
        variable.assign(saved["keras"])
    if "generator" in saved:
        generator = stateful_random_ops.get_global_generator()
        generator.state.assign(saved["generator"])
    if "numpy" in saved:
        text, *rest = saved["numpy"]
        np.random.set_state(("MT19937", _words(text), *rest))
    if "python" in saved:
        random.setstate(_unpacked(saved["python"]))


def _keras_state(*, make: bool = False) -> Any:
    """The variable of Keras 3's global seed generator, None where there is none."""
    module = sys.modules.get("keras.src.random.seed_generator")
    if module is None:
        return None
    if make:
        return module.global_seed_generator().state
    # Older releases have no constant for it.
    name = getattr(module, "GLOBAL_SEED_GENERATOR", "global_seed_generator")
    generator = module.global_state.get_global_attribute(name)
    return None if generator is None else generator.state


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
