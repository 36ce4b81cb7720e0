"""Further ways to go on with a training that is not the one that was saved."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mistakes.scene import BATCH, X, Y, compiled, digits, fit

import tfckpt
import tfckpt.callbacks


def config(directory: str = "runs/a", **save: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "manager": {"directory": directory, "save": save or {"every_epochs": 1}},
        "restore": {"directory": directory, "if_none": "initialize"},
    }


def saved(directory: str = "runs/a") -> list[str]:
    return sorted(path.stem for path in Path(directory).glob("*.index"))


def test_steps_that_never_come(flavour, tries) -> None:
    model = digits(flavour)
    run = tfckpt.from_config(config(every_steps=1000), model=model)
    with tries(model) as seen:
        fit(model, run.callback(), epochs=2)
    seen.says("every 1,?000 steps|every_steps: 1000")
    assert saved() == []


def test_a_loop_that_counts_no_steps(tries) -> None:
    step = tf.Variable(0)
    run = tfckpt.from_config(config(every_steps=2), step=step)
    with tries() as seen:
        for _ in range(300):
            run.save_if_due()
        run.sync()
    assert saved() == []
    seen.says("`step` is 0 after 100 calls", r"step\.assign_add\(1\)")
    assert seen.text.count("assign_add") == 1


def test_a_loop_that_counts_some_steps_is_told_nothing(tries) -> None:
    step = tf.Variable(0)
    run = tfckpt.from_config(config(every_steps=2), step=step)
    with tries() as seen:
        for call in range(300):
            step.assign_add(int(call % 50 == 49))  # gradients of so many batches make a step
            run.save_if_due()
        run.sync()
    assert saved() == ["ckpt-1", "ckpt-2", "ckpt-3"]
    seen.never_says("assign_add")


def test_the_callback_is_given_to_evaluate(run, flavour, tries) -> None:
    model = digits(flavour)
    with tries(model) as seen:
        model.evaluate(X, Y, verbose=0, callbacks=[tfckpt.callbacks.resume(model, run)])
    assert seen.untouched
    seen.says("evaluate", r"tfckpt\.restore|run\.restore")


def test_compiled_again_between_restore_and_fit(run, flavour, tries) -> None:
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    training = tfckpt.from_config(config(run), model=model)
    training.restore()
    compiled(flavour, model)
    with tries(model) as seen:
        fit(model, training.callback(), epochs=4)
    seen.says("optimizer", "compile", "before|again")


def test_another_optimizer_in_fit(run, flavour, refused) -> None:
    flavour.utils.set_random_seed(3)
    model = digits(flavour, optimizer=flavour.optimizers.Nadam(0.001))
    with refused(model, error=tfckpt.RefusedError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=4)
    seen.ends_with("adam", "optimizer: reset", lines=20)


def test_a_schedule_in_place_of_a_learning_rate(run, flavour, refused) -> None:
    flavour.utils.set_random_seed(3)
    schedule = flavour.optimizers.schedules.CosineDecay(0.1, 100)
    model = digits(flavour, optimizer=flavour.optimizers.Adam(schedule))
    with refused(model, error=tfckpt.RefusedError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=4)
    seen.ends_with(
        "optimizer/learning_rate", "exclude_checkpoint|hyperparameters: config", lines=20
    )


def test_mixed_precision_that_was_turned_on(run, flavour, refused) -> None:
    flavour.mixed_precision.set_global_policy("mixed_float16")
    try:
        flavour.utils.set_random_seed(3)
        model = digits(flavour)
    finally:
        flavour.mixed_precision.set_global_policy("float32")
    with refused(model, error=tfckpt.RefusedError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=4)
    seen.ends_with("loss_scale", r'exclude: \["optimizer/loss_scale/\*\*"\]', lines=20)


@pytest.mark.parametrize("change", ["initial_epoch", "float64"])
def test_a_middle_of_an_epoch_that_is_not_come_to_as_before(
    flavour, interrupted, refused, change
) -> None:
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a", save_freq=2, verbose=0)
    interrupted(model, callback, at=(1, 3))
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a", save_freq=2)
    with refused(model, error=tfckpt.RestoreError) as seen:
        if change == "initial_epoch":
            fit(model, callback, epochs=3, initial_epoch=1)
        else:
            data = tf.data.Dataset.from_tensor_slices((X.astype(np.float64), Y)).batch(BATCH)
            model.fit(data, epochs=3, verbose=0, callbacks=[callback])
    words = {
        "initial_epoch": ["`initial_epoch` changed from 0 to 1", "leave it as it was"],
        "float64": ["float32", "float64", "training_state|another directory|as it was"],
    }
    seen.says(*words[change])


def test_a_training_that_early_stopping_has_ended(flavour, told) -> None:
    def start(epochs: int) -> Any:
        flavour.utils.set_random_seed(3)
        model = digits(flavour)
        stop = flavour.callbacks.EarlyStopping("loss", patience=0, min_delta=9)
        return fit(model, tfckpt.callbacks.resume(model, "runs/a"), stop, epochs=epochs)

    start(10)
    with told() as seen:
        history = start(20)
    assert history.epoch == [0, 1]
    seen.says("2 of 20 epochs", "ended|stopped", "start over")


def test_a_cell_that_is_stopped_and_run_again(flavour, interrupted, told) -> None:
    """The same kernel, model and callback: it goes on from the last save."""
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a")
    interrupted(model, callback, at=(1, 3))
    with told() as seen:
        fit(model, callback, epochs=2)
    seen.says("`fit` .*was interrupted", "resumes from the last save", "restored .*runs/a/ckpt-1")
    assert int(model.optimizer.iterations.numpy()) == 2 * len(X) // BATCH


def test_a_callback_whose_state_is_no_json(flavour, refused) -> None:
    class Sampler(flavour.callbacks.Callback):
        def get_state(self) -> Any:
            return {"seen": {1, 2}}

        def set_state(self, state: Any) -> None: ...

    model = digits(flavour)
    with refused(model, error=tfckpt.TfckptError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), Sampler(), epochs=1)
    seen.says("Sampler", "'seen'", "set", "numbers, strings, arrays, lists and dicts")


def test_signals_outside_of_the_main_thread(flavour, refused) -> None:
    model = digits(flavour)
    errors: list[Exception] = []

    def work() -> None:
        try:
            callback = tfckpt.callbacks.resume(model, "runs/a", on_signal=["SIGTERM"])
            fit(model, callback, epochs=1)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    with refused(model, error=tfckpt.TfckptError) as seen:
        thread.start()
        thread.join()
        raise errors[0]
    seen.says("on_signal", "main thread", "remove on_signal")


def pair(keras: Any) -> tuple[Any, Any]:
    keras.utils.set_random_seed(3)
    return digits(keras, body="up", head="image"), digits(keras, body="down", head="real")


def test_the_two_models_of_a_gan_are_exchanged(flavour, refused) -> None:
    generator, discriminator = pair(flavour)
    objects = {"generator": generator, "discriminator": discriminator}
    tfckpt.from_config(config(), **objects).save()
    generator, discriminator = pair(flavour)
    with refused(generator, discriminator, error=tfckpt.RefusedError) as seen:
        run = tfckpt.from_config(config(), generator=discriminator, discriminator=generator)
        run.restore()
    seen.ends_with("generator/", "discriminator/", "rename", lines=24)


def test_one_model_of_a_gan_is_forgotten(flavour, refused) -> None:
    generator, discriminator = pair(flavour)
    objects = {"generator": generator, "discriminator": discriminator}
    tfckpt.from_config(config(), **objects).save()
    generator, _ = pair(flavour)
    with refused(generator, error=tfckpt.RefusedError) as seen:
        tfckpt.from_config(config(), generator=generator).restore()
    seen.ends_with(
        "no object was passed as 'discriminator'",
        r"pass it as discriminator=…",
        r'exclude_checkpoint: \["discriminator/\*\*"\]',
        lines=24,
    )


def test_stopped_and_started_with_another_number_of_steps_per_execution(
    flavour, interrupted, refused
) -> None:
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a", save_freq=2, verbose=0)
    interrupted(model, callback, at=(1, 3))
    model = digits(flavour, optimizer=None)
    loss = flavour.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, steps_per_execution=2)
    with refused(model, error=tfckpt.RestoreError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a", save_freq=2), epochs=3)
    seen.says(
        "steps_per_execution changed from 1 to 2", "as before|another directory|training_state"
    )
