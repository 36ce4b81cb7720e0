"""One process that has imported TensorFlow, for all clusters of the tests here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from zoo.cluster import PRELOAD
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with ForkServer(preload=PRELOAD) as server:
        yield server
