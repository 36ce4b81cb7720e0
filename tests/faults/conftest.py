"""One process that has imported what the tests here need, and forks for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from zoo.forkserver import ForkServer

PRELOAD = ("tensorflow", "keras", "tf_keras", "tfckpt", "faults.scenes", "zoo.stopped")


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=PRELOAD) as server:
        yield server
