"""What MkDocs does with pages that are read by the tests and on other sites, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from tfckpt.cli.parser import parsers

PROJECT = Path(__file__).resolve().parents[1]
SHOWN = {".py", ".ipynb"}
_OUTSIDE = re.compile(r"\]\(\.\./([\w/.-]+)\)")
_FOR_TESTS = re.compile(r"^(```\w+) .*$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the configs and the examples, which pages link to."""
    examples = (path for path in (PROJECT / "examples").rglob("*") if path.suffix in SHOWN)
    for path in [*sorted((PROJECT / "configs").glob("*.yaml")), *sorted(examples)]:
        name = path.relative_to(PROJECT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """With links to these files as they are called on the site, without words for the tests."""
    if page.file.src_uri == "cli.md":
        markdown = _with_flags(markdown)
    return _FOR_TESTS.sub(r"\1", _OUTSIDE.sub(r"](\1)", markdown))


def _with_flags(markdown: str) -> str:
    """With the help of each command below its heading."""
    for name, command in parsers()[1].items():
        heading = f"\n## {name}\n"
        below = f"{heading}\n```text\n{command.format_help()}```\n"
        markdown = markdown.replace(heading, below, 1)
    return markdown
