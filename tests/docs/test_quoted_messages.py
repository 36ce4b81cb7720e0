"""The messages that pages quote under "What may go wrong", and docs/messages.md, are of tfckpt."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

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
