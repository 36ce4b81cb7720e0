"""What `zoo/pairs` simulates of a model is what tfckpt finds in the model that Keras makes.

A live model, a record of tfckpt, a checkpoint of plain TensorFlow: the simulation is exact, but for
the inputs of models, which have no weights, and for digests of settings, which have another text.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from zoo.pairs.build import Built, NotAModelError, start_anew
from zoo.pairs.cases import case
from zoo.pairs.object_graph import written
from zoo.pairs.objects import Objects, recorded

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.core.inventory import Container, Inventory

_MODELS = 20


def test_simulated_models_are_those_of_keras(flavour, tmp_path) -> None:
    name = flavour.__name__
    tried = 0
    for at in itertools.count(2000):
        if tried == _MODELS:
            return
        pair = case(name, at)
        try:
            tried += _compare(flavour, pair.second, pair.tokens, f"{tmp_path}/{at}")
        except NotAModelError:
            with pytest.raises(NotAModelError):
                Objects(pair.second, Counter(), name)


def _compare(flavour: Any, description: Any, tokens: bool, place: str) -> int:
    start_anew(flavour)
    model = Built(flavour, description, tokens=tokens, seed=1).model
    simulated = Objects(description, Counter(), flavour.__name__)
    live = collect({"model": model})
    known: dict[str, Any] = {"roots": live.roots, "bases": live.weak_bases}
    assert _known(live.inventory) == _known(simulated.collected), description
    with open_checkpoint(tfckpt.Checkpoint(model=model).save(f"{place}/tfckpt"), **known) as file:
        assert _known(file.inventory) == _known(recorded(simulated.collected)), description
    with open_checkpoint(tf.train.Checkpoint(model=model).save(f"{place}/tf"), **known) as file:
        found = written(simulated, simulated.collected).inventory
        assert _known(file.inventory) == _known(found), description
    return 1


def _known(inventory: Inventory) -> dict[str, Any]:
    """All that a plan of such a model depends on."""
    held = {p: c for p, c in inventory.containers.items() if not _of_inputs(c)}
    return {
        "entries": [
            (e.name, e.role, e.dtype, e.shape, e.nbytes) for e in inventory.entries.values()
        ],
        "containers": {path: _told(each) for path, each in held.items()},
        "alike": _alike(held),
        "listings": {path: paths for path, paths in inventory.listings.items() if paths},
        **{
            field: getattr(inventory, field)
            for field in ("aliases", "private", "complete", "roots")
        },
    }


def _of_inputs(held: Container) -> bool:
    return all("input" in layer.own for layer in held.layers)


def _told(held: Container) -> Container:
    return held._replace(layers=tuple(layer._replace(settings="") for layer in held.layers))


def _alike(containers: Mapping[str, Container]) -> list[list[str]]:
    """The layers by their settings."""
    found = defaultdict(list)
    for path, held in containers.items():
        for layer in held.layers:
            found[layer.cls, layer.settings].append(f"{path}/{layer.place}")
    return sorted(map(sorted, found.values()))
