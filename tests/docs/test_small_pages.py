"""docs/names.md, docs/record.md and README.md are enough, and say what is."""

from __future__ import annotations

import hashlib
import html
import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from faults.commits import SCENARIOS, Place, faults, moments, runs_at, steps_of
from zoo.everyday.judge import shares
from zoo.everyday.rows import ROWS

import tfckpt

PROJECT = Path(__file__).resolve().parents[2]
PICTURES = PROJECT / "docs" / "pictures"
README, RECORD = (
    (PROJECT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/record.md")
)
KEYS = [
    name
    for row in re.findall(r"^\| (`.*?`) \|", RECORD, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
]


def weights(container: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Names and variables below a functional or sequential model, by the rules of the page."""
    generated: Counter[str] = Counter()
    for layer in container.layers:
        base = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(layer).__name__).lower()
        name = layer.name.replace("/", "_")
        if re.fullmatch(rf"{base}(_\d+)?", name):
            name = f"{base}_{generated[base]}" if generated[base] else base
            generated[base] += 1
        below = f"{path}/{name}"
        if hasattr(layer, "layers"):
            yield from weights(layer, below)
        else:
            for variable in layer.weights:
                attribute = variable.name.rpartition("/")[2].partition(":")[0]
                yield f"{below}/{attribute}", variable


def build(flavor: Any) -> Any:
    layers = flavor.layers
    flavor.Sequential([layers.Input((4,)), layers.Dense(2)])  # which Keras counts, names do not
    body = flavor.Sequential([layers.Input((4,)), layers.Dense(8), layers.Dense(8)], name="body")
    inputs = layers.Input((4,))
    outputs = layers.Dense(3, name="classes")(layers.BatchNormalization()(body(inputs)))
    model = flavor.Model(inputs, outputs)
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "of two"])
def test_names_are_those_of_the_page(flavour: Any, alone: bool) -> None:
    model, other = build(flavour), build(flavour)
    objects = {"net": model} if alone else {"net": model, "other": other}
    root, optimizer = ("model", "optimizer") if alone else ("net", "net/optimizer")
    named = [*weights(model, root)]
    slots = {
        f"{optimizer}/{slot}/{name.removeprefix('model/') if alone else name}"
        for slot in ("momentum", "velocity")
        for name, variable in named
        if variable.trainable
    }
    hyperparameters = {f"{optimizer}/iterations", f"{optimizer}/learning_rate"}
    found = {
        name
        for name in tfckpt.inventory(**objects).entries
        if name.startswith((f"{root}/", f"{optimizer}/")) and "/metrics/" not in name
    }
    assert found == {name for name, _ in named} | slots | hyperparameters


def test_a_record_written_by_the_page_is_read(tmp_path: Path) -> None:
    """Two variables that plain TensorFlow saved get names by a program that knows no tfckpt."""
    written = tfckpt.Checkpoint(kernel=tf.Variable([1.0])).write(tmp_path / "a")
    assert {*KEYS, "sha256"} == {*json.loads(Path(f"{written}.tfckpt.json").read_text())}
    (listed,) = re.findall(r"^- `role`: (.*?)\.$", RECORD, re.MULTILINE | re.DOTALL)
    assert re.findall(r"`(\w+)`", listed) == [role.value for role in tfckpt.Role]

    checkpoint = tf.train.Checkpoint(a=tf.Variable([1.0, 2.0]), b=tf.Variable(3))
    prefix = checkpoint.write(str(tmp_path / "ckpt-7"))
    names = {"a": ("model/dense/bias", "weight"), "b": ("step", "state")}
    facts = dict.fromkeys(KEYS) | {
        "format": 1,
        "number": 7,
        "index_sha256": hashlib.sha256(Path(f"{prefix}.index").read_bytes()).hexdigest(),
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
    dense = tf.train.Checkpoint(bias=tf.Variable(np.zeros(2, np.float32)))
    tfckpt.restore(prefix, model=tf.train.Checkpoint(dense=dense), include=["model/**"])
    assert dense.bias.numpy().tolist() == [1.0, 2.0]


def script(name: str) -> Any:
    """One of those that draw the pictures."""
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_say_what_is() -> None:
    for name, drawn in script("badges").badges().items():
        assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "run docs/pictures/badges.py"
        assert f"docs/pictures/{name}" in README
    light, dark = (
        re.findall(r">(.*)</text>", (PICTURES / f"terminal-{name}.svg").read_text(encoding="utf-8"))
        for name in ("light", "dark")
    )
    assert light == dark
    said = [line.text for line in script("record").record()]
    assert [*map(html.unescape, light)] == said, "run docs/pictures/record.py"
    for line in "Killed", "training resumes after 2 epochs", "RefusedError", "exclude:", "RENAMED":
        assert any(line in shown for shown in light), "run docs/pictures/record.py"


def test_the_numbers_of_the_readme_are_counted(tmp_path: Path) -> None:
    cells = {(name, keras): row.expected for name, row in ROWS.items() for keras in row.flavours}
    counts = "(.+) restores: (.+) first, (.+) pasted, (.+) refused, (.+) WRONG"
    number, first, pasted, refused, wrong = re.match(counts, shares(cells)).groups()
    assert f"| {number} everyday restores" in README
    assert f"{wrong} wrong; {first} at once, {pasted} with the lines" in README
    assert f"{refused} refused" in README
    tried = 0
    for renames, directory in ((True, str(tmp_path.resolve())), (False, "mem://bucket/run")):
        place = Place(renames, directory)
        for scenario in filter(lambda name: runs_at(place, name), SCENARIOS):
            tried += len([*moments(place, scenario)]) + len([*faults(steps_of(place, scenario))])
    assert f"{tried:,} kills and failing calls" in README
    commands = re.findall(r"\| `(?:cd tests && python -m|pytest(?: -s)?) ([\w./]+)`", README)
    places = [(PROJECT / name, PROJECT / "tests" / name.replace(".", "/")) for name in commands]
    assert [places for places in places if not any(one.exists() for one in places)] == []
