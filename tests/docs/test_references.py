"""docs/cli.md, docs/messages.md and the reference: commands, flags, statuses, schemas, messages."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import tfckpt
from tfckpt import errors
from tfckpt.cli.parser import parsers

if TYPE_CHECKING:
    from tfckpt.cli.parser import CommandParser


COMMANDS = parsers()[1]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
RUN, ZOO, MODEL = "runs/flowers/checkpoints", "zoo/imagenet/ckpt-900", "train:build_model"
DOCUMENTS = {
    "list": [RUN, "--keep", "latest=1"],
    "inspect": [RUN, "--values"],
    "diff": [RUN, ZOO, "--values"],
    "plan": ["configs/broken.yaml", "--model", MODEL],
    "verify": [RUN],
    "prove": ["runs/proof", "--model", MODEL],
    "replay": ["configs/replay.yaml", "--train", "replayed:main", "--from", "1", "--to", "2"],
    "prune": [RUN, "--keep", "latest=1"],
    "rewrite": [ZOO, "zoo/small", "--include", "model/**/kernel"],
    "convert": [RUN, "flowers.npz", "--include", "model/**"],
    "doctor": [RUN],
    "policy check": ["configs/typo.yaml"],
    "policy show": ["configs/finetune.yaml"],
}
BROKEN = """
version: 1
restore: {directory: runs/flowers/checkpoints, policy: broken}
policies:
  broken: {exclude: ["model/hed/**"], exclude_checkpoint: ["model/classes/**"]}
"""
PROBED = """
import train, tfckpt
tfckpt.Checkpoint(model=train.model).save("runs/proof/ckpt", probe="auto")
"""
REPLAYED = """
import tensorflow as tf, tfckpt

def main(config):
    step = tf.Variable(0)
    run = tfckpt.from_config(config, step=step)
    run.restore()
    while step < 2:
        step.assign_add(1)
        run.save_if_due()

if __name__ == "__main__":
    main("configs/replay.yaml")
