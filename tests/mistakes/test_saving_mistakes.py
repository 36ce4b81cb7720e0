"""Nothing would be saved, or the wrong one kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from mistakes.scene import X, Y, digits, fit, written
from zoo import command_line

import tfckpt
import tfckpt.callbacks


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
