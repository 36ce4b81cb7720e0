"""Keras 3: classes, counts of names, the global seed generator, and where ``fit`` begins.

Seen in Keras 3.1 to 3.15. It is imported only in a program that has imported Keras.
"""

from __future__ import annotations

import functools
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfckpt.live.private.tensorflow import changed, needed, optional

if TYPE_CHECKING:
    from collections.abc import Sequence

# Attributes of functional and sequential models that list their layers again.
SEQUENCE_ATTRIBUTES = frozenset(
    {"_functional", "_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth"}
)
# What every layer has, even one without variables.
OF_LAYERS = (
    *("_flatten_layers", "_inbound_nodes", "_metrics"),
    *("_non_trainable_variables", "_seed_generators", "_trainable_variables"),
)


def functional() -> Any:
    """The class of functional models."""
    with needed("keras"):
        from keras.src.models.functional import Functional

        return Functional


def counted(base: str) -> int:
    """How many names Keras has generated of an automatic one; 0 if unknown."""
    get = optional("keras.src.backend.common.global_state", "get_global_attribute")
    counts = get("object_name_uids") if get else None
    return int((counts or {}).get(base, 0))


def inputs_of(node: Any) -> Sequence[Any]:
    """The input tensors of a call of a layer."""
    found: Sequence[Any] = node.input_tensors
    return found


# The global seed generator, for operations without one of their own


def global_seed_state(*, make: bool = False) -> Any:
    """Its variable; None if it was not used yet, or Keras has not been imported."""
    if "keras" not in sys.modules:
        return None
    generator = _make_generator() if make else _found()
    if generator is None:
        _check_found()
    return None if generator is None else generator.state


def _make_generator() -> Any:
    with needed("keras"):
        from keras.src.random.seed_generator import global_seed_generator

        return global_seed_generator()


def _found() -> Any:
    with needed("keras"):
        from keras.src.random import seed_generator

        # Older releases have no constant for it.
        name = getattr(seed_generator, "GLOBAL_SEED_GENERATOR", "global_seed_generator")
        return seed_generator.global_state.get_global_attribute(name)


@functools.cache
def _check_found() -> None:
    """Raise if a generator that exists is not found; tried once, on one that is dropped.

    Keras's state is of a thread, and so is the scope of a strategy, in which the generator would be
    a variable that all workers make together: Keras 3.1's, of ``uint32``, cannot be.
    """
    with ThreadPoolExecutor(1) as other:
        other.submit(_try_found).result()


def _try_found() -> None:
    before = random.getstate()
    try:
        made = _make_generator()
        if _found() is not made:
            raise changed("keras", "the global seed generator, under its name")
    finally:
        random.setstate(before)  # Keras draws its seed from it
