"""A working directory for commands: runs, checkpoints of others, damage, configs and a script."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOW = 1_700_000_000.0
CONTROLS = "a\x1b[31m\u202e"  # a name that would color what follows, and turn it round
CURSED = f"{CONTROLS}/ck\x1bpt-1"
SCRIPT = """
import keras

def build(units=3):
    layers = [keras.layers.Dense(units, name="one"), keras.layers.Dense(2, name="two")]
    model = keras.Sequential([keras.Input((4,)), *layers], name="net")
    for layer in layers:
        layer.kernel.assign(0.5 * keras.ops.ones_like(layer.kernel))
    return model

def compiled():
    model = build()
    model.compile("sgd", "mse")
    return model

def wider():
    return build(5)

def number():
    return 7

def nothing():
    return {"model": None}

def broken():
    return undefined_name
"""
CONFIGS = {
    "keep.yaml": "version: 1\nmanager: {directory: run, keep: [{latest: 1}]}\n",
    "policy.yaml": """
version: 1
restore: {directory: run, policy: body}
policies:
  body: {include: ["model/one/**"]}
  other: {exclude: ["model/two/**"], on_missing: ignore}
""",
    "one.yaml": "version: 1\npolicies:\n  body: {include: ['model/one/**']}\n",
    "wrong.yaml": "version: 1\npolicies:\n  body: {inclde: [a], on_missing: maybe}\n",
    "unread.yaml": "version: 1\nrestore: [\n",
    "idle.yaml": "version: 1\nmanager: {directory: run}\nrestore: {directory: other, policy: p}\n"
    "policies: {p: {include: ['model/**']}, q: {}}\n",
    "missed.yaml": "version: 1\nrestore: {directory: run, policy: p}\n"
    "policies: {p: {exclude: ['model/[x]/**']}}\n",
    "body.yaml": "include: ['model/one/**']\n",
    "saving.yaml": """
version: 1
manager:
  directory: "runs/$$5/${NAME:-a}"
  save: {every_steps: 5, on_signal: [SIGTERM], grace_seconds: 3}
  max_to_keep: 2
  enable_async: true
  if_busy: skip
restore:
  first_of:
    - {path: "zoo/ckpt-1", policy: {exclude: ["re:model/a$"], assert: none}}
    - {directory: "runs/$$5", select: 3}
""",
}
ODD = {  # what statistics stumble over
    "great": np.array([1e16, 1e16 + 2, 1e16 + 4]),
    "long": np.array([2**62 + 1, 2**62]),
    "tiny": np.array([5e-324, 1e-323]),
    "most": np.array([np.finfo("float64").max, -np.finfo("float64").max]),
    "unsigned": np.array([2**64 - 1, 2**64 - 2], "uint64"),
    "none": np.zeros((0, 3), "float32"),
    "odd": np.array([np.nan, np.inf, -1.0, 0.0], "float32"),
    "complex": np.array([3 + 4j, 0j]),
    "flags": np.array([True, False]),
}
METRICS = {f"val_{name}": 0.25 for name in ("accuracy", "loss", "precision", "recall", "auc")}


@contextlib.contextmanager
def built(root: Path) -> Iterator[Path]:
    """Make it there, and let commands find the script as ``train_golden``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(root)
        patch.setattr("time.time", lambda: NOW)
        for name, text in (*CONFIGS.items(), ("train_golden.py", SCRIPT)):
            Path(name).write_text(text, encoding="utf-8")
        _write_runs()
        _write_checkpoints()
        Path("empty").mkdir()
        yield root
    sys.modules.pop("train_golden", None)


def _write_runs() -> None:
    import tensorflow as tf
    import tf_keras  # noqa: F401 - a record names every package of the process
    import train_golden

    import tfckpt

    def manager(directory: str, name: str = "ckpt", **objects: Any) -> tfckpt.CheckpointManager:
        checkpoint = tfckpt.Checkpoint(**objects or {"a": tf.Variable(tf.range(9.0))})
        # Other tests of the process may have made generators.
        return tfckpt.CheckpointManager(
            checkpoint, directory, None, checkpoint_name=name, random_generators=False
        )

    model = train_golden.build()
    run = manager("run", model=model)
    for number, loss in ((1, 0.5), (2, 0.25), (3, 0.75)):
        model.layers[0].bias.assign([float(number)] * 3)
        metadata = {"note": "first"} if number == 1 else {}
        run.save(step=number * 1000, epoch=number, metrics={"loss": loss}, metadata=metadata)
    tf.train.Checkpoint(model=model).save("theirs/ckpt")
    tfckpt.Checkpoint(model=model).save("probed/ckpt", probe=tf.ones((8, 4)))
    # Of two runs, of two names, and one without a number.
    for _ in range(2):
        again = manager("mixed")
        again.save(metrics=METRICS)
        again.save(metrics=METRICS)
    manager("mixed", "other").save()
    tfckpt.Checkpoint(a=tf.Variable(1.0)).write("mixed/best")
    unmeasured = manager("unmeasured")
    for _ in range(2):
        unmeasured.save(metrics={"loss": float("nan")})


def _write_checkpoints() -> None:
    import tensorflow as tf

    import tfckpt

    def tree(**values: Any) -> Any:
        return tf.train.Checkpoint(**{k: tf.Variable(value) for k, value in values.items()})

    odd = tree(**{"w": [[1.0, 2.0]], CONTROLS: [float("nan"), 1.0]})
    tfckpt.Checkpoint(model=odd).write("odd/one")
    tfckpt.Checkpoint(model=odd).write(CURSED)
    for directory in ("damaged", "bad"):
        small = tfckpt.Checkpoint(model=tree(w=[[1.0, 2.0]], b=[0.5]))
        for number in (1, 2):
            small.write(f"{directory}/ckpt-{number}")
        file = Path(f"{directory}/ckpt-2.data-00000-of-00001")
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
    Path("damaged/ckpt-1.index").write_bytes(b"\0" * 100)
    kernel = np.arange(12, dtype="float32").reshape(3, 4)
    values = {
        **{f"block_{n}": tree(kernel=kernel + n, bias=np.zeros(4)) for n in range(3)},
        **{name: tf.Variable(value) for name, value in ODD.items()},
        "half": tf.Variable([1.0, 3.0], dtype=tf.bfloat16),
        "words": tf.Variable(["a\x1b[31m", "b" * 300]),
        "table": tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
        "vars": [tf.Variable(float(n)) for n in range(12)],
    }
    tf.train.Checkpoint(model=tf.train.Checkpoint(**values)).write("values/one")
