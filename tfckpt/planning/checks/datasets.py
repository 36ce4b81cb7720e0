"""An iterator's position is only valid for the dataset that it was saved with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfckpt.core.inventory import Dataset

_INFINITE, _UNKNOWN = -1, -2  # tf.data.INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
HINT = (
    "build the dataset as it was when it was saved; to start the data from the beginning, "
    "exclude the iterator in a policy, or do not pass it to the checkpoint"
)
BUILT_DIFFERENTLY = (
    "its dataset was built from other data or with other operations when it was saved, so the next "
    "elements may not be those that would have followed"
)


def ambiguity(stored: Dataset | None, live: Dataset | None) -> str:
    """Why a position in one dataset is not valid in the other; ``""`` if nothing shows that.

    >>> from tfckpt.core.inventory import Dataset
    >>> ten = Dataset("int64", 10, "1")
    >>> ambiguity(ten, Dataset("int64", 100, "2"))
    'its dataset has 10 elements in the checkpoint and 100 elements in the model'
    >>> ambiguity(ten, ten._replace(elements="float32"))
    'its dataset yields int64 in the checkpoint and float32 in the model'
    """
    if stored is None or live is None:
        return ""
    if stored.elements != live.elements:
        in_checkpoint, in_model = stored.elements, live.elements
        return f"its dataset yields {in_checkpoint} in the checkpoint and {in_model} in the model"
    if stored.size != live.size and _UNKNOWN not in (stored.size, live.size):
        in_checkpoint, in_model = _size(stored.size), _size(live.size)
        return f"its dataset has {in_checkpoint} in the checkpoint and {in_model} in the model"
    return ""


def built_differently(stored: Dataset | None, live: Dataset | None) -> bool:
    """Whether the datasets have different fingerprints; their elements may still be equal."""
    if stored is None or live is None or "" in (stored.fingerprint, live.fingerprint):
        return False
    return stored.fingerprint != live.fingerprint


def _size(number: int) -> str:
    if number == _INFINITE:
        return "infinitely many elements"
    return f"{number:,} element{'s' * (number != 1)}" if number else "no elements"
