"""`tfckpt report`: what a browser gets to see, and what it never does."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from zoo.command_line import run

from tfckpt.cli.output.treemap import Box, squarify
from tfckpt.core.name_tree import Branch
from tfckpt.stored.bundles.index_encoder import encode_object_graph
from tfckpt.stored.bundles.writing.write import BundleWriter
from tfckpt.stored.graphs.writer import graph_of_names, key_of

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "model/<script>alert(1)</script>\"' onload=x <!--\x1b[31m\u202e&amp;"


class Page(HTMLParser):
    """Every element with its attributes, and all text by the element it stands in."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def words(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in ("style", "script"))


def save(prefix: Path, values: dict[str, Any]) -> str:
    with BundleWriter(str(prefix)) as writer:
        for name, value in values.items():
            writer.add(key_of(name), np.asarray(value))
        graph = np.array(encode_object_graph(graph_of_names(values)), object)
        writer.add("_CHECKPOINTABLE_OBJECT_GRAPH", graph)
        writer.finish()
    return str(prefix)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    values = {
        "model/a/kernel": np.linspace(-1, 3, 200, dtype=np.float32).reshape(10, 20),
        "model/a/bias": np.zeros(7, np.float32),
        "model/b/kernel": np.array([1, np.nan, np.inf], np.float32),
        HOSTILE: np.ones(3, np.float16),
        "words": np.array([b"x"], object),
    }
    return save(tmp_path / "ckpt-1", values)


def page_of(tmp_path: Path, *arguments: object) -> tuple[Page, str]:
    target = tmp_path / "page.html"
    ended = run("report", *arguments, "--html", target)
    assert ended.status == 0, ended
    content = target.read_text(encoding="utf-8")
    return Page(content), content


def test_every_value_is_there_with_its_numbers(checkpoint: str, tmp_path: Path) -> None:
    page, _ = page_of(tmp_path, checkpoint, "--values")
    found = [a["title"] for a in page.all("span") if a.get("class") == "name" and "title" in a]
    assert {"model/a/kernel", "model/a/bias", "model/b/kernel", "words"} < set(found)
    assert len(found) == 5
    words = page.words()
    assert "float32 (10, 20)" in words
    assert "−1 … 3" in words
    assert "mean 1" in words
    assert "100% zeros" in words
    assert "2 NaN or infinite" in words


