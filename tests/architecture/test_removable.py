"""The kernel works without the parts that are none of it, and the ways through it stay short.

The kernel saves and restores a Keras model in TensorFlow's format by a policy. Parts are taken away
by an import hook, in a fork of one process that has imported TensorFlow: all that can be at once.
What cannot be taken away yet stands in ``NOT_YET`` with the module that imports it first: it comes
off the list when it can.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from architecture.rooms import BUDGET, PROJECT
from zoo.forkserver import ForkServer

PARTS = {
    "suggestions": ["planning.suggestion", "planning.suggested"],
    "Keras's files": [
        *("stored.formats.keras_files", "stored.formats.hdf5", "stored.formats.keras2_h5"),
        "stored.formats.keras_objects",
    ],
    "Orbax": ["stored.formats.orbax"],
    "safetensors": ["stored.formats.safetensors"],
    "SavedModels": ["stored.formats.saved_model"],
    "TF1's files": ["stored.formats.tf1"],
    "object stores": ["stored.io.object_store"],
    "workers": ["live.workers"],
    "check of outputs": ["live.outputs", "planning.outputs"],
    "training": ["training", "callbacks"],
    "tools": ["tools"],
    "command line": ["cli", "__main__"],
    "pages": ["pages"],
}
NOT_YET = {
    "check of outputs": "tfckpt.live.checkpoint",
    "suggestions": "tfckpt.live.restore",
    "training": "tfckpt.run",
    "workers": "tfckpt.live.apply",
}


class Removed:
    """Finds none of these modules, and knows who has asked for one."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = [f"tfckpt.{module}" for module in modules]
        self.asked: list[str] = []

    def find_spec(self, name: str, *_: Any) -> None:
        if any(name == gone or name.startswith(f"{gone}.") for gone in self._modules):
            frame: Any = sys._getframe(1)
            while not (asking := frame.f_globals["__name__"]).startswith("tfckpt."):
                frame = frame.f_back
            self.asked.append(asking)
            raise ModuleNotFoundError(name)


def without(modules: list[str], place: str) -> str:
    """In a child: what the kernel lacks without these modules, "" where it needs none of them."""
    assert not [name for name in sys.modules if name.startswith("tfckpt")]
    removed = Removed(modules)
    sys.meta_path.insert(0, removed)
    try:
        use(place)
    except ModuleNotFoundError:
        if not removed.asked:
            raise
        return removed.asked[0]
    return ""


def use(place: str) -> None:
    """Save a model, rotate, go on, restore by a policy, and refuse what does not fit."""
    import keras
    import numpy as np

    import tfckpt

    def model(trunk: str, width: int, value: float) -> Any:
        layers = [keras.layers.Dense(3, name=trunk), keras.layers.Dense(width, name="head")]
        built = keras.Sequential([keras.Input((2,)), *layers])
        for variable in built.variables:
            variable.assign(np.full(variable.shape, value, "float32"))
        return built

    def values(of: Any) -> list[float]:
        return [float(np.mean(variable)) for variable in of.get_weights()]

    saved, again = model("trunk", 4, 1.0), model("trunk", 4, 2.0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=saved), f"{place}/run", 2)
    paths = [manager.save(metrics={"loss": 1.0}) for _ in range(3)]
    assert manager.checkpoints == paths[1:]
    tfckpt.CheckpointManager(
        tfckpt.Checkpoint(model=again), f"{place}/run", 2
    ).restore_or_initialize()
    assert values(again) == [1.0] * 4
    other = model("body", 5, 2.0)
    policy = {
        "include": ["model/body/**"],
        "exclude": ["model/body/bias"],
        "rename": [{"checkpoint": "model/trunk/**", "model": "model/body/**"}],
    }
    tfckpt.restore(paths[-1], model=other, policy=policy)
    assert values(other) == [1.0, 2.0, 2.0, 2.0]
    with pytest.raises(tfckpt.RefusedError, match=r"model/head/kernel"):
        tfckpt.restore(paths[-1], model=other, policy={})
    assert values(other) == [1.0, 2.0, 2.0, 2.0]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(preload=("tensorflow", "keras", "pytest")) as server:
        yield server


def test_the_kernel_works_without_the_other_parts(server: ForkServer, tmp_path: Path) -> None:
    modules = [module for part in PARTS.values() for module in part]
    places = [PROJECT / "tfckpt" / module.replace(".", "/") for module in modules]
    assert all(place.is_dir() or place.with_suffix(".py").is_file() for place in places)
    removed = {part: PARTS[part] for part in NOT_YET}
    removed[""] = [name for part in PARTS.keys() - NOT_YET.keys() for name in PARTS[part]]
    requests = [
        ((__file__, "without"), names, str(tmp_path / str(number)))
        for number, names in enumerate(removed.values())
    ]
    outcomes = server.run_many(requests, timeout=120)
    found = {part: one.result() for part, one in zip(removed, outcomes, strict=True)}
    assert found == {**NOT_YET, "": ""}


def test_no_way_has_become_longer(server: ForkServer) -> None:
    ways = server.run("architecture.ways:counted", timeout=120).result()
    assert list(ways) == list(BUDGET["ways"]) == ["restore", "second save", "fit", "fit resumed"]
    for name, way in ways.items():
        print(name, way)
        ceiling = BUDGET["ways"][name]
        longer = {what for what in ("files", "functions", "calls") if way[what] > ceiling[what]}
        assert not longer, f"{name}: {way}, and budget.toml has {ceiling}"
