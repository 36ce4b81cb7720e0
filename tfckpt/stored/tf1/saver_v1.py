"""Checkpoints of TF1's first ``Saver``: the values are inside a table, the index of which is in it.

A file is a LevelDB table. Under the empty key it has a ``SavedTensorSlices`` message that lists its
tensors and the slices they are stored in; under the encoded name of each slice another one with the
numbers, as fields of a ``TensorProto`` (saved_tensor_slice.proto, tensor_slice_writer.cc). One that
is sharded is several such files, ``model-00000-of-00002``, each of which lists what is in it alone:
with one of them missing nobody knows what was there, so all of them must be there.

A file is searched block by block as values are asked for, each block checked against its checksum;
TensorFlow writes none over a whole value. Refused are: a tensor listed with two shapes or types;
slices that overlap or leave a part out; a slice with more or fewer numbers than it has elements.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, NamedTuple

from tfckpt.errors import (
    CheckpointNotFoundError,
    DamagedCheckpointError,
    UnsupportedCheckpointError,
)
from tfckpt.stored.bundles.encoding.index_proto import (
    DTYPES,
    Extent,
    parse_shape,
    parse_slice,
    parse_versions,
)
from tfckpt.stored.bundles.encoding.table import TableFile
from tfckpt.stored.bundles.encoding.wire import WireError, as_message, as_number, as_text, fields
from tfckpt.stored.bundles.index import (
    ITEM_BYTES,
    check_tiles,
    check_version,
    element_count,
    resolve,
    slice_key,
)
from tfckpt.stored.formats.checkpoint import StoredCheckpoint
from tfckpt.stored.io.files import LOCAL, Files, digest_of
from tfckpt.stored.paths.wrong_paths import saver_v1_files
from tfckpt.stored.tf1.key_names import name_keys
from tfckpt.stored.tf1.tensor_proto import FIELDS, array_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from tfckpt.core.inventory import Root, Shape
    from tfckpt.stored.io.files import Handle

# What lists the tensors: ten million of them; more is something else.
_MAX_LIST_BYTES = 1 << 30


class TensorSlice(NamedTuple):
    """A part of a value, and the number of the file it is in."""

    extents: tuple[Extent, ...]
    file: int


@dataclasses.dataclass(frozen=True, slots=True)
class ListedTensor:
    """One value as the files list it; ``nbytes`` is 0 for strings, whose size they do not tell.

    There is no checksum of a whole value.
    """

    dtype: str
    shape: Shape
    nbytes: int
    slices: tuple[TensorSlice, ...]
    crc32c: None = None


class SaverV1:
    """An open checkpoint of that kind.

    Args:
        paths: of its files, in the order of their numbers.
        files: where they are.

    Attributes:
        entries: key → dtype, shape and size, by key.

    Raises:
        DamagedCheckpointError: a file is not as it must be.
        UnsupportedCheckpointError: written for a newer TensorFlow.
    """

    missing_files: tuple[str, ...] = ()

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
        """SHA-256 of the files' content, one after another."""
        return digest_of(self._handles)

    def read(self, key: str) -> np.ndarray:
        """The value of a key; strings are an object array of bytes.

        Raises:
            KeyError: there is no such key.
            DamagedCheckpointError: it is not there whole.
            UnsupportedCheckpointError: of a type that such files cannot hold.
        """
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
        """Reads these values, and with them checks the blocks they are in.

        Raises:
            DamagedCheckpointError: the first value that is absent, cut off or altered.
        """
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
        found: dict[str, tuple[str, Shape, list[TensorSlice]]] = {}
        for number, (table, path) in enumerate(zip(self._tables, self._paths, strict=True)):
            with _faults(path):
                for name, dtype, shape, slices in _list(table.get(b""), path):
                    known = found.setdefault(name, (dtype, shape, []))
                    if known[:2] != (dtype, shape):
                        first = f"{known[0]} {known[1]}"
                        raise WireError(f"{name!r} is {dtype} {shape}, but {first} in another file")
                    known[2].extend(TensorSlice(extents, number) for extents in slices)
        values = {}
        for name, (dtype, shape, parts) in sorted(found.items()):
            with _faults(self._paths[parts[0].file] if parts else self._paths[0], name):
                count = element_count(shape)
                check_tiles([part.extents for part in parts], shape)
                values[name] = ListedTensor(
                    dtype, shape, count * ITEM_BYTES.get(dtype, 0), tuple(parts)
                )
        return values

    def _piece(self, key: str, dtype: str, part: TensorSlice, shape: Shape) -> np.ndarray:
        path = self._paths[part.file]
        stored = self._tables[part.file].get(slice_key(key, part.extents))
        with _faults(path, key):
            if stored is None:
                raise WireError("the value is listed but not in the file")
            data = _only(_only(stored, 2), 3)
            return array_of(data, dtype, shape)


