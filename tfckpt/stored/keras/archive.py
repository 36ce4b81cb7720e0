"""``.keras`` archives: ZIP files with the weights in HDF5 and the model's configuration in JSON.

The configuration has the names of the layers; nothing in it is imported, built or run. No member is
written under its own name: uncompressed weights are read in place, compressed ones are unpacked
into an unnamed temporary file, up to the size that the archive declares. Refused are ambiguous
members (two of one name), encrypted ones, compression methods that Keras does not use, and declared
sizes out of all proportion.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.io.files import reading
from tfckpt.stored.keras.hdf5 import FilePart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tfckpt.stored.io.files import Handle

MAGIC = b"PK\x03\x04"

MAX_MEMBERS = 100_000
MAX_TEXT = 1 << 28
MAX_EXPANSION = 1100  # DEFLATE reaches 1032 at most
MAX_UNPACKED = 1 << 38
_LOCAL_HEAD = struct.Struct("<4s22xHH")
_CHUNK = 1 << 20
_ENCRYPTED = 1


class Archive:
    """An open archive."""

    def __init__(self, handle: Handle, path: str) -> None:
        self._handle = handle
        self._path = path
        self._unpacked: list[Any] = []
        with self._reading():
            self._zip = zipfile.ZipFile(io.BufferedReader(FilePart(handle)))
        members = self._zip.infolist()
        if len(members) > MAX_MEMBERS:
            raise self._damaged(f"has {len(members)} members, more than the {MAX_MEMBERS} allowed")
        self._members = {member.filename: member for member in members}
        if len(self._members) != len(members):
            raise self._damaged("has two members with one name")

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def text(self, name: str) -> bytes | None:
        """The content of a small member, after a check of its checksum; None if absent."""
        member = self._members.get(name)
        if member is None:
            return None
        if member.file_size > MAX_TEXT:
            raise self._damaged(
                f"declares {member.file_size} bytes, more than the {MAX_TEXT} allowed", name
            )
        stream, check = self.stream(name)
        content = bytes(stream.read() or b"")
        check()
        return content

    def stream(self, name: str) -> tuple[io.RawIOBase, Callable[[], None]]:
        """A member as a file, and a function that checks its checksum."""
        member = self._members[name]
        if member.flag_bits & _ENCRYPTED:
            raise self._unsupported("is encrypted; Keras does not encrypt archives", name)
        offset = self._content_offset(member)
        if offset + member.compress_size > self._handle.size:
            raise self._damaged("is truncated: it extends past the end of the archive", name)
        if member.compress_type == zipfile.ZIP_STORED:
            if member.file_size != member.compress_size:
                raise self._damaged("is stored uncompressed but has two different sizes", name)
            packed = FilePart(self._handle, offset, member.compress_size)
            return packed, lambda: self._copy(member, len)
        if member.compress_type != zipfile.ZIP_DEFLATED:
            raise self._unsupported("uses a compression method that Keras does not use", name)
        return self._inflate(member), lambda: None

    def close(self) -> None:
        for file in self._unpacked:
            file.close()

    def _content_offset(self, member: zipfile.ZipInfo) -> int:
        within = 0 <= member.header_offset < self._handle.size  # zipfile adds what it reads
        head = self._handle.pread(member.header_offset, _LOCAL_HEAD.size) if within else b""
        if len(head) != _LOCAL_HEAD.size or not head.startswith(MAGIC):
            raise self._damaged("is not at the offset that the archive lists", member.filename)
        _, name, extra = _LOCAL_HEAD.unpack(head)
        return member.header_offset + _LOCAL_HEAD.size + int(name) + int(extra)

    def _inflate(self, member: zipfile.ZipInfo) -> io.RawIOBase:
        """Unpack a member into an unnamed file, up to its declared size."""
        limit = member.file_size
        if limit > min(MAX_UNPACKED, MAX_EXPANSION * member.compress_size + 64):
            raise self._damaged(
                f"declares that it unpacks to {limit} bytes, an impossible size", member.filename
            )
        file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with the archive)
        self._unpacked.append(file)
        self._copy(member, file.write)
        file.seek(0, os.SEEK_SET)
        return file  # type: ignore[no-any-return]

    def _copy(self, member: zipfile.ZipInfo, write: Callable[[bytes], object]) -> None:
        """Read a member up to its declared size; zipfile compares its checksum at the end."""
        size = 0
        with self._reading(member.filename), self._zip.open(member) as content:
            while part := content.read(_CHUNK):
                size += len(part)
                write(part)
        if size != member.file_size:
            raise self._damaged("unpacks to fewer bytes than it declares", member.filename)

    @contextlib.contextmanager
    def _reading(self, name: str = "") -> Iterator[None]:
        try:
            with reading(self._path, name):
                yield
        except CheckpointError:
            raise
        except Exception as error:  # zipfile raises many types, from zlib.error to struct.error
            reason = str(error) or type(error).__name__
            raise self._damaged(f"cannot be read as a ZIP archive: {reason}", name) from error

    def _damaged(self, message: str, name: str = "") -> DamagedCheckpointError:
        return DamagedCheckpointError(message, path=self._path, name=name)

    def _unsupported(self, message: str, name: str) -> UnsupportedCheckpointError:
        return UnsupportedCheckpointError(message, path=self._path, name=name)
