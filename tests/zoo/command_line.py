"""The command line in this process, and its documents against the schemas that are published."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

from tfckpt.cli.main import main

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


class Terminal(io.StringIO):
    """What is printed at one."""

    def isatty(self) -> bool:
        return True


def run(*arguments: object, terminal: bool = False) -> Ended:
    """Run a command as in a pipe, or with its output at a terminal."""
    out, err = Terminal() if terminal else io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["tfckpt", *map(str, arguments)])
    return Ended(status, out.getvalue(), err.getvalue())


def elsewhere(arguments: Sequence[str], directory: str, environment: Mapping[str, str]) -> Ended:
    """The same in a process of its own, which a fork server has made."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    return run(*arguments)


def document(*arguments: object, status: int = 0) -> Any:
    """What a command prints with --json."""
    ended = run(*arguments, "--json")
    assert ended.status == status, ended
    return check_document(arguments, json.loads(ended.out, parse_constant=no_json))


def check_document(arguments: Sequence[object], found: Any) -> Any:
    """A document has the keys of its schema and no others."""
    name = "-".join(map(str, arguments[: 2 if arguments[0] == "policy" else 1]))
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, _closed(schema), jsonschema.Draft202012Validator)
    return found


def no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _closed(schema: Any) -> Any:
    """The schema with no room for keys that it does not name; a release may add some."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "required" in schema:
        closed.setdefault("additionalProperties", False)
    return closed