def open_saver_v1(
    prefix: str,
    *,
    roots: Mapping[str, Root] | None = None,
    bases: Collection[str] = (),
    files: Files = LOCAL,
) -> StoredCheckpoint:
    """Open a checkpoint of that kind and name its values.

    Args:
        prefix: its name: of the only file, or of all of them without their numbers.
        roots: as :func:`tfckpt.stored.open.open_checkpoint` has it.
        bases: likewise.
        files: where the files are.

    Raises:
        DamagedCheckpointError: a file is missing, or is not as it must be.
        UnsupportedCheckpointError: written for a newer TensorFlow.
    """
    values = SaverV1(saver_v1_files(prefix, files), files)
    try:
        inventory = name_keys(prefix, values.entries, roots, bases)
    except BaseException:
        values.close()
        raise
    return StoredCheckpoint(prefix, inventory, values, "tf1_saver_v1")


@contextlib.contextmanager
def _faults(path: str, name: str = "") -> Iterator[None]:
    try:
        yield
    except WireError as error:
        raise DamagedCheckpointError(str(error), path=path, name=name) from None


def _list(
    stored: bytes | None, path: str
) -> Iterator[tuple[str, str, Shape, list[tuple[Extent, ...]]]]:
    """Name, type, shape and slices of each tensor that a file says it has."""
    if stored is None:
        raise WireError("is a LevelDB table without a list of tensors, so not a checkpoint")
    if len(stored) > _MAX_LIST_BYTES:
        raise WireError(
            f"the list of tensors has {len(stored)} bytes, more than the {_MAX_LIST_BYTES} allowed"
        )
    if any(number == 1 and isinstance(value, int) for number, value in fields(stored)):
        message = "is the index of a checkpoint of version 2, but is not named '….index'"
        hint = (
            "Name it like its data files, with `.index` in place of `.data-…`, and give the prefix."
        )
        raise CheckpointNotFoundError(message, path=path, hint=hint)
    for number, value in fields(_only(stored, 1)):
        if number == 1:
            yield _tensor(as_message(value))
        elif number == 2:
            check_version(parse_versions(as_message(value)), path)


def _tensor(data: bytes) -> tuple[str, str, Shape, list[tuple[Extent, ...]]]:
    name, dtype, slices = "", 0, []
    shape: Shape = ()
    for number, value in fields(data):
        if number == 1:
            name = as_text(value)
        elif number == 2:
            shape = parse_shape(as_message(value))
        elif number == 3:
            dtype = as_number(value, 1 << 31)
        elif number == 4:
            slices.append(parse_slice(as_message(value)))
    if dtype not in DTYPES:
        raise WireError(f"{name!r} has dtype number {dtype}, which TensorFlow does not define")
    return name, DTYPES[dtype], shape, slices


def _only(data: bytes, wanted: int) -> bytes:
    """The message in one field of a message; b"" where it is not set."""
    found = [as_message(value) for number, value in fields(data) if number == wanted]
    if len(found) > 1:
        raise WireError(f"protobuf field {wanted} occurs twice")
    return found[0] if found else b""
