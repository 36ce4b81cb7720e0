"""Small trainings, stopped or killed twice: resumed exactly, or it is said that they are not.

Data that draws, state that no model holds, layers with state, two optimizers, Keras's callbacks,
validation, several ``fit`` (``zoo/stateful``, ``zoo/stopped``), in both flavours. Stopped by an
exception; or the process kills itself with SIGKILL before a batch and another one begins again.
Compared are weights, optimizer state and History.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from zoo.forkserver import ForkServer
from zoo.stopped import drawn_training, killed_twice, stopped_twice

tf_keras = pytest.importorskip("tf_keras")
WORDS = [  # the last may say why it is not exact
    ("keras", "weighted by_class dense adam stopping_early validated_at_times once"),
    ("tf_keras", "dataset counted dense momentum plateau unvalidated twice"),
    ("keras", "noisy_repeated nothing norm momentum scheduled validated continued"),
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


@pytest.mark.parametrize(("flavour", "words"), WORDS)
def test_a_killed_training_ends_as_one_that_never_was(flavour, words, tmp_path, server) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    run, draw = str(tmp_path / "run"), random.Random(seed)
    verdict, said = killed_twice(server, flavour, tuple(words.split()), run, draw)
    assert verdict == "exact" or (verdict == "said" and (flavour, words) == WORDS[-1]), said


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


@pytest.mark.long
def test_many_trainings_are_resumed_exactly_or_say_so(tmp_path, server) -> None:
    _search(100, random.SystemRandom().randrange(1 << 32), tmp_path / "killed", server)
    _search(300, random.SystemRandom().randrange(1 << 32), tmp_path / "stopped")
