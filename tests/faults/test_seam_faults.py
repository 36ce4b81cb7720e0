"""The same at tfckpt's own file system interface: without a compiler, on any system.

TensorFlow's own writing is not struck here; every call of tfckpt's is: writes, renames, deletions,
directories and fsyncs.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from faults.harness import ALL, PRELOAD, SEED, Harness, assert_sound, show
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with ForkServer(preload=(*PRELOAD, "faults.no_fsync")) as server:
        yield Harness(server, tmp_path_factory.mktemp("faults"), "seam")


def test_no_failing_call_costs_a_checkpoint_or_leaves_debris(harness: Harness) -> None:
    results = harness.run(random.Random(SEED).sample(harness.every("tfckpt", ALL), 40))
    show(results)
    assert_sound(results)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ALL)
def test_every_failing_call(harness: Harness, scenario: str) -> None:
    results = harness.run(harness.every("tfckpt", [scenario]))
    show(results)
    assert_sound(results)
