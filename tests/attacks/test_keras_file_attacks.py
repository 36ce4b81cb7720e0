"""Files of Keras's formats made to read other files, to fill the memory, or to run something."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tfckpt.errors import CheckpointError, DamagedCheckpointError, UnsupportedCheckpointError
from tfckpt.stored.formats.open import open_checkpoint


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


def archive(path: Path, weights: Path, config: bytes = b'{"class_name": "Net"}') -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", config)
        file.write(weights, "model.weights.h5")
    return path


def read(path: Path) -> dict[str, np.ndarray]:
    with open_checkpoint(str(path)) as opened:
        entries = opened.inventory.entries.values()
        return {entry.name: opened.values.read(entry.key) for entry in entries}


PLACE = "layers/dense/vars/2"


def _virtual(file: h5py.File, secret: str) -> None:
    layout = h5py.VirtualLayout((8,), "float64")
    layout[:] = h5py.VirtualSource(secret, "secret", (8,))
    file.create_virtual_dataset(PLACE, layout)


def _marked_otherwise(file: h5py.File, _: str) -> None:
    file["opaque"] = np.zeros(3, "V2")
    file["opaque"].attrs["dtype"] = "float8"


def _put(path: str, make: Callable[[h5py.File, str], Any]) -> Callable[[h5py.File, str], None]:
    return lambda file, secret: file.__setitem__(path, make(file, secret))


def _dataset(*arguments: Any, **options: Any) -> Callable[[h5py.File, str], Any]:
    return lambda file, secret: file.create_dataset(PLACE, *arguments, **options)


PAIRS = [("a", "f4"), ("b", "i4")]
TRICKS: dict[str, Callable[[h5py.File, str], Any]] = {
    "an external link": _put(PLACE, lambda _, secret: h5py.ExternalLink(secret, "/secret")),
    "a soft link": _put(PLACE, lambda *_: h5py.SoftLink("/layers/dense/vars/1")),
    "an external group": _put("layers/dense_1", lambda _, secret: h5py.ExternalLink(secret, "/")),
    "external storage": lambda file, secret: file.create_dataset(
        PLACE, (16,), "float32", external=[(secret, 0, 64)]
    ),
    "a virtual dataset": _virtual,
    "references": _dataset((2,), h5py.ref_dtype),
    "ragged": _dataset((2,), h5py.vlen_dtype("float32")),
    "a compound": _put(PLACE, lambda *_: np.zeros(2, PAIRS)),
    "a small compound": _put("bytes", lambda *_: np.zeros(3, [("a", "u1"), ("b", "u1")])),
    "opaque": _put("opaque", lambda *_: np.zeros(3, "V4")),
    "marked otherwise": _marked_otherwise,
    "huge": _dataset((1 << 40,), "float32", chunks=(1 << 20,)),
    "a bomb": _dataset((1 << 36,), "float32", chunks=(1 << 20,), compression="gzip"),
    "a cycle": _put("layers/dense/loop", lambda file, _: file["layers"]),
}


LINKS = ("an external link", "a soft link", "an external group")


@pytest.mark.parametrize("trick", TRICKS)
def test_what_is_no_plain_tree_of_arrays_is_refused(
    weights: Path, tmp_path: Path, trick: str
) -> None:
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["secret"] = np.arange(8.0)
    with h5py.File(weights, "a") as file:
        TRICKS[trick](file, str(secret))
    says = "a link" if trick in LINKS else r"genuine\.weights\.h5"
    with pytest.raises((UnsupportedCheckpointError, DamagedCheckpointError), match=says):
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
    found = read(archive(tmp_path / "a.keras", weights, json.dumps(config).encode()))
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in read(weights).items()
    }
    assert not marker.exists()
    assert "os.system" not in sys.modules


def _zip_bomb(path: Path, _: Path) -> None:
    with zipfile.ZipFile(path) as file:
        size = file.getinfo("model.weights.h5").file_size
    whole = path.read_bytes()
    length = struct.pack("<I", size)
    assert length in whole
    path.write_bytes(whole.replace(length, struct.pack("<I", 0xF0000000)))


def _two_members(path: Path, weights: Path) -> None:
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.write(weights, "model.weights.h5")


ARCHIVES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "a zip bomb": (_zip_bomb, "unpacks to"),
    "two members of one name": (_two_members, "one name"),
    "a configuration of lists": (partial(archive, config=b"[" * 100_000), r"a\.keras"),
    "a configuration of objects": (
        partial(archive, config=b'{"class_name": ' * 50_000),
        r"a\.keras",
    ),
    "a configuration cut": (partial(archive, config=b"{"), r"a\.keras"),
    "a configuration that is no text": (partial(archive, config=b"\xff\xfe"), r"a\.keras"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_forged_is_refused(weights: Path, tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "a.keras", weights)
    change, says = ARCHIVES[name]
    change(path, weights)
    with pytest.raises(DamagedCheckpointError, match=says):
        read(path)


@pytest.mark.parametrize("name", ["../genuine.weights.h5", "/etc/passwd", "..", "a\\b", "", 7])
def test_a_shard_elsewhere_is_refused_and_one_that_is_absent_named(
    weights: Path, tmp_path: Path, name: Any
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    path = below / "model.weights.json"
    for shard, says in ((name, "."), ("model_0.weights.h5", r"model_0.*model\.weights\.json")):
        path.write_text(json.dumps({"weight_map": {"/layers/dense/vars": shard}}))
        with pytest.raises(CheckpointError, match=says):
            open_checkpoint(str(path))
