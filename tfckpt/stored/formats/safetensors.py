"""Reads safetensors files: a header in JSON, then all arrays without gaps.

Source: https://huggingface.co/docs/safetensors. The `safetensors` package is not used: it maps
local files only, while tfckpt also reads remote ones. Every rule of the format is checked before a
value is used. In a file that tfckpt exported, names are canonical, and the metadata has their
roles. In any other file, names that begin like canonical ones are canonical, and all others belong
to the model: ``encoder/kernel`` is ``model/encoder/kernel``. A large model may be in several files,
which an index in JSON lists (:mod:`tfckpt.stored.formats.keras_files`).
"""

from __future__ import annotations

import contextlib
import json
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfckpt.core import names
from tfckpt.core.dtypes import ITEM_BYTES, numpy_dtype
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.core.optimizer_names import optimizer_value
from tfckpt.errors import DamagedCheckpointError
from tfckpt.stored.formats.checkpoint import FileValues, StoredCheckpoint
from tfckpt.stored.io.files import Handle, reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tfckpt.stored.formats.checkpoint import Opening

TENSORS: Mapping[str, str] = MappingProxyType(
    {
        **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
        **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
        "bool": "BOOL",
        "bfloat16": "BF16",
        "complex64": "C64",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e5m2": "F8_E5M2",
    }
)
METADATA = "__metadata__"
ROLES = "tfckpt.roles"
MAX_HEADER = 100_000_000  # the format's own limit
_LENGTH = 8
_TYPES = {theirs: ours for ours, theirs in TENSORS.items()}
_TOPS = frozenset({names.MODEL, names.OPTIMIZER, names.SEED, names.METRICS})


def looks_like_safetensors(head: bytes) -> bool:
    """Whether a file's first bytes may be those of a safetensors file."""
    length = int.from_bytes(head[:_LENGTH], "little")
    return head[_LENGTH : _LENGTH + 1] == b"{" and 0 < length <= MAX_HEADER


def open_safetensors(path: str, opening: Opening, shards: Sequence[str] = ()) -> StoredCheckpoint:
    """Open a safetensors file, or the shards of an index."""
    closing, files, handles = contextlib.ExitStack(), list[_File](), list[Handle]()
    try:
        for name in shards or (path,):
            with reading(name):
                handles.append(opening.files.open_read(name))
                closing.callback(handles[-1].close)
                files.append(_File(name, handles[-1]))
        readers = [(file, file.extents) for file in files]
        values = FileValues(path, readers, handles, closing)
        entries = [
            _entry(key, dtype, shape, file.roles)
            for file in files
            for key, (dtype, shape, _) in file.extents.items()
        ]
    except BaseException:
        closing.close()
        raise
    by_name = {entry.name: entry for entry in entries}
    return StoredCheckpoint(path, Inventory(path, by_name), values, "safetensors")


class _File:
    """An open file.

    Attributes:
        extents: key → dtype, shape and offset.
        roles: key → role if not a weight; None in a file that tfckpt did not write.
    """

    def __init__(self, path: str, handle: Handle) -> None:
        self._path = path
        self._handle = handle
        length = int.from_bytes(handle.pread(0, _LENGTH), "little")
        if not 0 < length <= min(MAX_HEADER, handle.size - _LENGTH):
            raise self._damaged("is truncated within its header, or is not a safetensors file")
        try:
            header = json.loads(handle.pread(_LENGTH, length), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"its header is not valid JSON: {error}") from None
        if not isinstance(header, dict):
            raise self._damaged("its header is not a JSON object")
        self.roles = self._roles(header.pop(METADATA, None))
        self.extents = {key: self._extent(key, item) for key, item in header.items()}
        end, start = 0, _LENGTH + length
        for key, (dtype, shape, begin) in sorted(self.extents.items(), key=lambda item: item[1][2]):
            if begin != end:
                raise self._damaged("the tensors overlap or leave a gap", key)
            end += math.prod(shape) * ITEM_BYTES[dtype]
            self.extents[key] = dtype, shape, start + begin
        if start + end != handle.size:
            raise self._damaged(
                f"has {handle.size} bytes, but its tensors end at byte {start + end}"
            )

    def read(self, key: str) -> np.ndarray:
        """The value of a key."""
        import numpy as np

        dtype, shape, offset = self.extents[key]
        raw = np.empty(math.prod(shape) * ITEM_BYTES[dtype], np.uint8)
        with reading(self._path):
            if self._handle.readinto(offset, raw.data) != raw.size:
                raise self._damaged("the file ends before the value does", key)
        return raw.view(numpy_dtype(dtype)).reshape(shape)

    def _roles(self, metadata: Any) -> dict[str, Role] | None:
        text = metadata.get(ROLES) if isinstance(metadata, dict) else None
        if text is None:
            return None
        try:
            return {key: Role(role) for key, role in json.loads(text).items()}
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise self._damaged(
                f"the roles in its metadata are not valid: {str(text)[:100]!r}"
            ) from None

    def _extent(self, key: str, item: Any) -> tuple[str, tuple[int, ...], int]:
        fields = item if isinstance(item, dict) else {}
        dtype = _TYPES.get(str(fields.get("dtype")), "")
        shape: Any = fields.get("shape")
        offsets: Any = fields.get("data_offsets")
        if not dtype or not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
            raise self._damaged(f"its header entry is not valid: {str(item)[:100]!r}", key)
        if offsets[1] - offsets[0] != math.prod(shape) * ITEM_BYTES[dtype]:
            raise self._damaged(
                f"its shape {shape} and dtype {dtype} do not fit its data_offsets",
                key,
            )
        return dtype, tuple(shape), offsets[0]

    def _damaged(self, message: str, name: str = "") -> DamagedCheckpointError:
        return DamagedCheckpointError(message, path=self._path, name=name)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a name occurs twice")
    return unique


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _entry(
    key: str, dtype: str, shape: tuple[int, ...], roles_by_key: Mapping[str, Role] | None
) -> Entry:
    nbytes = math.prod(shape) * ITEM_BYTES[dtype]
    if roles_by_key is not None:
        return Entry(key, roles_by_key.get(key, Role.WEIGHT), dtype, shape, nbytes, key)
    top, _, rest = key.partition("/")
    name = key if top in _TOPS else f"{names.MODEL}/{key}"
    roles = {
        names.OPTIMIZER: optimizer_value(rest)[1],
        names.SEED: Role.SEED,
        names.METRICS: Role.METRIC,
    }
    return Entry(name, roles.get(top, Role.WEIGHT), dtype, shape, nbytes, key)
