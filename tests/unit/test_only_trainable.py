"""`include: trainable`: what is frozen is written once, and every checkpoint is whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run

import tfckpt
import tfckpt.callbacks
from tfckpt.stored.io.files import LocalFiles

FROZEN = 64 * 512 * 4  # bytes of a frozen kernel


def build(flavour: Any) -> Any:
    """A frozen body, statistics that a training changes, and a head that trains."""
    layers = flavour.layers
    model = flavour.Sequential(
        [
            flavour.Input((64,)),
            layers.Dense(512, name="body", trainable=False),
            layers.BatchNormalization(name="scaled"),
            layers.Dense(2, name="head"),
        ]
    )
    model.compile("adam", "mse", run_eagerly=True)
    return model


def train(model: Any) -> None:
    random = np.random.default_rng(len(model.optimizer.variables))
    model.fit(random.normal(size=(8, 64)), random.normal(size=(8, 2)), epochs=1, verbose=0)


def manager_of(model: Any, path: Path, **how: Any) -> Any:
    checkpoint = tfckpt.Checkpoint(model=model)
    how = {"max_to_keep": None, "include": "trainable", **how}
    return tfckpt.CheckpointManager(checkpoint, path, **how)


def values_of(model: Any) -> list[Any]:
    return [np.asarray(value) for value in (*model.get_weights(), model.optimizer.iterations)]


def nothing(_: Any) -> None:
    """As in a restart."""


def restored(flavour: Any, path: str, change: Callable[[Any], None] = nothing) -> list[Any]:
    """What plain TensorFlow restores from it."""
    model = build(flavour)
    change(model)
    train(model)
    tf.train.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
    return values_of(model)


def sharing(path: str) -> bool:
    """Whether a data file with the frozen kernel is that of an earlier checkpoint."""
    own = {file.stat().st_ino for file in Path(path).parent.glob(f"{Path(path).name}.data*")}
    others = Path(path).parent.glob("*.data*")
    shared = [
        f for f in others if f.stat().st_ino in own and not f.name.startswith(Path(path).name)
    ]
    return sum(file.stat().st_size for file in shared) >= FROZEN


def equal(found: list[Any], expected: list[Any]) -> bool:
    return [value.tobytes() for value in found] == [value.tobytes() for value in expected]


def test_each_checkpoint_is_whole_and_what_is_frozen_is_on_the_disk_once(
    flavour: Any, tmp_path: Path
) -> None:
    model = build(flavour)
    manager, saved = manager_of(model, tmp_path), []
    for _ in range(3):
        train(model)
        saved.append((manager.save(), values_of(model)))
    assert all(sharing(path) for path, _ in saved[1:])
    for path, values in saved:
        assert equal(restored(flavour, path), values)
    rows = tfckpt.list_checkpoints(tmp_path)
    assert [row.nbytes > FROZEN for row in rows] == [False, False, True]
    assert "of ckpt-1" in str(rows)
    for path, _ in saved[:2]:
        for file in tmp_path.glob(f"{Path(path).name}.*"):
            file.unlink()
    assert equal(restored(flavour, saved[2][0]), saved[2][1])
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert run("verify", str(tmp_path / "copy")).status == 0


def body_of_another(model: Any) -> None:
    body = model.get_layer("body")
    body.set_weights([value + 1 for value in body.get_weights()])


def unfrozen(model: Any) -> None:
    model.get_layer("body").trainable = True
    model.compile("adam", "mse", run_eagerly=True)


def not_a_number(model: Any) -> None:
    kernel, bias = model.get_layer("body").get_weights()
    kernel[0, 0] = np.nan
    model.get_layer("body").set_weights([kernel, bias])


# What is done before the second save → whether the second, and the third, share the frozen kernel,
# and whether they are saved in the background.
CHANGES: list[tuple[Callable[[Any], None], bool, bool, bool]] = [
    (nothing, True, True, False),
    (body_of_another, False, True, True),
    (unfrozen, False, False, False),
    (not_a_number, False, True, True),
]


@pytest.mark.parametrize(("change", "second", "third", "background"), CHANGES)
def test_what_is_shared_is_what_has_not_changed(
    change: Callable[[Any], None], second: bool, third: bool, background: bool, tmp_path: Path
) -> None:
    model = build(keras)
    train(model)
    path = manager_of(model, tmp_path).save()
    model = build(keras)  # as another process
    train(model)
    tfckpt.restore(path, model)
    change(model)
    manager, owned = manager_of(model, tmp_path, enable_async=background), []
    for _ in range(2):
        train(model)
        path = manager.save()
        values = values_of(model)
        manager.sync()
        owned.append(sharing(path))
        assert equal(restored(keras, path, change), values)
        finite = all(np.isfinite(value).all() for value in values)
        assert tfckpt.inspect(path).to_json()["finite"] == finite
    assert owned == [second, third]


def test_a_lora_on_a_frozen_body(tmp_path: Path) -> None:
    model = build(keras)
    model.get_layer("body").trainable = True
    model.get_layer("body").enable_lora(2)
    model.compile("adam", "mse", run_eagerly=True)
    manager = manager_of(model, tmp_path)
    for _ in range(2):
        train(model)
        path = manager.save()
    assert sharing(path)
    kernel = np.array(model.get_layer("body").kernel)
    factors = [v.numpy() for v in model.get_layer("body").trainable_variables]
    for value in model.variables:
        value.assign(np.zeros_like(value))
    tfckpt.restore(path, model)
    assert equal([np.array(model.get_layer("body").kernel)], [kernel])
    assert equal([v.numpy() for v in model.get_layer("body").trainable_variables], factors)


def test_where_there_are_no_hard_links_each_save_writes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def link(_: LocalFiles, source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)

    monkeypatch.setattr(LocalFiles, "link", link)
    model = build(keras)
    train(model)
    manager = manager_of(model, tmp_path)
    path = [manager.save(), manager.save()][1]
    assert not sharing(path)
    assert equal(restored(keras, path), values_of(model))
    assert "ckpt-2: holds what is frozen once more" in caplog.text


def test_what_is_frozen_later_is_written_once_more(tmp_path: Path) -> None:
    model = build(keras)
    model.get_layer("head").trainable = False  # what is shared from the beginning
    model.get_layer("body").trainable = True
    model.compile("adam", "mse", run_eagerly=True)
    train(model)
    manager = manager_of(model, tmp_path)
    manager.save()
    model.get_layer("body").trainable = False
    path = [manager.save(), manager.save()][1]
    assert sharing(path)
    values = values_of(model)
    for value in model.variables:
        value.assign(np.zeros(value.shape))
    tfckpt.restore(path, model)
    assert equal(values_of(model), values)


@pytest.mark.parametrize("restarted", [False, True])
def test_bytes_that_were_damaged_are_not_shared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, restarted: bool
) -> None:
    model = build(keras)
    train(model)
    manager = manager_of(model, tmp_path)
    first = [manager.save(), manager.save()][1]
    assert sharing(first)
    largest = max(tmp_path.glob("ckpt-2.data*"), key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(FROZEN // 2)
        file.write(b"damage")
    manager = manager_of(model, tmp_path) if restarted else manager
    path = manager.save()
    assert not sharing(path)
    assert "do not match their checksum" in caplog.text
    assert equal(restored(keras, path), values_of(model))
    assert sharing(manager.save())


def test_pruning_frees_what_no_other_checkpoint_has(tmp_path: Path) -> None:
    model = build(keras)
    train(model)
    manager = manager_of(model, tmp_path)
    for _ in range(3):
        manager.save()
    shares = {"nbytes": pytest.approx(FROZEN, abs=8192), "path": str(tmp_path / "ckpt-1")}
    one, *_, newest = document("list", str(tmp_path), "--json")["checkpoints"][::-1]
    assert (one["shared"], newest["shared"]) == (None, shares)
    listed = document("prune", str(tmp_path), "--keep", "latest=1", "--json")
    assert 0 < listed["nbytes"] < 2 * FROZEN  # ckpt-1 and ckpt-2, without the frozen kernel
    before = sum(file.stat().st_size for file in unique(tmp_path))
    assert run("prune", str(tmp_path), "--keep", "latest=1", "--yes").status == 0
    after = sum(file.stat().st_size for file in unique(tmp_path))
    assert before - after == pytest.approx(listed["nbytes"], abs=1000)  # the state file, too
    assert equal(restored(keras, manager.checkpoints[0]), values_of(model))


def unique(directory: Path) -> list[Path]:
    return list({file.stat().st_ino: file for file in directory.iterdir()}.values())


def test_it_is_refused_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="include must be 'all' or 'trainable', found 'head'"):
        manager_of(build(keras), tmp_path, include="head")
    with pytest.raises(ValueError, match="needs hard links"):
        manager_of(build(keras), "memory://runs/a")
    config = {
        "version": 1,
        "manager": {"directory": "memory://runs/a", "include": "trainable"},
    }
    with pytest.raises(tfckpt.PolicyError, match="include: trainable` needs hard links"):
        tfckpt.from_config(config, model=build(keras))


@pytest.mark.parametrize("by_config", [False, True])
def test_a_fit(by_config: bool, tmp_path: Path) -> None:
    how = {"include": "trainable", "max_to_keep": 2}
    manager = {"directory": str(tmp_path), "save": {"every_epochs": 1}, **how}
    for _ in range(2):  # it is resumed
        model = build(keras)
        if by_config:
            run = tfckpt.from_config({"version": 1, "manager": manager}, model=model)
            callback = run.callback(verbose=0)
        else:
            callback = tfckpt.callbacks.resume(model, tmp_path, verbose=0, **how)
        model.fit(np.ones((8, 64)), np.ones((8, 2)), 4, 2, verbose=0, callbacks=[callback])
    newest = tfckpt.list_checkpoints(tmp_path)[0].prefix
    assert sharing(newest)
    assert equal(restored(keras, newest), values_of(model))
