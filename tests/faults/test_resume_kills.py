"""Small trainings, stopped or killed twice: resumed exactly, or it is said that they are not.

Data that draws, state that no model holds, layers with state, two optimizers, Keras's callbacks,
validation, several ``fit`` (``zoo/stateful``, ``zoo/stopped``), in both flavours. Stopped by an
exception; or the process kills itself with SIGKILL before a batch and another one begins again.
Compared are weights, optimizer state and History.
"""

from __future__ import annotations

import collections
import random
from typing import TYPE_CHECKING

import keras
import pytest
import tensorflow as tf
from zoo.forkserver import ForkServer
from zoo.stopped import drawn_training, killed_twice, stopped_twice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

tf_keras = pytest.importorskip("tf_keras")
_START = 4
# Exact, or it is said why not: tf_keras's dropout, a dataset that a finished `fit` read, too.
OR_SAYS_SO = [
    ("augmented_ahead", "by_class", "dropout", "adam", "stopping", "validated", "once"),
    ("noisy_repeated", "nothing", "norm", "momentum", "scheduled", "validated", "continued"),
]
EXACT = [
    ("weighted", "by_class", "dense", "adam", "stopping_early", "validated_at_times", "once"),
    ("dataset", "counted", "dense", "momentum", "plateau", "unvalidated", "twice"),
    ("nested", "nothing", "lstm", "adam", "alone", "unvalidated", "once"),
]


@pytest.fixture(autouse=True)
def _no_generators_left():
    yield
    tf.random.set_seed(0)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    preload = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.stopped")
    with ForkServer(preload=preload) as server:
        yield server


@pytest.mark.parametrize("words", EXACT + OR_SAYS_SO, ids="-".join)
def test_a_killed_training_ends_as_one_that_never_was(words, flavour, tmp_path, server) -> None:
    if words[2] == "lstm" and flavour.__name__ == "tf_keras":
        pytest.skip("its cell draws by TensorFlow's operations")
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    verdict, said = killed_twice(server, flavour.__name__, words, str(tmp_path / "run"), draw)
    assert verdict == "exact" or (verdict == "said" and words in OR_SAYS_SO), said


def _search(number: int, start: int, directory: Path, server: ForkServer | None = None) -> None:
    draw = random.Random(start)
    shares: collections.Counter[str] = collections.Counter()
    wrong = []
    for count in range(number):
        flavour = (keras, tf_keras)[count % 2]
        words = drawn_training(draw)
        where = str(directory / str(count))
        if server is None:
            verdict, said = stopped_twice(flavour, words, where, draw)
        else:
            verdict, said = killed_twice(server, flavour.__name__, words, where, draw)
        shares[verdict] += 1
        if verdict == "wrong":
            wrong.append((flavour.__name__, words, said))
        flavour.backend.clear_session()
    print(f"seed {start}: {number} trainings, {dict(shares)}")
    assert not wrong, wrong


def test_a_sample_of_stopped_trainings_is_resumed_exactly_or_says_so(tmp_path) -> None:
    _search(12, _START, tmp_path)


@pytest.mark.long
def test_a_hundred_killed_trainings_are_resumed_exactly_or_say_so(tmp_path, server) -> None:
    _search(100, random.SystemRandom().randrange(1 << 32), tmp_path, server)


@pytest.mark.long
def test_three_hundred_trainings_are_resumed_exactly_or_say_so(tmp_path) -> None:
    _search(300, random.SystemRandom().randrange(1 << 32), tmp_path)
