"""The operations on a stored value before it is assigned, as a plan lists them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tfckpt.policy.adapt import ValueSpec, show_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One operation, with all parameters resolved.

    Attributes:
        how: the kind of rule, such as ``transpose``.
        before: the inputs' shapes and dtypes; several if values will be joined.
        after: the outputs' shapes and dtypes.
        detail: more for the report, such as ``[:, 4:8]``.
        options: resolved parameters for each input, or one set for joined inputs.
        rows: for ``vocabulary``, the old row for each new row, -1 for none.
    """

    how: str
    before: tuple[ValueSpec, ...]
    after: tuple[ValueSpec, ...]
    detail: str = ""
    options: tuple[Mapping[str, Any], ...] = dataclasses.field(default=({},), hash=False)
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        """The change as reports show it.

        >>> str(Change("transpose", (ValueSpec((2, 3), "int8"),), (ValueSpec((3, 2), "int8"),)))
        'transpose: (2, 3) → (3, 2)'
        """
        types = {kind.dtype for kind in (*self.before, *self.after)}
        old, new = (_show(kinds, typed=len(types) > 1) for kinds in (self.before, self.after))
        return " ".join(filter(None, (self.how, self.detail))) + f": {old} → {new}"

    def to_json(self) -> dict[str, Any]:
        return {
            "how": self.how,
            "detail": self.detail,
            "before": [_plain(kind) for kind in self.before],
            "after": [_plain(kind) for kind in self.after],
        }


def _show(kinds: Iterable[ValueSpec], *, typed: bool) -> str:
    return " + ".join(f"{k.dtype} " * typed + show_shape(k.shape) for k in kinds)


def _plain(kind: ValueSpec) -> dict[str, Any]:
    return {"dtype": kind.dtype, "shape": list(kind.shape)}
