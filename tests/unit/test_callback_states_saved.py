"""Other callbacks, through a checkpoint: killed in an epoch, they go on as if nothing had been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = np.linspace(-1, 1, 80, dtype=np.float32).reshape(20, 4)
Y = X.sum(1, keepdims=True)
SCORES = [5.0, 3.0, 4.0, 3.5, 3.2, 2.5, 2.75, 2.625]
Fit = tuple[Any, Any]


@pytest.fixture
def fit(flavour) -> Callable[..., Fit]:
    """``fit(path, make, (2, 1))``: a new process, as far as a test can; killed there."""

    def run(path: Path, make: Callable[[], list[Any]], killed: Any = None, **save: int) -> Fit:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(1, name="a")])
        ema = {"use_ema": True} if flavour.__name__ == "keras" else {}
        model.compile(flavour.optimizers.Adam(0.05, **ema), "mse")

        class Scored(flavour.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.now = epoch

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if (self.now, batch) == killed:
                    raise KeyboardInterrupt

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                logs["score"] = SCORES[epoch]

            def on_train_end(self, logs: Any = None) -> None:
                if killed == "at the end":
                    raise KeyboardInterrupt

        config = {
            "version": 1,
            "manager": {"directory": str(path), "save": save or {"every_steps": 3}},
            "restore": {"directory": str(path), "if_none": "initialize"},
        }
        ours = tfckpt.from_config(config, model=model).callback(verbose=0)
        arguments = {"batch_size": 5, "epochs": len(SCORES), "verbose": 0}
        callbacks = [Scored(), ours, *make()]
        if killed is None:
            return model, model.fit(X, Y, callbacks=callbacks, **arguments)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y, callbacks=callbacks, **arguments)
        return model, None

    return run


def same(one: Fit, other: Fit) -> None:
    np.testing.assert_equal(one[0].get_weights(), other[0].get_weights())
    assert (one[1].epoch, one[1].history) == (other[1].epoch, other[1].history)


KINDS: dict[str, dict[str, Any]] = {
    "EarlyStopping": {"patience": 3, "restore_best_weights": True},
    "ReduceLROnPlateau": {"patience": 1, "cooldown": 1, "factor": 0.5},
    "SwapEMAWeights": {"swap_on_epoch": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_in_an_epoch_and_between_two(kind, fit, flavour, tmp_path) -> None:
    if not hasattr(flavour.callbacks, kind):
        pytest.skip(f"{flavour.__name__} has no {kind}")
    scored = {} if kind == "SwapEMAWeights" else {"monitor": "score", "mode": "min"}

    def make() -> list[Any]:
        return [getattr(flavour.callbacks, kind)(**scored, **KINDS[kind])]

    whole = fit(tmp_path / "whole", make)
    assert len(whole[1].epoch) == (5 if kind == "EarlyStopping" else len(SCORES))
    for killed in ((3, 0), (4, 2)):
        path = tmp_path / str(killed)
        fit(path, make, killed)
        same(fit(path, make), whole)


@pytest.mark.parametrize("killed", ["at the end", None])
def test_the_best_weights_are_put_back_in_a_training_that_was_over(
    killed, fit, flavour, tmp_path
) -> None:
    def make() -> list[Any]:
        kind = flavour.callbacks.EarlyStopping
        return [kind("score", mode="min", patience=3, restore_best_weights=True)]

    whole = fit(tmp_path / "whole", make, every_epochs=1)
    fit(tmp_path / "run", make, killed, every_epochs=1)
    same(fit(tmp_path / "run", make, every_epochs=1), whole)
