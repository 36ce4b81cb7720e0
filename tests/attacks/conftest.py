"""A checkpoint of TensorFlow's, to be written back altered; and processes that try such things."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attacks.forging import items_of, table_of
from zoo.forkserver import ForkServer


class Forge:
    """A checkpoint of TensorFlow's in pieces, and the means to write it back altered."""

    def __init__(self, prefix: str, values: dict[str, Any]) -> None:
        self.prefix, self.values = prefix, values
        self.path, self.data = Path(f"{prefix}.index"), Path(f"{prefix}.data-00000-of-00001")
        self.original = self.path.read_bytes()

    def items(self) -> dict[bytes, Any]:
        """Key → TensorFlow's message, the header under ``b""``."""
        from tensorflow.core.protobuf import tensor_bundle_pb2 as pb

        self.path.write_bytes(self.original)
        return items_of(self.path, lambda key: pb.BundleEntryProto if key else pb.BundleHeaderProto)

    def write_items(self, items: dict[bytes, Any]) -> None:
        self.path.write_bytes(table_of(items))

    def assert_original(self, bundle: Any) -> None:
        assert set(bundle.entries) == set(self.values)
        for name, expected in self.values.items():
            read = bundle.read(name)
            assert (read.shape, read.tolist()) == (expected.shape, expected.tolist())


@pytest.fixture(scope="session")
def _written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    tf = pytest.importorskip("tensorflow")
    directory = tmp_path_factory.mktemp("forge")
    values = {
        "a/kernel": tf.reshape(tf.range(12, dtype=tf.float32), (3, 4)),
        "b/bias": tf.constant([1.5, -2.5], tf.bfloat16),
        "c/step": tf.constant(7, tf.int64),
        "d/text": tf.constant([b"one", b"", b"three"]),
        "e/empty": tf.zeros((0, 3)),
    }
    names = [*values, "p/part", "p/part"]
    tensors = [*values.values(), tf.ones((2, 3)), 2 * tf.ones((2, 3))]
    specs = [""] * len(values) + ["4 3 0,2:-", "4 3 2,2:-"]
    prefix = str(directory / "ckpt-1")
    tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=specs, tensors=tensors)
    read = {name: value.numpy() for name, value in values.items()}
    read["p/part"] = tf.concat(tensors[-2:], 0).numpy()
    return directory, read


@pytest.fixture
def forge(_written: tuple[Path, dict[str, Any]], tmp_path: Path) -> Forge:
    """A fresh copy of a small checkpoint with values of every sort."""
    directory, values = _written
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    return Forge(str(tmp_path / "ckpt-1"), values)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    """Forks of a process that has imported what a trial needs."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork on this system")
    preload = ("tensorflow", "keras", "tfckpt", "pytest", "attacks.trial")
    with ForkServer(preload=preload) as server:
        yield server
