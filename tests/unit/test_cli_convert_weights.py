"""`tfckpt convert` to `.weights.h5`: from every source, by a policy, and what is not there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = """
import {flavour} as keras

def build(compiled=True):
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    if compiled:
        model.compile("adam", "mse")
    return model

def plain():
    return build(compiled=False)
"""


def run(*arguments: object) -> int:
    return main(["tfckpt", "convert", *map(str, arguments)])


@pytest.fixture
def builders(flavour: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import importlib

    (tmp_path / "builders.py").write_text(SCRIPTS.format(flavour=flavour.__name__))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("builders")
    sys.modules.pop("builders")


@pytest.fixture(scope="module")
def of_keras_2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    """The files that tf_keras writes, and the weights in them."""
    keras = pytest.importorskip("tf_keras")
    layers = [keras.layers.Dense(3, name="hidden"), keras.layers.Dense(2, name="head")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("adam", "mse")
    model.fit(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
    directory = tmp_path_factory.mktemp("keras2")
    model.save_weights(directory / "weights.h5")
    model.save(directory / "model.h5")
    model.save(directory / "model.keras")
    model.save(directory / "saved_model")
    model.save_weights(str(directory / "tensorflow"))
    return directory, model.get_weights()


@pytest.mark.parametrize("build", ["build", "plain"])
@pytest.mark.parametrize(
    "source", ["weights.h5", "model.h5", "model.keras", "saved_model", "tensorflow"]
)
def test_keras_loads_weights_of_every_source_of_keras_2(
    of_keras_2: Any, builders: Any, tmp_path: Path, source: str, build: str
) -> None:
    directory, weights = of_keras_2
    target = tmp_path / "new.weights.h5"
    assert run(directory / source, target, "--model", f"builders:{build}") == 0
    model = getattr(builders, build)()
    model.load_weights(target)
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_the_checkpoint_lacks_of_an_optimizer_is_said(
    of_keras_2: Any, builders: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _ = of_keras_2
    target = tmp_path / "new.weights.h5"
    assert run(directory / "weights.h5", target, "--model", "builders:build") == 0
    assert (
        "not in the checkpoint; written with the model's own value: optimizer/iterations, "
        "optimizer/learning_rate"
    ) in capsys.readouterr().err


def test_a_weight_that_is_not_in_the_checkpoint_is_refused(
    builders: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tfckpt.Checkpoint(model=tf.Module()).write(f"{tmp_path}/other")
    assert run(prefix, tmp_path / "new.weights.h5", "--model", "builders:plain") == 1
    assert "model/hidden/kernel" in capsys.readouterr().err
    assert not (tmp_path / "new.weights.h5").exists()


def test_a_policy_of_a_config_says_what_goes_into_the_weights(
    builders: Any, tmp_path: Path
) -> None:
    old = builders.build()
    kernel = tf.Variable(tf.random.normal((4, 3)))
    body = tf.train.Checkpoint(kernel=kernel, bias=tf.Variable(tf.ones(3)))
    prefix = tf.train.Checkpoint(model=tf.train.Checkpoint(body=body)).write(f"{tmp_path}/old")
    (tmp_path / "c.yaml").write_text(
        "version: 1\npolicies:\n  p:\n    include: ['model/hidden/**']\n"
        "    rename: [{checkpoint: 'model/body/**', model: 'model/hidden/**'}]\n"
    )
    flags = ["--config", tmp_path / "c.yaml", "--policy", "p", "--model", "builders:plain"]
    assert run(prefix, tmp_path / "new.weights.h5", *flags) == 0
    model = builders.plain()
    model.load_weights(tmp_path / "new.weights.h5")
    np.testing.assert_array_equal(model.get_weights()[0], kernel.numpy())
    assert old.get_weights()[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("flags", "says", "status"),
    [
        (["--config", "no_such.yaml"], "no_such.yaml: there is no config file", 1),
        (["--config", "c.yaml", "--policy", "q"], "has no policy 'q'; it has p", 2),
        (["--policy", "p"], "--policy needs --config, the file that has the policy", 2),
        (
            ["--config", "c.yaml", "--include", "model/**"],
            "the model decides what is written; remove --include",
            2,
        ),
    ],
)
def test_rules_for_weights_are_honoured_or_refused(
    builders: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    says: str,
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    prefix = tfckpt.Checkpoint(model=builders.build()).write(f"{tmp_path}/old")
    (tmp_path / "c.yaml").write_text("version: 1\npolicies: {p: {include: ['model/**']}}\n")
    model = ["--model", "builders:build"]
    assert run(prefix, "new.weights.h5", *model, *flags) == status
    assert says in capsys.readouterr().err
    assert not (tmp_path / "new.weights.h5").exists()
