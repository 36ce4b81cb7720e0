"""How large each room is, beside its line in budget.toml.

``python tests/architecture/rooms.py`` prints it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[2]
BUDGET: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "budget.toml").read_text(encoding="utf-8")
)
OF_OTHERS = {"d3.js"}


class Size(NamedTuple):
    lines: int
    files: int
    longest: str
    length: int


def size_of(files: list[Path]) -> Size:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    longest = max(lengths, key=lambda path: (lengths[path], path), default=PROJECT)
    name = longest.relative_to(PROJECT).as_posix()
    return Size(sum(lengths.values()), len(files), name, lengths.get(longest, 0))


def files_of(folder: str) -> list[Path]:
    """The files that are written by hand below a folder; assets of pages are."""
    return [
        path
        for path in sorted((PROJECT / folder).rglob("*"))
        if path.suffix in {".py", ".js", ".css", ".html"}
        and path.name not in OF_OTHERS
        and "__pycache__" not in path.parts
    ]


def rooms() -> dict[str, Size]:
    """Every folder of the package, and the modules beside them as ``top level``."""
    found: dict[str, list[Path]] = {}
    for path in files_of("tfckpt"):
        room, _, rest = path.relative_to(PROJECT / "tfckpt").as_posix().partition("/")
        found.setdefault(room if rest else "top level", []).append(path)
    return {room: size_of(files) for room, files in found.items()}


def beside() -> dict[str, Size]:
    """What is not installed."""
    return {folder: size_of(files_of(folder)) for folder in ("tests", "benchmarks")}


def main() -> None:
    sizes = {**rooms(), **beside()}
    for room, budget in {**BUDGET["rooms"], **BUDGET["beside"]}.items():
        size, (lines, files) = sizes[room], budget["goal"]
        print(
            f"{room:12}{size.lines:8,} lines of {budget['lines']:6,}, goal {lines:6,};"
            f"{size.files:5} files of {budget['files']:4}, goal {files:4}"
        )
    lines, files = (sum(size[of] for size in rooms().values()) for of in (0, 1))
    print(f"{'the package':12}{lines:8,} lines; {files} files")


if __name__ == "__main__":
    main()
