"""TensorFlow and Keras of other versions, and as they may become."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import same, stack

import tfckpt
from tfckpt.live import variables
from tfckpt.live.private import either_keras, fit, tf_data

PROJECT = Path(__file__).resolve().parents[2]
WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from tfckpt.cli.main import main
status = [main(["tfckpt", *line.split()]) for line in sys.argv[2:]]
sys.exit(max(status))
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


def python(code: str, *arguments: str, cwd: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )


def test_what_needs_tensorflow_says_what_to_install_and_the_rest_goes(tmp_path: Path) -> None:
    tf.train.Checkpoint(step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    config = "version: 1\nrestore: {directory: runs}\n"
    (tmp_path / "config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "script.py").write_text("def model():\n    return {}\n", encoding="utf-8")
    for package in ("tensorflow", "keras"):
        done = python(WITHOUT, package, "plan config.yaml --model script:model", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert f"needs {package}, which is not installed" in done.stderr
        assert "pip install 'tfckpt[tensorflow]'" in done.stderr
        assert "Traceback" not in done.stderr
    light = ["inspect ckpt-1", "list .", "diff ckpt-1 ckpt-1", "verify ckpt-1"]
    done = python(WITHOUT, "tensorflow", *light, "policy check config.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "keras 3.0.5 is too old for tfckpt\n  pip install 'keras>=3.1'" in python(OLD).stdout


def built(k: Any) -> Any:
    k.utils.set_random_seed(1)
    model = stack(k, None, width=2)
    model.compile(k.optimizers.SGD(0.1), "mse", run_eagerly=True)
    return model


DATA = np.ones((8, 2)), np.ones((8, 2))


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
def test_a_finished_fit_that_would_begin_again_is_refused(flavour, tmp_path, monkeypatch) -> None:
    def train(model: Any) -> None:
        callback = tfckpt.callbacks.resume(model, tmp_path)
        model.fit(*DATA, batch_size=4, epochs=2, verbose=0, callbacks=[callback])

    model = built(flavour)
    train(model)
    trained = model.get_weights()
    monkeypatch.setattr(fit._Epoch, "__bool__", lambda _: False)
    counters = "maybe_load_initial_counters_from_ckpt"
    monkeypatch.setattr(fit._Counters, counters, lambda *_, **__: (0, 0))
    model = built(flavour)
    with pytest.raises(tfckpt.NotInstalledError, match="begin at epoch 2 and began at 0") as error:
        train(model)
    assert f"the installed version {flavour.__version__}" in str(error.value)
    assert f"was tested with {flavour.__name__}" in str(error.value)
    same(model.get_weights(), trained)


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
def test_a_batch_that_is_not_skipped_ends_the_fit(flavour, tmp_path, monkeypatch, stop) -> None:
    def train(*others: Any) -> None:
        model = built(flavour)
        callback = tfckpt.callbacks.resume(model, tmp_path, save_freq=1, verbose=0)
        model.fit(*DATA, batch_size=2, verbose=0, callbacks=[callback, *others])

    with pytest.raises(KeyboardInterrupt):
        train(stop(0, 2))
    latest = tf.train.latest_checkpoint(tmp_path)
    monkeypatch.setattr(fit.SkippedStep, "__init__", lambda *_: None)
    with pytest.raises(tfckpt.NotInstalledError, match="without calling `train_function`"):
        train()
    assert tf.train.latest_checkpoint(tmp_path) == latest


def test_a_variable_that_only_a_public_list_has_is_refused(tmp_path, monkeypatch) -> None:
    model = built(keras)
    monkeypatch.setattr(either_keras, "is_variable", lambda _: False)
    monkeypatch.setattr(variables, "_is_variable", variables._is_variable.__wrapped__)
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


def test_a_dataset_that_hides_its_seeds_is_replayed_and_that_is_said(
    tmp_path, capsys, monkeypatch, request
) -> None:
    monkeypatch.setattr(tf_data, "seeds_of", lambda _: [])
    tf_data.shows_seeds.cache_clear()
    request.addfinalizer(tf_data.shows_seeds.cache_clear)
    model = built(keras)
    data = tf.data.Dataset.from_tensor_slices(DATA)
    callback = tfckpt.callbacks.resume(model, tmp_path)
    model.fit(data.shuffle(4).batch(4), verbose=0, callbacks=[callback])
    said = capsys.readouterr().out
    assert "does not know what the datasets of this TensorFlow draw from" in said
    assert f"tensorflow {tf.__version__} (tested: " in said
