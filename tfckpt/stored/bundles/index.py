"""Reads the index of a checkpoint and checks all of it before use.

TensorFlow's reader trusts the index: forged entries with valid checksums abort the process in C++
(``CHECK`` failures on shapes, slices, dtypes). An index that passes here cannot do that. Besides
the checks of the table and of each entry, refused are: a missing header; a shape that does not
match the size; an invalid shard number; overlapping values; slices that are missing, do not match
their value, or do not cover it exactly once. Whether values lie inside of the data files is checked
by :mod:`tfckpt.stored.bundles.bundle`.
"""

from __future__ import annotations

import dataclasses
import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.encoding.index_proto import (
    INT64,
    BundleEntry,
    BundleHeader,
    Extent,
    Versions,
    WireError,
    parse_entry,
    parse_header,
    put_number,
)
from tfckpt.stored.bundles.encoding.table import read_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Shape

# kTensorBundleVersion of tensor_bundle.h
VERSION = 1

_CHECKSUM = b"\x35"  # field 6, four bytes
_LONGEST = 70  # bits of a varint: seven in each of ten bytes
_PRIME = (1 << 127) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """The content of an index.

    Attributes:
        header: its first entry.
        entries: key → value, in the order of the keys' bytes.
        pieces: encoded key → slice, for values stored in slices.
        ends: number of each data file in use → end of its last value.
    """

    header: BundleHeader
    entries: Mapping[str, BundleEntry]
    pieces: Mapping[bytes, BundleEntry]
    ends: Mapping[int, int]


def read_index(data: bytes, path: str) -> Index:
    """Read and check the content of an ``.index`` file."""
    table = read_table(data, path)
    name, value = next(table, (None, b""))
    if name != b"":
        raise DamagedCheckpointError("the index has no header", path=path)
    try:
        header = parse_header(value)
        check_version(header.versions, path)
        if header.big_endian:
            message = "was written by a machine that stores the highest byte of a number first"
            hint = "Load it with TensorFlow, and save it again on a little-endian machine."
            raise UnsupportedCheckpointError(message, path=path, hint=hint)
        whole: dict[str, BundleEntry] = {}
        pieces: dict[bytes, BundleEntry] = {}
        shapes: dict[bytes, Shape] = {}
        counts: dict[Shape, int] = {}
        kinds: dict[bytes, _TypeAndShape] = {}
        for name, value in table:
            entry = _known(value, kinds, header.num_shards)
            if entry is None:
                entry = parse_entry(value, shapes)
                _check_entry(entry, header.num_shards, counts)
                _learn(value, entry, kinds)
            if name[0]:
                whole[name.decode()] = entry
            else:
                pieces[name] = entry
        name = None
        ends = _ends([*pieces.items(), *whole.items()])
        for key in [key for key, entry in whole.items() if entry.slices]:
            name = key.encode()
            whole[key] = _gather(key, whole[key], pieces)
        name = None
        if pieces:
            _check_orphans(whole, pieces)
    except WireError as error:
        shown = name.decode(errors="backslashreplace") if name else ""
        raise DamagedCheckpointError(str(error), path=path, name=shown) from None
    except UnicodeDecodeError:
        raise DamagedCheckpointError(f"key {name!r} is not UTF-8", path=path) from None
    return Index(header, MappingProxyType(whole), MappingProxyType(pieces), MappingProxyType(ends))


class _TypeAndShape(NamedTuple):
    """What all values of one dtype and shape have in common.

    Attributes:
        dtype: of such a value.
        shape: of such a value.
        nbytes: of such a value.
        size: the encoded entry after the position: from the size field up to the checksum.
    """

    dtype: str
    shape: Shape
    nbytes: int
    size: bytes


def _learn(value: bytes, entry: BundleEntry, kinds: dict[bytes, _TypeAndShape]) -> None:
    """Remember the encoded dtype and shape at the start of a checked entry."""
    if entry.dtype in ITEM_BYTES and not entry.slices and value[:1] + value[2:3] == b"\x08\x12":
        size = put_number(5, entry.nbytes) + _CHECKSUM
        if value[-4 - len(size) : -4] == size and max(value[1], value[3]) < 128:
            kinds[value[: 4 + value[3]]] = _TypeAndShape(
                entry.dtype, entry.shape, entry.nbytes, size
            )


