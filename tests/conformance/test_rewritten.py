"""Real checkpoints of every kind, rewritten: plain TensorFlow finds the same bytes in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfckpt.cli.main import main
from tfckpt.errors import CheckpointError
from tfckpt.stored.formats.open import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def prefixes(corpus: Path) -> list[str]:
    """Every index of which the data is there too."""
    found = sorted(corpus.rglob("*.index"))
    return [str(p.with_suffix("")) for p in found if list(p.parent.glob(f"{p.stem}.data-*"))]


def contents(prefix: str) -> Counter[tuple[Any, ...]]:
    """The values of a checkpoint, whatever their keys, as TensorFlow reads them."""
    reader = tf.train.load_checkpoint(prefix)
    found: Counter[tuple[Any, ...]] = Counter()
    for key, shape in reader.get_variable_to_shape_map().items():
        if key != GRAPH:
            value = reader.get_tensor(key)
            raw = value if isinstance(value, bytes) else value.tobytes()
            if getattr(value, "dtype", None) == np.dtype(object):
                raw = tuple(value.ravel())
            found[tuple(shape), str(reader.get_variable_to_dtype_map()[key]), raw] += 1
    return found


def test_what_is_rewritten_holds_the_same(corpus: Path, tmp_path: Path) -> None:
    rewritten = 0
    for number, prefix in enumerate(prefixes(corpus)):
        try:
            old = open_checkpoint(prefix)
        except CheckpointError:
            continue
        target = f"{tmp_path}/new-{number}"
        with old:
            whole = bool(old.inventory.entries) and not old.values.missing_files
            status = main(["tfckpt", "rewrite", prefix, target, "--shard_size", "2M"])
            assert status == (0 if whole else 1), prefix
            if not whole:
                continue
            with open_checkpoint(target) as new:
                assert old.inventory.entries.keys() == new.inventory.entries.keys(), prefix
                assert old.inventory.containers == new.inventory.containers, prefix
        assert contents(target) == contents(prefix), prefix
        rewritten += 1
    assert rewritten > 20


def test_keras_files_become_checkpoints(corpus: Path, tmp_path: Path) -> None:
    paths = sorted([*corpus.rglob("*.keras"), *corpus.rglob("*.h5")])
    for number, path in enumerate(paths):
        target = f"{tmp_path}/new-{number}"
        assert main(["tfckpt", "rewrite", str(path), target]) == 0
        with open_checkpoint(str(path)) as old:
            names = old.inventory.entries.keys()
            expected = {name: old.values.read(old.inventory.entries[name].key) for name in names}
        reader = tf.train.load_checkpoint(target)
        with open_checkpoint(target) as new:
            assert new.inventory.entries.keys() == names
            for name, entry in new.inventory.entries.items():
                found = np.asarray(reader.get_tensor(entry.key))
                assert found.tobytes() == expected[name].tobytes(), name
    assert paths