def test_a_page_asks_for_nothing(checkpoint: str, tmp_path: Path) -> None:
    page, content = page_of(tmp_path, checkpoint, "--values")
    assert not re.search(r"https?:|//\w|@import|url\(", content)
    assert not [a for _, a in page.elements if {"src", "href", "srcset", "data"} & a.keys()]
    (policy,) = (a for a in page.all("meta") if "http-equiv" in a)
    script = next(text for tag, text in page.texts if tag == "script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy["content"] is not None
    assert policy["content"].startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy["content"]


def test_a_hostile_name_is_shown_and_does_nothing(checkpoint: str, tmp_path: Path) -> None:
    page, content = page_of(tmp_path, checkpoint)
    assert len(page.all("script")) == 1
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert "\x1b" not in content
    assert "\u202e" not in content
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert shown in [a.get("title") for a in page.all("span")]


def test_two_checkpoints_are_compared(checkpoint: str, tmp_path: Path) -> None:
    other = save(
        tmp_path / "ckpt-2",
        {"model/a/kernel": np.zeros((10, 20), np.float32), "model/c": np.ones(2)},
    )
    page, _ = page_of(tmp_path, checkpoint, other, "--values")
    words = page.words()
    for word in ("only in a", "only in b", "different value", "200 elements differ, by at most 3"):
        assert word in words


def step(status: str, severity: str, name: str, **more: Any) -> dict[str, Any]:
    value = {"dtype": "float32", "shape": [2, 3], "nbytes": 24}
    return {
        "status": status,
        "severity": severity,
        "name": name,
        "source": name,
        "live": value,
        "stored": value,
        "reason": "",
        "hint": "",
        **more,
    }


PLAN: dict[str, Any] = {
    "policy": "finetune",
    "file": "",
    "source": "zoo/ckpt-1",
    "ok": False,
    "nbytes": 24,
    "counts": {"LOADED": 1, "MISSING": 1},
    "problems": [{"message": "exclude: 'x' matches nothing", "line": 7, "hint": "try y"}],
    "steps": [
        step("LOADED", "ok", "model/a"),
        step("MISSING", "error", HOSTILE, reason="<b>gone</b>", hint="look", stored=None),
    ],
}


def test_a_plan_says_first_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    page, _ = page_of(tmp_path, tmp_path / "plan.json")
    words = page.words()
    order = [
        words.index(w) for w in ("refused", "matches nothing (line 7)", "<b>gone</b>", "Sizes")
    ]
    assert order == sorted(order)
    assert "→ try y" in words
    assert len(page.all("script")) == 1


def test_a_hint_stands_once_below_the_reasons_that_share_it(tmp_path: Path) -> None:
    shapes = [
        step("MISMATCH", "error", f"model/{n}", reason=f"shape ({n},)", hint="exclude it")
        for n in (2, 10)
    ]
    other = step("MISSING", "error", "model/c", reason="gone", hint="look", stored=None)
    document = {**PLAN, "problems": [], "steps": [shapes[0], other, shapes[1]]}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    page, _ = page_of(tmp_path, tmp_path / "plan.json")
    words = page.words()
    order = [words.index(w) for w in ("shape (2,)", "shape (10,)", "→ exclude it", "gone")]
    assert order == sorted(order)
    assert words.count("→ exclude it") == 1


def test_a_refused_plan_says_nothing_of_values_that_were_restored(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    page, _ = page_of(tmp_path, tmp_path / "plan.json")
    assert "has a value to restore" in page.words()
    assert "refused: nothing would be restored" in page.words()
    assert page.words().count(" restored") == page.words().count("would be restored") == 1


def test_a_restore_report_is_a_document_too(tmp_path: Path) -> None:
    done = {
        **PLAN,
        "ok": True,
        "problems": [],
        "steps": PLAN["steps"][:1],
        "path": "zoo/ckpt-1",
        "rejected": ["zoo/ckpt-2: torn\n  Copy it again."],
        "step": 3,
        "epoch": None,
        "metrics": {},
    }
    (tmp_path / "report.json").write_text(json.dumps(done))
    page, _ = page_of(tmp_path, tmp_path / "report.json")
    assert "restored: 1 value, 24 B" in page.words()
    assert "has a value to restore" not in page.words()
    assert "passed over: zoo/ckpt-2: torn; Copy it again." in page.words()


def test_what_inspect_prints_makes_the_same_page(checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "ckpt.json").write_text(run("inspect", checkpoint, "--values", "--json").out)
    _, printed = page_of(tmp_path, tmp_path / "ckpt.json")
    (tmp_path / "page.html").unlink()
    _, direct = page_of(tmp_path, checkpoint, "--values")
    assert printed == direct


@pytest.mark.parametrize(
    "change",
    [
        {"steps": None},
        {"steps": [{}]},
        {"steps": [step("NONSENSE", "ok", "a")]},
        {"steps": [step("LOADED", "ok", "a", live={"dtype": 1, "shape": ["<"], "nbytes": 1})]},
        {"steps": [step("LOADED", "ok", "a", live={"dtype": "x", "shape": [], "nbytes": -1})]},
        {"nbytes": "<script>"},
        {"problems": [3]},
        {"counts": {"LOADED": 1e999}},
    ],
    ids=str,
)
def test_a_document_that_is_none_makes_no_page(change: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN, **change}))
    ended = run("report", tmp_path / "plan.json", "--html", tmp_path / "page.html")
    assert ended.status == 1
    assert "is not a JSON document of inspect, diff, plan or a restore" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("text", ["{", "[1]", '{"a": 1}', "[" * 100_000, "\0"])
def test_json_that_is_none_is_said_to_be(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    ended = run("report", tmp_path / "x.json", "--html", tmp_path / "page.html")
    assert ended.status == 1
    assert "x.json" in ended.err


def test_a_page_is_not_written_over(checkpoint: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("kept")
    assert run("report", checkpoint, "--html", tmp_path / "page.html").status == 1
    assert (tmp_path / "page.html").read_text() == "kept"


def test_misuse(checkpoint: str) -> None:
    assert run("report", checkpoint).status == 2
    assert run("report", "--html", "x.html").status == 2


@given(
    sizes=st.lists(st.integers(1, 10**9), min_size=1, max_size=40),
    width=st.floats(1, 2000),
    height=st.floats(1, 2000),
)
@example(sizes=[1, 45799049], width=1.0, height=2.0)  # what is left is as thin as rounding
def test_areas_are_as_large_as_sizes(sizes: list[int], width: float, height: float) -> None:
    branches = [Branch(str(n), nbytes=s) for n, s in enumerate(sorted(sizes, reverse=True))]
    placed = list(squarify(branches, Box(0, 0, width, height)))
    assert [branch for branch, _ in placed] == branches
    for branch, box in placed:
        share = box.width * box.height / (width * height)
        assert share == pytest.approx(branch.nbytes / sum(sizes), rel=1e-6)
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= width * (1 + 1e-9)
        assert box.y + box.height <= height * (1 + 1e-9)
