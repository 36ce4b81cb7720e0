"""TensorFlow and Keras of other versions, and as they may become."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.live.private import either_keras, fit, tf_data

PROJECT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
sys.modules[{package!r}] = None  # as if it were not installed
from tfckpt.cli.main import main
sys.exit(main(["tfckpt", *sys.argv[1:]]))
"""
OLD = """
import sys, types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
sys.modules["tensorflow"].__version__ = "2.21.0"
sys.modules["keras"] = types.ModuleType("keras")
sys.modules["keras"].__version__ = "3.0.5"
import tfckpt
try:
    tfckpt.Checkpoint
except ImportError as error:
    print(error)
"""
CONFIG = "version: 1\nrestore: {directory: runs}\n"


def python(code: str, *arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )


@pytest.mark.parametrize("package", ["tensorflow", "keras"])
def test_what_needs_tensorflow_says_what_to_install(package: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "script.py").write_text("def model():\n    return {}\n", encoding="utf-8")
    code = WITHOUT.format(package=package)
    done = python(code, "plan", "config.yaml", "--model", "script:model", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"needs {package}, which is not installed" in done.stderr
    assert "pip install 'tfckpt[tensorflow]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_rest_goes_without_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tf.train.Checkpoint(step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    for command in (
        ["inspect", path],
        ["list", "."],
        ["diff", path, path],
        ["verify", path],
        ["policy", "check", "config.yaml"],
    ):
        done = python(WITHOUT.format(package="tensorflow"), *command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_a_keras_that_cannot_resume_is_refused() -> None:
    assert "keras 3.0.5 is too old for tfckpt\n  pip install 'keras>=3.1'" in python(OLD).stdout


def built(flavour: Any) -> Any:
    flavour.utils.set_random_seed(1)
    model = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1)])
    model.compile(flavour.optimizers.SGD(0.1), "mse", run_eagerly=True)
    return model


def train(model: Any, directory: Any, **more: Any) -> Any:
    callback = tfckpt.callbacks.resume(model, directory)
    data = np.ones((4, 2)), np.ones((4, 1))
    return model.fit(*data, batch_size=2, epochs=2, verbose=0, callbacks=[callback], **more)


def test_a_finished_fit_that_would_begin_again_is_refused(flavour, tmp_path, monkeypatch) -> None:
    model = built(flavour)
    train(model, tmp_path)
    trained = model.get_weights()
    monkeypatch.setattr(fit._Epoch, "__bool__", lambda _: False)
    counters = "maybe_load_initial_counters_from_ckpt"
    monkeypatch.setattr(fit._Counters, counters, lambda *_, **__: (0, 0))
    model = built(flavour)
    with pytest.raises(tfckpt.NotInstalledError, match="begin at epoch 2 and began at 0") as error:
        train(model, tmp_path)
    assert f"the installed version {flavour.__version__}" in str(error.value)
    assert f"was tested with {flavour.__name__}" in str(error.value)
    for now, then in zip(model.get_weights(), trained, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_batch_that_is_not_skipped_ends_the_fit(flavour, tmp_path, monkeypatch, stop) -> None:
    data = {"x": np.ones((8, 2)), "y": np.ones((8, 1)), "batch_size": 2, "verbose": 0}

    def fit_(*others: Any) -> None:
        model = built(flavour)
        callback = tfckpt.callbacks.resume(model, tmp_path, save_freq=1, verbose=0)
        model.fit(**data, callbacks=[callback, *others])

    with pytest.raises(KeyboardInterrupt):
        fit_(stop(0, 2))
    latest = tf.train.latest_checkpoint(tmp_path)
    monkeypatch.setattr(fit.PassedOver, "__init__", lambda *_: None)
    with pytest.raises(tfckpt.NotInstalledError, match="without calling `train_function`"):
        fit_()
    assert tf.train.latest_checkpoint(tmp_path) == latest


def test_a_variable_that_only_a_public_list_has_is_refused(tmp_path, monkeypatch) -> None:
    import keras

    model = built(keras)
    monkeypatch.setattr(either_keras, "is_variable", lambda _: False)
    with pytest.raises(tfckpt.CoverageError, match=r"sequential.*\.variables has 'kernel'"):
        tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    assert not [*tmp_path.glob("*.index")]


def test_a_slot_that_only_the_optimizer_s_list_has_is_saved(flavour, tmp_path) -> None:
    hidden = tf.Variable(42.0)

    class Hiding(flavour.optimizers.SGD):
        @property
        def variables(self) -> Any:
            return [*super().variables, hidden]

    model = built(flavour)
    model.compile(Hiding(), "mse")
    model.optimizer.build(model.trainable_variables)
    checkpoint = tfckpt.Checkpoint(model=model, optimizer=model.optimizer)
    stored = tf.train.load_checkpoint(checkpoint.save(str(tmp_path / "ckpt")))
    keys = [key for key in stored.get_variable_to_shape_map() if key.endswith("VARIABLE_VALUE")]
    assert 42.0 in [stored.get_tensor(key).tolist() for key in keys]


@pytest.fixture
def no_seeds(monkeypatch):
    monkeypatch.setattr(tf_data, "seeds_of", lambda _: [])
    tf_data.shows_seeds.cache_clear()
    yield
    tf_data.shows_seeds.cache_clear()


@pytest.mark.usefixtures("no_seeds")
def test_a_dataset_that_hides_its_seeds_is_replayed_and_that_is_said(tmp_path, capsys) -> None:
    import keras

    model = built(keras)
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 2)), np.ones((4, 1))))
    callback = tfckpt.callbacks.resume(model, tmp_path)
    model.fit(data.shuffle(4).batch(2), verbose=0, callbacks=[callback])
    said = capsys.readouterr().out
    assert "does not know what the datasets of this TensorFlow draw from" in said
    assert f"tensorflow {tf.__version__} (tested: " in said
