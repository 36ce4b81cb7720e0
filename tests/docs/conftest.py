"""What the pages speak of as being there: a script, two runs, a checkpoint of somebody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from zoo.forkserver import ForkServer

PROJECT = Path(__file__).resolve().parents[2]
SCRIPT = textwrap.dedent(
    """
    import keras
    import tensorflow as tf
    import tfckpt

    def build_model(encoder="encoder", classes=5):
        body = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(8, activation="relu", name="dense")],
            name=encoder,
        )
        model = keras.Sequential(
            [keras.Input((4,)), body, keras.layers.Dense(classes, name="classes")]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        return model

    def examples(count):
        images = tf.random.stateless_normal([count, 4], seed=[0, 0])
        return tf.data.Dataset.from_tensor_slices((images, tf.range(count) % 5)).batch(2)

    def train_step(batch):
        return model.train_on_batch(*batch)

    train, val = examples(20), examples(4)
    model = build_model()
    optimizer = model.optimizer
    step = tf.Variable(0)
    iterator = iter(examples(240))
    """
)
# What docs/saved.md calls of Weights & Biases and MLflow, which are not installed.
TRACKERS = {
    "wandb": {"init": lambda project: None, "log": lambda data, step: dict(data) and int(step)},
    "mlflow": {
        "start_run": lambda: None,
        "log_metrics": lambda metrics, step: dict(metrics) and int(step),
        "set_tag": lambda key, value: f"{key}: {value}",
    },
}


def script() -> ModuleType:
    """The script, run again: what the Python of a page finds defined."""
    module = ModuleType("train")
    exec(compile(SCRIPT, "train.py", "exec"), vars(module))
    return module


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything that the pages name."""
    import tfckpt

    names, place = script(), tmp_path_factory.mktemp("pages") / "place"
    shutil.copytree(PROJECT / "configs", place / "configs")
    (place / "train.py").write_text(SCRIPT, encoding="utf-8")
    zoo_model = names.build_model(encoder="backbone", classes=1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        tfckpt.Checkpoint(model=zoo_model).write("zoo/imagenet/ckpt-900")
        manager = {"directory": "runs/flowers/checkpoints", "save": {"every_epochs": 1}}
        run = tfckpt.from_config({"version": 1, "manager": manager}, model=names.model)
        names.model.fit(names.train, epochs=2, verbose=0, callbacks=[run.callback(verbose=0)])
    return place


@pytest.fixture
def place(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the working directory."""
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "place"))
    monkeypatch.setenv("PRETRAINED", "runs/flowers/checkpoints")
    for variable in ("SOURCE", "ENCODER", "HEAD", "OLD_WORDS", "NEW_WORDS"):
        monkeypatch.setenv(variable, f"zoo/{variable.lower()}")
    for name, calls in TRACKERS.items():
        module = ModuleType(name)
        vars(module).update(calls)
        monkeypatch.setitem(sys.modules, name, module)
    return tmp_path / "place"


@pytest.fixture
def fresh() -> Callable[[], dict[str, Any]]:
    return lambda: vars(script())


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real S3 server with the bucket that docs/remote.md names."""
    for package in ("s3fs", "moto.server"):
        pytest.importorskip(package, reason="needs s3fs and moto; setup.cfg has them in `test`")
    from zoo.s3_server import S3Server

    from tfckpt.stored.io.object_store import object_store

    with S3Server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        object_store.cache_clear()
        yield
        object_store.cache_clear()


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Both flavors of Keras are imported where programs are run."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    with ForkServer(preload=("tensorflow", "keras", "tf_keras", "tfckpt")) as server:
        yield server


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(built)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return built
