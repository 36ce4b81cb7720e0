"""Where Keras's own writer puts each layer of a live model.

Its files number layers by class, in each list, tuple or dict, or in the whole model. Which layer
has which number, is asked of the writer itself, which walks the model and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt.core.inventory import SEQUENCE
from tfckpt.core.names import MODEL
from tfckpt.live.flavors import flavor_of, name_of
from tfckpt.live.private.either_keras import groups_of
from tfckpt.stored.formats.checkpoint import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfckpt.live.inventory import Live


def addresses(live: Live) -> Mapping[str, Address]:
    """Group of a file → the layer that Keras would write there."""
    model = live.models.get(MODEL)
    flavor = None if model is None else flavor_of(model)
    if flavor is None:
        return {}
    groups, found = groups_of(flavor.name, model), dict[str, Address]()
    for path, layer in live.layers.items():
        if id(layer) in groups:
            group, holds = groups[id(layer)]
            held = live.inventory.containers.get(path.rpartition("/")[0])
            by_name = held is not None and held.kind == SEQUENCE
            found[group] = Address(path, name_of(layer), by_name, holds)
    return found