def _known(
    value: bytes, kinds: Mapping[bytes, _TypeAndShape], num_shards: int
) -> BundleEntry | None:
    """An entry that differs from an earlier one only in position and checksum; None for any other.

    The values of a model have few dtypes and shapes, so most entries repeat. What differs is the
    position, for which nothing but two numbers is accepted.
    """
    begin = 4 + value[3] if len(value) > 9 else 0
    if (kind := kinds.get(value[:begin])) is None:
        return None
    dtype, shape, nbytes, size = kind
    end = len(value) - 4 - len(size)
    if begin > end or value[end:-4] != size:
        return None
    shard = offset = shift = 0
    if begin < end and value[begin] == 0x18:
        shard = value[begin + 1]
        begin += 2
    if begin < end and value[begin] == 0x20:
        for byte in value[begin + 1 : end]:
            offset |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                begin += 1 + shift // 7
                break
    if begin != end or shard >= num_shards or shard > 127 or offset >= INT64 or shift > _LONGEST:
        return None
    crc32c = int.from_bytes(value[-4:], "little")
    # like BundleEntry(…), without calling a Python function
    return tuple.__new__(BundleEntry, (dtype, shape, shard, offset, nbytes, crc32c, ()))


def slice_key(name: str, extents: tuple[Extent, ...]) -> bytes:
    r"""The key under which a slice is stored (``EncodeTensorNameSlice`` of TensorFlow).

    >>> slice_key("v", (Extent(2, 2), Extent(0, -1)))
    b'\x00v\x00\x01\x01\x02\x82\x82\x80\x7f'
    """
    text = name.encode().replace(b"\0", b"\0\xff")
    rank = len(extents).to_bytes(1, "big").lstrip(b"\0")
    code = b"\0" + text + b"\0\1" + bytes([len(rank)]) + rank
    return code + b"".join(_ordered(number) for extent in extents for number in extent)


