"""What the pages speak of as being there: a script, two runs, a checkpoint of somebody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def wandb() -> ModuleType:
    """What docs/saved.md calls of Weights & Biases, which is not installed."""
    module = ModuleType("wandb")
    module.init = lambda project: None
    module.log = lambda data, step: dict(data) and int(step)
    return module


def mlflow() -> ModuleType:
    """What docs/saved.md calls of MLflow, which is not installed."""
    module = ModuleType("mlflow")
    module.start_run = lambda: None
    module.log_metrics = lambda metrics, step: dict(metrics) and int(step)
    module.set_tag = lambda key, value: f"{key}: {value}"
    return module


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with everything that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUN_DIR", "runs/new")
    monkeypatch.setenv("PRETRAINED", "runs/flowers/checkpoints")
    for variable in ("SOURCE", "ENCODER", "HEAD", "OLD_WORDS", "NEW_WORDS"):
        monkeypatch.setenv(variable, f"zoo/{variable.lower()}")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    for module in wandb(), mlflow():
        monkeypatch.setitem(sys.modules, module.__name__, module)
    shutil.copytree(PROJECT / "configs", "configs")
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    import tfckpt

    names = script()
    zoo_model = names.build_model(encoder="backbone", classes=1000)
    tfckpt.Checkpoint(model=zoo_model).write("zoo/imagenet/ckpt-900")
    config = {
        "version": 1,
        "manager": {"directory": "runs/flowers/checkpoints", "save": {"every_epochs": 1}},
    }
    run = tfckpt.from_config(config, model=names.model)
    names.model.fit(names.train, epochs=2, verbose=0, callbacks=[run.callback(verbose=0)])
    return tmp_path


def script() -> ModuleType:
    """The script, run again: what the Python of a page finds defined."""
    module = ModuleType("train")
    exec(compile(SCRIPT, "train.py", "exec"), vars(module))
    return module


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


@pytest.fixture
def fresh() -> Callable[[], dict[str, Any]]:
    return lambda: vars(script())


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
