"""Small files that declare, or unpack to, hundreds of megabytes: one error, and no memory taken.

What is real and packs well, such as zeros, is read all the same.
"""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorstore
from zoo.resident import MEASURED, peak, resident

from tfckpt.errors import CheckpointError
from tfckpt.stored.formats.open import open_checkpoint

ORBAX = Path(__file__).resolve().parents[1] / "golden" / "orbax" / "jax" / "3"
KERNEL = "trainable_variables.sequential.first.kernel/"
BIAS = KERNEL.replace("kernel", "bias")
MIB = 1 << 20
MANY = 260  # MiB, above `limits.SMALL`
MOST = 96 * MIB  # what an error may take: the file's parts, and the imports that read them
PLACE = "layers/dense/vars/0"


def zeros_in_hdf5(mib: int) -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as hdf5:
        shape = (mib, MIB // 4)
        dataset = hdf5.create_dataset(
            PLACE, shape, "float32", chunks=(1, shape[1]), compression="gzip"
        )
        for row in range(mib):
            dataset[row] = 0
    return file.getvalue()


def archive(path: Path, members: dict[str, bytes]) -> Path:
    path /= "a.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def packed_twice(path: Path) -> Path:
    return archive(path, {"config.json": b"{}", "model.weights.h5": zeros_in_hdf5(MANY)})


def long_text(path: Path) -> Path:
    text = b'{"config": [' + b"[]," * (20 * MIB) + b"[]]}"
    return archive(path, {"config.json": text, "model.weights.h5": zeros_in_hdf5(1)})


def one_name_many_times(path: Path) -> Path:
    """A list of names all of which refer to the longest string in the file."""
    path /= "a.h5"
    length, count = MIB // 4, 2000
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.15.0"
        texts = np.array(["x" * length, *["y"] * (count - 1)], object)
        file.attrs.create("layer_names", texts, dtype=h5py.string_dtype())
    content = path.read_bytes()
    at = content.index(struct.pack("<I", length))
    while content[at + 16 : at + 20] != struct.pack("<I", 1):  # it is not that of the reference
        at = content.index(struct.pack("<I", length), at + 1)
    path.write_bytes(content[:at] + content[at : at + 16] * count + content[at + 16 * count :])
    return path


def orbax(path: Path, change: Callable[[Any], object]) -> Path:
    place = shutil.copytree(ORBAX, path / "3")
    base = {"driver": "file", "path": f"{place}/pytree/"}
    change({"driver": "ocdbt", "base": base})
    return place


def array(store: Any, value: np.ndarray, codec: Any = None, key: str = KERNEL) -> None:
    """Write a value anew, zeros as well, as Orbax does."""
    opened = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": store | {"path": key},
            "metadata": {"codecs": [{"name": "bytes"}, codec or {"name": "zstd"}]},
            "store_data_equal_to_fill_value": True,
        },
        create=True,
        delete_existing=True,
        dtype=value.dtype,
        shape=value.shape,
    ).result()
    opened.write(value).result()


def node(store: Any) -> None:
    """Values within the tree of keys, which is unpacked as one."""
    config = {"max_inline_value_bytes": MIB, "max_decoded_node_bytes": (1 << 31) - 1}
    shutil.rmtree(store["base"]["path"] + "d")
    Path(store["base"]["path"], "manifest.ocdbt").unlink()
    values = tensorstore.KvStore.open(store | {"config": config}).result()
    with tensorstore.Transaction() as transaction:
        for number in range(MANY):
            values.with_transaction(transaction).write(f"{number}", bytes(MIB - 1)).result()


def zeros(mib: int, codec: Any = None) -> Callable[[Any], None]:
    return lambda store: array(store, np.zeros((mib, MIB // 4), "float32"), codec)


BOMBS: dict[str, Callable[[Path], Path]] = {
    "zeros in a dataset in an archive": packed_twice,
    "a configuration of lists": long_text,
    "one name many times": one_name_many_times,
    "zeros of Orbax": lambda path: orbax(path, zeros(MANY)),
    "a node of Orbax": lambda path: orbax(path, node),
    "an array of Orbax in gzip": lambda path: orbax(path, zeros(1, {"name": "gzip"})),
}


def tried(path: str) -> tuple[str, int]:
    """In a child: the error of opening it and reading each value, and the bytes that took."""
    before, error = resident(), ""
    try:
        read(path)
    except CheckpointError as refused:
        error = str(refused)
    return error, peak() - before


def read(path: str) -> list[tuple[int, ...]]:
    with open_checkpoint(path) as opened:
        entries = opened.inventory.entries.values()
        return [opened.values.read(entry.key).shape for entry in entries]


@MEASURED
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(server, tmp_path, bomb) -> None:
    path = BOMBS[bomb](tmp_path)
    size = sum(one.stat().st_size for one in tmp_path.rglob("*"))
    error, took = server.run((__file__, "tried"), str(path), timeout=60).result()
    print(f"{size:,} bytes took {took:,}: {error}")
    assert str(tmp_path) in error
    assert took < MOST


def beside_weights(store: Any) -> None:
    zeros(MANY)(store)
    array(store, np.random.default_rng(1).random((MIB // 4,), "float32"), key=BIAS)


def weights(path: Path) -> Path:
    (path / "a.weights.h5").write_bytes(zeros_in_hdf5(MANY))
    return path / "a.weights.h5"


SOUND: dict[str, Callable[[Path], Path]] = {
    "zeros in a dataset": weights,
    "zeros of Orbax": lambda path: orbax(path, zeros(20)),
    "zeros of Orbax beside weights": lambda path: orbax(path, beside_weights),
    "an archive that is packed": lambda path: archive(
        path, {"config.json": b"{}", "model.weights.h5": zeros_in_hdf5(16)}
    ),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_is_real_and_packs_well_is_read(tmp_path, case) -> None:
    assert max(map(np.prod, read(str(SOUND[case](tmp_path))))) >= 4 * MIB
