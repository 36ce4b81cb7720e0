"""Which checkpoints to delete: a pure function of what there is and of the rules.

``max_to_keep`` and ``keep_checkpoint_every_n_hours`` mean what they mean in TensorFlow's
CheckpointManager (tensorflow/python/checkpoint/checkpoint_management.py): of those that age out,
one is kept for ever whenever that many hours have passed since the last one that was.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is to go.

    Attributes:
        delete: paths, oldest first.
        preserve: paths that aged out and stay for ever.
        last_preserved: Unix time of the newest of those, for the next sweep.
    """

    delete: tuple[str, ...]
    preserve: tuple[str, ...]
    last_preserved: float


def sweep(
    checkpoints: Sequence[tuple[str, float]],
    max_to_keep: int | None,
    every_n_hours: float | None,
    last_preserved: float,
) -> Sweep:
    """What to delete.

    Args:
        checkpoints: (path, Unix time), oldest first.
        max_to_keep: how many of the newest stay; None keeps all.
        every_n_hours: of those that age out, one per so many hours stays.
        last_preserved: Unix time of the last one that stayed for that reason.

    >>> sweep([("ckpt-1", 0.0), ("ckpt-2", 1.0), ("ckpt-3", 2.0)], 2, None, 0.0).delete
    ('ckpt-1',)
    """
    aged = checkpoints[:-max_to_keep] if max_to_keep else ()
    delete, preserve = [], []
    for path, time in aged:
        if every_n_hours and time - every_n_hours * 3600 >= last_preserved:
            last_preserved = time
            preserve.append(path)
        else:
            delete.append(path)
    return Sweep(tuple(delete), tuple(preserve), last_preserved)
