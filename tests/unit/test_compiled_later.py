"""A model that is compiled after its restore: its optimizer is not restored, and that is said."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(8, 3)
WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


@pytest.fixture
def build(flavour) -> Any:
    def built(optimizer: Any = None) -> Any:
        layers = [flavour.layers.Dense(3, name=name) for name in "ab"]
        model = flavour.Sequential([flavour.Input((3,)), *layers])
        return compiled(model, optimizer) if optimizer is not None else model

    return built


def compiled(model: Any, optimizer: Any = "adam") -> Any:
    model.compile(optimizer, "mse")
    return model


def train(model: Any, epochs: int = 1) -> Any:
    model.fit(X, X, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model


def warnings(caplog: Any) -> list[str]:
    found = [r for r in caplog.records if r.name == "absl" and r.levelno >= logging.WARNING]
    caplog.clear()
    return [record.getMessage() for record in found]


def iterations(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


@WRITERS
@pytest.mark.parametrize("keyword", ["model", "net", ""])
def test_it_is_said_to_compile_first(writer, keyword, build, tmp_path, caplog) -> None:
    saved = train(build("adam"))
    path = writer.Checkpoint(**{keyword or "root": saved}).save(str(tmp_path / "ckpt"))
    model = build()
    checkpoint = tfckpt.Checkpoint(**{keyword or "root": model})
    for _ in range(2):
        status = checkpoint.restore(path)
    (text,) = warnings(caplog)  # once
    assert text.startswith(f"{path}: 10 values of ")
    assert text.endswith(
        "optimizer stay in the checkpoint, since no object has this optimizer: to restore it, "
        "compile the model first, then restore"
    )
    with pytest.raises(tfckpt.StatusAssertionError, match="optimizer/iterations"):
        status.assert_consumed()
    checkpoint.restore(path)
    assert iterations(compiled(model)) == 0
    for old, new in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_compiled_first_it_goes_on(build, tmp_path, caplog) -> None:
    saved, model = train(build("adam")), build("adam")
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(model=model).restore(path).assert_consumed()
    assert warnings(caplog) == []
    train(saved), train(model)
    for old, new in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert iterations(model) == 4
