"""Checkpoints of TF1's ``Saver`` in format version 1: one table with both the index and the values.

A file is a LevelDB table. Its empty key has a ``SavedTensorSlices`` message that lists tensors and
their slices; the encoded name of each slice has another one with the elements, as fields of a
``TensorProto`` (saved_tensor_slice.proto, tensor_slice_writer.cc). A sharded checkpoint is several
such files, ``model-00000-of-00002``, each of which lists only its own tensors: all must be there,
since nothing records what a missing one had.

Blocks are read as values are requested, and each is checked against its checksum; there is no
checksum of a whole value. Refused are a tensor listed with two shapes or dtypes, slices that
overlap or leave a gap, and a slice with the wrong number of elements.

A ``TensorProto`` has a field for each kind of dtype; which one is in
tensorflow/core/util/saved_tensor_slice_util.h. Small integers are stored as varints, half floats as
the integers of the same bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.core.dtypes import DTYPES, ITEM_BYTES, numpy_dtype
from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.index import (
    Extent,
    check_tiles,
    check_version,
    element_count,
    extents_of,
    resolve,
    shape_of,
    slice_key,
)
from tfckpt.stored.bundles.table import TableFile, WireError
from tfckpt.stored.bundles.values import StoredValues
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.formats.tf1_names import name_keys
from tfckpt.stored.io.explain import saver_v1_files
from tfckpt.stored.io.files import Files, digest_of
from tfckpt.stored.io.messages import (
    BundleHeader,
    DecodeError,
    Message,
    SavedTensorSlices,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Shape
    from tfckpt.stored.formats.checkpoint import Opening
    from tfckpt.stored.io.files import Handle

# Size of the list of tensors: enough for ten million.
_MAX_LIST_BYTES = 1 << 30


class TensorSlice(NamedTuple):
    """A slice of a value, and the index of its file."""

    extents: tuple[Extent, ...]
    file: int


@dataclasses.dataclass(frozen=True, slots=True)
class ListedTensor:
    """One listed value; ``nbytes`` is 0 for strings, whose size is not listed."""

    dtype: str
    shape: Shape
    nbytes: int
    slices: tuple[TensorSlice, ...]
    crc32c: None = None  # the format has none of a whole value


class SaverV1(StoredValues):
    """An open checkpoint in format version 1; ``paths`` are its files, sorted by their numbers.

    Attributes:
        entries: key → dtype, shape and size.
    """

    def __init__(self, paths: Sequence[str], files: Files) -> None:
        self._paths = paths
        self._handles: list[Handle] = []
        try:
            self._handles.extend(files.open_read(path) for path in paths)
            pairs = zip(self._handles, paths, strict=True)
            self._tables = [TableFile(handle, path) for handle, path in pairs]
            self.entries: Mapping[str, ListedTensor] = self._listed()
        except BaseException:
            self.close()
            raise

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the content of all files, concatenated."""
        return digest_of(self._handles)

    def read(self, key: str) -> np.ndarray:
        """The value of a key; strings are an object array of bytes."""
        import numpy as np

        entry = self.entries[key]
        if entry.dtype not in FIELDS:
            message = f"values of dtype {entry.dtype} cannot be read from this format"
            raise UnsupportedCheckpointError(message, path=self._paths[0], name=key)
        boxes = [resolve(part.extents, entry.shape) for part in entry.slices]
        pieces = [
            self._piece(key, entry.dtype, part, tuple(end - start for start, end in box))
            for part, box in zip(entry.slices, boxes, strict=True)
        ]
        if len(pieces) == 1:
            return pieces[0]
        whole = np.empty(entry.shape, pieces[0].dtype)
        for box, piece in zip(boxes, pieces, strict=True):
            whole[tuple(slice(*each) for each in box)] = piece
        return whole

    def verify(self, keys: Iterable[str]) -> None:
        """Read these values, which checks their blocks."""
        for key in keys:
            if key not in self.entries:
                message = "the checkpoint does not list this value"
                raise DamagedCheckpointError(message, path=self._paths[0], name=key or "''")
            if self.entries[key].dtype in FIELDS:
                self.read(key)

    def close(self) -> None:
        for handle in self._handles:
            handle.close()

    def _listed(self) -> dict[str, ListedTensor]:
        tensors: dict[str, tuple[str, Shape, list[TensorSlice]]] = {}
        for number, (table, path) in enumerate(zip(self._tables, self._paths, strict=True)):
            with _as_damage(path):
                for name, dtype, shape, slices in _list(table.get(b""), path):
                    listed = tensors.setdefault(name, (dtype, shape, []))
                    if listed[:2] != (dtype, shape):
                        first = f"{listed[0]} {listed[1]}"
                        raise WireError(f"{name!r} is {dtype} {shape}, but {first} in another file")
                    listed[2].extend(TensorSlice(extents, number) for extents in slices)
        values = {}
        for name, (dtype, shape, parts) in sorted(tensors.items()):
            path = self._paths[parts[0].file if parts else 0]
            with _as_damage(path, name):
                count = element_count(shape)
                check_tiles([part.extents for part in parts], shape)
                values[name] = ListedTensor(
                    dtype, shape, count * ITEM_BYTES.get(dtype, 0), tuple(parts)
                )
        return values

    def _piece(self, key: str, dtype: str, part: TensorSlice, shape: Shape) -> np.ndarray:
        path = self._paths[part.file]
        stored = self._tables[part.file].get(slice_key(key, part.extents))
        with _as_damage(path, key):
            if stored is None:
                raise WireError("the value is listed but not in the file")
            return array_of(SavedTensorSlices.FromString(stored).data.data, dtype, shape)


