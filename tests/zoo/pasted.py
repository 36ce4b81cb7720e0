"""Restores as people would who paste what a refusal shows."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

import tfckpt
from zoo.variables import inner

if TYPE_CHECKING:
    from collections.abc import Iterable


def pasted(path: str, model: Any) -> tfckpt.RestoreReport:
    """Restore at first try, or by the YAML that the refusal ends with."""
    if tfckpt.plan(path, model).ok:
        return tfckpt.restore(path, model)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model)
    assert refused.value.suggestion is not None, str(refused.value)
    shown = str(refused.value).partition("\n\nin Python:")[0]
    lead, _, code = shown.rpartition(":\n\n")
    assert lead.split("\n\n")[-1].startswith("this policy restores ")
    return tfckpt.restore(path, model, policy=yaml.safe_load(textwrap.dedent(code)))


def equal(stored: Iterable[Any], live: Iterable[Any]) -> None:
    for one, other in zip(stored, live, strict=True):
        wanted = one if isinstance(one, np.ndarray) else np.asarray(inner(one))
        np.testing.assert_array_equal(wanted, np.asarray(inner(other)))
