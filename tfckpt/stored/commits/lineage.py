"""The lineage in a commit record: the restores that the values of a checkpoint come from."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from tfckpt.core.inventory import Origin, Restored, Share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TYPES: Mapping[str, tuple[type, ...]] = {
    "path": (str,),
    "sha256": (str,),
    "policy": (str,),
    "policy_sha256": (str,),
    "weight": (float, int),
    "average": (list,),
    "sources": (list,),
    "counts": (dict,),
}


def plain(lineage: Sequence[Restored]) -> list[dict[str, Any]]:
    """The lineage as plain JSON types.

    >>> origin = Origin("zoo/a", "e3b0…", "finetune", "44ad…")
    >>> plain([Restored((origin,), {"LOADED": 2})])[0]["counts"]
    {'LOADED': 2}
    """
    return [dataclasses.asdict(restored) for restored in lineage]


def parse(items: Sequence[Any], damaged: Callable[[str], Exception]) -> tuple[Restored, ...]:
    """The lineage from parsed JSON; ``damaged`` makes the error for a message."""

    def fields(item: Any, kind: type) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(kind)]
        if type(item) is not dict or any(
            type(item.get(name)) not in _TYPES[name] for name in names
        ):
            raise damaged(f"'lineage' contains an invalid {kind.__name__.lower()}")
        return {name: item[name] for name in names}

    def share(item: Any) -> Share:
        values = fields(item, Share)
        if not 0 <= values["weight"] <= 1 or not math.isfinite(values["weight"]):
            raise damaged("'lineage' contains a weight that is not between 0 and 1")
        return Share(**values)

    def origin(item: Any) -> Origin:
        values = fields(item, Origin)
        return Origin(**{**values, "average": tuple(map(share, values["average"]))})

    def restored(item: Any) -> Restored:
        values = fields(item, Restored)
        if any(type(count) is not int or count < 0 for count in values["counts"].values()):
            raise damaged("'lineage' contains a count that is not a non-negative integer")
        return Restored(tuple(map(origin, values["sources"])), values["counts"])

    return tuple(map(restored, items))
