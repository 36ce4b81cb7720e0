"""Files of Keras's formats made to read other files, to fill the memory, or to run something."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

TRIAL = Path(__file__).with_name("hdf5_trial.py")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file as Keras 3 writes it, of a dense layer and a batch normalisation."""
    path = tmp_path / "genuine.weights.h5"
    random_ = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        for layer, shapes in (("dense", [(3, 4), (4,)]), ("batch_normalization", [(4,)] * 4)):
            group = file.create_group(f"layers/{layer}/vars")
            group.attrs["name"] = layer
            for place, shape in enumerate(shapes):
                group[str(place)] = random_.normal(size=shape).astype("float32")
    return path


def archive(path: Path, weights: Path, config: Any = None, method: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", json.dumps(config or {"class_name": "Net"}))
        file.write(weights, "model.weights.h5")
    return path


def read(path: Path) -> dict[str, np.ndarray]:
    with open_checkpoint(str(path)) as opened:
        entries = opened.inventory.entries.values()
        return {entry.name: opened.values.read(entry.key) for entry in entries}


def _external_link(file: h5py.File, secret: Path) -> None:
    file["layers/dense/vars/2"] = h5py.ExternalLink(str(secret), "/secret")


def _soft_link(file: h5py.File, secret: Path) -> None:
    file["layers/dense/vars/2"] = h5py.SoftLink("/layers/dense/vars/1")


def _external_group(file: h5py.File, secret: Path) -> None:
    file["layers/dense_1"] = h5py.ExternalLink(str(secret), "/")


def _external_storage(file: h5py.File, secret: Path) -> None:
    outside = [(str(secret), 0, 64)]
    file.create_dataset("layers/dense/vars/2", (16,), "float32", external=outside)


def _virtual(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((8,), "float64")
    layout[:] = h5py.VirtualSource(str(secret), "secret", (8,))
    file.create_virtual_dataset("layers/dense/vars/2", layout)


def _references(file: h5py.File, secret: Path) -> None:
    file.create_dataset("layers/dense/vars/2", (2,), h5py.ref_dtype)


def _ragged(file: h5py.File, secret: Path) -> None:
    file.create_dataset("layers/dense/vars/2", (2,), h5py.vlen_dtype("float32"))


def _compound(file: h5py.File, secret: Path) -> None:
    file["layers/dense/vars/2"] = np.zeros(2, [("a", "f4"), ("b", "i4")])


def _small_compound(file: h5py.File, secret: Path) -> None:
    file["bytes"] = np.zeros(3, [("a", "u1"), ("b", "u1")])


def _opaque(file: h5py.File, secret: Path) -> None:
    file["opaque"] = np.zeros(3, "V4")


def _marked_otherwise(file: h5py.File, secret: Path) -> None:
    file["opaque"] = np.zeros(3, "V2")
    file["opaque"].attrs["dtype"] = "float8"


def _huge(file: h5py.File, secret: Path) -> None:
    file.create_dataset("layers/dense/vars/2", (1 << 40,), "float32", chunks=(1 << 20,))


def _bomb(file: h5py.File, secret: Path) -> None:
    settings = {"chunks": (1 << 20,), "compression": "gzip"}
    file.create_dataset("layers/dense/vars/2", (1 << 36,), "float32", **settings)


def _cycle(file: h5py.File, secret: Path) -> None:
    file["layers/dense/loop"] = file["layers"]


@pytest.mark.parametrize(
    "trick",
    [
        _external_link,
        _soft_link,
        _external_group,
        _external_storage,
        _virtual,
        _references,
        _ragged,
        _compound,
        _small_compound,
        _opaque,
        _marked_otherwise,
        _huge,
        _bomb,
        _cycle,
    ],
    ids=lambda trick: trick.__name__.strip("_"),
)
def test_what_is_no_plain_tree_of_arrays_is_refused(
    weights: Path, tmp_path: Path, trick: Callable[[h5py.File, Path], None]
) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["secret"] = np.arange(8.0)
    with h5py.File(weights, "a") as file:
        trick(file, secret)
    with pytest.raises((UnsupportedCheckpointError, DamagedCheckpointError)):
        open_checkpoint(str(weights))


def test_a_configuration_runs_nothing(weights: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = {"class_name": "__lambda__", "config": {"value": ["gASVIA==", None, None]}}
    call = {"module": "os", "class_name": "system", "config": {"command": f"touch {marker}"}}
    config = {
        "class_name": "Sequential",
        "module": "builtins",
        "config": {"layers": [call, {"class_name": "Lambda", "config": {"function": code}}]},
        "compile_config": {"optimizer": call},
    }
    assert len(read(archive(tmp_path / "a.keras", weights, config))) == 6
    assert not marker.exists()
    assert "os.system" not in sys.modules


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{", b"\xff\xfe", b'{"class_name": ' * 50_000])
def test_a_configuration_that_is_none(weights: Path, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", text)
        file.write(weights, "model.weights.h5")
    with pytest.raises(DamagedCheckpointError):
        open_checkpoint(str(path))


def test_a_packed_archive_is_read(weights: Path, tmp_path: Path) -> None:
    packed = archive(tmp_path / "a.keras", weights, method=zipfile.ZIP_DEFLATED)
    plain = read(weights)
    found = read(packed)
    assert found.keys() == plain.keys()
    assert all((found[name] == plain[name]).all() for name in plain)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(weights: Path, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", weights, method=zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as file:
        size = file.getinfo("model.weights.h5").file_size
    whole = path.read_bytes()
    bomb = whole.replace(struct.pack("<I", size), struct.pack("<I", 0xF0000000))
    assert bomb != whole
    path.write_bytes(bomb)
    with pytest.raises(DamagedCheckpointError, match="unpacks to"):
        open_checkpoint(str(path))


def test_two_members_of_one_name_are_refused(weights: Path, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", weights)
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.write(weights, "model.weights.h5")
    with pytest.raises(DamagedCheckpointError, match="one name"):
        open_checkpoint(str(path))


@pytest.mark.parametrize("name", ["../genuine.weights.h5", "/etc/passwd", "..", "a\\b", "", 7])
def test_a_shard_elsewhere_is_refused(weights: Path, tmp_path: Path, name: Any) -> None:
    below = tmp_path / "below"
    below.mkdir()
    path = below / "model.weights.json"
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": name}}))
    with pytest.raises(CheckpointError):
        open_checkpoint(str(path))


def test_a_shard_that_is_absent_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.json"
    path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": "model_00000.weights.h5"}}))
    with pytest.raises(CheckpointError, match=r"model_00000.*model\.weights\.json"):
        open_checkpoint(str(path))


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_truncated_files_are_refused(weights: Path, tmp_path: Path, suffix: str) -> None:
    path = weights if suffix == ".weights.h5" else archive(tmp_path / "a.keras", weights)
    whole = path.read_bytes()
    for part in range(1, 32):
        path.write_bytes(whole[: len(whole) * part // 32])
        with pytest.raises(CheckpointError):
            open_checkpoint(str(path)).values.read("layers/dense/vars/0")


@pytest.mark.parametrize("more", [100, 1 << 20])
def test_an_archive_whose_directory_is_not_where_it_says(
    weights: Path, tmp_path: Path, more: int
) -> None:
    """Members are then before the beginning of the file, as zipfile counts."""
    path = archive(tmp_path / "a.keras", weights)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x05\x06") + 16  # the offset of the directory: 4 bytes
    offset = int.from_bytes(content[at : at + 4], "little") + more
    content[at : at + 4] = offset.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=r"a\.keras"):
        read(path)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_mutants_neither_crash_nor_hang(weights: Path, tmp_path: Path, suffix: str) -> None:
    """An archive has a checksum: no altered value comes out of one."""
    path = weights if suffix == ".weights.h5" else archive(tmp_path / "a.keras", weights)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    command = [sys.executable, str(TRIAL), str(path), "200", str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    ended = [json.loads(line)["ended"] for line in run.stdout.splitlines()]
    assert len(ended) == 200
    allowed = {"same", "refused"} | ({"other"} if suffix == ".weights.h5" else set())
    assert set(ended) <= allowed, [one for one in ended if one not in allowed]
