"""docs/cli.md against the commands: the usage, and the keys of every document."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tfckpt.cli.arguments.command_table import COMMANDS
from tfckpt.cli.arguments.usage import usage

if TYPE_CHECKING:
    from tfckpt.cli.arguments.command import Command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
DOCUMENTS = {
    "inspect": ["inspect", "runs/flowers/checkpoints"],
    "plan": ["plan", "configs/broken.yaml", "--model", "train:build_model"],
    "rewrite": [
        *("rewrite", "zoo/imagenet/ckpt-900", "zoo/encoder"),
        *("--rename", "model/backbone/**=model/encoder/**", "--include", "model/encoder/**/kernel"),
    ],
    "policy check": ["policy", "check", "configs/typo.yaml"],
}
# What has keys of its own, or a section of its own.
_OPEN = {"metrics", "totals", "counts", "plan", "suggestion", "policy", "policies", "versions"}
BROKEN = """
version: 1
restore: {directory: runs/flowers/checkpoints, policy: broken}
policies:
  broken: {exclude: ["model/hed/**"], exclude_checkpoint: ["model/classes/**"]}
"""


def tfckpt(*arguments: str) -> str:
    done = subprocess.run(["tfckpt", *arguments], check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout


def schema_of(command: str) -> Path:
    return PAGE.parent / "schemas" / f"{command.replace(' ', '-')}.json"


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def keys(value: Any, path: str = "") -> set[str]:
    """Every key of a document, with its path; what stands in lists is taken together."""
    if isinstance(value, list):
        return set().union(*(keys(item, f"{path}[]") for item in value))
    if not isinstance(value, dict) or path.rpartition(".")[2] in _OPEN:
        return set()
    return {f"{path}.{key}" for key in value}.union(
        *(keys(item, f"{path}.{key}") for key, item in value.items())
    )


def test_the_usage_is_that_of_help() -> None:
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1] == "\n".join(map(usage, COMMANDS))


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_document_has_the_keys_that_the_page_shows(command: str, place: Path) -> None:
    Path("configs/broken.yaml").write_text(BROKEN, encoding="utf-8")
    Path("configs/typo.yaml").write_text("version: 1\nrestor: {}\n", encoding="utf-8")
    (shown,) = re.findall(r"```json\n(.*?)```", section(command), re.DOTALL)
    printed = json.loads(tfckpt(*DOCUMENTS[command], "--json"))
    assert keys(printed) == keys(json.loads(shown))
    jsonschema.validate(printed, json.loads(schema_of(command).read_text(encoding="utf-8")))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_a_section_and_a_schema(command: Command) -> None:
    assert section(command.name)
    assert schema_of(command.name).is_file() == command.has_json


def test_the_statuses_are_all_explained() -> None:
    from tfckpt import Status

    explained = set(re.findall(r"^\| `([A-Z]+)` \|", section("plan"), re.MULTILINE))
    assert explained <= {status.value for status in Status}
    assert {status.value for status in Status} - explained <= {"ADAPTED"}  # of a later release
