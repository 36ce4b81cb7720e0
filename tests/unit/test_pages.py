"""`tfckpt report` and `--html`: what is said, into which file, and what a browser never does."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from zoo.command_line import run

import tfckpt
from tfckpt.core.inventory import Inventory
from tfckpt.pages.run_page import run_page
from tfckpt.stored.commits.discovery import CheckpointInfo
from tfckpt.stored.commits.record_file import CommitRecord

HOSTILE = "model/<script>alert(1)</script>\"' onload=x <!--\x1b[31m\u202e&amp;"
NOON = 1769860800.0  # 2026-01-31, 12:00 UTC
_OF_THE_RECORD = {"step", "epoch", "metrics", "metadata", "finite", "versions"}


def saved(number: int, **more: Any) -> CheckpointInfo:
    """A checkpoint of a run, with what a test says of it or of its record."""
    head = CommitRecord(
        number,
        Inventory("", {}),
        "",
        "",
        step=100 * number,
        epoch=number,
        metrics={"loss": 1 / number, "val_loss": 2 / number, "lr": 9.9e-4 / number**3},
        finite=True,
    )
    recorded = {key: more.pop(key) for key in _OF_THE_RECORD & more.keys()}
    return dataclasses.replace(
        CheckpointInfo(
            f"runs/a/ckpt-{number}",
            number,
            "committed",
            dataclasses.replace(head, **recorded),
            (1 << 20) + (number << 17),
            NOON + 60 * number,
        ),
        **more,
    )


class ParsedPage(HTMLParser):
    """Every element with its attributes, and all text by the element it stands in."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.content = content
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.rows: dict[str, list[str]] = {}  # id of a row → the text of its cells
        self.heads: list[str] = []
        self._row: list[str] | None = None
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        if tag == "tr":
            self._row = self.rows.setdefault(found["id"], []) if "id" in found else None
        elif tag in ("td", "th") and self._row is not None:
            self._row.append("")
        elif tag == "th":
            self.heads.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._row = None

    def handle_data(self, data: str) -> None:
        tag = self.elements[-1][0] if self.elements else ""
        self.texts.append((tag, data))
        if tag in ("style", "script"):
            return
        if self._row:
            self._row[-1] += data
        elif tag == "th" and not self._row:
            self.heads[-1] += data.strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("style", "script"))

    def cell(self, name: str, head: str) -> str:
        """What stands in the row of a value below a heading."""
        return self.rows[name][self.heads.index(head)].strip()


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "command", ["diff run/ckpt-1 run/ckpt-3", "plan run --model train_golden:wider"]
)
def test_what_a_command_prints_is_html(command: str) -> None:
    """The same text and exit status, and nothing but text."""
    plain = run(*command.split())
    ended = run(*command.split(), "--html", "text.html", terminal=True)
    assert (ended.status, ended.out) == (plain.status, "text.html: written\n")
    page = ParsedPage(Path("text.html").read_text(encoding="utf-8"))
    (text,) = (text for tag, text in page.texts if tag == "code" and text.strip())
    assert [line.rstrip() for line in text.splitlines()] == plain.out.splitlines()
    assert not page.all("script")
    assert not re.search(r"https?:|//\w|@import|url\(", page.content)


def test_hostile_names_are_text_in_html(tmp_path: Path) -> None:
    path = tfckpt.Checkpoint(values={HOSTILE: tf.Variable(1.0)}).write(tmp_path / "ckpt")
    assert run("inspect", path, "--keys", "--html", tmp_path / "text.html").status == 0
    page = ParsedPage((tmp_path / "text.html").read_text(encoding="utf-8"))
    assert "<script>alert(1)" in page.words()
    assert not page.all("script")
    assert not {"\x1b", "\u202e"} & {*page.content}


@pytest.mark.usefixtures("place")
def test_a_page_asks_for_nothing_and_is_opened_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command = "report run --keep latest=1 --keep pin=1 --html page.html"
    assert run(*command.split()).status == 0
    assert not opened
    assert run(*command.split(), "--force", "--open").status == 0
    assert opened == [Path("page.html").resolve().as_uri()]
    page = ParsedPage(Path("page.html").read_text(encoding="utf-8"))
    assert [*page.rows] == ["ckpt-3", "ckpt-2", "ckpt-1"]
    assert (page.cell("ckpt-1", "step"), page.cell("ckpt-1", "notes")) == ("1,000", "kept: pinned")
    assert not re.search(r"https?:|//\w|@import|url\(", page.content)
    assert not [a for _, a in page.elements if {"src", "srcset", "data", "style"} & a.keys()]
    assert all((a.get("href") or "#").startswith("#") for _, a in page.elements)
    (policy,) = (a["content"] for a in page.all("meta") if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for kind in ("script", "style"):
        content = next(text for tag, text in page.texts if tag == kind)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_a_run_says_what_is_best_kept_damaged_and_next() -> None:
    page = ParsedPage(
        run_page(
            "runs/a",
            [
                saved(6, kept=("latest 2", "newest"), delete=False, next=False),
                saved(5, kept=("latest 2",), delete=False, next=True),
                saved(4, best_by="val_loss", kept=("best 1",), delete=False, next=False),
                saved(3, best_by="loss", kept=(), delete=True, next=True),
                saved(2, state="uncommitted", kept=(), delete=False, next=False),
                saved(1, state="damaged", problem="its index ends too soon"),
            ],
        )
    )
    states = [page.cell(f"ckpt-{number}", "state") for number in (5, 4, 3, 2)]
    assert states == ["deleted next", "best", "best", "uncommitted"]
    assert page.cell("ckpt-6", "notes") == "kept: latest 2, newest"
    assert page.cell("ckpt-3", "notes") == "best by loss; no rule keeps it: would be deleted"
    assert page.cell("ckpt-1", "notes") == "its index ends too soon"
    assert page.cell("ckpt-4", "val_loss") == "0.5"
    assert "1 checkpoint is damaged" in page.words()
    assert "60 s" in page.words()  # between saves, median
    page = ParsedPage(run_page("a", [saved(n, head=None, state="foreign") for n in (2, 1)]))
    assert page.cell("ckpt-1", "state") == "foreign"
    assert "--keep latest=3" in page.words()


def test_hostile_text_of_a_run_does_nothing() -> None:
    name = HOSTILE.replace("/", "")
    checkpoint = saved(1, prefix=f"runs/{name}-1", metrics={HOSTILE: 1.0}, problem=HOSTILE)
    page = ParsedPage(run_page(HOSTILE, [checkpoint, saved(2)]))
    assert len(page.all("script")) == 1
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert not {"\x1b", "\u202e"} & {*page.content}
    shown = name.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert f"{shown}-1" in page.rows