def _ordered(number: int) -> bytes:
    """A signed number encoded so that bytes sort like numbers: a run of ones gives the length."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    code = (magnitude | ((1 << length) - 1) << 7 * length).to_bytes(length, "big")
    return bytes(byte ^ 255 for byte in code) if number < 0 else code


def resolve(extents: tuple[Extent, ...], shape: Shape) -> tuple[tuple[int, int], ...]:
    """Start and stop index of a slice on each axis."""
    return tuple(
        (0, size) if length < 0 else (start, start + length)
        for (start, length), size in zip(extents, shape, strict=True)
    )


def check_version(versions: Versions, path: str) -> None:
    """Raise UnsupportedCheckpointError where the format needs a newer reader."""
    if versions.min_consumer > VERSION or VERSION in versions.bad_consumers:
        message = f"requires version {versions.min_consumer} of the checkpoint format"
        hint = f"tfckpt and TensorFlow read version {VERSION}."
        raise UnsupportedCheckpointError(message, path=path, hint=hint)


def _check_entry(entry: BundleEntry, num_shards: int, counts: dict[Shape, int]) -> None:
    """Check one entry; ``counts`` caches the number of elements of each shape."""
    dtype, shape, shard, _, nbytes, _, slices = entry
    if shard >= num_shards:
        raise WireError(f"shard {shard} is out of range; the checkpoint has {num_shards} shards")
    if (count := counts.get(shape)) is None:
        count = counts[shape] = element_count(shape)
    item = ITEM_BYTES.get(dtype, 0)
    if not slices and ((count * item != nbytes) if item else _too_small(dtype, count, nbytes)):
        raise WireError(f"{dtype} of shape {shape} cannot have {nbytes} bytes")


def element_count(shape: Shape) -> int:
    """The number of elements; refuses a shape that overflows in TensorFlow or NumPy."""
    count = bound = 1
    for size in shape:
        count *= size
        bound *= max(size, 1)
    if bound * 16 >= INT64:
        raise WireError(f"the shape {shape} is too large")
    return count


def _too_small(dtype: str, count: int, nbytes: int) -> bool:
    """Strings need at least one byte of length each, and 4 bytes of checksum in total."""
    return dtype == "string" and nbytes < count + 4 and bool(count or nbytes)


def _ends(values: Collection[tuple[str | bytes, BundleEntry]]) -> dict[int, int]:
    """Data file → end of its last value; values must not overlap."""
    ends: dict[int, int] = {}
    ascending = True
    for _, (_, _, shard, offset, nbytes, _, slices) in values:
        if not slices:
            end = ends.get(shard, -1)
            if offset < end and nbytes:
                ascending = False
            if offset + nbytes > end:
                ends[shard] = offset + nbytes
    if not ascending:
        _check_overlaps(values)
    return ends


def _check_overlaps(values: Iterable[tuple[str | bytes, BundleEntry]]) -> None:
    """Raise where two values overlap."""
    extents = sorted(
        (entry.shard, entry.offset, entry.offset + entry.nbytes, _text(name))
        for name, entry in values
        if entry.nbytes and not entry.slices
    )
    for (last_shard, _, last_end, last), (shard, start, _, name) in itertools.pairwise(extents):
        if shard == last_shard and start < last_end:
            raise WireError(f"{last!r} and {name!r} overlap in shard {shard}")


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


def _gather(key: str, entry: BundleEntry, pieces: dict[bytes, BundleEntry]) -> BundleEntry:
    """The entry of a sliced value with the total size of its slices, which are checked."""
    if not entry.shape:
        raise WireError("a scalar cannot be stored in slices")
    check_tiles(entry.slices, entry.shape)
    total = 0
    for extents in entry.slices:
        piece = pieces.get(slice_key(key, extents))
        if piece is None:
            raise WireError(f"the slice {_show(extents)} is missing from the index")
        shape = tuple(end - start for start, end in resolve(extents, entry.shape))
        if piece.slices or piece.dtype != entry.dtype or piece.shape != shape:
            raise WireError(f"the slice {_show(extents)} does not match its value")
        total += piece.nbytes
    return entry._replace(nbytes=total)


def check_tiles(slices: Sequence[tuple[Extent, ...]], shape: Shape) -> None:
    """Raise WireError unless the slices cover a value of that shape, each element once."""
    if not all(len(extents) == len(shape) for extents in slices):
        raise WireError(f"a slice does not have the {len(shape)} axes of its value")
    boxes = [resolve(extents, shape) for extents in slices]
    if len(set(boxes)) != len(boxes) or not _tile(boxes, shape):
        raise WireError("the slices overlap or do not cover the whole value")


def _tile(boxes: list[tuple[tuple[int, int], ...]], shape: Shape) -> bool:
    """Whether the boxes cover the shape, each element once; linear in their number.

    The sum of x^i·y^j·… over a box is a product of geometric series, so exact cover is an identity
    of polynomials; it is tested at one random point (Schwartz and Zippel).
    """
    import secrets

    point = [secrets.randbelow(_PRIME - 2) + 2 for _ in shape]
    total = 0
    for box in boxes:
        term = 1
        for x, (start, end) in zip(point, box, strict=True):
            term = term * (pow(x, end, _PRIME) - pow(x, start, _PRIME)) % _PRIME
        total += term
    expected = 1
    for x, size in zip(point, shape, strict=True):
        expected = expected * (pow(x, size, _PRIME) - 1) % _PRIME
    return (total - expected) % _PRIME == 0


def _check_orphans(whole: dict[str, BundleEntry], pieces: dict[bytes, BundleEntry]) -> None:
    listed = {slice_key(key, part) for key, entry in whole.items() for part in entry.slices}
    if orphans := pieces.keys() - listed:
        raise WireError(f"the slice under key {min(orphans)!r} belongs to no value")


def _show(extents: tuple[Extent, ...]) -> str:
    return ":".join("-" if one.length < 0 else f"{one.start},{one.length}" for one in extents)
