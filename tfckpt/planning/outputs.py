"""The outputs of models on one batch: as a commit record holds them, and compared."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tfckpt.core.distance import difference
from tfckpt.core.dtypes import dtype_name, numpy_dtype
from tfckpt.core.text import preformatted

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = 64 << 10  # bytes of an output of which a record holds every value
_ENDS = 8  # values of a larger one, at each end


class Packed(msgspec.Struct):
    """An array in a record."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    data: bytes

    @property
    def values(self) -> np.ndarray:
        """All values in their shape, or those at both ends in a row."""
        if self.dtype == "string":
            found = np.array(msgspec.json.decode(self.data, type=list[bytes]), object)
        else:
            found = np.frombuffer(self.data, numpy_dtype(self.dtype))
        at_ends = found.size == 2 * _ENDS != math.prod(self.shape)
        return found if at_ends else found.reshape(self.shape)


class RecordedOutputs(msgspec.Struct):
    """The key ``outputs`` of a record; ``batch`` is one of each model, as positions in arrays."""

    batch: dict[str, Any]
    arrays: tuple[Packed, ...]
    outputs: dict[str, Packed]


RESOLVED = msgspec.json.Decoder(RecordedOutputs)  # before two threads may ask for it


def pack(array: np.ndarray, whole: float = WHOLE) -> Packed:
    """An array as a record holds it."""
    data = _bytes(array)
    kept = data if len(data) <= whole else _bytes(_ends_of(array))
    return Packed(dtype_name(array.dtype), array.shape, hashlib.sha256(data).hexdigest(), kept)


def _ends_of(array: np.ndarray) -> np.ndarray:
    flat = array.reshape(-1)
    return np.concatenate([flat[:_ENDS], flat[-_ENDS:]])


def _bytes(array: np.ndarray) -> bytes:
    flat = array.reshape(-1)
    return msgspec.json.encode(flat.tolist()) if array.dtype.hasobject else flat.tobytes()


class ComparedOutput(NamedTuple):
    """One output of a model, beside what it was at the save.

    Attributes:
        name: of the model, and which of its outputs: ``model[logits]``.
        equal: whether all bits are.
        largest: the greatest absolute difference; None if it is not one of numbers.
        relative: it, over the greatest magnitude; None where that is undefined.
        details: what else there is to say.
    """

    name: str
    equal: bool
    largest: float | None = 0.0
    relative: float | None = 0.0
    details: str = ""


@dataclasses.dataclass(frozen=True)
class OutputCheck:
    """The outputs of models beside those that a save has recorded.

    Attributes:
        path: of the checkpoint.
        examples: how many the batch has.
        outputs: each that was compared, the farthest first.
    """

    path: str
    examples: int
    outputs: tuple[ComparedOutput, ...]

    @property
    def equal(self) -> bool:
        """Whether all outputs are equal in every bit."""
        return all(each.equal for each in self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The document of ``tfckpt check --json``; an infinite difference is null."""
        rows = [each._asdict() for each in self.outputs]
        for row in rows:
            row["largest"] = None if row["largest"] == math.inf else row["largest"]
        fields = {"path": self.path, "examples": self.examples, "outputs": rows}
        return {"version": 1, "equal": self.equal, **fields}

    def __str__(self) -> str:
        outputs, examples = (
            f"{count:,} {what}{'s' * (count != 1)}"
            for what, count in (("output", len(self.outputs)), ("example", self.examples))
        )
        if self.equal:
            return f"equal in every bit: {outputs} of {examples}"
        first, count = self.outputs[0], sum(not each.equal for each in self.outputs)
        largest = "" if first.largest is None else f"largest difference {first.largest:.3g}"
        relative = "" if first.relative is None else f"relative {first.relative:.3g}"
        said = ", ".join(filter(None, (largest, relative, first.details)))
        return f"different: {count:,} of {outputs} of {examples}\n  {first.name}: {said}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def compare(saved: Mapping[str, Packed], now: Mapping[str, np.ndarray]) -> list[ComparedOutput]:
    """Each output beside the recorded one, the farthest first."""
    found = [_compared(name, saved.get(name), now.get(name)) for name in {**saved, **now}]
    return sorted(found, key=lambda one: (one.equal, -_far(one)))


def _far(one: ComparedOutput) -> float:
    return math.inf if one.largest is None else one.largest


def _compared(name: str, old: Packed | None, new: np.ndarray | None) -> ComparedOutput:
    if old is None or new is None:
        side = "this model" if old is None else "the saved model"
        return ComparedOutput(name, False, None, None, f"only {side} returns it")
    packed, numbers = pack(new), new
    if (old.dtype, old.shape, old.sha256) == (packed.dtype, packed.shape, packed.sha256):
        return ComparedOutput(name, True)
    if old.shape != new.shape:
        return ComparedOutput(name, False, None, None, f"shape {new.shape}, was {old.shape}")
    details = [f"{packed.dtype}, was {old.dtype}"] if packed.dtype != old.dtype else []
    if old.values.shape != old.shape:
        details.append(f"of its first and last {_ENDS} values, which are what the record holds")
        numbers = _ends_of(new)
    found = difference(old.values, numbers)
    if found is None or found.largest is None:
        return ComparedOutput(name, False, None, None, ", ".join(details) or "other strings")
    return ComparedOutput(name, False, found.largest, found.relative, ", ".join(details))
