"""Programs of several `fit`: cells, phases, freezing between them; what is counted and named.

That such programs end as if they had not been killed is in the table (``test_table.py``).
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from zoo import programs
from zoo.fits import STEPS, X, Y, stop
from zoo.start import Start
from zoo.stopped import stopped_twice, train

import tfckpt
import tfckpt.callbacks

AGAIN = "the last `fit` of this model was interrupted: this one resumes from the last save"


def build(*, frozen: bool = False) -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(3, name="a"), keras.layers.Dense(2, name="b")]
    return compiled(keras.Sequential([keras.Input((4,)), *layers]), frozen=frozen)


def compiled(model: Any, *, frozen: bool = False) -> Any:
    model.get_layer("a").trainable = not frozen
    model.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
    return model


def fit(model: Any, *callbacks: Any, epochs: int = 3) -> Any:
    return model.fit(X, Y, batch_size=4, epochs=epochs, verbose=0, callbacks=list(callbacks))


def steps(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


# A program that trains with a frozen layer, and without


@pytest.fixture
def start(tmp_path) -> Callable[..., Any]:
    """``start()``: the program, killed in the second epoch of its second ``fit``.

    It returns the model, its run, and the weights that it had between the two.
    """

    def program(
        second: Callable[..., Any] = compiled, *, verbose: int = 0, saves: bool = False
    ) -> tuple[Any, Any, Any]:
        where = {"directory": str(tmp_path / "run")}
        save = {"every_steps": 1, "every_epochs": 1}
        config = {"version": 1, "manager": {**where, "save": save}}
        config["restore"] = {**where, "if_none": "initialize"}
        run = tfckpt.from_config(config, model=(model := build(frozen=True)))
        callback = run.callback(verbose)
        fit(model, callback, epochs=2)
        between = model.get_weights()
        second(model)
        run.between = run.save() if saves else None
        with pytest.raises((KeyboardInterrupt, tfckpt.RefusedError)) as ended:
            fit(model, callback, stop(keras, 1, 1))
        model.ended = ended.value
        return model, run, between

    return program


def test_a_fit_that_was_over_is_skipped_and_said(start, capsys) -> None:
    _, run, at_its_end = start()
    latest = run.manager.latest_checkpoint
    capsys.readouterr()
    _, _, between = start(verbose=1)
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith(
        "`fit` 1 of this program was finished, nothing to train: the checkpoint is of"
    )
    assert "is of `fit` 2, 1 of 3 epochs done, which resumes when it is called" in first
    assert "(until then, the weights are as they were at its end)" in first
    assert second.startswith(f"restored {latest} (epoch 1)")
    np.testing.assert_equal(between, at_its_end)
    assert any(
        (one != other).any() for one, other in zip(between, build().get_weights(), strict=True)
    )


def test_what_does_not_fit_the_later_fit_is_refused_there(start) -> None:
    start()
    model, run, between = start(lambda model: compiled(model, frozen=True))
    assert isinstance(model.ended, tfckpt.RefusedError)
    assert "optimizer/momentum/a/kernel" in str(model.ended)
    np.testing.assert_equal(model.get_weights(), between)
    assert steps(model) == 0
    assert run.report is None


def test_what_is_saved_between_two_fits_hides_no_later_checkpoint(start, caplog) -> None:
    start(saves=True)
    _, run, _ = start(saves=True)
    latest = run.manager.latest_checkpoint
    assert run.between == latest
    assert f"not saved: the next `fit` resumes from {latest}" in caplog.text


# Cells of a notebook


@pytest.mark.parametrize("same", ["callback", "model", "compiled", "nothing"])
def test_a_cell_that_was_interrupted_goes_on_where_it_was(tmp_path, capsys, same) -> None:
    whole = build()
    history = fit(whole).history
    model, where = build(), tmp_path / "run"
    callback = tfckpt.callbacks.resume(model, where)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(keras, 2, 2))
    capsys.readouterr()
    if same == "nothing":
        model = build()
    if same == "compiled":
        compiled(model)
    if same != "callback":
        callback = tfckpt.callbacks.resume(model, where)
    assert fit(model, callback).history == history
    said = capsys.readouterr().out
    assert (AGAIN in said) == (same != "nothing")
    assert "training resumes after 2 epochs" in said
    assert steps(model) == 3 * STEPS
    np.testing.assert_equal(model.get_weights(), whole.get_weights())
    model = build()  # the program is started anew
    assert fit(model, tfckpt.callbacks.resume(model, where), epochs=4).epoch == [*range(4)]
    assert "training resumes after 3 epochs" in capsys.readouterr().out


def test_a_cell_that_was_interrupted_before_its_first_save_is_told(tmp_path, capsys) -> None:
    model = build()
    with pytest.raises(KeyboardInterrupt):
        fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), stop(keras, 0, 1))
    capsys.readouterr()
    fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"))
    said = capsys.readouterr().out
    assert AGAIN not in said
    assert "was interrupted before its first save, and the model keeps what it learned" in said


@pytest.mark.parametrize("own", [True, False])
def test_a_phase_after_one_that_was_ended_by_hand_is_another(tmp_path, capsys, own) -> None:
    model = build(frozen=True)
    callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        fit(model, callback, stop(keras, 2, 2))
    compiled(model)
    capsys.readouterr()
    if own:
        callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    assert fit(model, callback, epochs=2).epoch == [0, 1]
    assert "starts from the model's current values" in capsys.readouterr().out
    assert steps(model) == 2 * STEPS


def test_another_model_that_gets_what_the_last_one_learnt_is_told(tmp_path, capsys) -> None:
    histories = []
    for fold in range(2):
        model = build()
        model.get_layer("a").bias.assign_add([float(fold)] * 3)
        histories.append(fit(model, tfckpt.callbacks.resume(model, tmp_path / "run")).history)
        said = capsys.readouterr().out
        assert (
            "has the checkpoints of another model that this process has trained" in said
        ) == fold
    assert histories[0] == histories[1]
    again = fit(model, tfckpt.callbacks.resume(model, tmp_path / "run"), epochs=4)
    assert "another model" not in capsys.readouterr().out
    assert again.epoch == [*range(4)]


@pytest.mark.parametrize("source", ["removed", "elsewhere"])
def test_another_model_that_gets_nothing_of_the_last_one_is_not_told(
    tmp_path, capsys, source
) -> None:
    model, run = build(), str(tmp_path / "run")
    fit(model, tfckpt.callbacks.resume(model, run))
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "zoo" / "ckpt")
    restore = {"path": path, "policy": {"include": ["model/**"]}}
    if source == "removed":
        shutil.rmtree(run)
        restore = {"directory": run, "if_none": "initialize"}
    manager = {"directory": run, "save": {"every_epochs": 1}}
    model = build()
    callback = tfckpt.from_config(
        {"version": 1, "manager": manager, "restore": restore}, model
    ).callback()
    capsys.readouterr()
    assert fit(model, callback).epoch
    assert "another model" not in capsys.readouterr().out


def test_a_loop_of_ones_own_may_call_the_callback(tmp_path, capsys) -> None:
    """Keras has made no train function by then."""
    model = build()
    callback = tfckpt.callbacks.resume(model, tmp_path / "run")
    callbacks = keras.callbacks.CallbackList([callback], model=model, epochs=1, steps=1)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_epoch_end(0, {})
    callbacks.on_train_end()
    assert "saved ckpt-1" in capsys.readouterr().out


# What is counted and named


@pytest.mark.parametrize(
    ("program", "counted"),
    [(programs.gan, [4, 4, 6]), (programs.accumulates_by_itself, [2, 2, 3])],
)
def test_batches_are_counted_whichever_optimizer_steps(flavour, tmp_path, program, counted) -> None:
    said = Start(flavour, tmp_path, (0, 1, 3), saves=True).run(program)["output"]
    assert [line for line in said.splitlines() if line.startswith("saved ")] == [
        f"saved ckpt-{number}"
        for number in (1, 2, 3, 4)  # the epoch ends with its fourth batch
    ]
    records = sorted((tmp_path / "run").glob("*.tfckpt.json"))  # of the newest three
    assert [json.loads(record.read_text())["step"] for record in records] == counted


# Words of a small training (``zoo/stopped``)


def test_what_is_not_saved_is_named(tmp_path) -> None:
    words = ("at_once", "nothing", "dense", "adam", "alone")
    assert (
        "a function of the dataset draws random numbers or counts, and num_parallel_calls runs it "
        "for several elements at once, in an order that changes from run to run: neither a resumed "
        "nor a repeated training is exact; remove num_parallel_calls, or call "
        "tf.config.experimental.enable_op_determinism()"
    ) in train("keras", words, str(tmp_path))["output"]


def test_logs_that_depend_on_a_validation_before_are_exact(tmp_path: Path) -> None:
    words = ("dataset", "counted", "norm", "adam", "alone", "validated_by_dataset", "twice")
    draw = random.Random(2)  # stops after a validation, within an epoch
    verdict, said = stopped_twice(keras, words, str(tmp_path / "run"), draw)
    assert verdict == "exact", said
