"""Reads a TensorFlow checkpoint without TensorFlow.

A checkpoint ``ckpt-1`` is an index, ``ckpt-1.index``, and data files,
``ckpt-1.data-00000-of-00002``: a TF2 checkpoint, a TF1 ``Saver`` checkpoint of version 2, or the
``variables/variables`` of a SavedModel. Opening one checks the index and opens the data files. They
stay open, so that the values can be read even if the files are deleted or replaced meanwhile.
Values are read, and their checksums checked, on request.

Opening refuses anything that could crash TensorFlow's reader (see
:mod:`tfckpt.stored.bundles.index`), and a value outside of its data file. A missing data file is an
error only when one of its values is needed. Values of dtype ``resource`` and ``variant`` are
listed, but cannot be read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections import Counter
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tfckpt.core.dtypes import numpy_dtype
from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.index import BundleEntry, Index, read_index, resolve, slice_key
from tfckpt.stored.bundles.read import Request, read_strings, transfer, truncated
from tfckpt.stored.bundles.table import FOOTER_BYTES, looks_like_table, unmask
from tfckpt.stored.bundles.values import StoredValues
from tfckpt.stored.io import limits
from tfckpt.stored.io.explain import LFS_HINT, LFS_POINTER, not_found
from tfckpt.stored.io.files import LOCAL, Files, Handle, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from typing_extensions import Self

__all__ = ["Bundle", "BundleEntry", "data_path", "index_path"]

OPAQUE = ("resource", "variant")
_MISSING = "is missing"
_POINTER = "is only a Git LFS pointer"
_WHOLE_HINT = "a checkpoint needs all of its data files; copy this one next to the index"


def index_path(prefix: str) -> str:
    return f"{prefix}.index"


@lru_cache(64)  # called for each value
def data_path(prefix: str, shard: int, num_shards: int) -> str:
    return f"{prefix}.data-{shard:05d}-of-{num_shards:05d}"


@dataclasses.dataclass(frozen=True, eq=False)
class Bundle(StoredValues):
    """An open checkpoint.

    Attributes:
        prefix: the path without ``.index``.
        entries: key → dtype, shape, size and position, in the order of the index.
        absent: number of each needed but missing data file → the reason: it is missing, or only
            a Git LFS pointer.
        index: everything that the index says.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     Bundle.open(f"{directory}/ckpt-1")
    Traceback (most recent call last):
    ...
    tfckpt.errors.CheckpointNotFoundError: ...ckpt-1: there is no checkpoint with this name
    ...
    """

    prefix: str
    entries: Mapping[str, BundleEntry]
    absent: Mapping[int, str]
    index: Index = dataclasses.field(repr=False)
    _digest: str = dataclasses.field(repr=False)
    _handles: dict[int, tuple[Handle, str]] = dataclasses.field(repr=False)

    @classmethod
    def open(
        cls, prefix: str, files: Files = LOCAL, *, whole: bool = True, index: bytes | None = None
    ) -> Self:
        """Open the checkpoint of a prefix and check its index.

        ``whole`` refuses a value beyond the end of its data file at once instead of on reading;
        ``index`` is the content of the index, where it is not written yet.
        """
        data = _index_bytes(prefix, files) if index is None else index
        parsed = read_index(data, index_path(prefix))
        used = sorted(parsed.ends)
        handles: dict[int, tuple[Handle, str]] = {}
        absent: dict[int, str] = {}
        try:
            for shard in used:
                path = data_path(prefix, shard, parsed.num_shards)
                with reading(path):
                    try:
                        handle = files.open_read(path)
                    except FileNotFoundError:
                        absent[shard] = _MISSING
                        continue
                    handles[shard] = handle, path
                    if _is_lfs_pointer(handle):
                        del handles[shard]
                        handle.close()
                        absent[shard] = _POINTER
            digest = hashlib.sha256(data).hexdigest()
            bundle = cls(prefix, parsed.entries, absent, parsed, digest, handles)
            if whole:
                bundle._check_extents()
        except BaseException:
            for handle, _ in handles.values():
                handle.close()
            raise
        return bundle

    @property
    def digest(self) -> str:
        """SHA-256 of the index file, in hexadecimal."""
        return self._digest

    @cached_property
    def missing_files(self) -> Mapping[str, int]:
        counts = Counter(self._lost.values())
        return {self.path(shard): counts[shard] for shard in self.absent}

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return {key: entry.nbytes for key, entry in self.entries.items()}

    def lost(self, key: str) -> DamagedCheckpointError | None:
        return self._lacks(key) if key in self._lost else None

    def checksum(self, key: str) -> int | None:
        entry = self.entries[key]
        # That of strings or of a sliced value covers something else.
        return None if entry.sliced or entry.dtype == "string" else unmask(entry.crc32c)

    def plain(self, key: str) -> BundleEntry | None:
        entry = self.entries.get(key)
        apart = entry is None or entry.slices or entry.dtype in ("string", *OPAQUE)
        return None if apart else entry

    @cached_property
    def _lost(self) -> Mapping[str, int]:
        """Key of each value that is not complete → its missing data file."""
        entries = self.entries.items() if self.absent else ()
        parts = ((key, part.shard) for key, entry in entries for part in self._parts(key, entry))
        return {key: shard for key, shard in parts if shard in self.absent}

    def _lacks(self, key: str) -> DamagedCheckpointError:
        """Which file is missing, and how much is in it."""
        shard = self._lost[key]
        held, count = self.missing_files[self.path(shard)], len(self.entries)
        what = f"all {count} values" if held == count else f"{held} of the {count} values"
        more = len(self.absent) - 1
        also = f" ({more} other data {'files are' if more > 1 else 'file is'} missing too)"
        return DamagedCheckpointError(
            f"the data file {self.absent[shard]}; it holds {what} of the checkpoint"
            + (also if more else ""),
            path=self.path(shard),
            name=key,
            hint=_WHOLE_HINT if self.absent[shard] == _MISSING else LFS_HINT,
        )

    def read(self, key: str) -> np.ndarray:
        """The value of a key, with its checksum checked.

        ``bfloat16`` and smaller floats have the dtypes of ``ml_dtypes``; strings are an object
        array of bytes.
        """
        entry = self.entries[key]
        if entry.dtype in OPAQUE:
            message = f"only the TensorFlow version that wrote it can read a {entry.dtype}"
            raise UnsupportedCheckpointError(message, path=self.prefix, name=key)
        if not entry.sliced:
            return self._read_piece(key, entry)
        import numpy as np

        whole = np.empty(entry.shape, numpy_dtype(entry.dtype))
        for box, piece in self._pieces(key, entry):
            index = tuple(slice(start, end) for start, end in box)
            whole[index] = self._read_piece(key, piece)
        return whole

    def read_string(self, key: str) -> bytes:
        """The bytes of a scalar string value, with their checksum checked."""
        entry = self.entries[key]
        if entry.dtype != "string" or entry.shape != ():
            raise DamagedCheckpointError("is not a scalar string", path=self.prefix, name=key)
        handle, path = self._handle(key, entry)
        with reading(path):
            (element,) = read_strings(handle, entry, path, key)
        return element

    def read_raw(self, key: str) -> bytes:
        """The stored bytes of a value, unchecked, for copying a ``variant``."""
        entry = self.entries[key]
        handle, path = self._handle(key, entry)
        with reading(path):
            data = handle.pread(entry.offset, entry.nbytes)
        if len(data) != entry.nbytes:
            raise truncated(path, key)
        return data

    def fetch(self, wanted: Iterable[tuple[str, np.ndarray | None]]) -> None:
        requests: list[Request] = []
        absent = None
        try:
            for key, into in wanted:
                requests += self._requests(key, into)
        except DamagedCheckpointError as error:
            absent = error  # raised only if all values before it are sound
        transfer(requests)
        if absent is not None:
            raise absent

    def _requests(self, key: str, into: np.ndarray | None) -> list[Request]:
        if (entry := self.entries.get(key)) is None:
            message = "the value is not in the index"
            raise DamagedCheckpointError(message, path=self.prefix, name=key or "''")
        if entry.dtype == "resource" or (entry.dtype == "variant" and into is not None):
            return []
        parts = self._parts(key, entry)
        return [Request(*self._handle(key, part), key, part, into) for part in parts]

    def close(self) -> None:
        for handle, _ in self._handles.values():
            handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pieces(
        self, key: str, entry: BundleEntry
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], BundleEntry]]:
        for extents in entry.slices:
            yield resolve(extents, entry.shape), self.index.pieces[slice_key(key, extents)]

    def _parts(self, key: str, entry: BundleEntry) -> Sequence[BundleEntry]:
        return [piece for _, piece in self._pieces(key, entry)] if entry.slices else (entry,)

    def path(self, shard: int) -> str:
        """The path of a data file."""
        return data_path(self.prefix, shard, self.index.num_shards)

    def _read_piece(self, key: str, entry: BundleEntry) -> np.ndarray:
        import numpy as np

        handle, path = self._handle(key, entry)
        if entry.dtype == "string":
            with reading(path, key):
                elements = read_strings(handle, entry, path, key)
            strings = np.empty(len(elements), object)
            strings[:] = elements
            return strings.reshape(entry.shape)
        raw = np.empty(entry.nbytes, np.uint8)
        transfer([Request(handle, path, key, entry, raw)])
        return raw.view(numpy_dtype(entry.dtype)).reshape(entry.shape)

    def _handle(self, key: str, entry: BundleEntry) -> tuple[Handle, str]:
        found = self._handles.get(entry.shard)
        if found is None:
            raise self._lacks(key)
        return found

    def _check_extents(self) -> None:
        sizes = {shard: handle.size for shard, (handle, _) in self._handles.items()}
        if all(self.index.ends[shard] <= size for shard, size in sizes.items()):
            return
        for key, entry in self.entries.items():
            for part in self._parts(key, entry):
                size = sizes.get(part.shard)
                if size is not None and part.offset + part.nbytes > size:
                    message = (
                        f"is {size} bytes long, but the value ends at byte "
                        f"{part.offset + part.nbytes}: truncated, or of another checkpoint"
                    )
                    path = self.path(part.shard)
                    raise DamagedCheckpointError(message, path=path, name=key)


def _is_lfs_pointer(handle: Handle) -> bool:
    return handle.pread(0, len(LFS_POINTER)) == LFS_POINTER


def _index_bytes(prefix: str, files: Files) -> bytes:
    path = index_path(prefix)
    with reading(path):
        try:
            opened = files.open_read(path)
        except (FileNotFoundError, NotADirectoryError):
            raise not_found(prefix, files) from None
        with contextlib.closing(opened) as handle:
            size = handle.size
            if _is_lfs_pointer(handle):
                raise CheckpointNotFoundError("is a Git LFS pointer", path=path, hint=LFS_HINT)
            tail = handle.pread(max(size - FOOTER_BYTES, 0), FOOTER_BYTES)
            if size > limits.INDEX or not looks_like_table(tail):
                message = f"is {size} bytes long and has no index footer: truncated"
                raise DamagedCheckpointError(message, path=path)
            return handle.pread(0, size)
