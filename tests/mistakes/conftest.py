"""A fresh working directory for each mistake, with a finished run of a small model at hand."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistakes.scene import Scene, digits, fit


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """``finished(keras)``: a training that is over; it saved at the end of each of its epochs."""
    made: dict[str, Path] = {}

    def run(keras: Any) -> Path:
        if keras.__name__ not in made:
            import tfckpt.callbacks

            path = made[keras.__name__] = tmp_path_factory.mktemp("runs")
            keras.utils.set_random_seed(3)
            model = digits(keras)
            fit(model, tfckpt.callbacks.resume(model, path / "digits", verbose=0))
        return made[keras.__name__]

    return run


@pytest.fixture
def scenes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Callable[[Any], Path]
) -> Callable[[str], Scene]:
    """``scenes("tf_keras")``: the scene of a mistake; the working directory is its own."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.syspath_prepend(tmp_path / "project")

    def scene(flavour: str = "keras") -> Scene:
        pytest.importorskip(flavour)
        keras = importlib.import_module(flavour)
        keras.utils.set_random_seed(3)
        return Scene(keras, lambda: finished(keras))

    return scene
