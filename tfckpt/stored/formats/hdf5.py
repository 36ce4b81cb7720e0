"""An HDF5 file, opened so that nothing outside the file is read.

In HDF5, links and datasets may lead into other files, a dataset may be a view of others, a type may
refer to objects, and a filter may be a plugin. Keras writes none of these, so all are refused
before any value is read. The HDF5 library gets the open file instead of a path, and the whole tree
is checked once: it must be a plain tree of groups and of datasets of numbers or strings, whose
sizes match their shapes and whose bytes do not overlap. Any error of the HDF5 library becomes a
`DamagedCheckpointError`.

The library walks a heap, which holds strings of any length, object by object, by the size in each
object's header; a size of zero, one flipped bit, makes it loop forever. Keras's attributes are in
such heaps. So these are checked first, where their signature is in a part of the file that no
dataset uses.

HDF5 files written by Keras have no checksums: a flipped bit in a value cannot be detected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
from typing import TYPE_CHECKING, Any

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from tfckpt.core.inventory import Shape
    from tfckpt.stored.io.files import Handle
    from tfckpt.stored.io.limits import Room

MAGIC = b"\x89HDF\r\n\x1a\n"

_SIGNATURE = b"GCOL\x01\0\0\0"
_HEAD = 16  # bytes in the header of a heap, and of an object in it
_OBJECT = ((0, 2), (8, 16))  # where an object's header has its index and its size
_CHUNK = 1 << 20

MAX_RANK = 32
MAX_ATTRIBUTE = 1 << 16  # HDF5's own limit in the file format that Keras uses
# gzip, shuffle, Fletcher's checksum, szip, n-bit, scale-offset, and h5py's LZF. For any other
# filter HDF5 would load a plugin.
_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})
_NUMBERS = frozenset(
    """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
    complex128
    """.split()  # noqa: SIM905 (words read better than a list of them)
)
# HDF5 has no bfloat16, so h5py stores its two bytes as an opaque type; no other dtype of a variable
# is stored so. Only Keras 3 notes the dtype in an attribute, and not in `.h5`.
_DTYPE_ATTRIBUTE, _BFLOAT16, _BFLOAT16_BYTES = "dtype", "bfloat16", 2


@dataclasses.dataclass(frozen=True, slots=True)
class H5Dataset:
    """An array in the file.

    Attributes:
        path: in the file, ``layers/dense/vars/0``.
        dtype: TensorFlow's name of the dtype.
        nbytes: 0 for strings.
    """

    path: str
    dtype: str
    shape: Shape
    nbytes: int


@dataclasses.dataclass(slots=True)
class H5Group:
    """A group in the file: its members by name, sorted by name."""

    path: str
    groups: dict[str, H5Group] = dataclasses.field(default_factory=dict)
    datasets: dict[str, H5Dataset] = dataclasses.field(default_factory=dict)
    attributes: frozenset[str] = frozenset()

    def find(self, path: str) -> H5Group | None:
        """The group at a path below this one."""
        group: H5Group | None = self
        for part in path.replace("\\", "/").split("/") if path else ():
            group = None if group is None else group.groups.get(part)
        return group

    def dataset(self, path: str) -> H5Dataset | None:
        """The dataset at a path below this one."""
        parent, _, name = path.rpartition("/")
        group = self.find(parent)
        return None if group is None else group.datasets.get(name)

    def walk(self) -> Iterator[H5Dataset]:
        """All datasets below this group."""
        todo = [self]
        while todo:
            group = todo.pop()
            yield from group.datasets.values()
            todo.extend(group.groups.values())


class OpenedFile(io.RawIOBase):
    """An open file of a file system, as Python's files are."""

    def __init__(self, handle: Handle) -> None:
        super().__init__()
        self._handle = handle
        self._size = handle.size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = min(len(view), max(self._size - self._at, 0))
        count = self._handle.readinto(self._at, view[:count]) if count else 0
        self._at += count
        return count


