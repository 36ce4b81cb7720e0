"""What earlier releases have written is restored, to the values that were written."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
from golden.written import FLAVORS, WRITTEN, fill, model_of, values_of

if TYPE_CHECKING:
    from pathlib import Path

RELEASES = sorted(path.name for path in WRITTEN.iterdir())


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, to which a test may add."""
    return shutil.copytree(WRITTEN / request.param, tmp_path / request.param)


def empty(flavor: str) -> tuple[Any, list[np.ndarray]]:
    model = model_of(flavor)
    values = values_of(model)
    fill(model, [np.zeros_like(value) for value in values])
    return model, values


def assert_values(model: Any, values: list[np.ndarray]) -> None:
    found = [np.asarray(one) for one in (*model.variables, *model.optimizer.variables)]
    for one, value in zip(found, values, strict=True):
        np.testing.assert_array_equal(one, value)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_checkpoint_is_restored_whole(release: Path, flavor: str) -> None:
    model, values = empty(flavor)
    report = tfckpt.restore(str(release / flavor), model)
    assert (report.step, report.epoch, report.metrics) == (7, 2, {"val_loss": 0.25})
    assert_values(model, values)
    assert tfckpt.inspect(str(release / flavor / "ckpt-1")).record.metadata == {"by": "a test"}


@pytest.mark.parametrize("flavor", FLAVORS)
def test_a_run_goes_on_with_it(release: Path, flavor: str) -> None:
    model, _ = empty(flavor)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), release / flavor, 1)
    assert manager.restore_or_initialize() == str(release / flavor / "ckpt-1")
    manager.save()
    assert [path[-6:] for path in manager.checkpoints] == ["ckpt-2"]


@pytest.mark.parametrize("flavor", FLAVORS)
@pytest.mark.parametrize("name", ["model.weights.h5", "values.safetensors"])
def test_an_exported_file_is_restored(release: Path, flavor: str, name: str) -> None:
    model, values = empty(flavor)
    tfckpt.restore(str(release / flavor / name), model, on_missing="ignore")
    for one, value in zip(model.variables, values, strict=False):
        np.testing.assert_array_equal(np.asarray(one), value)


@pytest.mark.parametrize("flavor", FLAVORS)
def test_keras_loads_an_exported_file(release: Path, flavor: str) -> None:
    model, values = empty(flavor)
    model.load_weights(release / flavor / "model.weights.h5")
    for one, value in zip(model.variables, values, strict=False):
        np.testing.assert_array_equal(np.asarray(one), value)


def test_the_record_is_json_that_others_can_read(release: Path) -> None:
    record = json.loads((release / "keras" / "ckpt-1.tfckpt.json").read_text(encoding="utf-8"))
    assert (record["step"], record["metrics"]) == (7, {"val_loss": 0.25})
