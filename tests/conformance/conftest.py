"""Models and optimizers by name, and two managers side by side; see the package ``zoo``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from zoo.models import MODELS
from zoo.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zoo.sides import Side


@pytest.fixture
def build(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """``build(keras)``: the model of that name."""
    return MODELS[request.param]


@pytest.fixture
def optimizer(request: pytest.FixtureRequest, flavour: Any) -> Any:
    """The optimizer of that name, not built."""
    try:
        return OPTIMIZERS[request.param](flavour)
    except AttributeError:
        pytest.skip(f"this release of {flavour.__name__} has no such optimizer")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """``clock[0] += HOUR``: an hour later."""
    from zoo.sides import START

    now = [START]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


@pytest.fixture
def sides(clock: list[float], tmp_path: Path) -> tuple[Side, Side]:
    """TensorFlow's manager and ours, each in a directory of its own."""
    from zoo.sides import both

    return both(tmp_path, clock)
