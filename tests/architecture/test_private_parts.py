"""What TensorFlow and Keras do not document is named in one room, and nowhere else in tfckpt."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "tfckpt"
ROOM = PACKAGE / "live" / "private"
PRIVATE_MODULES = ("tensorflow.python", "tensorflow.dtensor", "keras.src", "tf_keras.src")
# Of Python: named tuples, enums, os and sys.
OF_PYTHON = {"_asdict", "_exit", "_fields", "_getframe", "_name_", "_replace"}


def trees(files: Iterator[Path]) -> dict[str, ast.Module]:
    return {
        file.relative_to(PROJECT).as_posix(): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(files)
    }


# The rooms of files name the same attributes, as edges of stored graphs.
HEAVY = [
    *(PACKAGE / "live").rglob("*.py"),
    *(PACKAGE / "training").rglob("*.py"),
    *(PACKAGE / "manager").rglob("*.py"),
    *PACKAGE.glob("*.py"),
]
OTHERS = trees(file for file in HEAVY if ROOM not in file.parents)
PRIVATE = trees(ROOM.glob("*.py"))


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{each.name}", node.lineno) for each in node.names)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.isidentifier()


def texts(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The words of strings that can only be names: ``"_seed"``, ``"_value _path"``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if words and all(word.isidentifier() for word in words):
                yield from ((word, node.lineno) for word in words if is_private(word))


def attributes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Private attributes of anything but ``self`` and ``cls``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield node.attr, node.lineno


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of functions and classes, and of what a class sets on itself."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


OWN = {name for tree in OTHERS.values() for name in defined(tree)}
NAMES = (
    {name for tree in PRIVATE.values() for name, _ in (*texts(tree), *attributes(tree))}
    - {name for tree in PRIVATE.values() for name in defined(tree)}
    - OF_PYTHON
)


@pytest.mark.parametrize("file", OTHERS)
def test_private_modules_are_imported_in_their_room(file: str) -> None:
    found = [
        f"{file}:{line} imports {name}"
        for name, line in imported(OTHERS[file])
        if f"{name}.".startswith(tuple(f"{each}." for each in PRIVATE_MODULES))
    ]
    assert not found


@pytest.mark.parametrize("file", OTHERS)
def test_private_attributes_are_named_in_their_room(file: str) -> None:
    tree = OTHERS[file]
    found = [f"{file}:{line} {name!r}" for name, line in texts(tree) if name in NAMES]
    found += [
        f"{file}:{line} .{name}"
        for name, line in attributes(tree)
        if name in NAMES - OWN or name not in OWN | OF_PYTHON
    ]
    found += [
        f"{file}:{node.lineno} .__internal__"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__internal__"
    ]
    assert not found


def test_no_private_module_is_imported_for_a_feature_that_few_use() -> None:
    """DTensor, fast reads and delayed restoration are looked up when they are needed."""
    found = {name for tree in PRIVATE.values() for name, _ in imported(tree)}
    assert not [name for name in found if "dtensor" in name or "pywrap" in name]
