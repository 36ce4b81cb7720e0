"""One process that has imported TensorFlow, for all clusters of the tests here."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from zoo.cluster import PRELOAD
from zoo.forkserver import ForkServer


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with ForkServer(preload=PRELOAD) as server:
        yield server