"""
OF_REPLAYED = """
version: 1
manager: {directory: runs/replayed, save: {every_steps: 1}}
restore: {directory: runs/replayed, if_none: initialize}
"""


def output_of(*arguments: str) -> str:
    done = subprocess.run(["tfckpt", *arguments], check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.stdout


def schema_of(command: str) -> Path:
    return PAGE.parent / "schemas" / f"{command.replace(' ', '-')}.json"


def section(title: str) -> str:
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def unknown(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """The keys of a document that its schema does not have, with their paths."""
    kinds = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if isinstance(value, list):
        items = next((kind["items"] for kind in kinds if "items" in kind), {})
        return [key for item in value for key in unknown(item, items, f"{path}[]")]
    if not isinstance(value, dict):
        return []
    known = {key: one for kind in kinds for key, one in kind.get("properties", {}).items()}
    if not known:
        each = schema.get("additionalProperties") or {}
        return [key for name, item in value.items() for key in unknown(item, each, f"{path}.*")]
    missing = [f"{path}.{key}" for key in value.keys() - known.keys()]
    inner = ((item, known[key], f"{path}.{key}") for key, item in value.items() if key in known)
    return missing + [key for each in inner for key in unknown(*each)]


def test_the_usage_is_that_of_help() -> None:
    shown = re.search(r"```text\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    usages = (command.format_usage() for command in COMMANDS.values())
    indent = len("usage: ")
    assert shown[1] == "\n".join(line[indent:] for u in usages for line in u.splitlines())


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_document_has_the_keys_of_its_schema(command: str, place: Path) -> None:
    Path("configs/broken.yaml").write_text(BROKEN, encoding="utf-8")
    Path("configs/typo.yaml").write_text("version: 1\nrestor: {}\n", encoding="utf-8")
    if command == "prove":
        subprocess.run([sys.executable, "-c", PROBED], check=True)
    if command == "replay":
        Path("configs/replay.yaml").write_text(OF_REPLAYED, encoding="utf-8")
        Path("replayed.py").write_text(REPLAYED, encoding="utf-8")
        subprocess.run([sys.executable, "replayed.py"], check=True)
    printed = json.loads(output_of(*command.split(), *DOCUMENTS[command], "--json"))
    schema = json.loads(schema_of(command).read_text(encoding="utf-8"))
    jsonschema.validate(printed, schema)
    assert unknown(printed, schema) == []


def test_every_document_is_looked_at() -> None:
    assert {*DOCUMENTS} == {name for name, command in COMMANDS.items() if has_json(command)}


@pytest.mark.parametrize(("name", "command"), COMMANDS.items())
def test_each_command_has_a_section_and_a_schema(name: str, command: CommandParser) -> None:
    assert section(name)
    assert schema_of(name).is_file() == has_json(command)


def has_json(command: CommandParser) -> bool:
    return "[--json]" in command.format_usage()


DOCS = Path(__file__).resolve().parents[2] / "docs"
MESSAGES = (DOCS / "messages.md").read_text(encoding="utf-8")
ERRORS = [
    one
    for one in vars(errors).values()
    if inspect.isclass(one) and issubclass(one, tfckpt.TfckptError)
]


# The classes that only group others.
GROUPS = {"TfckptError", "CheckpointError"}


def rows(title: str) -> dict[str, list[str]]:
    """First cell → the others, of the table under a heading of the page of messages."""
    section = MESSAGES.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line[:1] == "|"][2:]
    return {first.strip(" `"): [cell.strip() for cell in others] for first, *others in lines}


def test_every_status_is_explained() -> None:
    table = rows("Statuses in a plan or report")
    assert set(table) == {status.value for status in tfckpt.Status}
    assert all(meaning for meaning, _ in table.values())


def test_every_error_has_a_cause_and_a_cure() -> None:
    table = rows("Errors")
    assert set(table) | GROUPS == {one.__name__ for one in ERRORS}
    assert all(cause and cure for cause, cure in table.values())


@pytest.mark.parametrize(("name", "command"), parsers()[1].items())
def test_the_help_of_each_command_is_below_it(name, command, site: Path) -> None:
    page = unescape((site / "cli.html").read_text(encoding="utf-8"))
    section = page.split(f'<h2 id="{name.replace(" ", "-")}">')[1].split("<h2 ")[0]
    assert command.format_help() in re.sub("<[^>]*>", "", section)


PROJECT = Path(__file__).resolve().parents[2]
HEADINGS = "What may go wrong", "Lines of a training"
TABLE = re.compile(rf"^## (?:{'|'.join(HEADINGS)})\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")
FILLED_IN = re.compile(r"…|[A-Z]{4,} | after |\d+|\b[A-Z]\w+Error: |'\w+'|[:,;] |\.\.\.")
WORDS = 2  # that are enough to recognize a message by
OF_THE_SHELL = "command not found"


@functools.cache
def texts() -> str:
    """Every text in the package, without the values that are filled in."""
    found = []
    for path in (PROJECT / "tfckpt").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        constants = (node.value for node in nodes if isinstance(node, ast.Constant))
        found += [value for value in constants if isinstance(value, str)]
    return "\0".join(found)


def quotes() -> list[str]:
    found = []
    for page in sorted((PROJECT / "docs").glob("*.md")):
        for section in TABLE.findall(page.read_text(encoding="utf-8")):
            rows = [line for line in section.splitlines() if line.startswith("| ")]
            for row in rows:
                found += [f"{page.name}: {one}" for one in QUOTED.findall(row.split("|")[1])]
    return [one for one in found if not one.endswith(OF_THE_SHELL) and fragments(one)]


def fragments(quote: str) -> list[str]:
    pieces = map(str.strip, FILLED_IN.split(quote.partition(": ")[2]))
    return [piece for piece in pieces if len(piece.split()) >= WORDS]


@pytest.mark.parametrize("quote", quotes())
def test_a_quoted_message_is_one_of_tfckpt(quote: str) -> None:
    assert any(fragment in texts() for fragment in fragments(quote))


def test_there_are_messages() -> None:
    assert len(quotes()) > 20
