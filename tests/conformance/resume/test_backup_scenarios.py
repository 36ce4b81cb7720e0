"""What Keras's BackupAndRestore promises, of tfckpt: interrupted, damaged, and ended well."""

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
STEPS, EPOCHS = 3, 4


class Interrupted(Exception):
    pass


@pytest.fixture
def begin(flavour, tmp_path) -> Callable[..., Any]:
    """``begin()``: model and run of one directory, as after a restart; saved every two steps."""

    def build() -> Any:
        flavour.utils.set_random_seed(7)
        model = flavour.Sequential(
            [flavour.Input((4,)), flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2)]
        )
        model.compile(flavour.optimizers.Adam(0.05), "mse", metrics=["mae"])
        where = {"directory": str(tmp_path / "run")}
        save = {"every_steps": 2, "every_epochs": 1}
        config = {
            "version": 1,
            "manager": {**where, "save": save},
            "restore": {**where, "if_none": "initialize"},
        }
        return model, tfckpt.from_config(config, model=model)

    return build


@pytest.fixture
def interrupt(flavour) -> Callable[[str, int, int], Any]:
    """``interrupt("batch_end", 1, 2)``: a callback that fails there."""

    def build(event: str, epoch: int, batch: int = -1) -> Any:
        class Interrupt(flavour.callbacks.Callback):
            def meet(self, what: str, number: int, logs: Any = None) -> None:
                if what == "epoch_begin":
                    self.epoch = number
                at = (what, self.epoch, number if "batch" in what else -1)
                if at == (event, epoch, batch):
                    raise Interrupted

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.meet("epoch_begin", epoch)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                self.meet("epoch_end", epoch)

            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                self.meet("batch_begin", batch)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.meet("batch_end", batch)

        return Interrupt()

    return build


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS) -> dict[str, list[float]]:
    arguments = {"batch_size": 4, "epochs": epochs, "verbose": 0}
    return dict(model.fit(X, Y, **arguments, callbacks=list(callbacks)).history)


def state(model: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (*model.trainable_variables, *model.optimizer.variables)]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


IN_A_STEP = [("batch_begin", 1, 1), ("batch_end", 1, 2), ("batch_end", 2, 0)]
IN_AN_EPOCH = [("epoch_begin", 2), ("epoch_end", 2), ("epoch_begin", 0)]


@pytest.mark.parametrize("at", [*IN_A_STEP, *IN_AN_EPOCH])
def test_what_was_interrupted_ends_as_if_it_had_not_been(begin, interrupt, at) -> None:
    whole, _ = begin()
    expected = fit(whole)
    model, run = begin()
    with pytest.raises(Interrupted):
        fit(model, run.callback(verbose=0), interrupt(*at))
    model, run = begin()
    assert fit(model, run.callback(verbose=0)) == expected
    np.testing.assert_equal(state(model), state(whole))


@pytest.mark.parametrize("part", [".index", ".data-*"])
def test_where_the_newest_is_damaged_the_one_before_is_taken_and_said(
    begin, interrupt, part, capsys
) -> None:
    whole, _ = begin()
    expected = fit(whole)
    model, run = begin()
    with pytest.raises(Interrupted):
        fit(model, run.callback(verbose=0), interrupt("batch_end", 2, 1))
    *_, before, newest = run.manager.checkpoints
    (*_, file) = sorted(Path(newest).parent.glob(Path(newest).name + part))
    file.write_bytes(file.read_bytes()[:-9])
    model, run = begin()
    assert fit(model, run.callback()) == expected
    np.testing.assert_equal(state(model), state(whole))
    assert Path(run.report.path).name == Path(before).name
    said = capsys.readouterr().out
    assert Path(before).name in said
    assert Path(newest).name in said.partition("saved")[0]


def test_where_all_are_damaged_nothing_begins_afresh(begin, tmp_path) -> None:
    model, run = begin()
    fit(model, run.callback(verbose=0), epochs=2)
    for index in (tmp_path / "run").glob("*.index"):
        index.write_bytes(index.read_bytes()[:-9])
    left = files(tmp_path / "run")
    model, run = begin()
    initial = [variable.numpy() for variable in model.trainable_variables]
    with pytest.raises(tfckpt.DamagedCheckpointError):
        fit(model, run.callback(verbose=0))
    np.testing.assert_equal([v.numpy() for v in model.trainable_variables], initial)
    assert files(tmp_path / "run") == left


def test_what_ended_well_keeps_its_checkpoints_and_trains_nothing_again(begin, tmp_path) -> None:
    model, run = begin()
    history = fit(model, run.callback(verbose=0))
    left = files(tmp_path / "run")
    again, run = begin()
    assert fit(again, run.callback(verbose=0)) == history
    np.testing.assert_equal(state(again), state(model))
    assert int(again.optimizer.iterations.numpy()) == EPOCHS * STEPS
    assert files(tmp_path / "run") == left
