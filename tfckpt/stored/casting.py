"""A value in another type, where that type can hold it.

What rounds is a cast; what would be lost is refused: a finite number that becomes infinite, one
that an integer type has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.errors import UnsupportedCheckpointError
from tfckpt.stored.values import numpy_dtype

if TYPE_CHECKING:
    import numpy as np

_PART = 1 << 20


def cast(value: np.ndarray, dtype: str, path: str, name: str) -> np.ndarray:
    """The value in TensorFlow's type of that name.

    Args:
        value: of numbers.
        dtype: what it is to be.
        path: where it comes from, for messages.
        name: its own, for messages.

    Raises:
        UnsupportedCheckpointError: the type cannot hold it.

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
            if target.kind in "iu":
                kept = new[part].astype(old.dtype) == old[part]
            else:
                kept = np.isfinite(new[part]) == np.isfinite(old[part])
        if not kept.all():
            lost = old[part][~kept][0]
            message = f"{dtype} cannot hold {lost}, which is there as {value.dtype.name}"
            hint = "leave it out of what is cast, or choose a wider type"
            raise UnsupportedCheckpointError(message, path=path, name=name, hint=hint)
    return result
