"""``run.callback()`` in ``fit``: restores at the start, resumes the epoch, saves when due."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
Y = np.stack([X.sum(1), X.prod(1)], 1)
STEPS = 3  # of an epoch


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    """``run(every_epochs=1)``: a new model and a new run of one directory, as after a restart."""

    def build(policy: dict[str, Any] | None = None, **save: int) -> Any:
        flavour.utils.set_random_seed(1)
        model = flavour.Sequential(
            [flavour.Input((4,)), flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2)]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse")
        config = {
            "version": 1,
            "manager": {"directory": str(tmp_path / "run"), "save": save},
            "restore": {
                "directory": str(tmp_path / "run"),
                "if_none": "initialize",
                "policy": policy or {},
            },
        }
        return model, tfckpt.from_config(config, model=model)

    return build


def fit(model: Any, epochs: int, *callbacks: Any, **more: Any) -> list[int]:
    """The epochs that were run."""
    more = {"batch_size": 4, "shuffle": False, "verbose": 0, **more}
    return list(model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **more).epoch)


def state(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.trainable_variables, *model.optimizer.variables)]


def saved(run: Any) -> list[str]:
    return [Path(path).name for path in run.manager.checkpoints]


@pytest.fixture
def stop(flavour) -> Callable[[int, int], Any]:
    """``stop(epoch, batch)``: a callback that ends the process there, as far as a test can."""

    class Stop(flavour.callbacks.Callback):
        def __init__(self, epoch: int, batch: int) -> None:
            super().__init__()
            self.at = (epoch, batch)
            self.epoch = -1

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == self.at:
                raise KeyboardInterrupt

    return Stop


def test_training_that_is_resumed_comes_to_the_same_as_training_through(run, flavour) -> None:
    whole, _ = run()
    fit(whole, 5)
    model, first = run(every_epochs=1)
    assert fit(model, 2, first.callback(verbose=0)) == [0, 1]
    model, second = run(every_epochs=1)
    assert fit(model, 5, second.callback(verbose=0)) == [2, 3, 4]
    np.testing.assert_equal(state(model), state(whole))
    assert (second.report.epoch, second.epoch) == (2, 5)
    assert saved(second) == [f"ckpt-{number}" for number in range(1, 6)]


def test_what_was_interrupted_resumes_at_the_epoch_that_was_saved(run, stop) -> None:
    whole, _ = run()
    fit(whole, 4)
    model, first = run(every_epochs=1)
    with pytest.raises(KeyboardInterrupt):
        fit(model, 4, first.callback(verbose=0), stop(2, 1))
    model, second = run(every_epochs=1)
    assert fit(model, 4, second.callback(verbose=0)) == [2, 3]
    np.testing.assert_equal(state(model), state(whole))


def test_another_fit_starts_where_its_caller_says(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run()
    callback = second.callback(verbose=0)
    assert fit(model, 4, callback) == [3]
    assert fit(model, 2, callback) == [0, 1]
    assert fit(model, 2, second.callback(verbose=0)) == [0, 1]
    assert fit(model, 2) == [0, 1]
    assert fit(model, 7, callback, initial_epoch=5) == [5, 6]


def test_another_fit_after_an_interrupted_one_starts_where_its_caller_says(run, stop) -> None:
    model, first = run(every_epochs=1)
    fit(model, 3, first.callback(verbose=0))
    model, second = run()
    with pytest.raises(KeyboardInterrupt):
        fit(model, 6, second.callback(verbose=0), stop(4, 1))
    before = int(model.optimizer.iterations)
    assert fit(model, 1, second.callback(verbose=0)) == [0]
    assert int(model.optimizer.iterations) == before + STEPS  # and it was not restored again


def test_a_run_that_is_over_has_nothing_left_to_train(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(every_epochs=1)
    assert fit(model, 2, second.callback(verbose=0)) == []
    assert fit(model, 1) == [0]


def test_what_was_restored_before_is_not_restored_again(run) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run()
    report = second.restore()
    kernel = model.trainable_variables[0]
    kernel.assign(kernel * 0)
    assert fit(model, 3, second.callback(verbose=0)) == [2]
    assert second.report is report
    assert np.abs(kernel.numpy()).max() < 0.5  # three steps of Adam away from zero


@pytest.mark.parametrize("policy", [{"api": "read"}, {"training_state": []}])
def test_what_is_no_resumption_begins_at_the_beginning(run, policy) -> None:
    model, first = run(every_epochs=1)
    fit(model, 2, first.callback(verbose=0))
    model, second = run(policy)
    assert fit(model, 1, second.callback(verbose=0)) == [0]
    assert int(model.optimizer.iterations) == 3 * STEPS


def test_it_saves_every_so_many_epochs_and_steps(run) -> None:
    model, first = run(every_epochs=2)
    fit(model, 5, first.callback(verbose=0))
    assert saved(first) == ["ckpt-1", "ckpt-2"]
    model, second = run(every_steps=2)
    assert fit(model, 6, second.callback(verbose=0)) == [4, 5]
    assert saved(second) == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4", "ckpt-5"]
    _, third = run()
    report = third.restore()
    assert (report.epoch, report.step) == (5, 6 * STEPS)
    assert report.metrics["loss"] > 0


def test_it_says_what_it_does_and_can_be_silent(run, capsys) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback())
    out = capsys.readouterr().out
    assert "no checkpoint yet" in out
    assert "saved ckpt-1" in out
    model, second = run(every_epochs=1)
    fit(model, 2, second.callback())
    assert "ckpt-1 (epoch 1)" in capsys.readouterr().out
    model, third = run(every_epochs=1)
    fit(model, 3, third.callback(verbose=0))
    assert capsys.readouterr().out == ""


def test_a_config_that_only_saves_restores_nothing_and_says_so(flavour, tmp_path, capsys) -> None:
    manager = {"directory": str(tmp_path / "run"), "save": {"every_epochs": 1}}
    for already in range(2):
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
        model.compile("sgd", "mse")
        only_saves = tfckpt.from_config({"version": 1, "manager": manager}, model=model)
        callback = only_saves.callback()
        assert fit(model, 2, callback) == [0, 1]
        assert "no `restore` section" in capsys.readouterr().out
        assert only_saves.report is None
        assert len(saved(only_saves)) == 2 * (already + 1)


def test_it_names_a_path_with_nothing_there(flavour, tmp_path, capsys) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
    model.compile("sgd", "mse")
    restore = {"path": str(tmp_path / "imagnet" / "ckpt-900"), "if_none": "initialize"}
    run = tfckpt.from_config({"version": 1, "restore": restore}, model=model)
    fit(model, 1, run.callback())
    out = capsys.readouterr().out
    assert f"nothing at {restore['path']}" in out
    assert "no checkpoint yet" in out


def test_damage_stops_the_fit_before_it_trains(run, tmp_path) -> None:
    model, first = run(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))
    (tmp_path / "run" / "ckpt-1.index").write_bytes(b"torn")
    model, second = run(every_epochs=1)
    before = [variable.numpy() for variable in model.trainable_variables]
    with pytest.raises(tfckpt.DamagedCheckpointError):
        fit(model, 2, second.callback(verbose=0))
    np.testing.assert_equal([v.numpy() for v in model.trainable_variables], before)
    assert saved(second) == ["ckpt-1"]
