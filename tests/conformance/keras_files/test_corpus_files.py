"""Files of Keras's that other people wrote: their values, and a model of each.

The models are rebuilt as the corpus says, in both flavours. Names and plans are in ``golden``.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from zoo.optimizers import compiled
from zoo.rebuilt import KERAS_FILES

import tfckpt
from tfckpt.stored.formats.open import open_checkpoint


def sha256(value):
    return hashlib.sha256(np.asarray(value).tobytes()).hexdigest()


@pytest.mark.parametrize("name", KERAS_FILES)
def test_values_are_read_and_a_rebuilt_model_is_restored(corpus, name, flavour):
    file, shape, layers = KERAS_FILES[name]
    path = str(corpus / name / file)
    tensors = json.loads((corpus / "expected" / f"{name}.json").read_text())["tensors"]
    with open_checkpoint(path) as opened:
        found = {
            e.name: (e.key, opened.values.read(e.key)) for e in opened.inventory.entries.values()
        }
    assert {key: sha256(value) for key, value in found.values()} == {
        key: tensor["sha256"] for key, tensor in tensors.items()
    }
    model = flavour.Sequential([flavour.Input(shape), *layers(flavour)])
    tfckpt.restore(path, model=model, on_unexpected="ignore")  # an optimizer's, and metrics
    weights = sorted(sha256(value) for n, (_, value) in found.items() if n.startswith("model/"))
    assert sorted(map(sha256, model.get_weights())) == weights
    if name == "k3_nlf":
        compiled(model, flavour.optimizers.Adam())
        tfckpt.restore(path, model=model, policy={"optimizer": {"hyperparameters": "config"}})
        ours = {sha256(variable) for variable in model.optimizer.variables}
        slots = {sha256(value) for n, (_, value) in found.items() if n.startswith("optimizer/")}
        assert slots <= ours
