"""The callback for ``fit``, in both Keras flavours, and the state of training that it keeps.

``resume`` makes one without a config; what it ties together is above this room, so that it is
looked up on first use, and TensorFlow is not loaded before.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["resume"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module("tfckpt.run"), name)
    return value
