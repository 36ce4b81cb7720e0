"""How the layers and optimizers of a checkpoint were built, so that a restore can build them again.

A part of the commit record. ``shapes`` and ``specs`` are plain JSON values, which only
:mod:`tfckpt.live.private.building` writes and reads; one that it cannot read builds nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class LayerBuild(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one layer was built.

    Attributes:
        cls: the name of its class.
        rank: of its first variable, in the order in which TensorFlow has created them.
        scope: the name scope around it.
        outer: where its variables were created later in another one, as in a traced call: that.
        shapes: the arguments of ``build``; None if it was not called.
        specs: those of its first call, in tf_keras.
    """

    cls: str
    rank: Annotated[int, msgspec.Meta(ge=0)]
    scope: str = ""
    outer: str | None = None
    shapes: Any = None
    specs: Any = None


class Builds(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the objects of a checkpoint were built.

    Attributes:
        layers: by canonical path, those with variables in or below them.
        optimizers: canonical path → names of the variables that it trains, in its order.
        untrained: names of what an only optimizer could have trained, and did not.
        unbuilt: the paths of layers that were not built.
    """

    layers: dict[str, LayerBuild] = msgspec.field(default_factory=dict)
    optimizers: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.layers or self.optimizers)
