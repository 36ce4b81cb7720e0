"""Opens Keras's own files: ``.weights.h5``, alone or in shards, ``.h5`` and ``.keras``.

The content decides the format, not the name: an HDF5 file whose root lists layers is in the format
of Keras 2, one whose groups have ``vars`` in that of Keras 3; a ZIP archive of one of these is a
``.keras`` file; a JSON file with a ``weight_map`` lists shards in the same directory.

The configuration in an archive has the names of the layers; nothing in it is imported, built or
run. No member is written under its own name: it is unpacked into an unnamed temporary file, up to
the size that the archive declares. Refused are ambiguous members (two of one name), encrypted ones,
compression methods that Keras does not use, and declared sizes out of all proportion.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

from tfckpt.errors import DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.formats import keras2_h5, keras_objects
from tfckpt.stored.formats.checkpoint import FileValues, StoredCheckpoint
from tfckpt.stored.formats.hdf5 import H5Group, Hdf5, OpenedFile
from tfckpt.stored.formats.keras_layers import KERAS_BASES
from tfckpt.stored.formats.safetensors import open_safetensors
from tfckpt.stored.io import limits
from tfckpt.stored.io.files import content, join, reading
from tfckpt.stored.io.limits import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfckpt.stored.formats.checkpoint import Opening
    from tfckpt.stored.io.files import Files, Handle

MAGIC = b"PK\x03\x04"

_SHORT, _TEXT_EXPANSION = 1 << 20, 100  # what JSON of thousands of layers alike is packed to
_CHUNK = 1 << 20
_ENCRYPTED = 1
CONFIG, WEIGHTS = "config.json", "model.weights"
_OTHER_WRITERS = {
    "/data.pkl": "PyTorch wrote it. Save its state_dict with safetensors.torch.save_file; tfckpt "
    "reads that.",
    ".npy": "NumPy wrote it. Save its arrays with safetensors.numpy.save_file; tfckpt reads that.",
}


def open_hdf5(path: str, opening: Opening) -> StoredCheckpoint:
    """Open an HDF5 file that Keras wrote."""
    with _Parts(path, opening.files) as parts:
        parts.add(path, OpenedFile(parts.open(path)))
        return parts.opened({}, opening)


def open_archive(path: str, opening: Opening) -> StoredCheckpoint:
    """Open a ``.keras`` archive; none of its code or configuration is run."""
    with _Parts(path, opening.files) as parts:
        archive = Archive(parts.open(path), path)
        parts.closing.callback(archive.close)
        config = _json(archive.text(CONFIG) or b"{}", path, CONFIG)
        for name in _weights(archive.names, archive.text, path):
            parts.add(f"{path}:{name}", archive.unpacked(name))
        return parts.opened(config, opening)


def open_unzipped(path: str, opening: Opening) -> StoredCheckpoint:
    """Open a directory of the members of a ``.keras`` archive."""
    files = opening.files
    with _Parts(path, files) as parts:

        def text(name: str) -> bytes:
            with reading(join(path, name)):
                parts.open(join(path, name))  # belongs to the digest
                return content(join(path, name), files, limits.TEXT)

        config = _json(text(CONFIG), path, CONFIG)
        with reading(path):
            names = [name.rstrip("/") for name in files.listdir(path)]
        for name in _weights(names, text, path):
            parts.add(join(path, name), OpenedFile(parts.open(join(path, name))))
        return parts.opened(config, opening)


def open_shards(path: str, opening: Opening) -> StoredCheckpoint:
    """Open the shards that a ``.weights.json`` or the index of safetensors lists beside itself."""
    files = opening.files
    with reading(path):
        names = _shards(_json(content(path, files, limits.TEXT), path), path)
    shards = [join(os.path.split(path)[0], name) for name in names]
    if missing := next((one for one in shards if not files.exists(one)), ""):
        message = f"does not exist, but {path} lists it as a shard"
        hint = "Copy all shards along with the file that lists them."
        raise DamagedCheckpointError(message, path=missing, hint=hint)
    if all(name.endswith(".safetensors") for name in names):
        return open_safetensors(path, opening, shards)
    with _Parts(path, files) as parts:
        parts.open(path)  # belongs to the digest
        handles = [*map(parts.open, shards)]
        for shard, handle in zip(shards, handles, strict=True):
            parts.add(shard, OpenedFile(handle))
        return parts.opened({}, opening)


class Archive:
    """An open archive."""

    def __init__(self, handle: Handle, path: str) -> None:
        self._path, self._room = path, Room(path, handle.size)
        self._unpacked: list[Any] = []
        with reading(path, "", "a ZIP archive"):
            self._zip = zipfile.ZipFile(io.BufferedReader(OpenedFile(handle)))
        members = self._zip.infolist()
        if len(members) > limits.PARTS:
            raise self._damaged(f"has {len(members)} members, more than {limits.PARTS}")
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
        if member.file_size > min(limits.TEXT, _SHORT + _TEXT_EXPANSION * member.compress_size):
            raise self._damaged(f"declares {member.file_size} bytes, too many for a text", name)
        return bytes(self.unpacked(name).read())

    def unpacked(self, name: str) -> io.RawIOBase:
        """A member in an unnamed file, up to its declared size, after a check of its checksum."""
        member = self._members[name]
        if member.flag_bits & _ENCRYPTED:
            raise self._unsupported("is encrypted; Keras does not encrypt archives", name)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._unsupported("uses a compression method that Keras does not use", name)
        limit = member.file_size
        if limit > limits.EXPANSION * member.compress_size + 64:
            message = f"declares that it unpacks to {limit} bytes, an impossible size"
            raise self._damaged(message, name)
        self._room.take(limit, name)
        file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (closed with the archive)
        self._unpacked.append(file)
        size = 0
        with reading(self._path, name, "a ZIP archive"), self._zip.open(member) as packed:
            while part := packed.read(_CHUNK):
                size += len(part)
                file.write(part)
        if size != limit:
            raise self._damaged("unpacks to fewer bytes than it declares", name)
        file.seek(0)
        return file  # type: ignore[no-any-return]

    def close(self) -> None:
        for file in self._unpacked:
            file.close()

    def _damaged(self, message: str, name: str = "") -> DamagedCheckpointError:
        return DamagedCheckpointError(message, path=self._path, name=name)

    def _unsupported(self, message: str, name: str) -> UnsupportedCheckpointError:
        return UnsupportedCheckpointError(message, path=self._path, name=name)


class _Parts:
    """The files of one checkpoint; closed if opening it fails."""

    def __init__(self, path: str, files: Files) -> None:
        self.closing = contextlib.ExitStack()
        self._path = path
        self._system, self._room = files, Room(path)
        self._files: list[Hdf5] = []
        self._handles: list[Handle] = []

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.closing.close()

    def open(self, path: str) -> Handle:
        with reading(path):
            handle = self._system.open_read(path)
        self.closing.callback(handle.close)
        self._handles.append(handle)
        self._room.add(handle.size)
        return handle

    def add(self, name: str, stream: Any) -> None:
        file = Hdf5(stream, name, self._room)
        self.closing.callback(file.close)
        self._files.append(file)

    def opened(self, config: Mapping[str, Any], opening: Opening) -> StoredCheckpoint:
        """The checkpoint, its values named."""
        readers = [(file, (dataset.path for dataset in file.root.walk())) for file in self._files]
        values = FileValues(self._path, readers, self._handles, self.closing)
        root = _merged(self._files)
        bases = KERAS_BASES | set(opening.bases)
        first = self._files[0]
        _refuse_lora(root, self._path)
        if keras2_h5.is_legacy(root):
            inventory, kind = keras2_h5.read(first, self._path, bases), "keras_h5"
        elif any(keras_objects.VARS in dataset.path.split("/") for dataset in root.walk()):
            reader = keras_objects.ObjectReader(self._files, root, bases, opening.addresses)
            inventory = keras_objects.read(reader, self._path, config)
            kind = "keras"
        else:
            message = "is an HDF5 file but was not written by Keras: it lists no layers"
            hint = "Read its arrays with h5py."
            raise UnsupportedCheckpointError(message, path=self._path, hint=hint)
        return StoredCheckpoint(self._path, inventory, values, kind)


def _refuse_lora(root: H5Group, path: str) -> None:
    """Raise for a file of KerasHub's ``Backbone.save_lora_weights``."""
    if len(root.groups) == 1 and root.dataset(f"lora/{keras_objects.VARS}/rank"):
        message = "holds LoRA factors by the position of their layers, as KerasHub writes them"
        hint = f"KerasHub reads its own: `model.backbone.load_lora_weights({path!r})`"
        raise UnsupportedCheckpointError(message, path=path, hint=hint)


