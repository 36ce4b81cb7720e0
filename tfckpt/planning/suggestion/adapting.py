"""``adapt`` rules for weights that another library keeps with its axes in another order.

A dense kernel is (out, in) in PyTorch, that of a convolution (out, in, rows, columns). A square
kernel fits either way: it is transposed if all others of its rank are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfckpt.planning.suggestion.leaving import selectors

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfckpt.core.inventory import Inventory, Shape

# By rank, as PyTorch's layers differ from Keras's.
_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (2, 3, 1, 0), 5: (2, 3, 4, 1, 0)}


def adapt_rules(
    pairs: Mapping[str, str], stored: Inventory, live: Inventory
) -> list[dict[str, Any]]:
    """Rules that transpose what must be transposed; none if a value fits in no such way."""
    rules: list[dict[str, Any]] = []
    for rank, axes in _AXES.items():
        kernels = {
            new: (stored.entries[old].shape or (), live.entries[new].shape or ())
            for old, new in pairs.items()
            if len(stored.entries[old].shape or ()) == rank and new.endswith("kernel")
        }
        if not any(old != new for old, new in kernels.values()):
            continue
        if all(_moved(old, axes) == new for old, new in kernels.values()):
            others = live.entries.keys() - kernels.keys()
            rules += [
                {"model": text, "how": "transpose"} | ({"axes": list(axes)} if rank > 2 else {})
                for text in _selectors(kernels, others)
            ]
    return rules


def _moved(shape: Shape, axes: tuple[int, ...]) -> Shape:
    return tuple(shape[axis] for axis in axes)


def _selectors(names: Collection[str], others: Collection[str]) -> list[str]:
    """By the variable's name alone, if nothing else has it."""
    words = {name.rpartition("/")[2] for name in names}
    if not any(other.rpartition("/")[2] in words for other in others):
        return [f"**/{word}" for word in sorted(words)]
    return selectors(names, others)