class Hdf5:
    """An open file whose whole tree has been checked; ``path`` is its name in errors."""

    def __init__(self, stream: io.RawIOBase, path: str, room: Room) -> None:
        try:
            import h5py
        except ImportError as error:
            message = "is an HDF5 file; reading it needs h5py, which is not installed"
            hint = "pip install h5py"
            raise UnsupportedCheckpointError(message, path=path, hint=hint) from error
        self._h5py = h5py
        self._path, self._room = path, room
        self._extents: list[tuple[int, int, str]] = []
        self._with_dtype_attribute: list[str] = []
        with reading(self._path, "", "HDF5"):
            self._file = h5py.File(stream, "r")
        try:
            with reading(self._path, "", "HDF5"):
                self.root = self._walk()
            self._check_extents()
            self._longest = self._longest_string(stream)
            self._check_dtype_attributes()
        except BaseException:
            self.close()
            raise

    def read(self, path: str) -> np.ndarray:
        """The array at a path."""
        import numpy as np

        with reading(self._path, path, "HDF5"):
            listed = self.root.dataset(path)
            dataset = self._file[path]
            if listed is None or dataset.shape != listed.shape:
                raise DamagedCheckpointError(
                    "has changed or disappeared since the file was opened",
                    path=self._path,
                    name=path,
                )
            if listed.dtype == "string":
                return np.asarray(dataset.asstr("utf-8", "surrogateescape")[()], object)
            value = np.empty(dataset.shape, dataset.dtype)
            if value.size:
                dataset.read_direct(value)
            if listed.dtype == _BFLOAT16:
                import ml_dtypes

                return value.view(ml_dtypes.bfloat16)
            return value.astype(value.dtype.newbyteorder("="), copy=False)

    def texts(self, group: H5Group, name: str) -> list[str] | None:
        """A list of strings in a group's attributes; Keras splits a long one over several."""
        if name in group.attributes:
            return self._texts(group.path, name)
        parts: list[str] = []
        number = 0
        while f"{name}{number}" in group.attributes:
            parts += self._texts(group.path, f"{name}{number}")
            number += 1
        return parts if number else None

    def text(self, group: H5Group, name: str) -> str | None:
        """A string in a group's attributes."""
        if name not in group.attributes:
            return None
        strings = self._texts(group.path, name)
        if len(strings) != 1:
            message = f"the attribute {name!r} is not a single string"
            raise DamagedCheckpointError(message, path=self._path, name=group.path)
        return strings[0]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._file.close()

    def _texts(self, path: str, name: str) -> list[str]:
        import numpy as np

        h5 = self._h5py
        with reading(self._path, path, "HDF5"):
            holder = self._file[path or "/"]
            attribute = h5.h5a.open(holder.id, name.encode("utf-8", "surrogateescape"))
            kind, count = attribute.get_type(), math.prod(attribute.shape)
            if count * kind.get_size() > MAX_ATTRIBUTE:
                raise self._damaged(f"the attribute {name!r} is larger than HDF5 allows", path)
            if not count:
                return []
            if kind.get_class() != h5.h5t.STRING:
                raise self._damaged(f"the attribute {name!r} is not a string", path)
            self._room.take(count * (self._longest if kind.is_variable_str() else kind.get_size()))
            value = np.asarray(holder.attrs[name]).ravel().tolist()
        return [
            item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)
            for item in value
        ]

    def _walk(self) -> H5Group:
        h5 = self._h5py
        root = H5Group("")
        seen = {self._address(self._file)}
        todo = [(root, self._file, 0)]
        while todo:
            group, opened, depth = todo.pop()
            group.attributes = frozenset(opened.attrs.keys())
            for name in opened:
                path = f"{group.path}/{name}" if group.path else name
                link = opened.get(name, getlink=True)
                if not isinstance(link, h5.HardLink):
                    raise self._unsupported(f"a link ({type(link).__name__})", path)
                child = opened[name]
                address = self._address(child)
                if address in seen:
                    raise self._damaged("the object is in two places of the file", path)
                if len(seen) > limits.OBJECTS or depth > limits.DEPTH:
                    raise self._damaged("the file has too many objects or levels", path)
                seen.add(address)
                if isinstance(child, h5.Dataset):
                    group.datasets[name] = self._dataset(path, child)
                elif isinstance(child, h5.Group):
                    todo.append((self._group(group, path, name), child, depth + 1))
                else:
                    raise self._unsupported("an object that is neither a group nor a dataset", path)
        return root

    def _group(self, above: H5Group, path: str, name: str) -> H5Group:
        r"""A new group; Keras on Windows wrote ``layers\dense`` as one name."""
        *parts, name = name.split("\\", limits.DEPTH)
        for part in parts:
            above = above.groups.setdefault(part, H5Group(path))
        if name in above.groups:
            raise self._damaged("two groups have the same name", path)
        above.groups[name] = found = H5Group(path)
        return found

    def _address(self, opened: Any) -> Any:
        return self._h5py.h5o.get_info(opened.id).addr

    def _dataset(self, path: str, dataset: Any) -> H5Dataset:
        if dataset.external or dataset.is_virtual:
            raise self._unsupported("a dataset whose values are in other files", path)
        shape = dataset.shape
        if shape is None or len(shape) > MAX_RANK:
            raise self._unsupported(
                f"a dataset without a shape, or with more than {MAX_RANK} axes", path
            )
        settings = dataset.id.get_create_plist()
        filters = {settings.get_filter(i)[0] for i in range(settings.get_nfilters())}
        if filters - _FILTERS:
            raise self._unsupported("a dataset compressed by an HDF5 plugin", path)
        dtype = self._dtype(path, dataset)
        nbytes = 0 if dtype == "string" else math.prod(shape) * dataset.dtype.itemsize
        stored = dataset.id.get_storage_size() if math.prod(shape) else 0
        declared = math.prod(shape) * dataset.id.get_type().get_size()
        if (declared != stored and not filters) or declared > limits.EXPANSION * max(stored, 1):
            message = f"its shape {shape} needs {declared} bytes, but {stored} are stored"
            raise self._damaged(message, path)
        self._room.take(declared, path)
        if stored and dataset.chunks is None and (offset := dataset.id.get_offset()) is not None:
            self._extents.append((offset, offset + stored, path))
        return H5Dataset(path, dtype, tuple(map(int, shape)), nbytes)

    def _dtype(self, path: str, dataset: Any) -> str:
        h5 = self._h5py
        stored = dataset.id.get_type()
        if stored.get_class() == h5.h5t.STRING:
            if stored.is_variable_str():
                raise self._unsupported("a dataset of strings of any length", path)
            return "string"
        dtype = dataset.dtype
        name = str(dtype.newbyteorder("=").name)
        opaque = stored.get_class() == h5.h5t.OPAQUE and not stored.get_tag()
        if opaque and stored.get_size() == _BFLOAT16_BYTES:
            if _DTYPE_ATTRIBUTE in dataset.attrs:
                self._with_dtype_attribute.append(path)
            return _BFLOAT16
        if name in _NUMBERS and h5.h5t.py_create(dtype, logical=True).equal(stored):
            return name
        raise self._unsupported(f"a dataset of dtype {dtype}", path)

    def _check_dtype_attributes(self) -> None:
        """Where Keras 3 notes the dtype of two opaque bytes, it must be bfloat16."""
        for path in self._with_dtype_attribute:
            if self._texts(path, _DTYPE_ATTRIBUTE) != [_BFLOAT16]:
                raise self._unsupported("a dataset of opaque values", path)

    def _longest_string(self, stream: io.RawIOBase) -> int:
        """The length of the longest string in a heap, which an attribute may have many times.

        No heap is looked for within a dataset.
        """
        size, longest = stream.seek(0, 2), 0
        for start, end in _gaps(self._extents, size):
            for heap in _find(stream, start, end):
                if (length := _longest_object(stream, heap, size)) is None:
                    raise self._damaged(f"the HDF5 heap at byte {heap} is damaged", "")
                longest = max(longest, length)
        return longest

    def _check_extents(self) -> None:
        self._extents.sort()
        pairs = zip(self._extents, self._extents[1:], strict=False)
        for (_, end, path), (start, _, other) in pairs:
            if start < end:
                raise self._damaged(f"its bytes overlap those of {other!r}", path)

    def _damaged(self, message: str, name: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(message, path=self._path, name=name)

    def _unsupported(self, what: str, name: str) -> UnsupportedCheckpointError:
        message = f"contains {what}, which Keras never writes; tfckpt does not read it"
        return UnsupportedCheckpointError(message, path=self._path, name=name)


def _gaps(extents: Iterable[tuple[int, int, str]], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, end, _ in extents:
        if start > at:
            yield at, start
        at = max(at, end)
    if at < size:
        yield at, size


def _find(stream: io.RawIOBase, start: int, end: int) -> Iterator[int]:
    while start + len(_SIGNATURE) <= end:
        block = _read(stream, start, min(_CHUNK, end - start))
        at = block.find(_SIGNATURE)
        while at != -1:
            yield start + at
            at = block.find(_SIGNATURE, at + 1)
        if start + len(block) >= end or not block:
            return
        start += len(block) - len(_SIGNATURE) + 1


def _longest_object(stream: io.RawIOBase, start: int, size: int) -> int | None:
    """The length of the longest object in a heap; None where the heap is damaged."""
    head = _read(stream, start, _HEAD)
    length = int.from_bytes(head[8:], "little") if len(head) == _HEAD else 0
    if not _HEAD <= length <= size - start:
        return None
    heap = _read(stream, start, length)
    at, longest = _HEAD, 0
    while at + _HEAD <= length:
        index, length_of = (int.from_bytes(heap[at + a : at + b], "little") for a, b in _OBJECT)
        if index == 0:  # free space, its own header included
            return longest if length_of == length - at else None
        at, longest = at + _HEAD + (length_of + 7) // 8 * 8, max(longest, length_of)
    return longest if at <= length else None


def _read(stream: io.RawIOBase, start: int, length: int) -> bytes:
    stream.seek(start)
    content = bytearray()
    while len(content) < length and (part := stream.read(length - len(content))):
        content += part
    return bytes(content)
