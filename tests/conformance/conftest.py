"""The models and optimizers that a test is given by name; see the package ``zoo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from zoo.models import MODELS
from zoo.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from collections.abc import Callable


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
