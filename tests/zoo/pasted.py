"""Restores as people would who paste what a refusal shows, and who read the log."""

from __future__ import annotations

import contextlib
import logging
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import yaml

import tfckpt
from zoo.variables import inner


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


def answered(path: str, model: Any) -> tfckpt.RestoreReport:
    """Restore by the first answer that is offered to the question of a refusal."""
    with pytest.raises(tfckpt.RefusedError, match="once you decide") as refused:
        tfckpt.restore(path, model)
    assert refused.value.suggestion is None
    _, first, *_ = str(refused.value).split("→ ")
    code = "\n" + first.partition(":\n")[2]
    return tfckpt.restore(path, model, policy=yaml.safe_load(textwrap.dedent(code)))


def equal(stored: Iterable[Any], live: Iterable[Any]) -> None:
    """Arrays or variables of either flavor, one by one."""
    for pair in zip(stored, live, strict=True):
        one, other = (np.asarray(x if hasattr(x, "tobytes") else inner(x)) for x in pair)
        np.testing.assert_array_equal(one, other)


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """What is said meanwhile, by a warning or in a log."""
    said: list[str] = []
    ear = logging.Handler(logging.WARNING)
    ear.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("absl")
    logger.addHandler(ear)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield said
        said += [str(each.message) for each in caught]
    finally:
        logger.removeHandler(ear)
