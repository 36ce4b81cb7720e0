"""The schema of configs: it names what is misspelt, and takes what is valid."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest
import yaml
from zoo.schema import PROJECT, READ, accepts

from tfckpt.policy import load_config

# A misspelt key in each mapping that a config may have: an editor underlines that key.
MISSPELT = """
verion: 1 ! verion
manger: {directory: a} ! manger
manager: {directory: a, max_keep: 1} ! max_keep
manager: {directory: a, save: {every_epoch: 1}} ! every_epoch
manager: {directory: a, keep: [{lates: 2}]} ! lates
manager: {directory: a, export: {weight_h5: best}} ! weight_h5
restore: {path: a, if_non: error} ! if_non
restore: {first_of: [{path: a, polcy: b}]} ! polcy
restore: {all_of: [{path: a}, {path: b, selct: best}]} ! selct
restore: {path: a, policy: {exlude: [x]}} ! exlude
policies: {a: {exlude: [x]}} ! exlude
policies: {a: {extend: b}} ! extend
policies: {a: {rename: [{checkpoint: x, modl: y}]}} ! modl
policies: {a: {optimizer: {slot: reset}}} ! slot
policies: {a: {build: {model: {shape: [1], dtyp: int32}}}} ! dtyp
policies: {a: {adapt: [{how: cast, modl: x, dtype: int8}]}} ! modl
policies: {a: {adapt: [{how: pad, model: x, valu: 0}]}} ! valu
policies: {a: {adapt: [{how: tyle, model: x}]}} ! tyle
policies: {a: {adapt: [{haw: tile, model: x}]}} ! how
restore: owned ! owned
restore: {first_of: [ow]} ! own
policies: {a: {optimizer: none}} ! reset
policies: {a: {match: nme}} ! nme
""".strip().splitlines()


@pytest.mark.parametrize("line", MISSPELT)
def test_an_editor_names_the_word_that_is_wrong(line: str) -> None:
    text, _, word = line.partition(" ! ")
    version = "" if text.startswith("verion") else "version: 1, "
    errors = jsonschema.Draft202012Validator(READ).iter_errors(
        yaml.safe_load(f"{{{version}{text}}}")
    )
    assert f"'{word}'" in jsonschema.exceptions.best_match(errors).message


def test_the_committed_schema_is_current_and_describes_every_key() -> None:
    command = [sys.executable, "-m", "docs.schema"]
    made = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    assert json.loads(made) == READ, "run `python -m docs.schema > tfckpt/policy/schema.json`"
    jsonschema.Draft202012Validator.check_schema(READ)
    for kind in (READ, *READ["$defs"].values()):
        keys = kind["properties"].items()
        assert not [key for key, value in keys if "description" not in value and key != "how"]


ACCEPTED = """
assert: none, match: name
match: [name, structure], min_restored: 1
rename: [{checkpoint: a, model: [b, c]}]
adapt: [{how: pad, model: a, value: 0}, {how: cast, model: b}]
adapt: [{how: split, checkpoint: a, model: [b, c], axis: -1}]
build: {model: {shape: [null, 2]}, b: [{shape: [1]}], c: {x: {shape: []}}}
"""


@pytest.mark.parametrize("line", ACCEPTED.strip().splitlines())
def test_the_schema_accepts_what_the_loader_accepts(line: str) -> None:
    policy = yaml.safe_load(f"{{{line}}}")
    for data in (
        {"policies": {"a": policy}},
        {"restore": {"path": "a", "policy": policy, "if_none": "error"}},
        {"restore": {"first_of": [{"directory": "a", "policy": policy}]}},
    ):
        assert accepts({"version": 1, **data})
        load_config({"version": 1, **data}, {})
