"""Values of one type as values of another, or the number that does not go in."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfckpt.errors import RestoreError


def cast(name: str, value: Any, dtype: Any, *, lossy: bool = False) -> Any:
    """The value in another type.

    Args:
        name: whose value it is.
        value: an array.
        dtype: NumPy's.
        lossy: whether fractions and imaginary parts are cut off, whole numbers wrap, and what is
            too large becomes infinite. What has no defined outcome is refused all the same.

    Raises:
        RestoreError: the type cannot hold it: 1e6 in float16, 0.5 or NaN in an integer.
    """
    dtype = np.dtype(dtype)
    if value.dtype in (dtype, object):
        return value
    if lossy and value.dtype.kind == "c" and dtype.kind not in "cb":
        value = value.real
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and lossy:
            kept = _within(value, dtype)
            cast = np.where(kept, value, 0).astype(dtype)
        elif dtype.kind in "iu":
            cast = value.astype(dtype)
            kept = cast.astype(value.dtype) == value
        else:
            cast = value.astype(dtype)
            kept = True if lossy else np.isfinite(cast) == np.isfinite(value)
    if not np.all(kept):
        lost = value[~kept].flat[0]
        raise RestoreError(
            f"{name}: {dtype.name} cannot hold {lost}, which the checkpoint has as "
            f"{value.dtype.name}; nothing was changed",
            hint="exclude it, or give the variable a wider type",
        )
    return cast


def _within(value: Any, dtype: Any) -> Any:
    """Where a cast to whole numbers has an outcome; from outside of the range it has none in C."""
    if value.dtype.kind in "iub":
        return np.ones(value.shape, bool)
    limits = np.iinfo(dtype)
    whole = np.trunc(value.astype(np.float64))
    return (whole >= float(limits.min)) & (whole < float(limits.max) + (limits.bits <= 32))
