"""What several modules of unit tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from zoo.gate import Gate, built_in

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gate(monkeypatch) -> Iterator[Gate]:
    """Saves in the background wait behind it until it is opened."""
    found = built_in(monkeypatch)
    yield found
    found.open()
