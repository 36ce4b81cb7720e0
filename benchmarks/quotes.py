"""Tables of the results that pages of the project quote, between two comments.

``<!-- of benchmarks/results/results.md: Goals -->`` is the whole table below that heading; ``some
of`` those rows that are quoted already. The second comment is ``<!-- end -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "benchmarks" / "results"
PAGES = ("README.md", "docs/performance.md", "docs/benchmarks.md")
QUOTED = re.compile(
    r"^(<!-- (some )?of benchmarks/results/results\.md: ([^\n]+) -->\n)(.*?)^<!-- end -->$",
    re.MULTILINE | re.DOTALL,
)


def update(results: str) -> None:
    """Write what a page of results has to say now into the pages that quote it."""
    for name in PAGES:
        page = PROJECT / name
        page.write_text(updated(page.read_text(encoding="utf-8"), results), encoding="utf-8")


def updated(page: str, results: str) -> str:
    r"""A page with the tables of the results; one whose heading they lack stays.

    >>> results = "## Goals\n\n| a | ms |\n| --- | ---: |\n| b | 1 |\n| c | 2 |\n"
    >>> page = "<!-- some of benchmarks/results/results.md: Goals -->\n| c | 3 |\n<!-- end -->"
    >>> print(updated(page, results))
    <!-- some of benchmarks/results/results.md: Goals -->
    <BLANKLINE>
    | a | ms |
    | --- | ---: |
    | c | 2 |
    <BLANKLINE>
    <!-- end -->
    """
    tables = _tables(results)

    def again(match: re.Match[str]) -> str:
        marker, some, where, quoted = match.groups()
        if where not in tables:
            return match[0]
        lines = tables[where]
        if some:
            names = {_name(line) for line in quoted.splitlines()}
            lines = [*lines[:2], *(line for line in lines[2:] if _name(line) in names)]
        return "\n".join([marker, *lines, "", "<!-- end -->"])

    return QUOTED.sub(again, page)


def _tables(results: str) -> dict[str, list[str]]:
    """Headings, from the second level, with `` / `` between them → lines of the table."""
    found: dict[str, list[str]] = {}
    path: list[str] = []
    for line in results.splitlines():
        marks, _, title = line.partition(" ")
        if marks and not marks.strip("#"):
            path = [*path[: max(len(marks) - 2, 0)], title]
        elif line.startswith("|"):
            found.setdefault(" / ".join(path), []).append(line)
    return found


def _name(line: str) -> str:
    """The first cell of a row."""
    return line.strip("|").partition("|")[0].strip()