def _merged(files: list[Hdf5]) -> H5Group:
    """The groups of all shards as one tree."""
    if len(files) == 1:
        return files[0].root
    root = H5Group("")
    todo = [(root, file.root) for file in files]
    while todo:
        into, group = todo.pop()
        into.datasets |= group.datasets
        into.attributes |= group.attributes
        for name, child in group.groups.items():
            todo.append((into.groups.setdefault(name, H5Group(child.path)), child))
    return root


def _weights(
    members: Iterable[str], text_of: Callable[[str], bytes | None], path: str
) -> Iterator[str]:
    """The members of an archive that contain weights."""
    names = set(members)
    if f"{WEIGHTS}.h5" in names:
        yield f"{WEIGHTS}.h5"
        return
    index = f"{WEIGHTS}.json"
    if index not in names or (text := text_of(index)) is None:
        message = f"is a ZIP archive without '{WEIGHTS}.h5', so not a .keras archive"
        hints = [
            hint for end, hint in _OTHER_WRITERS.items() if any(n.endswith(end) for n in names)
        ]
        raise UnsupportedCheckpointError(message, path=path, hint="".join(hints[:1]))
    for name in _shards(_json(text, path, index), path):
        if name not in names:
            raise DamagedCheckpointError(
                "the archive does not contain this shard", path=path, name=name
            )
        yield name


def _shards(document: Mapping[str, Any], path: str) -> list[str]:
    """The shards in a shard index: names of files in the same directory, never paths."""
    shards: dict[str, None] = {}
    weight_map = document.get("weight_map")
    for names in weight_map.values() if isinstance(weight_map, dict) else ():
        for name in names if isinstance(names, list) else [names]:
            if not isinstance(name, str) or not name or {"/", "\\", "\0"} & set(name):
                message = f"its weight_map lists {name!r}, which is not a plain file name"
                raise DamagedCheckpointError(message, path=path)
            shards[name] = None
    if not shards or len(shards) > limits.PARTS or shards.keys() & {".", ".."}:
        message = "is JSON but not an index of shards: it has no weight_map of file names"
        raise UnsupportedCheckpointError(message, path=path)
    return list(shards)


def _json(text: bytes, path: str, name: str = "") -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"is not valid JSON: {error}", path=path, name=name) from None
    return document if isinstance(document, dict) else {}
