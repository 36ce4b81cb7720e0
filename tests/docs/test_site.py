"""The site builds, its links lead somewhere; commands, errors and messages are those of tfckpt."""

from __future__ import annotations

import ast
import inspect
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import tfckpt
from tfckpt import errors
from tfckpt.cli.parser import parsers

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
MOST_WORDS = 16_500
LINK = re.compile(r'<(?:a|img|link|script)[^>]* (?:href|src)="([^"]+)"')
LOADS = re.compile(r'<(?:script|img|iframe)[^>]* src="https?:[^"]+"|<link[^>]* href="https?:[^>]+')
COMMANDS = parsers()[1]
GROUPS = {"TfckptError", "CheckpointError"}  # the classes that only group others
HEADINGS = "What may go wrong", "Lines of a training"
TABLE = re.compile(rf"^## (?:{'|'.join(HEADINGS)})\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
FILLED_IN = re.compile(r"…|[A-Z]{4,} | after |\d+|\b[A-Z]\w+Error: |'\w+'|[:,;] |\.\.\.")
WORDS = 2  # that are enough to recognize a message by
OF_THE_SHELL = "command not found"


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""


def test_every_page_is_whole(site: Path) -> None:
    """Links lead to a place, nothing is loaded from elsewhere, no block is shown raw."""
    index = site / "search" / "search_index.js"
    assert "Train on preemptible machines" in text(index)
    wrong = []
    for page in site.glob("*.html"):
        if page.name == "404.html":  # only a server shows it
            continue
        shown = text(page)
        for link in LINK.findall(shown):
            path, _, anchor = unquote(link).partition("#")
            target = page.parent / path if path else page
            missing = anchor and target.suffix == ".html" and f'id="{anchor}"' not in text(target)
            if "://" not in link and (not target.exists() or missing):
                wrong.append(f"{page.name}: {link}")
        wrong += [f"{page.name}: {match[0]}" for match in LOADS.finditer(shown)]
        assert "```" not in shown, page
        (shim,) = re.findall(r'<script src="([^"]*iframe-worker[^"]*)"', shown)  # for the search
        assert (page.parent / shim).is_file()
    assert not wrong


def test_everything_public_is_in_the_reference(site: Path) -> None:
    page = text(site / "api.html")
    names = [
        name
        for name in tfckpt.__all__
        if not any(f'id="{place}.{name}"' in page for place in ("tfckpt", "tfckpt.errors"))
    ]
    assert names == ["callbacks", "flags"]  # modules, each with one function
    assert all(
        f'id="tfckpt.{name}"' in page for name in ("callbacks.resume", "flags.DEFINE_config")
    )


def test_the_pages_have_no_more_words_than_somebody_reads() -> None:
    written = [word for page in DOCS.glob("*.md") for word in page.read_text("utf-8").split()]
    assert len([word for word in written if re.search(r"\w", word)]) <= MOST_WORDS


def test_each_command_has_a_section_with_its_help_and_a_schema(site: Path) -> None:
    page = unescape(text(site / "cli.html"))
    for name, command in COMMANDS.items():
        word = name.replace(" ", "-")
        section = page.split(f'<h2 id="{word}">')[1].split("<h2 ")[0]
        assert command.format_help() in re.sub("<[^>]*>", "", section), name
        has_json = "[--json]" in command.format_usage()
        assert (DOCS / "schemas" / f"{word}.json").is_file() == has_json, name


def test_every_status_is_explained_and_every_error_has_a_cause_and_a_cure() -> None:
    classes = {name for name, one in vars(errors).items() if inspect.isclass(one)}
    named = {name for name in classes if issubclass(vars(errors)[name], tfckpt.TfckptError)}
    expected = {
        ("Statuses in a plan or report", 2): {status.value for status in tfckpt.Status},
        ("Errors", 3): named - GROUPS,
    }
    for (title, filled), names in expected.items():
        section = text(DOCS / "messages.md").split(f"\n## {title}\n")[1].split("\n## ")[0]
        rows = [line.strip("|").split("|") for line in section.splitlines() if line[:1] == "|"]
        assert {row[0].strip(" `") for row in rows[2:]} == names
        assert all(cell.strip() for row in rows[2:] for cell in row[:filled])


def test_a_quoted_message_is_one_of_tfckpt() -> None:
    found = []
    for path in (PROJECT / "tfckpt").rglob("*.py"):
        nodes = ast.walk(ast.parse(text(path)))
        constants = (node.value for node in nodes if isinstance(node, ast.Constant))
        found += [value for value in constants if isinstance(value, str)]
    texts, quoted, wrong = "\0".join(found), 0, []  # every text, without what is filled in
    for page in sorted(DOCS.glob("*.md")):
        rows = re.findall(r"^\| .*", "\n".join(TABLE.findall(text(page))), re.MULTILINE)
        for quote in (one for row in rows for one in re.findall("`([^`]+)`", row.split("|")[1])):
            pieces = map(str.strip, FILLED_IN.split(quote))
            fragments = [piece for piece in pieces if len(piece.split()) >= WORDS]
            if fragments and not quote.endswith(OF_THE_SHELL):
                quoted += 1
                wrong += [quote] if not any(one in texts for one in fragments) else []
    assert not wrong
    assert quoted > 10
