"""How large each room is, beside its line in budget.toml.

``python tests/architecture/rooms.py`` prints it. Code is lines of Python without blank ones,
comments and docstrings, so that nobody makes a room smaller by saying less.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize
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
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Size(NamedTuple):
    lines: int
    code: int
    files: int
    longest: str
    length: int


@functools.cache
def code_of(path: Path) -> int:
    """How many lines of a Python file of the package hold code; 0 of another file."""
    if path.suffix != ".py" or not path.is_relative_to(PROJECT / "tfckpt"):
        return 0
    text, held = path.read_text(encoding="utf-8"), set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            held -= {*range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)}
    return len(held)


def size_of(files: list[Path]) -> Size:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    longest = max(lengths, key=lambda path: (lengths[path], path), default=PROJECT)
    name = longest.relative_to(PROJECT).as_posix()
    code = sum(map(code_of, files))
    return Size(sum(lengths.values()), code, len(files), name, lengths.get(longest, 0))


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


def together() -> Size:
    """The whole package."""
    return size_of(files_of("tfckpt"))


def main() -> None:
    sizes = {**rooms(), **beside(), "together": together()}
    budgets = {**BUDGET["rooms"], **BUDGET["beside"], "together": BUDGET["together"]}
    for room, budget in budgets.items():
        size, (lines, files) = sizes[room], budget["goal"]
        code = f"{size.code:8,} of code of {budget['code']:6,}" if "code" in budget else ""
        code += f", goal {budget['goal_code']:6,}" if "goal_code" in budget else ""
        print(
            f"{room:12}{size.lines:8,} lines of {budget['lines']:6,}, goal {lines:6,};"
            f"{size.files:5} files of {budget['files']:4}, goal {files:4};{code}"
        )


if __name__ == "__main__":
    main()
