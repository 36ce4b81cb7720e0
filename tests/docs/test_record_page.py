"""docs/record.md is enough to write a record: one that is made from the page alone is read."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

import tfckpt

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "record.md").read_text(encoding="utf-8")
KEYS = [
    name
    for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
]


def test_the_page_has_every_key(tmp_path: Path) -> None:
    checkpoint = tfckpt.Checkpoint(kernel=tf.Variable([1.0]))
    record = json.loads(Path(checkpoint.write(tmp_path / "a") + ".tfckpt.json").read_text())
    assert {*KEYS, "sha256"} == {*record}


def test_every_role_is_one_of_tfckpt() -> None:
    (listed,) = re.findall(r"^- `role`: (.*?)\.$", PAGE, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", listed) == [role.value for role in tfckpt.Role]


def test_a_record_written_by_the_page_is_read(tmp_path: Path) -> None:
    """Two variables that plain TensorFlow saved get names by a program that knows no tfckpt."""
    prefix = tf.train.Checkpoint(a=tf.Variable([1.0, 2.0]), b=tf.Variable(3)).write(
        str(tmp_path / "ckpt-7")
    )
    index = Path(f"{prefix}.index").read_bytes()
    names = {"a": ("model/dense/bias", "weight"), "b": ("step", "state")}
    facts = dict.fromkeys(KEYS) | {
        "format": 1,
        "number": 7,
        "index_sha256": hashlib.sha256(index).hexdigest(),
        "created": "2026-01-31T12:00:00+00:00",
        "step": 12,
        "preserved": [],
        "files": ["ckpt-7.data-00000-of-00001"],
        "lineage": [],
        "complete": True,
        "later": "a key that is not known yet",
    }
    facts |= {key: {} for key in ("metrics", "metadata", "training", "versions", "left_out")}
    facts |= {key: {} for key in ("roots", "optimizers", "aliases", "datasets", "containers")}
    del facts["entries"]
    entries = []
    for key, shape in tf.train.list_variables(prefix):
        if key.partition("/")[0] in names:
            name, role = names[key.partition("/")[0]]
            value = tf.train.load_variable(prefix, key)
            entries.append([name, role, value.dtype.name, shape, value.nbytes, key, "", "", None])
    lines = [f'"{key}": {json.dumps(value)},\n' for key, value in facts.items()]
    values = ",\n".join(map(json.dumps, entries))
    body = "{\n" + "".join(lines) + f'"entries": [\n{values}\n]'
    seal = hashlib.sha256(body.encode()).hexdigest()
    Path(f"{prefix}.tfckpt.json").write_text(f'{body},\n"sha256": "{seal}"\n}}\n')

    found = tfckpt.inspect(prefix)
    assert (found.record.number, found.record.step) == (7, 12)
    assert [*found.inventory.entries] == ["model/dense/bias", "step"]
    assert tfckpt.verify(prefix)[0].ok
    model = tf.Module()
    model.dense = tf.Module()
    model.dense.bias = tf.Variable(np.zeros(2, np.float32))
    tfckpt.restore(prefix, model=model, include=["model/**"])
    assert model.dense.bias.numpy().tolist() == [1.0, 2.0]
