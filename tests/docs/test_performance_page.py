"""What README.md and two pages of docs/ quote of the last `make bench` is what it measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results"
QUOTED = re.compile(
    r"^<!-- (?:some )?of benchmarks/results/results\.md: [^\n]+ -->\n(.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(
    ("page", "quotes"), [("README.md", 1), ("docs/performance.md", 4), ("docs/benchmarks.md", 2)]
)
def test_quoted_tables_are_those_of_the_results(page, quotes) -> None:
    measured = set((RESULTS / "results.md").read_text(encoding="utf-8").splitlines())
    found = QUOTED.findall((PROJECT / page).read_text(encoding="utf-8"))
    assert len(found) == quotes
    lines = [line for quote in found for line in quote.splitlines() if line]
    assert [line for line in lines if line not in measured] == []
    assert sum(line.startswith("|") for line in lines) > 3 * quotes


def test_the_results_are_those_of_a_full_run_with_nothing_left_out() -> None:
    document = json.loads((RESULTS / "results.json").read_text(encoding="utf-8"))
    assert document["machine"]["sizes"] == "full"
    page = (RESULTS / "results.md").read_text(encoding="utf-8")
    assert all(value in page for value in document["machine"].values())
    plots = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert plots
    assert all((RESULTS / plot).exists() for plot in plots)
    assert all((RESULTS / plot).with_suffix(".svg").exists() for plot in plots)


@pytest.mark.parametrize("name", ["save", "restore", "growth", "training"])
def test_a_picture_says_what_is_good_and_what_its_colors_mean(name) -> None:
    picture = (RESULTS / f"{name}.svg").read_text(encoding="utf-8")
    assert "less is better" in picture
    assert "tfckpt" in picture
    assert "TensorFlow" in picture or "tf.train.Checkpoint" in picture


def test_nobody_takes_part_who_does_something_else() -> None:
    assert "fsync" not in (RESULTS / "restore.svg").read_text(encoding="utf-8")
    assert "pread" not in (RESULTS / "save.svg").read_text(encoding="utf-8")


def test_new_results_reach_every_page_that_quotes_them(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import quotes

    measured = (RESULTS / "results.md").read_text(encoding="utf-8")
    (ours,) = re.findall(r"^\| transformer, 109M \+ Adam \|[^|]+\|[^|]+\|", measured, re.MULTILINE)
    again = measured.replace(ours, "| transformer, 109M + Adam | 9,111 | 222 |")
    for name in ("README.md", "docs/performance.md"):
        page = (PROJECT / name).read_text(encoding="utf-8")
        assert quotes.updated(page, measured) == page
        expected = page.replace(ours, "| transformer, 109M + Adam | 9,111 | 222 |")
        assert quotes.updated(page, again) == expected != page
    page = (PROJECT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    more = measured.replace("## Goals\n", "## Goals\n\n| a new goal |\n")
    assert "| a new goal |" in quotes.updated(page, more)
