"""``fit`` is started again, and is not the ``fit`` that it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mistakes.scene import BATCH, EPOCHS, STEPS, X, Y, compiled, digits, fit, written

import tfckpt
import tfckpt.callbacks

WHAT_TO_DO = "another directory|start over|restart|fresh|delete|remove|training_state"


def steps(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


def test_44_a_fine_tune_that_is_told_nothing_of_epochs(run, flavour, told) -> None:
    model = digits(flavour, head="new", classes=5)
    config = written(
        """
        version: 1
        restore: {path: runs/digits/ckpt-3, policy: finetune}
        policies:
          finetune:
            include: ["model/**"]
            exclude: ["model/new/**"]
            on_unexpected: ignore
            optimizer: reset
        """
    )
    with told() as seen:
        history = fit(model, tfckpt.from_config(config, model=model).callback(), epochs=2)
    assert history.epoch == [0, 1]
    assert steps(model) == 2 * STEPS
    seen.says("weights only", "new training")


def test_45_another_batch_size_in_the_middle_of_an_epoch(flavour, interrupted, refused) -> None:
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a", save_freq=2, verbose=0)
    interrupted(model, callback, at=(1, 3))
    model = digits(flavour)
    with refused(model, error=tfckpt.RestoreError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a", save_freq=2), batch_size=2 * BATCH)
    seen.says(f"{STEPS}.*{STEPS // 2}", WHAT_TO_DO)
    # The line that was written has no policy; it is told what it can change.
    seen.says("steps per epoch", r"resume\(|config")


def test_46_another_batch_size_at_the_end_of_an_epoch(flavour, told) -> None:
    model = digits(flavour)
    fit(model, tfckpt.callbacks.resume(model, "runs/a", verbose=0), epochs=1)
    model = digits(flavour)
    with told() as seen:
        callback = tfckpt.callbacks.resume(model, "runs/a")
        history = fit(model, callback, epochs=2, batch_size=2 * BATCH)
    assert history.epoch == [0, 1]
    seen.says(f"{STEPS}.*{STEPS // 2}", "epoch 2 starts at the beginning of the dataset")


def test_47_another_seed(flavour, refused) -> None:
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    fit(model, tfckpt.callbacks.resume(model, "runs/a", verbose=0), epochs=1)
    flavour.utils.set_random_seed(4)
    model = digits(flavour)
    with refused(model, error=tfckpt.RestoreError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=2)
    seen.says("seed was 3 and is now 4", r"set_random_seed\(3\)|set_random_seed", WHAT_TO_DO)


def test_48_another_learning_rate_in_the_code(run, flavour, told) -> None:
    flavour.utils.set_random_seed(3)
    model = digits(flavour, optimizer=flavour.optimizers.Adam(0.25))
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=EPOCHS + 1)
    assert float(model.optimizer.learning_rate.numpy()) == np.float32(0.001)
    seen.says("learning.rate", r"0\.001", r"0\.25", "hyperparameters: config")


def test_49_fewer_epochs_than_are_done(run, flavour, told) -> None:
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=2)
    assert steps(model) == EPOCHS * STEPS
    seen.says(
        "3 of 2 epochs|all 2 epochs|2 epochs", "nothing (is left )?to train|nothing is trained"
    )
    seen.says("epochs", WHAT_TO_DO)


def test_50_a_cell_that_was_run_twice(flavour, told) -> None:
    def cell(model: Any, callback: Any, epochs: int) -> Any:
        return fit(model, callback, epochs=epochs)

    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a", verbose=0)
    cell(model, callback, 2)
    cell(model, callback, 2)
    flavour.utils.set_random_seed(3)
    model = digits(flavour)  # the kernel was restarted
    with told() as seen:
        history = cell(model, tfckpt.callbacks.resume(model, "runs/a"), 10)
    assert history.epoch == [0, 1]  # what it returned the first time
    seen.says("nothing to train", "`fit` 2", "2 of 2 epochs", "run it again", "start over")


def test_51_another_model_than_the_callback_has(flavour, refused) -> None:
    model, another = digits(flavour), digits(flavour)
    with refused(another) as seen:
        fit(another, tfckpt.callbacks.resume(model, "runs/a"))
    seen.says("shares no weights", "pass the trained model to the run")


def test_58_weights_that_are_no_numbers(flavour, told) -> None:
    model = digits(flavour)
    model.layers[-1].bias.assign([np.nan] * 3)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=1)
    seen.says("NaN or infinite", "model/head/bias")


def test_62_two_that_restore_in_one_fit(flavour, told) -> None:
    model = digits(flavour)
    backup = flavour.callbacks.BackupAndRestore("backup")
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), backup)
    seen.says("BackupAndRestore", "use one of the two")


def test_63_a_python_generator(flavour, told) -> None:
    def batches() -> Any:
        while True:
            yield X[:BATCH], Y[:BATCH]

    model = digits(flavour)
    with told() as seen:
        model.fit(
            batches(),
            epochs=1,
            steps_per_epoch=2,
            verbose=0,
            callbacks=[tfckpt.callbacks.resume(model, "runs/a")],
        )
    seen.says("state that cannot be saved", "in the same order")


def test_67_freeze_then_unfreeze_with_one_callback(flavour, interrupted, told) -> None:
    """Two trainings in one program; the second is interrupted, and goes on exactly."""

    def program(stop: Any) -> Any:
        flavour.utils.set_random_seed(3)
        model = digits(flavour, optimizer=None)
        model.layers[0].trainable = False
        compiled(flavour, model)
        callback = tfckpt.callbacks.resume(model, "runs/a")
        fit(model, callback, epochs=1)
        model.layers[0].trainable = True
        compiled(flavour, model)
        stop(model, callback)
        return model

    program(lambda model, callback: interrupted(model, callback, at=(1, 1), epochs=2))
    with told() as seen:
        model = program(lambda model, callback: fit(model, callback, epochs=2))
    seen.says("restored .*runs/a/ckpt-2")
    assert sorted(path.name for path in Path("runs/a").glob("*.index"))[-1] == "ckpt-3.index"
    assert steps(model) == 2 * STEPS
