"""Writes values to NumPy's ``.npz`` and to safetensors, one value at a time.

Both formats have arrays by name and nothing else. A dtype that a format does not have is refused
before the first byte is written: strings in both, and in ``.npz`` the small floats, which NumPy
would read back as raw bytes.

safetensors (https://huggingface.co/docs/safetensors): eight bytes with the length of the header,
the header in JSON, then all arrays without gaps, those of the widest dtype first, so that each is
aligned. The metadata in the header has the roles of all values but weights; it also marks the
names as canonical.
"""

from __future__ import annotations

import io
import json
import zipfile
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tfckpt.core.dtypes import ITEM_BYTES
from tfckpt.core.inventory import Role
from tfckpt.errors import UnsupportedCheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from typing_extensions import Buffer

    from tfckpt.core.inventory import Entry
    from tfckpt.stored.io.files import Output


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
_ARRAYS = frozenset(
    """
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64
    complex128
    """.split()  # noqa: SIM905 (words read better than a list of them)
)
METADATA = "__metadata__"
ROLES = "tfckpt.roles"
_ALIGNMENT = 8
_NPY = ".npy"
_LEAVE_OUT = "leave it out with --exclude"


def write_npz(
    output: Output, entries: Iterable[Entry], read: Callable[[Entry], np.ndarray], path: str
) -> None:
    """Write an uncompressed ZIP archive of one ``.npy`` per value, as ``numpy.savez`` does.

    ``read`` returns an entry's value; ``path`` is that of the source, for messages.
    """
    import numpy as np

    entries = list(entries)
    for entry in entries:
        _check(entry, _ARRAYS, "NumPy's .npz", path)
        if "\0" in entry.name or entry.name.endswith(_NPY):
            message = "the .npz format cannot hold a value of this name"
            hint = f"{_LEAVE_OUT}, or rename it with --rename"
            raise UnsupportedCheckpointError(message, path=path, name=entry.name, hint=hint)
    with zipfile.ZipFile(_AppendOnly(output), "w") as archive:
        for entry in entries:
            member = zipfile.ZipInfo(entry.name + _NPY)  # with a fixed date
            member.external_attr = 0o644 << 16
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, read(entry), allow_pickle=False)


def write_safetensors(
    output: Output, entries: Iterable[Entry], read: Callable[[Entry], np.ndarray], path: str
) -> None:
    """Write a safetensors file; arguments and errors as for :func:`write_npz`."""
    import numpy as np

    ordered = list(entries)
    for entry in ordered:
        _check(entry, TENSORS, "safetensors", path)
        if entry.name == METADATA:
            message = "safetensors reserves this name"
            hint = f"{_LEAVE_OUT}, or rename it with --rename"
            raise UnsupportedCheckpointError(message, path=path, name=entry.name, hint=hint)
    ordered.sort(key=lambda entry: ITEM_BYTES[entry.dtype], reverse=True)
    roles = {entry.name: entry.role.value for entry in ordered if entry.role is not Role.WEIGHT}
    # "format" tells other readers which kernel layout the file has
    metadata = {"format": "tf", ROLES: json.dumps(roles, ensure_ascii=False)}
    header: dict[str, Any] = {METADATA: metadata}
    offset = 0
    for entry in ordered:
        end = offset + entry.nbytes
        header[entry.name] = {
            "dtype": TENSORS[entry.dtype],
            "shape": entry.shape,
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    output.write(len(text).to_bytes(8, "little") + text)
    for entry in ordered:  # not bound to a name, which would keep it while the next is read
        output.write(np.ascontiguousarray(read(entry)).reshape(-1).view("u1").data)


def _check(entry: Entry, types: Mapping[str, str] | frozenset[str], what: str, path: str) -> None:
    if entry.shape is None or entry.dtype not in types:
        kind = f"values of dtype {entry.dtype}" if entry.dtype else "a value that is not a tensor"
        message = f"{what} cannot hold {kind}"
        hint = _LEAVE_OUT
        if entry.dtype not in ("", "string"):
            hint += ", or convert it with --cast"
        raise UnsupportedCheckpointError(message, path=path, name=entry.name, hint=hint)


class _AppendOnly(io.RawIOBase):
    """An output as an append-only file."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        self._output.write(data)
        return memoryview(data).nbytes
