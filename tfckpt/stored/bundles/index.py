"""Reads the index of a checkpoint and checks all of it before use.

TensorFlow's reader trusts the index: forged entries with valid checksums abort the process in C++
(``CHECK`` failures on shapes, slices, dtypes). An index that passes here cannot do that. Besides
the checks of the table, refused are: a missing header; a shape that does not match the size; an
invalid shard number; overlapping values; slices that are missing, do not match their value, or do
not cover it exactly once (``MaxShardSizePolicy`` slices along several axes). Whether values lie
inside of the data files is checked by :mod:`tfckpt.stored.bundles.bundle`.
"""

from __future__ import annotations

import dataclasses
import itertools
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.dtypes import DTYPES, ITEM_BYTES, NUMBERS
from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.bundles.table import WireError, read_table
from tfckpt.stored.io import messages
from tfckpt.stored.io.messages import DecodeError, Message

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfckpt.core.inventory import Shape

# kTensorBundleVersion of tensor_bundle.h
VERSION = 1
MAX_RANK = 254
INT64 = 1 << 63
_PRIME = (1 << 127) - 1


class Extent(NamedTuple):
    """A range of one axis; ``length`` -1 means the whole axis."""

    start: int
    length: int


class BundleEntry(NamedTuple):
    """One value as the index describes it.

    Attributes:
        dtype: TensorFlow's name of the dtype.
        shape: of the whole value, also where it is stored in slices.
        shard: number of the data file.
        offset: in the data file.
        nbytes: stored size; for a sliced value the sum over its slices.
        crc32c: masked, as stored; 0 for a sliced value, whose slices have their own.
        slices: of a value stored in slices; otherwise ().
    """

    dtype: str
    shape: Shape
    shard: int
    offset: int
    nbytes: int
    crc32c: int
    slices: tuple[tuple[Extent, ...], ...] = ()

    @property
    def sliced(self) -> bool:
        return bool(self.slices)


@dataclasses.dataclass(frozen=True, slots=True)
class Index:
    """The content of an index.

    Attributes:
        num_shards: the number of data files.
        entries: key → value, in the order of the keys' bytes.
        pieces: encoded key → slice, for values stored in slices.
        ends: number of each data file in use → end of its last value.
    """

    num_shards: int
    entries: Mapping[str, BundleEntry]
    pieces: Mapping[bytes, BundleEntry]
    ends: Mapping[int, int]


def read_index(data: bytes, path: str) -> Index:
    """Read and check the content of an ``.index`` file."""
    table = read_table(data, path)
    name, value = next(table, (None, b""))
    if name != b"":
        raise DamagedCheckpointError("the index has no header", path=path)
    whole: dict[str, BundleEntry] = {}
    pieces: dict[bytes, BundleEntry] = {}
    counts: dict[Shape, int] = {}
    try:
        num_shards = _check_header(messages.BundleHeader.FromString(value), path)
        for name, value in table:
            entry = _entry(messages.BundleEntry.FromString(value), num_shards, counts)
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
    except (WireError, DecodeError) as error:
        shown = name.decode(errors="backslashreplace") if name else ""
        raise DamagedCheckpointError(str(error), path=path, name=shown) from None
    except UnicodeDecodeError:
        raise DamagedCheckpointError(f"key {name!r} is not UTF-8", path=path) from None
    return Index(
        num_shards, MappingProxyType(whole), MappingProxyType(pieces), MappingProxyType(ends)
    )


def _check_header(header: Message, path: str) -> int:
    """The number of data files."""
    check_version(header.version, path)
    if header.endianness == 1:
        message = "was written by a machine that stores the highest byte of a number first"
        hint = "Load it with TensorFlow, and save it again on a little-endian machine."
        raise UnsupportedCheckpointError(message, path=path, hint=hint)
    if header.endianness or header.num_shards < 0:
        raise WireError("the header has an unknown byte order or number of data files")
    return int(header.num_shards)


def _entry(stored: Message, num_shards: int, counts: dict[Shape, int]) -> BundleEntry:
    """One entry, checked; ``counts`` caches the number of elements of each shape."""
    number, shard, offset, nbytes = stored.dtype, stored.shard_id, stored.offset, stored.size
    if (dtype := DTYPES.get(number)) is None:
        raise WireError(f"unknown dtype number {number}")
    shape = shape_of(stored.shape)
    if not 0 <= shard < num_shards:
        raise WireError(f"shard {shard} is out of range; the checkpoint has {num_shards} shards")
    if offset < 0 or nbytes < 0:
        raise WireError("offset or size is negative")
    if (count := counts.get(shape)) is None:
        count = counts[shape] = element_count(shape)
    slices = tuple(map(extents_of, stored.slices))
    item = ITEM_BYTES.get(dtype, 0)
    if not slices and ((count * item != nbytes) if item else _too_small(dtype, count, nbytes)):
        raise WireError(f"{dtype} of shape {shape} cannot have {nbytes} bytes")
    return BundleEntry(dtype, shape, shard, offset, nbytes, stored.crc32c, slices)


def shape_of(stored: Message) -> Shape:
    """The sizes of a shape, which :func:`element_count` checks."""
    if stored.unknown_rank:
        raise WireError("the shape has an unknown rank")
    return tuple([dim.size for dim in stored.dim])


def extents_of(stored: Message) -> tuple[Extent, ...]:
    extents = tuple(
        Extent(each.start, each.length if each.HasField("length") else -1) for each in stored.extent
    )
    if any(start < 0 or length < -1 for start, length in extents):
        raise WireError("a slice begins before its value")
    return extents


def encode_header(num_shards: int) -> bytes:
    """The first entry of an index; little-endian is the default and not written."""
    header = messages.BundleHeader(num_shards=num_shards, version={"producer": VERSION})
    return bytes(header.SerializeToString())


def encode_entry(entry: BundleEntry) -> bytes:
    """The index entry of a value that is stored whole."""
    _, _, shard, offset, nbytes, crc32c, _ = entry
    place = messages.BundleEntry(shard_id=shard, offset=offset, size=nbytes, crc32c=crc32c)
    return _encoded_kind(entry.dtype, entry.shape) + bytes(place.SerializeToString())


@lru_cache(1024)  # messages are concatenated by concatenating their bytes
def _encoded_kind(dtype: str, shape: Shape) -> bytes:
    kind = messages.BundleEntry(dtype=NUMBERS[dtype], shape={"dim": [{"size": n} for n in shape]})
    return bytes(kind.SerializeToString())


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


def check_version(version: Message, path: str) -> None:
    """Raise UnsupportedCheckpointError where the format needs a newer reader."""
    if version.min_consumer > VERSION or VERSION in version.bad_consumers:
        message = f"requires version {version.min_consumer} of the checkpoint format"
        hint = f"tfckpt and TensorFlow read version {VERSION}."
        raise UnsupportedCheckpointError(message, path=path, hint=hint)


def element_count(shape: Shape) -> int:
    """The number of elements; refuses a shape that TensorFlow or NumPy cannot have."""
    if len(shape) > MAX_RANK:
        raise WireError(f"the shape has {len(shape)} axes, more than TensorFlow allows")
    count = bound = 1
    for size in shape:
        if size < 0:
            raise WireError(f"the shape has a negative size, {size}")
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
