"""Casts values between dtypes; refuses a number that the new dtype cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfckpt.errors import RestoreError
from tfckpt.stored.casting import kept


def cast(name: str, value: Any, dtype: Any, *, lossy: bool = False) -> Any:
    """An array in another dtype; ``name`` is for the message.

    With ``lossy``, fractions and imaginary parts are cut off, integers wrap, and too large numbers
    become infinite. Casts without a defined result are still refused.

    Raises:
        RestoreError: the dtype cannot hold a number: 1e6 in float16, 0.5 or NaN in an integer.
    """
    dtype = np.dtype(dtype)
    if value.dtype in (dtype, object):
        return value
    if lossy and value.dtype.kind == "c" and dtype.kind not in "cb":
        value = value.real
    with np.errstate(all="ignore"):
        if lossy and dtype.kind in "iu":
            held = _within(value, dtype)
            cast = np.where(held, value, 0).astype(dtype)
        else:
            cast = value.astype(dtype)
            held = np.True_ if lossy else kept(value, cast)
    if not held.all():
        lost = value[~held].flat[0]
        raise RestoreError(
            f"{name}: {dtype.name} cannot hold {lost}, which is {value.dtype.name} in the "
            "checkpoint; nothing was changed",
            hint="exclude it, or give the variable a wider dtype",
        )
    return cast


def _within(value: Any, dtype: Any) -> Any:
    """Where a cast to an integer dtype is defined; out of range, C leaves it undefined."""
    if value.dtype.kind in "iub":
        return np.ones(value.shape, bool)
    limits = np.iinfo(dtype)
    whole = np.trunc(value.astype(np.float64))
    return (whole >= float(limits.min)) & (whole < float(limits.max) + (limits.bits <= 32))
