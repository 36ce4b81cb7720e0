"""What a model and its parts compute on a small batch, as a commit record holds it, and compared.

Names and shapes cannot tell two equal layers apart; what they compute can. A record keeps of each
output a checksum and sixteen numbers, which change when any of its values does. Equal checksums are
the same bits. Else the numbers say how far apart two outputs are, in units of the output's size, so
that a cast or another release of TensorFlow accuses nobody.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import math
import operator
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import google_crc32c
import msgspec
import numpy as np

from tfckpt.core.dtypes import dtype_name, numpy_dtype
from tfckpt.core.text import preformatted
from tfckpt.errors import DamagedCheckpointError, TfckptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LIMIT = 64 << 10  # bytes of JSON in a record
MOST_BATCH = LIMIT // 2
MOST_VALUES = 1 << 22  # of a batch that is made from its spec
_NUMBERS = 16
_AT_ONCE = 256
_PERIOD = 65_537  # of the signs; a prime, so that no row of an output has the signs of another
# How far apart outputs of one function may be, in units of their size, by the coarsest dtype.
TOLERANCES = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 5e-5,
    "complex64": 5e-5,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}


class Sketch(NamedTuple):
    """What is kept of a tensor.

    Attributes:
        dtype: TensorFlow's name.
        shape: with the batch dimension.
        crc32c: of its bytes.
        nonfinite: how many values are infinite or NaN.
        size: root mean square of the finite values.
        numbers: sixteen made of the values, or all values if there are no more; None if unknown.
        bound: values beyond it count as it in ``size`` and ``numbers``, so that a mask of -1e9 does
            not hide what is beside it; 0.0 if none is so far from the others.
    """

    dtype: str
    shape: tuple[int, ...]
    crc32c: int
    nonfinite: int
    size: float
    numbers: np.ndarray | None
    bound: float = 0.0


class PartOutput(NamedTuple):
    """One output of a part.

    Attributes:
        part: canonical name of a layer, or of the model itself.
        number: which output of the part it is, over all its calls.
        fed: a number made of what the part was called with, and the size of that.
        output: what is kept of it.
    """

    part: str
    number: int
    fed: tuple[float, float]
    output: Sketch


# Its fields in a record, and those of the sketch; the numbers in base64.
_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Recorded = tuple[
    str,
    int,
    tuple[float, float],
    tuple[str, tuple[_Natural, ...], int, int, float, str | None, float],
]


class _Computed(msgspec.Struct):
    """A model in a record."""

    batch: dict[str, Any]
    outputs: list[_Recorded]


_RESOLVED = msgspec.json.Decoder(_Computed)  # before two threads may ask for it


@dataclasses.dataclass(frozen=True)
class FunctionProof:
    """Whether a model computes what the saved one did.

    Attributes:
        path: of the checkpoint whose record has the outputs.
        part: canonical name of the first part whose output differs; ``""`` if none does. The name
            of a model or block that holds layers means what it does between them.
        difference: of the outputs, in units of their size: the largest one that was accepted, or
            that of ``part``. 0.0 is bit for bit.
        details: what differs, in words; ``""`` if nothing does.
        compared: how many outputs were compared.
        equal: how many of them are the same.

    >>> proof = FunctionProof("runs/a/ckpt-1", "model/out", 0.25, "by 0.25 of its size", 3, 1)
    >>> proof.same
    False
    >>> print(proof)
    another function: model/out is the first part whose output differs, by 0.25 of its size
      1 of 3 outputs are the same
    """

    path: str
    part: str
    difference: float
    details: str
    compared: int
    equal: int

    @property
    def same(self) -> bool:
        """Whether no output differs."""
        return not self.part

    def to_json(self) -> dict[str, Any]:
        """The document of ``tfckpt prove --json``."""
        number = self.difference if math.isfinite(self.difference) else None
        fields = {**dataclasses.asdict(self), "difference": number}
        return {"version": 1, "same": self.same, **fields}

    def __str__(self) -> str:
        counted = f"{self.compared:,} output{'s' * (self.compared != 1)}"
        if self.part:
            what = "is the first part whose output differs"
            text = f"another function: {self.part} {what}, {self.details}"
            return f"{text}\n  {self.equal:,} of {counted} are the same"
        if not self.difference:
            return f"same function: {counted}, bit for bit"
        return f"same up to {_power(self.difference)}: {counted}"

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def _power(number: float) -> str:
    """A number that is not below it, with one digit.

    >>> _power(1e-6), _power(1.2e-6), _power(9.5e-3)
    ('1e-6', '2e-6', '1e-2')
    """
    power = math.floor(math.log10(number))
    digit = math.ceil(number / 10.0**power - 1e-9)
    return f"1e{power + 1}" if digit > 9 else f"{digit}e{power}"


def sketch_of(array: np.ndarray, bound: float | None = None) -> Sketch:
    """What is kept of a tensor; with the ``bound`` of another one, if it is to be compared."""
    array, dtype = np.ascontiguousarray(array), dtype_name(array.dtype)
    if array.dtype.kind in "OSU":
        crc = int(google_crc32c.value(repr(array.tolist()).encode()))
        return Sketch(dtype, array.shape, crc, 0, 0.0, None)
    crc = int(google_crc32c.value(array.reshape(-1).view(np.uint8)))
    kind = np.float32 if array.dtype.itemsize <= 4 else np.float64
    flat = np.stack([array.real, array.imag]) if array.dtype.kind == "c" else array
    with np.errstate(all="ignore"):
        values = flat.reshape(-1).astype(kind, copy=False)
        square, lost = float(np.dot(values, values)), 0
        if not math.isfinite(square):
            finite = np.isfinite(values)
            lost = int(values.size - np.count_nonzero(finite))
            values = np.where(finite, values, 0).astype(np.float64)
            square = float(np.dot(values, values))
        if bound is None:
            bound = _bound_of(values)
        if bound:
            values = np.clip(values, -bound, bound)
            square = float(np.dot(values, values))
    size = math.sqrt(square / (values.size or 1))
    return Sketch(dtype, array.shape, crc, lost, size, _numbers(values).astype(kind), bound)


def _bound_of(values: np.ndarray) -> float:
    """Where values are cut off, as a few are a hundred times as large as most; 0.0 if none is."""
    some = np.abs(values[:: max(values.size // 4096, 1)])
    some = some[some > 0]
    most = float(np.median(some)) if some.size else 0.0
    far = max(float(np.max(values, initial=0.0)), -float(np.min(values, initial=0.0)))
    return float(f"{32 * most:.9g}") if far > 100 * most > 0 else 0.0


def fed_by(sketches: Sequence[Sketch]) -> tuple[float, float]:
    """A number made of what a part is called with, and its size."""
    known = [sketch.numbers for sketch in sketches if sketch.numbers is not None]
    one = sum(float(np.dot(each, _signs(each.size))) / _NUMBERS**0.5 for each in known)
    return one, math.sqrt(sum(sketch.size**2 for sketch in sketches))


def _numbers(values: np.ndarray) -> np.ndarray:
    """Sums of all values, each with a sign, in sixteen columns; of float32 not too many at once."""
    if values.size <= _NUMBERS:
        return values
    rows = -(-values.size // _NUMBERS)
    padded = np.zeros(-(-rows // _AT_ONCE) * _AT_ONCE * _NUMBERS, values.dtype)
    np.multiply(values, _signs(values.size), out=padded[: values.size])
    sums = padded.reshape(-1, _AT_ONCE, _NUMBERS).sum(1)
    total: np.ndarray = sums.sum(0, dtype=np.float64)
    return total / math.sqrt(rows)


def _signs(count: int) -> np.ndarray:
    return _many_signs(1 << count.bit_length())[:count]


@functools.lru_cache(8)
def _many_signs(count: int) -> np.ndarray:
    stream = hashlib.shake_256(b"signs").digest(-(-_PERIOD // 8))
    bits = np.unpackbits(np.frombuffer(stream, np.uint8))[:_PERIOD]
    return np.resize(bits.astype(np.int8) * 2 - 1, count)


# In a record


def encoded(models: Mapping[str, tuple[Any, Sequence[PartOutput]]]) -> dict[str, Any]:
    """What a record holds of models: the batch and the outputs of each, at most ``LIMIT`` bytes.

    Numbers are left out of what does not fit, the innermost and earliest parts first, and then the
    checksums.
    """
    rows = [(n, at) for n, (_, outputs) in models.items() for at in range(len(outputs))]
    rows.sort(key=lambda row: (models[row[0]][1][row[1]].part.count("/"), -row[1]))
    found: dict[str, tuple[Any, list[Any]]] = {
        name: (batch, [None] * len(outputs)) for name, (batch, outputs) in models.items()
    }
    left = LIMIT - len(json.dumps(found)) - len(rows)
    for numbers in (False, True):
        for name, at in rows:
            output = models[name][1][at]
            row = _row(output, numbers=numbers or "/" not in output.part)
            nbytes = len(json.dumps(row)) - len(json.dumps(found[name][1][at]))
            if left < nbytes:
                break
            found[name][1][at], left = row, left - nbytes
    return {
        name: {"batch": batch, "outputs": [row for row in outputs if row is not None]}
        for name, (batch, outputs) in found.items()
    }


def _row(each: PartOutput, *, numbers: bool) -> list[Any]:
    *known, size, made, bound = each.output
    text = _text(made) if numbers and made is not None else None
    short = [float(f"{number:.9g}") for number in (*each.fed, size)]
    return [each.part, each.number, short[:2], [*known, short[2], text, bound]]


def _text(array: np.ndarray) -> str:
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def decoded(
    recorded: Mapping[str, Any], path: str
) -> dict[str, tuple[dict[str, Any], list[PartOutput]]]:
    """The batch and the outputs of each model in a record."""
    found = {}
    try:
        for name, model in msgspec.convert(dict(recorded), dict[str, _Computed]).items():
            outputs = [
                PartOutput(*row[:3], Sketch(*row[3][:5], _numbers_of(row[3]), row[3][6]))
                for row in model.outputs
            ]
            found[name] = model.batch, outputs
        sketches = [o.output for _, outputs in found.values() for o in outputs]
        if not all(math.isfinite(one.size) and 0 <= one.bound < math.inf for one in sketches):
            raise ValueError("a size is not finite")
    except (ValueError, OverflowError) as error:  # among them those of msgspec
        message = f"the commit record's 'proof' cannot be read: {error}"
        raise DamagedCheckpointError(message, path=path) from None
    return found


def _numbers_of(row: Sequence[Any]) -> np.ndarray | None:
    dtype, shape, *_, text, _ = row
    if text is None:
        return None
    count = min(math.prod(shape) * (2 if dtype.startswith("complex") else 1), _NUMBERS)
    content = base64.b64decode(text, validate=True)
    array = np.frombuffer(content, "<f8" if len(content) == 8 * count else "<f4")
    if array.size != count:
        raise ValueError(f"{array.size} numbers in place of {count}")
    return array


def packed_batch(batch: Any) -> dict[str, Any]:
    """A batch of arrays, in lists and dicts, as JSON."""
    if isinstance(batch, dict):
        return {"dict": {str(key): packed_batch(each) for key, each in batch.items()}}
    if isinstance(batch, list | tuple):
        return {"list": [packed_batch(each) for each in batch]}
    array = np.asarray(batch)
    if array.dtype.kind in "OSU":
        words = [w.decode() if isinstance(w, bytes) else str(w) for w in array.reshape(-1)]
        return {"words": [list(array.shape), words]}
    name = dtype_name(array.dtype)
    return {"array": [name, list(array.shape), _text(np.ascontiguousarray(array))]}


def unpacked_batch(packed: Any, path: str = "") -> Any:
    """The arrays of a batch, those that are made from a spec included."""
    try:
        return _unpacked(packed)
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        message = f"the commit record's 'proof' has an invalid batch: {error}"
        raise DamagedCheckpointError(message, path=path) from None


def _unpacked(packed: Any) -> Any:
    ((kind, content),) = packed.items()
    if kind == "dict":
        return {key: _unpacked(each) for key, each in content.items()}
    if kind == "list":
        return list(map(_unpacked, content))
    if kind == "words":
        shape, words = content
        return np.array(words, object).reshape(shape)
    if kind == "array":
        dtype, shape, text = content
        known = np.dtype(numpy_dtype(dtype)).newbyteorder("<")
        content = np.frombuffer(base64.b64decode(text, validate=True), known)
        return content.astype(numpy_dtype(dtype)).reshape(shape)
    if kind == "drawn":
        return _drawn(*content)
    raise ValueError(f"{kind!r} is not known")


def _drawn(dtype: str, shape: Sequence[int], below: int, number: int) -> np.ndarray:
    """Values of an input that a spec describes: the same in every release of NumPy.

    Floats are from -1.7 to 1.7, with a mean square of 1; whole numbers from 0 up to ``below``.
    """
    count = math.prod(map(operator.index, shape))
    if not 0 <= count <= MOST_VALUES:
        raise ValueError(f"a batch of {count:,} values; at most {MOST_VALUES:,} are made")
    stream = hashlib.shake_256(f"input {number}".encode()).digest(4 * count)
    values = np.frombuffer(stream, "<u4").astype(np.float64) / 2**32
    kind = np.dtype(numpy_dtype(dtype))
    if kind.kind in "iub":
        values = np.floor(values * (2 if kind.kind == "b" else below))
    else:
        values = (values * 2 - 1) * math.sqrt(3)
    return values.astype(kind).reshape(shape)


# Compared


def tolerance_of(dtypes: Iterable[str]) -> float:
    """How far apart outputs may be where values of these dtypes were involved."""
    return max((TOLERANCES[each] for each in dtypes if each in TOLERANCES), default=0.0)


class _Pair(NamedTuple):
    """An output then and now, and how far they are apart."""

    then: PartOutput
    now: PartOutput
    apart: float
    details: str


def compared(
    path: str,
    before: Mapping[str, Sequence[PartOutput]],
    after: Mapping[str, Sequence[PartOutput]],
    tolerance: float,
) -> FunctionProof:
    """Compare what models compute with what the saved ones did, in the order of the calls."""
    both = (_paired(before[name], after[name]) for name in before)
    pairs = [pair for each in chain(*both) if (pair := _compared(*each)) is not None]
    if not pairs:
        raise TfckptError(f"{path}: no part of the model is one of the saved model")
    differs = [pair for pair in pairs if not pair.apart <= tolerance]
    close = [pair.apart for pair in pairs if pair.apart <= tolerance]
    equal = len(pairs) - len(differs)
    if not differs:
        return FunctionProof(path, "", max(close, default=0.0), "", len(pairs), equal)
    first = differs[0]
    part, details = first.now.part, first.details
    if _fed_differs(first, tolerance) and "/" in part:
        part = part.rpartition("/")[0]
        details = f"before it calls {first.now.part}, which differs {details}"
    return FunctionProof(path, part, first.apart, details, len(pairs), equal)


def _paired(
    before: Sequence[PartOutput], after: Sequence[PartOutput]
) -> list[tuple[PartOutput, PartOutput]]:
    """The same outputs, by part; parts that only one side has, by order if they are as many."""
    then = {(each.part, each.number): each for each in before}
    now = {(each.part, each.number): each for each in after}
    renamed = {}
    gone = [each for key, each in then.items() if key not in now]
    new = [each for key, each in now.items() if key not in then]
    if len(gone) == len(new):
        renamed = {(a.part, a.number): b for a, b in zip(new, gone, strict=True)}
    found = ((then.get(key) or renamed.get(key), each) for key, each in now.items())
    return [(old, new) for old, new in found if old is not None]


def _compared(then: PartOutput, now: PartOutput) -> _Pair | None:
    """The two, compared; None if only checksums are known, and they differ."""
    old, new = then.output, now.output
    if old[:3] == new[:3]:
        return _Pair(then, now, 0.0, "")
    if old.shape != new.shape:
        return _Pair(then, now, math.inf, f"in shape: {new.shape} in place of {old.shape}")
    if old.nonfinite != new.nonfinite:
        details = f"in {new.nonfinite:,} values that are not finite, in place of {old.nonfinite:,}"
        return _Pair(then, now, math.inf, details)
    if old.dtype == "string":
        return _Pair(then, now, math.inf, "in its words")
    if old.numbers is None or new.numbers is None:
        return None
    difference = float(np.max(np.abs(old.numbers.astype(np.float64) - new.numbers), initial=0.0))
    size = max(old.size, new.size)
    apart = difference / size if size else 0.0
    return _Pair(then, now, apart, f"by {apart:.2g} of its size")


def _fed_differs(pair: _Pair, tolerance: float) -> bool:
    """Whether a part was called with something else, so that it is not the first one."""
    (one, size), (other, also) = pair.then.fed, pair.now.fed
    return abs(one - other) > max(tolerance, 1e-5) * max(size, also)
