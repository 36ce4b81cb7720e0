"""Names as a user would write them, and the chain of layers that several tests vary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfckpt.live.inventory import Live

KERNEL_AND_BIAS = ("bias", "kernel")


def below(*layers: str, names: tuple[str, ...] = KERNEL_AND_BIAS) -> set[str]:
    return {f"model/{layer}/{name}" for layer in layers for name in names}


def weights(live: Live) -> set[str]:
    return {name for name, entry in live.inventory.entries.items() if entry.role == "weight"}


def chain(k: Any, kind: str = "functional", dropout: bool = False, name: str | None = None) -> Any:
    layers = [k.layers.Dense(3), k.layers.Dense(3, name="head"), k.layers.Dense(3)]
    if dropout:
        layers[1:1] = [k.layers.Dropout(0.5)]
    if kind == "sequential":
        return k.Sequential([k.Input((3,)), *layers], name=name)
    inputs = outputs = k.Input((3,))
    for layer in layers:
        outputs = layer(outputs)
    return k.Model(inputs, outputs, name=name)
