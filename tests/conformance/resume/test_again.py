"""A program that is started again after its end, and one of several ``fit``."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.forkserver import ForkServer
from zoo.trainings import digest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
TRAIN = "zoo.trainings:train"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    preload = ("tensorflow", "keras", "tf_keras", "tfckpt", "zoo.trainings")
    with ForkServer(preload=preload) as server:
        yield server


@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_training_that_was_over_ends_again_as_it_did(
    server, tmp_path, flavour, optimizer
) -> None:
    arguments = (flavour, "dense", "finite", optimizer, str(tmp_path / "run"))
    first = server.run(TRAIN, *arguments, timeout=120.0).result()
    again = server.run(TRAIN, *arguments, timeout=120.0).result()
    assert again == first


def two_fits(flavour: str, directory: str, kill: list[int] | None) -> Any:
    """A head is trained, then the whole at another rate; killed in the given ``fit`` and batch."""
    import importlib

    import tfckpt

    keras = importlib.import_module(flavour)
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5, name="a"), keras.layers.Dense(2, name="b")]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    where = {"directory": directory}
    config = {
        "version": 1,
        "manager": {**where, "save": {"every_steps": 1, "every_epochs": 1}, "durable": False},
        "restore": {**where, "if_none": "initialize"},
    }
    run = tfckpt.from_config(config, model=model)
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
    y = np.stack([x.sum(1), x.prod(1)], 1)
    losses = []
    for number, epochs in enumerate((2, 3)):

        class Kill(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.epoch = epoch

            def on_train_batch_begin(self, batch: int, logs: Any = None, at: int = number) -> None:
                if [at, self.epoch, batch] == kill:
                    os.kill(os.getpid(), signal.SIGKILL)

        callbacks = [run.callback(verbose=0), Kill()]
        fitted = model.fit(x, y, batch_size=4, epochs=epochs, verbose=0, callbacks=callbacks)
        losses.append([float(loss) for loss in fitted.history.get("loss", ())])
    return [
        digest(v.numpy() for v in model.weights),
        losses[-1],
        int(model.optimizer.iterations.numpy()),
    ]


@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
def test_of_two_fits_the_one_that_was_killed_goes_on(server, tmp_path, flavour) -> None:
    program = (__file__, "two_fits")
    whole = server.run(program, flavour, str(tmp_path / "whole"), None, timeout=120.0).result()
    for place in ([0, 1, 1], [1, 0, 0], [1, 0, 2], [1, 2, 1]):
        killed = server.run(program, flavour, str(tmp_path / "run"), place, timeout=120.0)
        assert killed.signal == signal.SIGKILL, (place, str(killed))
    ended = server.run(program, flavour, str(tmp_path / "run"), None, timeout=120.0)
    assert ended.result() == whole