def open_saver_v1(prefix: str, opening: Opening) -> StoredCheckpoint:
    """Open a checkpoint in format version 1 and name its values."""
    values = SaverV1(saver_v1_files(prefix, opening.files), opening.files)
    try:
        inventory = name_keys(prefix, values.entries, opening.roots, opening.bases)
    except BaseException:
        values.close()
        raise
    return StoredCheckpoint(prefix, inventory, values, "tf1_saver_v1")


@contextlib.contextmanager
def _as_damage(path: str, name: str = "") -> Iterator[None]:
    try:
        yield
    except (WireError, DecodeError) as error:
        raise DamagedCheckpointError(str(error), path=path, name=name) from None


def _list(
    stored: bytes | None, path: str
) -> Iterator[tuple[str, str, Shape, list[tuple[Extent, ...]]]]:
    """Name, dtype, shape and slices of each tensor that a file lists."""
    if stored is None:
        raise WireError("is a LevelDB table without a list of tensors, so not a checkpoint")
    if len(stored) > _MAX_LIST_BYTES:
        raise WireError(
            f"the list of tensors has {len(stored)} bytes, more than the {_MAX_LIST_BYTES} allowed"
        )
    listed = SavedTensorSlices.FromString(stored)
    if not listed.HasField("meta") and BundleHeader.FromString(stored).num_shards:
        message = "is the index of a checkpoint of version 2, but is not named '….index'"
        hint = (
            "Name it like its data files, with `.index` in place of `.data-…`, and give the prefix."
        )
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    check_version(listed.meta.versions, path)
    for tensor in listed.meta.tensor:
        if tensor.type not in DTYPES:
            raise WireError(
                f"{tensor.name!r} has dtype number {tensor.type}, which TensorFlow does not define"
            )
        slices = [extents_of(each) for each in tensor.slice]
        yield tensor.name, DTYPES[tensor.type], shape_of(tensor.shape), slices


# Dtype → the field of a tensor with its elements.
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "float32": "float_val",
        "float64": "double_val",
        "complex64": "scomplex_val",
        "complex128": "dcomplex_val",
        **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "int_val"),
        **dict.fromkeys(("qint8", "quint8", "qint16", "quint16", "qint32"), "int_val"),
        **dict.fromkeys(("float16", "bfloat16"), "half_val"),
        "string": "string_val",
        "int64": "int64_val",
        "bool": "bool_val",
        "uint32": "uint32_val",
        "uint64": "uint64_val",
    }
)


def array_of(tensor: Message, dtype: str, shape: Shape) -> np.ndarray:
    """The array in a tensor, whose own dtype and shape the writer leaves out."""
    import numpy as np

    stored, count = getattr(tensor, FIELDS[dtype]), element_count(shape)
    kind = numpy_dtype(dtype)
    if dtype in ("float32", "float64", "complex64", "complex128"):
        content = b"".join(stored)
        _check(len(content) / kind.itemsize, count)
        return np.frombuffer(bytearray(content), kind).reshape(shape)  # a copy is writable
    _check(len(stored), count)
    if dtype == "string":
        strings = np.empty(count, object)
        strings[:] = stored
        return strings.reshape(shape)
    wide = np.fromiter(stored, np.uint64 if dtype == "uint64" else np.int64, count)
    bits = dtype in ("float16", "bfloat16")
    narrow = wide.astype(np.uint16 if bits else kind[0] if kind.names else kind)
    if not np.array_equal(narrow, wide):
        raise WireError(f"an element is out of the range of {dtype}")
    return narrow.view(kind).reshape(shape)


def _check(stored: float, count: int) -> None:
    if stored != count:
        raise WireError(f"the value has {stored:g} elements, but its shape needs {count}")
