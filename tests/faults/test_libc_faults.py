"""A process is killed, or told that the disk is full or broken, at each call below Python.

Every call of libc's that changes a file of the run is struck, those of TensorFlow's C++ included,
in every way there is (`injection.Mode`). What must hold afterwards is the oracle's to say
(`oracle`). Plain TensorFlow goes through a sample of the same, and shows that the oracle sees what
there is to see.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from faults.harness import (
    ALL,
    KILLS,
    PRELOAD,
    SEED,
    Harness,
    assert_sound,
    below_python,
    shape,
    show,
)
from faults.injection import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    work = tmp_path_factory.mktemp("faults")
    with below_python(work, PRELOAD) as server:
        yield Harness(server, work, "libc")


def test_no_fault_costs_a_checkpoint_or_leaves_debris(harness: Harness) -> None:
    cases = random.Random(SEED).sample(harness.every("tfckpt", ALL), 60)
    results = harness.run(cases)
    show(results)
    assert_sound(results)


def test_a_process_killed_while_it_clears_up_after_another(harness: Harness) -> None:
    rng = random.Random(SEED)
    killed = harness.run(rng.sample(harness.every("tfckpt", ["rotate"], KILLS), 8))
    before = sorted({shape(one.root): str(one.root) for one in killed}.values())
    results = harness.run(rng.sample(harness.every("tfckpt", ["recover"], KILLS, before[:3]), 12))
    show(results)
    assert_sound(results)


def test_plain_tensorflow_loses_checkpoints_and_leaves_debris(harness: Harness) -> None:
    cases = random.Random(SEED).sample(harness.every("tensorflow", ALL, KILLS), 24)
    results = harness.run(cases)
    show(results)
    assert any(result.unrecoverable for result in results)
    assert any(result.debris for result in results)


@pytest.mark.long
@pytest.mark.parametrize("scenario", ALL)
def test_every_fault(harness: Harness, scenario: str) -> None:
    results = harness.run(harness.every("tfckpt", [scenario]))
    show(results)
    assert_sound(results)


@pytest.mark.long
def test_every_kill_while_clearing_up_after_every_kill(harness: Harness) -> None:
    before_each_call = [kind for kind in KILLS if kind.mode is Mode.KILL_BEFORE]
    killed = harness.run(harness.every("tfckpt", ["rotate"], KILLS))
    before = sorted({shape(one.root): str(one.root) for one in killed}.values())
    print(f"\n{len(before)} different directories left by {len(killed)} kills")
    results = harness.run(harness.every("tfckpt", ["recover"], before_each_call, before))
    show(results)
    assert_sound(results)


@pytest.mark.long
def test_every_fault_of_plain_tensorflow(harness: Harness) -> None:
    results = harness.run(harness.every("tensorflow", ALL))
    show(results)
    assert any(result.unrecoverable for result in results)
