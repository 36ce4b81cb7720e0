"""What MkDocs does with pages that are read by the tests and on other sites, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PROJECT = Path(__file__).resolve().parents[1]
_OUTSIDE = re.compile(r"\]\(\.\./([\w/.-]+)\)")
_FOR_TESTS = re.compile(r"^(```\w+) .*$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures and tables of the benchmarks, the configs and the examples."""
    for folder, pattern in (
        ("benchmarks/results", "*.png"),
        ("benchmarks/results", "*.md"),
        ("configs", "*.yaml"),
    ):
        for path in sorted((PROJECT / folder).glob(pattern)):
            name = path.relative_to(PROJECT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """With links to these files as they are called on the site, without words for the tests."""
    return _FOR_TESTS.sub(r"\1", _OUTSIDE.sub(r"](\1)", markdown))
