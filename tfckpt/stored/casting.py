"""Casts a value to another dtype, and refuses a cast that loses it.

Rounding is allowed. Refused are a finite number that becomes infinite, and a number that the
integer dtype cannot represent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.bundles.values import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

_PART = 1 << 20


def kept(value: np.ndarray, cast: np.ndarray) -> np.ndarray:
    """Which elements survive a cast, apart from rounding.

    >>> import numpy as np
    >>> kept(np.array([0.5, 2.0]), np.array([0, 2])), kept(np.array([1e6]), np.array([np.inf]))
    (array([False,  True]), array([False]))
    >>> kept(np.array([200, 100], np.uint8), np.array([-56, 100], np.int8))
    array([False,  True])
    """
    import numpy as np

    with np.errstate(all="ignore"):
        if cast.dtype.kind not in "iu":
            return np.asarray(np.isfinite(cast) == np.isfinite(value))
        held = cast.astype(value.dtype) == value
        if (
            value.dtype.kind in "iu"
        ):  # a wrapped number converts back to itself, but its sign differs
            held &= (cast < 0) == (value < 0)
    return np.asarray(held)


def cast(value: np.ndarray, dtype: str, path: str, name: str) -> np.ndarray:
    """The value in a dtype named as TensorFlow does; ``path`` and ``name`` are for messages.

    Raises:
        UnsupportedCheckpointError: the dtype cannot hold a number of the value.

    >>> import numpy as np
    >>> cast(np.array([0.1], np.float32), "bfloat16", "ckpt-1", "v")
    array([0.100098], dtype=bfloat16)
    """
    import numpy as np

    target = numpy_dtype(dtype)
    if value.dtype == target:
        return value
    result = np.empty(value.shape, target)
    old, new = np.ascontiguousarray(value).reshape(-1), result.reshape(-1)
    for start in range(0, old.size, _PART):
        part = slice(start, start + _PART)
        with np.errstate(all="ignore"):
            new[part] = old[part].astype(target)
        held = kept(old[part], new[part])
        if not held.all():
            lost = old[part][~held][0]
            message = f"{dtype} cannot hold {lost}, stored as {value.dtype.name}"
            hint = "exclude this value from the cast, or use a wider dtype"
            raise UnsupportedCheckpointError(message, path=path, name=name, hint=hint)
    return result
