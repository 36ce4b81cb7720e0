"""Files of Keras's that other people wrote: their names, their values, and a model of each.

The models are rebuilt as the corpus says, in both flavours, and restored by a policy of one line.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.rebuilt import KERAS_FILES

import tfckpt
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


# Canonical name → what the corpus calls it.
NAMES = {
    "h5_rl_deep_sarsa": {
        f"model/{ours}/{word}": f"{theirs}/{theirs}/{word}:0"
        for ours, theirs in (("dense", "dense_1"), ("dense_1", "dense_2"), ("dense_2", "dense_3"))
        for word in ("kernel", "bias")
    },
    "h5_rl_drqn": {
        **{
            f"model/lstm/cell/{word}": f"lstm_1/lstm_1/{word}:0"
            for word in ("kernel", "recurrent_kernel", "bias")
        },
        **{f"model/dense/{word}": f"dense_1/dense_1/{word}:0" for word in ("kernel", "bias")},
    },
    "k3_nlf": {
        **{
            f"model/{layer}/{word}": f"layers/{layer}/vars/{place}"
            for layer in ("dense", "dense_1", "dense_2")
            for place, word in enumerate(("kernel", "bias"))
        },
        **{f"optimizer/vars/{place}": f"optimizer/vars/{place}" for place in range(1, 13)},
        "optimizer/iterations": "optimizer/vars/0",
        **{
            f"metrics/{metric}/vars/{place}": f"metrics/{metric}/vars/{place}"
            for metric in ("mean", "mean_metric_wrapper")
            for place in (0, 1)
        },
    },
}


def _sha256(value: Any) -> str:
    return hashlib.sha256(np.asarray(value).tobytes()).hexdigest()


@pytest.fixture
def expected(corpus: Path, name: str) -> dict[str, str]:
    """Canonical name → the hash of the value's bytes, by the corpus."""
    tensors = json.loads((corpus / "expected" / f"{name}.json").read_text())["tensors"]
    assert set(NAMES[name].values()) == set(tensors)
    return {ours: tensors[theirs]["sha256"] for ours, theirs in NAMES[name].items()}


@pytest.fixture
def path(corpus: Path, name: str) -> str:
    return str(corpus / name / KERAS_FILES[name][0])


@pytest.mark.parametrize("name", KERAS_FILES)
def test_values_have_their_names(path: str, expected: dict[str, str]) -> None:
    with open_checkpoint(path) as opened:
        entries = opened.inventory.entries
        assert {n: _sha256(opened.values.read(e.key)) for n, e in entries.items()} == expected


@pytest.mark.parametrize("name", KERAS_FILES)
def test_a_rebuilt_model_is_restored(
    path: str, name: str, expected: dict[str, str], flavour: Any
) -> None:
    _, shape, layers = KERAS_FILES[name]
    model = flavour.Sequential([flavour.Input(shape), *layers(flavour)])
    unused = {"on_unexpected": "ignore"} if name == "k3_nlf" else {}  # its optimizer, its metrics

    report = tfckpt.restore(
        {
            "version": 1,
            "restore": {"path": path, "policy": "weights"},
            "policies": {"weights": {"api": "read", **unused}},
        },
        model=model,
    )

    weights = {name: digest for name, digest in expected.items() if name.startswith("model/")}
    words = sorted(weights)
    assert len(words) == len(model.weights)
    assert sorted(map(_sha256, model.get_weights())) == sorted(weights.values())
    assert report.plan.ok


@pytest.mark.parametrize("name", ["k3_nlf"])
def test_its_optimizer_is_restored_too(
    path: str, name: str, expected: dict[str, str], flavour: Any
) -> None:
    _, shape, layers = KERAS_FILES[name]
    model = flavour.Sequential([flavour.Input(shape), *layers(flavour)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)

    tfckpt.restore(
        {
            "version": 1,
            "restore": {"path": path, "policy": "resume"},
            "policies": {"resume": {"api": "read", "optimizer": {"hyperparameters": "config"}}},
        },
        model=model,
    )

    found = {_sha256(variable) for variable in model.optimizer.variables}
    slots = {digest for name, digest in expected.items() if name.startswith("optimizer/")}
    assert slots <= found
