"""The site of the documentation: it builds, links lead somewhere, what is public is in it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import tfckpt

DOCS = Path(__file__).resolve().parents[2] / "docs"
MOST_WORDS = 20_000
LINK = re.compile(r'<(?:a|img|link|script)[^>]* (?:href|src)="([^"]+)"')


def test_every_link_leads_to_a_page_and_a_place_on_it(site: Path) -> None:
    wrong = []
    for page in pages(site):
        for link in LINK.findall(text(page)):
            path, _, anchor = unquote(link).partition("#")
            target = page.parent / path if path else page
            missing = anchor and target.suffix == ".html" and f'id="{anchor}"' not in text(target)
            if "://" not in link and (not target.exists() or missing):
                wrong.append(f"{page.name}: {link}")
    assert not wrong


def test_no_block_is_shown_as_it_is_written(site: Path) -> None:
    assert not [page.name for page in pages(site) if "```" in text(page)]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]* src="https?:[^"]+"|<link[^>]* href="https?:[^>]+'
    )
    assert not [match[0] for page in pages(site) for match in loads.finditer(text(page))]


def test_the_search_works_from_the_files(site: Path) -> None:
    index = site / "search" / "search_index.js"
    assert "Train on preemptible machines" in text(index)
    for page in pages(site):
        (shim,) = re.findall(r'<script src="([^"]*iframe-worker[^"]*)"', text(page))
        assert (page.parent / shim).is_file()


def test_everything_public_is_in_the_reference(site: Path) -> None:
    page = text(site / "api.html")
    places = "tfckpt", "tfckpt.errors"
    names = [
        name
        for name in tfckpt.__all__
        if not any(f'id="{place}.{name}"' in page for place in places)
    ]
    assert names == ["callbacks"]  # a module: `resume` is its only function
    assert 'id="tfckpt.callbacks.resume"' in page


def test_the_pages_have_no_more_words_than_somebody_reads() -> None:
    written = [word for page in DOCS.glob("*.md") for word in page.read_text("utf-8").split()]
    assert len([word for word in written if re.search(r"\w", word)]) <= MOST_WORDS


def pages(site: Path) -> list[Path]:
    """All but what only a server shows."""
    return [page for page in site.glob("*.html") if page.name != "404.html"]


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8") if page.exists() else ""
