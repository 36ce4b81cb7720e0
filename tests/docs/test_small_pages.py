"""docs/names.md, docs/record.md and README.md are enough, and say what is."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.everyday.rows import ROWS
from zoo.everyday.shown import shares
from zoo.everyday.today import expected

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Iterator


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


@pytest.mark.parametrize("flavor", [keras, tf_keras], ids=lambda flavor: flavor.__name__)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "of two"])
def test_names_are_those_of_the_page(flavor: Any, alone: bool) -> None:
    model, other = build(flavor), build(flavor)
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


PROJECT = Path(__file__).resolve().parents[2]
PICTURES = PROJECT / "docs" / "pictures"
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_badges_say_what_is_set_up_and_tested() -> None:
    for name, drawn in script("badges").badges().items():
        assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "run docs/pictures/badges.py"
        assert f"docs/pictures/{name}" in README


def test_the_terminal_is_drawn_in_both_colors_with_the_same_lines() -> None:
    light, dark = (
        re.findall(r">(.*)</text>", (PICTURES / f"terminal-{name}.svg").read_text(encoding="utf-8"))
        for name in ("light", "dark")
    )
    assert light == dark
    for line in "Killed", "training resumes after 2 epochs", "RefusedError", "exclude:", "RENAMED":
        assert any(line in shown for shown in light), "run docs/pictures/record.py"


def test_the_everyday_restores_are_as_many() -> None:
    cells = {
        (name, keras): expected(name, keras) for name, row in ROWS.items() for keras in row.flavours
    }
    counted = re.match(
        r"(\d+) restores: (\d+) first, (\d+) pasted, (\d+) refused, (\d+) WRONG", shares(cells)
    )
    assert counted is not None, shares(cells)
    number, first, pasted, refused, wrong = counted.groups()
    assert f"| {number} everyday restores" in README
    assert f"{wrong} wrong; {first} at once, {pasted} with the lines" in README
    assert f"{refused} refused" in README


def test_the_faults_are_as_many(tmp_path: Path) -> None:
    from faults.commits import SCENARIOS, Place, faults, moments, runs_at, steps_of

    number = 0
    for renames, directory in ((True, str(tmp_path.resolve())), (False, "mem://bucket/run")):
        place = Place(renames, directory)
        for scenario in filter(lambda name: runs_at(place, name), SCENARIOS):
            number += len([*moments(place, scenario)]) + len([*faults(steps_of(place, scenario))])
    assert f"{number:,} kills and failing calls" in README


@pytest.mark.parametrize(
    "command", re.findall(r"\| `(?:cd tests && python -m|pytest(?: -s)?) ([\w./]+)`", README)
)
def test_what_a_command_runs_is_there(command: str) -> None:
    assert (PROJECT / command).exists() or (PROJECT / "tests" / command.replace(".", "/")).is_dir()
