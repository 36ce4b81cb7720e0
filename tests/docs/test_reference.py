"""The reference has everything that a person can meet: each command, flag, status and error."""

from __future__ import annotations

import inspect
import re
from html import unescape
from pathlib import Path

import pytest

import tfckpt
from tfckpt import errors
from tfckpt.cli.parser import parsers

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
