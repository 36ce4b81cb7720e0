"""A training that is killed again and again ends as one that never was: bit for bit.

The process kills itself with SIGKILL before a batch, or in a validation; the same script starts
again in a new process, until it comes to its end. Compared are weights, optimizer state, History,
what a callback saw of every batch, what EarlyStopping knows, and the best checkpoint that is kept.
"""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

# model, data, optimizer, further arguments of `fit` and `compile`
TRAININGS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("dense", "finite", "adam", {}),
    ("dense", "arrays", "scaled", {}),
    ("convolution", "repeated", "sgd", {}),
    ("recurrent", "arrays", "adam", {}),
    ("transformer", "finite", "adamw", {}),
    ("dense", "sequence", "adam", {}),
    ("recurrent", "unknown_size", "sgd", {}),
    ("dense", "drawn", "adamw", {}),
    ("dense", "twice", "adam", {}),
    ("transformer", "generator", "adam", {}),
    ("dense", "arrays", "adam", {"validation_freq": 2}),
    ("dense", "finite", "sgd", {"compile": {"steps_per_execution": 2}}),
    ("dense", "repeated", "adam", {"compile": {"jit_compile": True}}),
]
KERAS_3_ONLY = [("dense", "arrays", "accumulating", {})]
FLAVOURS = {"keras": TRAININGS + KERAS_3_ONLY, "tf_keras": TRAININGS}
ALL = [(flavour, *training) for flavour, found in FLAVOURS.items() for training in found]
KILLS = 5  # of each
SAMPLE = 4  # trainings of the seeded sample


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    preload = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.trainings")
    with ForkServer(preload=preload) as server:
        yield server


def run(server: ForkServer, trainings: Any, places: list[Any], directory: Path) -> list[Any]:
    """Start each of the trainings, to be killed at its place, or not."""
    return server.run_many(
        [
            ("zoo.trainings:train", *training[:4], str(directory / str(number)), place, 2, more)
            for number, (training, place) in enumerate(zip(trainings, places, strict=True))
            for more in (training[4],)
        ],
        timeout=300.0,
    )


def kill_and_resume(server: ForkServer, trainings: Any, kills: int, seed: int, tmp_path: Path):
    draw = random.Random(seed)
    print(f"seed {seed}")
    nowhere = [None] * len(trainings)
    whole = [each.result() for each in run(server, trainings, nowhere, tmp_path / "whole")]
    places = []
    for training, each in zip(trainings, whole, strict=True):
        step = training[4].get("compile", {}).get("steps_per_execution", 1)
        batches = [[epoch, batch - batch % step] for epoch, batch, *_ in each["seen"]]
        places.append(sorted(draw.sample(batches, kills)))
    done = 0
    for number in range(kills):
        killed = run(server, trainings, [p[number] for p in places], tmp_path / "killed")
        for training, outcome, place in zip(trainings, killed, places, strict=True):
            assert outcome.signal == signal.SIGKILL, (training, place[number], str(outcome))
            done += 1
    ended = run(server, trainings, nowhere, tmp_path / "killed")
    for training, outcome, expected, place in zip(trainings, ended, whole, places, strict=True):
        found = outcome.result()
        differ = {
            name: (expected[name], found[name])
            for name in expected
            if expected[name] != found[name]
        }
        assert not differ, (training, place, differ, outcome.output)
    print(f"{done} kills of {len(trainings)} trainings, each ended as the one that nobody killed")
    return done


def test_a_sample_of_kills_leaves_no_trace(server, tmp_path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    trainings = random.Random(seed).sample(ALL, SAMPLE)
    kill_and_resume(server, trainings, 2, seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_kills_leave_no_trace(flavour, server, tmp_path) -> None:
    trainings = [training for training in ALL if training[0] == flavour]
    done = kill_and_resume(
        server, trainings, KILLS, random.SystemRandom().randrange(1 << 32), tmp_path
    )
    assert done == KILLS * len(trainings) >= 60


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_kill_in_the_validation_and_one_before_the_first_save(flavour, server, tmp_path) -> None:
    training = (flavour, "dense", "finite", "adam", {})
    (whole,) = run(server, [training], [None], tmp_path / "whole")
    for place in ([0, 1], [0, -1], [2, -1]):
        (killed,) = run(server, [training], [place], tmp_path / "killed")
        assert killed.signal == signal.SIGKILL, killed
    (ended,) = run(server, [training], [None], tmp_path / "killed")
    assert ended.result() == whole.result()
