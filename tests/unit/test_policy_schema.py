"""The JSON Schema that editors read: current, valid, and of one mind with the loader."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
CONFIGS = PROJECT / "configs"
SCHEMA = PROJECT / "tfckpt" / "policy" / "schema.json"


READ = json.loads(SCHEMA.read_text(encoding="utf-8"))


def accepts(data: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(READ).is_valid(data))


def test_the_committed_schema_is_current() -> None:
    command = [sys.executable, "-m", "docs.schema"]
    made = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    assert json.loads(made) == READ, "run `python -m docs.schema > tfckpt/policy/schema.json`"


def test_every_key_is_described() -> None:
    for kind in (READ, *READ["$defs"].values()):
        keys = kind["properties"].items()
        assert not [key for key, value in keys if "description" not in value and key != "how"]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(READ)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_it_accepts_the_ready_made_configs(path: Path) -> None:
    assert accepts(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "policy",
    [
        {"assert": "none", "match": "name"},
        {"match": ["name", "structure"], "min_restored": 1},
        {"rename": [{"checkpoint": "a", "model": ["b", "c"]}]},
        {"adapt": [{"how": "pad", "model": "a", "value": 0}, {"how": "cast", "model": "b"}]},
        {"adapt": [{"how": "split", "checkpoint": "a", "model": ["b", "c"], "axis": -1}]},
        {
            "build": {
                "model": {"shape": [None, 2]},
                "b": [{"shape": [1]}],
                "c": {"x": {"shape": []}},
            }
        },
    ],
)
def test_it_accepts_what_the_loader_accepts(policy: dict[str, Any]) -> None:
    assert accepts({"version": 1, "policies": {"a": policy}})
    assert accepts({"version": 1, "restore": {"path": "a", "policy": policy, "if_none": "error"}})
    assert accepts({"version": 1, "restore": {"first_of": [{"directory": "a", "policy": policy}]}})


RULES = [
    {"latest": 3},
    {"best": 2, "monitor": "val_loss", "mode": "min"},
    {"every_n_steps": 1000},
    {"every_n_hours": 0.5},
    {"pin": [0, 12]},
]


def test_it_accepts_each_rule_of_what_to_keep() -> None:
    assert accepts({"version": 1, "manager": {"directory": "a", "keep": RULES}})


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"latest": 3, "pin": [1]},
        {"best": 2},
        {"best": 2, "monitor": "val_loss"},
        {"best": 2, "monitor": "val_loss", "mode": "auto"},
        {"latest": 3, "mode": "min"},
        {"every_n_hours": 0},
        {"pin": []},
        {"pin": 3},
    ],
)
def test_it_refuses_what_is_no_rule(rule: dict[str, Any]) -> None:
    assert not accepts({"version": 1, "manager": {"directory": "a", "keep": [rule]}})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"version": 2},
        {"version": 1, "restor": {}},
        {"version": 1, "restore": {"path": "a", "directory": "b"}},
        {"version": 1, "restore": {"first_of": []}},
        {"version": 1, "policies": {"a": {"name": "b"}}},
        {"version": 1, "policies": {"a": {"assert_": "none"}}},
        {"version": 1, "policies": {"a": {"include": []}}},
        {"version": 1, "policies": {"a": {"min_restored": 2}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "bend", "model": "b"}]}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "cast"}]}}},
        {"version": 1, "policies": {"a": {"adapt": [{"how": "pad", "model": "b"}]}}},
        {"version": 1, "manager": {"directory": "a", "save": {"every_steps": 0}}},
        {"version": 1, "manager": {"directory": "a", "save": {"every_minutes": 0}}},
        {"version": 1, "manager": {"directory": "a", "on_nonfinite": "error"}},
    ],
)
def test_it_refuses_what_the_loader_refuses(data: dict[str, Any]) -> None:
    assert not accepts(data)
