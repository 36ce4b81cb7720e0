"""The checkpoint does not fit the model, cannot be written, or would not be saved."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mistakes.scene import X, Y, compiled, digits, eyes, fit, values, written
from zoo import command_line

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Iterator


def policy(text: str, source: str = "directory: runs/digits") -> str:
    return written(f"version: 1\nrestore:\n  {source}\n  policy: {{{text}}}\n")


def test_11_a_selector_without_the_keyword(run3, model, refused) -> None:
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("exclude: ['head/**']"), model=model)
    seen.ends_with(r"head/\*\*' matches nothing", "did you mean .*model/head/")


def test_12_a_selector_as_keras_spells_it(run3, model, refused) -> None:
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("exclude: ['sequential/head/kernel:0']"), model=model)
    seen.ends_with("matches nothing", "model/head/kernel")


def subclassed(keras: Any) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = keras.layers.Dense(8, name="body")
            self.head = keras.layers.Dense(3, name="head")

        def call(self, x: Any) -> Any:
            return self.head(self.body(x))

    return Net()


def test_14_a_subclassed_model_that_was_never_called(run, flavour, refused) -> None:
    model = subclassed(flavour)
    with refused(model, error=tfckpt.NotBuiltError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.says("call the model once on a batch", r"model\(")


def other(keras: Any) -> Any:
    layers = [keras.layers.Dense(3, name="stem"), keras.layers.Dense(7, name="logits")]
    return compiled(keras, keras.Sequential([keras.Input((5,)), *layers]))


def test_15_another_model(keras, run3, refused) -> None:
    model = other(keras)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.ends_with("no value would be restored", lines=20)
    # One bias that has by chance as many elements as another says nothing of the layers.
    seen.never_says("rename: .*model/head/.*model/stem/")


def test_16_another_model_that_is_called_partial(keras, run3, refused) -> None:
    model = other(keras)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("expect_partial: true"), model=model)
    seen.ends_with("no value would be restored", lines=20)


def test_32_a_model_that_is_not_compiled(run, flavour, refused, told) -> None:
    model = digits(flavour, optimizer=None)
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("on_unexpected: error"), model=model)
    seen.ends_with("optimizer", "compile", r"include: \[.?model/\*\*.?\]", lines=20)
    with told() as seen:
        tfckpt.restore(policy(""), model=model)
    seen.says("only in the checkpoint, since the model has no such optimizer")


def test_66_weights_of_a_compiled_model_into_a_compiled_model(keras, model, told) -> None:
    trained = digits(keras)
    fit(trained, epochs=1)
    trained.save_weights("d.weights.h5")
    with told() as seen:
        print(tfckpt.restore(policy("include: ['model/**']", "path: d.weights.h5"), model=model))
    seen.says("LOADED", "model/head/kernel")
    np.testing.assert_equal(values(model)[:4], values(trained)[:4])


def test_67_layers_that_are_unfrozen(run3, flavour, refused) -> None:
    frozen = digits(flavour, optimizer=None)
    frozen.layers[0].trainable = False
    compiled(flavour, frozen)
    fit(frozen, tfckpt.callbacks.resume(frozen, "runs/frozen", verbose=0), epochs=1)
    model = digits(flavour)
    with refused(model, error=tfckpt.RefusedError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "runs/frozen"), epochs=2)
    seen.ends_with("optimizer/.*body/kernel", "optimizer: reset", lines=20)


def test_68_another_optimizer(keras, run3, refused) -> None:
    model = digits(keras, optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy(""), model=model)
    seen.ends_with("'sgd'|SGD", "'adam'|Adam", "optimizer: reset", lines=20)


def test_69_a_layer_that_is_renamed(keras, run3, refused) -> None:
    model = digits(keras, body="stem")
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy("include: ['model/**']"), model=model)
    seen.ends_with(
        r'rename: \[\{checkpoint: "model/body/\*\*", model: "model/stem/\*\*"\}\]', lines=20
    )


def test_70_a_sequential_without_an_input(flavour, told) -> None:
    """`fit` builds it, and so it does before it resumes."""

    def build() -> Any:
        flavour.utils.set_random_seed(3)
        layers = [flavour.layers.Dense(8, name="body"), flavour.layers.Dense(3, name="head")]
        return compiled(flavour, flavour.Sequential(layers))

    whole = build()
    fit(whole, epochs=2)
    model = build()
    fit(model, tfckpt.callbacks.resume(model, "runs/unbuilt", verbose=0), epochs=1)
    again = build()
    with told() as seen:
        fit(again, tfckpt.callbacks.resume(again, "runs/unbuilt"), epochs=2)
    seen.says("restored runs/unbuilt/ckpt-1", "training resumes after 1 epoch")
    np.testing.assert_equal(again.get_weights(), whole.get_weights())


def saved(directory: str) -> list[str]:
    return sorted(path.stem for path in Path(directory).glob("*.index"))


def test_34_two_callbacks_for_one_directory(flavour, tries) -> None:
    model = digits(flavour)
    callbacks = [tfckpt.callbacks.resume(model, "runs/a") for _ in range(2)]
    with tries(model) as seen:
        fit(model, *callbacks, epochs=2)
    seen.says("runs/a", "two|twice|another callback", "one of|remove|directory of its own")
    assert len(saved("runs/a")) in (0, 2)


def test_39_a_config_without_manager_in_fit(run, flavour, tries) -> None:
    model = digits(flavour)
    config = written("version: 1\nrestore: {directory: runs/digits, policy: {api: read}}\n")
    with tries(model) as seen:
        fit(model, tfckpt.from_config(config, model=model).callback(), epochs=1)
    seen.says("nothing (is|will be) saved", "`?manager", "directory")


NO_SAVE = (
    "version: 1\nmanager: {directory: runs/a}\nrestore: {directory: runs/a, if_none: initialize}\n"
)


def test_40_a_manager_without_save(flavour, tries) -> None:
    model = digits(flavour)
    with tries(model) as seen:
        fit(model, tfckpt.from_config(written(NO_SAVE), model=model).callback(), epochs=1)
    seen.says("nothing (is|will be) saved|no save|never", "save: ?{every_epochs: 1}")


def test_40_policy_check_says_that_nothing_is_saved(told) -> None:
    with told() as seen:
        seen.shows(command_line.run("policy", "check", written(NO_SAVE)))
    seen.says("save", "every_epochs")


def test_41_a_metric_that_is_misspelt(flavour, told) -> None:
    model = digits(flavour)
    config = written(
        """
        version: 1
        manager:
          directory: runs/a
          save: {every_epochs: 1}
          keep: [{latest: 1}, {best: 1, monitor: val_los, mode: min}]
        restore: {directory: runs/a, if_none: initialize}
        """
    )
    with told() as seen:
        callback = tfckpt.from_config(config, model=model).callback()
        fit(model, callback, epochs=3, validation_data=(X, Y))
    assert saved("runs/a") == ["ckpt-1", "ckpt-2", "ckpt-3"]
    seen.says("val_los\\b", "val_loss", "nothing|keeps? all|deleted")


def test_42_prune_by_a_metric_that_nothing_has(run3, told) -> None:
    arguments = ("prune", "runs/digits", "--keep", "best=1,monitor=nope,mode=max")
    with told() as seen:
        seen.shows(command_line.run(*arguments))
    seen.says("nope", r"\bloss\b")
    seen.never_says("--yes does it")
    shutil.copytree("runs/digits", "runs/copy")
    command_line.run("prune", "runs/copy", *arguments[2:], "--yes")
    assert saved("runs/copy") == saved("runs/digits")


HERE = Path(__file__)


def test_52_a_directory_that_cannot_be_made(flavour, refused) -> None:
    model = digits(flavour)
    with refused(model, error=tfckpt.SaveError) as seen:
        fit(model, tfckpt.callbacks.resume(model, "/proc/runs/a"), epochs=1)
    seen.says("/proc/runs/a", "cannot|could not", "directory|choose|make")


@contextlib.contextmanager
def another_process_saves_into(directory: Path) -> Iterator[None]:
    """It holds the lock by an open file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    holder = {"pid": os.getpid(), "host": "far", "since": "2026-01-02T03:04:05+00:00"}
    with (directory / ".tfckpt.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({**holder, "command": "train.py"}).encode() + b"\n")
        file.flush()
        yield


def test_54_a_second_training_in_the_same_directory(flavour, refused) -> None:
    model = digits(flavour)
    with (
        another_process_saves_into(Path("runs/a")),
        refused(model, error=tfckpt.InUseError) as seen,
    ):
        fit(model, tfckpt.callbacks.resume(model, "runs/a"), epochs=1)
    seen.says("another process", str(os.getpid()), "train.py", "directory of its own|end that")


def on_a_small_disk(flavour: str, place: str, options: str, room: int | None) -> dict[str, Any]:
    """A ``fit`` into a file system of its own; with ``room``, so many bytes of it are left."""
    import importlib

    from attacks.namespaces import make_read_only, mount_small, own_mounts

    own_mounts()
    mount_small(place, options)
    keras = importlib.import_module(flavour)
    model = digits(keras)
    directory = Path(place, "runs")
    fit(model, tfckpt.callbacks.resume(model, directory, verbose=0), epochs=1)
    if room is None:
        make_read_only(place)
    else:
        with contextlib.suppress(OSError), Path(place, "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with Path(place, "filler").open("rb+") as file:
            file.truncate(max(0, Path(place, "filler").stat().st_size - room))
    model = digits(keras)
    before = [value.tobytes() for value in values(model)]
    with eyes() as seen:
        fit(model, tfckpt.callbacks.resume(model, directory), epochs=2)
    steps = int(model.optimizer.iterations.numpy())
    untouched = before == [value.tobytes() for value in values(model)][: len(before)]
    error = type(seen.error).__name__ if seen.error else ""
    sound = all(
        tfckpt.Checkpoint(model=model).restore(str(path.with_suffix("")))
        for path in directory.glob("*.index")
    )
    return {
        "seen": seen.text, "error": error, "steps": steps, "untouched": untouched, "sound": sound
    }  # fmt: skip


@pytest.mark.parametrize("flavour", ["keras", "tf_keras"])
@pytest.mark.parametrize(
    ("name", "room", "words"),
    [
        ("52 read-only", None, ["runs", "[Rr]ead-only"]),
        ("55 full", 0, ["runs", "[Nn]o space|full|room", r"needs at least \d+"]),
    ],
)
def test_52_55_a_disk(tmp_path, record_property, server, flavour, name, room, words) -> None:
    pytest.importorskip(flavour)
    (tmp_path / "disk").mkdir()
    arguments = flavour, str(tmp_path / "disk"), "size=512k", room
    outcome = server.run((HERE, "on_a_small_disk"), *arguments, timeout=120)
    if outcome.error and "NotPermittedError" in outcome.error:
        pytest.skip(outcome.error)
    found = outcome.result()
    record_property("seen", found["seen"])
    record_property("untouched", found["untouched"])
    from mistakes.scene import Seen

    seen = Seen()
    seen.printed = found["seen"]
    seen.says(*words)
    assert found["error"]
    assert found["sound"]
    assert found["untouched"], "known before the first step"


def damage(prefix: str) -> None:
    for data in Path(prefix).parent.glob(f"{Path(prefix).name}.data-*"):
        data.write_bytes(bytes(byte ^ 0xFF for byte in data.read_bytes()))


def test_56_the_newest_checkpoint_is_damaged(run, flavour, told) -> None:
    damage("runs/digits/ckpt-3")
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    with told() as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=3)
    seen.says("passed over", "ckpt-3", "checksum", "restored .*ckpt-2")


def test_the_one_that_was_asked_for_is_damaged(run, flavour, refused) -> None:
    damage("runs/digits/ckpt-3")
    flavour.utils.set_random_seed(3)
    model = digits(flavour)
    with refused(model, error=tfckpt.DamagedCheckpointError) as seen:
        tfckpt.restore("runs/digits/ckpt-3", model)
    seen.says("checksum", "nothing was restored", "restore another one", "tfckpt verify")


def test_57_every_checkpoint_is_damaged(run, flavour, refused) -> None:
    for number in (1, 2, 3):
        damage(f"runs/digits/ckpt-{number}")
    model = digits(flavour)
    with refused(model, error=tfckpt.DamagedCheckpointError) as seen:
        fit(model, tfckpt.callbacks.resume(model, run), epochs=3)
    seen.says("none of the checkpoints can be restored", "on_damaged: next|another directory")
