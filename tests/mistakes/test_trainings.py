"""`fit` is started again, and is not the `fit` that it was."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mistakes.scene import BATCH, EPOCHS, STEPS, X, Y, compiled, digits, fit, written

import tfckpt
import tfckpt.callbacks
from tfckpt.cli.main import main

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


def test_the_cell_of_fit_is_run_again_with_the_same_callback(flavour, tries) -> None:
    model = digits(flavour)
    callback = tfckpt.callbacks.resume(model, "runs/a")
    fit(model, callback, epochs=2)
    with tries(model) as seen:
        assert fit(model, callback, epochs=2).epoch == [0, 1]
    seen.says("another `fit` of this model", "create the model in that cell")


def test_a_first_fit_is_told_nothing_of_another(flavour, tries) -> None:
    model = digits(flavour)
    with tries(model) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=2)
    seen.never_says("another `fit`")


def test_a_layer_of_another_width_in_the_same_directory(flavour, tries) -> None:
    model = digits(flavour)
    fit(model, tfckpt.callbacks.resume(model, "runs/a"))
    wider = compiled(
        flavour,
        flavour.Sequential(
            [
                flavour.Input((6,)),
                flavour.layers.Dense(9, activation="relu", name="body"),
                flavour.layers.Dense(3, name="head"),
            ]
        ),
    )
    with tries(wider) as seen, pytest.raises(tfckpt.RefusedError) as caught:
        fit(wider, tfckpt.callbacks.resume(wider, "runs/a"))
    assert seen.untouched
    last = str(caught.value).splitlines()[-1].strip()
    assert last == "tfckpt.callbacks.resume(model, 'runs/a', start_over=True)"
    assert "another directory" in str(caught.value)
    namespace = {"tfckpt": tfckpt, "model": wider}
    callback = eval(last, namespace)
    assert len(fit(wider, callback, epochs=1).epoch) == 1


@pytest.mark.parametrize(
    "directory", ["runs/model-{epoch}.keras", "runs/best.weights.h5", "runs/{epoch:02d}-{loss:.2f}"]
)
def test_the_file_of_a_model_checkpoint(flavour, directory) -> None:
    model = digits(flavour)
    with pytest.raises(tfckpt.PolicyError, match="is the name of a file") as caught:
        tfckpt.callbacks.resume(model, directory)
    assert "write the directory, e.g. 'runs'" in str(caught.value)
    assert not Path("runs").exists()


def test_the_best_by_one_call(flavour) -> None:
    model = digits(flavour)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "runs/a", None)
    run = tfckpt.from_config(
        {
            "version": 1,
            "manager": {
                "directory": "runs/b",
                "keep": [{"best": 1, "monitor": "loss", "mode": "min"}, {"latest": 2}],
            },
        },
        model,
    )
    for number, loss in enumerate([3.0, 1.0, 2.0]):
        model.layers[0].bias.assign(np.full(8, number))
        run.save(metrics={"loss": loss})
        manager.save()
    for select, expected in (("best", 1), (3, 2), ("latest", 2), (None, 2)):
        other = digits(flavour)
        tfckpt.restore("runs/b", other, include=["model/**"], select=select)
        np.testing.assert_array_equal(other.layers[0].bias.numpy(), np.full(8, expected))
    plan = tfckpt.plan("runs/b", digits(flavour), include=["model/**"], select="best")
    assert "the best of 2 by loss (1)" in str(plan)
    with pytest.raises(tfckpt.PolicyError, match="`select` is for a directory"):
        tfckpt.restore("runs/b/ckpt-3", model, select="best")
    with pytest.raises(tfckpt.PolicyError, match="expected latest, best or a checkpoint number"):
        tfckpt.restore("runs/b", model, select="first")
    config = {"version": 1, "restore": {"directory": "runs/b"}}
    with pytest.raises(tfckpt.PolicyError, match="`select` was passed as well"):
        tfckpt.restore(config, model, select="best")


def test_the_newest_is_damaged(flavour) -> None:
    model = digits(flavour)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), "runs/a", None)
    manager.save()
    newest = manager.save()
    (data,) = Path("runs/a").glob("ckpt-2.data*")
    data.write_bytes(bytes(255 - byte for byte in data.read_bytes()))
    report = tfckpt.restore("runs/a", digits(flavour), include=["model/**"])
    (rejected,) = report.rejected
    assert newest in rejected
    assert "nothing was restored from it; copy the checkpoint again" in rejected
    assert report.path.endswith("ckpt-1")


TRAIN = """
import tensorflow as tf

class Model(tf.Module):
    def __init__(self):
        self.weight = tf.Variable([{}])

build = Model
"""


def test_a_lock_is_written_over(monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(".")

    class Model(tf.Module):
        def __init__(self, *values: float) -> None:
            super().__init__()
            self.weight = tf.Variable(values)

    Path("lock_met.py").write_text(TRAIN.format("0.0, 0.0"), encoding="utf-8")
    config = {"version": 1, "restore": {"path": "zoo/ckpt-1", "policy": {"api": "read"}}}
    Path("t.yaml").write_text(json.dumps(config), encoding="utf-8")
    said = []
    for values in ((1.0, 2.0), (1.0, 2.0), (3.0, 4.0)):
        for old in Path("zoo").glob("*"):
            old.unlink()
        tfckpt.Checkpoint(model=Model(*values)).save("zoo/ckpt")
        command = ["tfckpt", "plan", "t.yaml", "--model", "lock_met:build", "--lock", "a.json"]
        assert main(command) == 0
        said.append(capsys.readouterr().err)
    assert "lock a.json: 2 values, written" in said[0]
    assert "replaces" not in said[0] + said[1]
    assert "lock a.json: 2 values, replaces a lock that differed:" in said[2]
    assert "crc32c" in said[2]
