"""The floors of the house: which room may import which, and that the light half stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "tfckpt"
FLOORS = {
    "names": 0,
    "automatic_names": 0,
    "optimizer_names": 0,
    "selectors": 0,
    "records": 0,
    "errors": 0,
    "nearby": 0,
    "garbage": 0,
    "version": 0,
    "wiring": 0,
    "regexes": 0,
    "policy": 1,
    "stored": 1,
    "planning": 2,
    "live": 3,
    "manager": 4,
    "fitting": 5,
    "run": 6,
    "calls": 6,
    "callbacks": 7,
    "cli": 7,
}
# The floors within stored/; its own modules are above them all but for these few.
STORED = {"bundles": 0, "graphs": 1, "commits": 1, "keras": 2, "tf1": 2}
STORED_COMMON = {"files", "artefact", "instead", "keras_config", "keras_layers", "together"}
# Rooms that share a floor and still must not know each other; floor 0 is one room.
APART = {1, 7}
TOP = 7
KERAS = {"keras", "tf_keras"}
TENSORFLOW = {"tensorflow"}
HEAVY_ROOMS = {"live": KERAS | TENSORFLOW, "fitting": KERAS}
ROOT = "__init__"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_id(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, absolute, anywhere in it, with its line."""
    package = path.relative_to(PROJECT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield f"{origin}.{alias.name}", node.lineno


def rooms_used(path: Path) -> Iterator[tuple[str, int]]:
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == PACKAGE.name:
            yield (parts[1] if len(parts) > 1 and parts[1] in FLOORS else ROOT), line


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_every_module_belongs_to_a_floor(path: Path) -> None:
    assert room(path) in {*FLOORS, ROOT}


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_imports_point_downward(path: Path) -> None:
    home = room(path)
    if home == ROOT:
        return
    for other, line in rooms_used(path):
        where = f"{module_id(path)}:{line}"
        if other == ROOT:
            assert FLOORS[home] == TOP, f"{where} imports the package that re-exports it"
            continue
        if other == home:
            continue
        assert FLOORS[other] <= FLOORS[home], f"{where}: {home} is below {other}"
        if FLOORS[other] == FLOORS[home]:
            assert FLOORS[home] not in APART, f"{where}: {home} and {other} share a floor"


@pytest.mark.parametrize("room", STORED)
def test_imports_point_downward_within_stored(room: str) -> None:
    for path in sorted((PACKAGE / "stored" / room).glob("*.py")):
        for name, line in imports(path):
            if name.startswith("tfckpt.stored."):
                other = name.split(".")[2]
                below = other in STORED and STORED[other] < STORED[room]
                where = f"{module_id(path)}:{line}"
                assert below or other in {room, *STORED_COMMON}, f"{where}: {room} uses {other}"


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_tensorflow_and_keras_are_imported_only_where_they_belong(path: Path) -> None:
    allowed = HEAVY_ROOMS.get(room(path), set())
    for name, line in imports(path):
        top = name.split(".")[0]
        if top in KERAS | TENSORFLOW:
            assert top in allowed, f"{module_id(path)}:{line} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_absl_flags_are_parsed_only_by_the_command_line(path: Path) -> None:
    for name, line in imports(path):
        if name.startswith(("absl.flags", "absl.app")):
            assert room(path) == "cli", f"{module_id(path)}:{line} imports {name}"


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_a_file_can_be_held_in_the_head(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def loaded_after(code: str, *arguments: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running the code."""
    report = "import json as j, sys as s; print('\\n' + j.dumps(sorted(s.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    "module",
    ["tfckpt", "tfckpt.stored", "tfckpt.policy", "tfckpt.planning", "tfckpt.cli.main"],
)
def test_importing_the_light_half_does_not_import_tensorflow(module: str) -> None:
    assert not loaded_after(f"import {module}") & (TENSORFLOW | KERAS)


INSPECT = """
import sys
from tfckpt.cli.main import main
sys.argv = ["tfckpt", "inspect", sys.argv[1]]
try:
    main()
except SystemExit as exit:
    assert not exit.code, exit.code
"""


def test_inspecting_a_checkpoint_does_not_import_tensorflow(tmp_path: Path) -> None:
    import tensorflow as tf

    prefix = tf.train.Checkpoint(step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    assert not loaded_after(INSPECT, prefix) & (TENSORFLOW | KERAS)


# What a look at a checkpoint of tfckpt's has no use for: other rooms, other formats, whoever
# writes, and packages. NumPy, with whatever it imports, is for those who read values.
SPARED = {
    *(f"tfckpt.{name}" for name in ("fitting", "live", "manager", "names", "policy", "run")),
    *(f"tfckpt.stored.{name}" for name in ("keras", "safetensors", "saved_model", "tf1")),
    *(f"tfckpt.stored.{name}" for name in ("listing", "quarantine", "room", "unrecorded")),
    *(f"tfckpt.stored.commits.{name}" for name in ("debris", "late", "lock", "staging")),
    *("absl", "h5py", "keras", "pydantic", "rich", "tensorflow", "tf_keras", "yaml"),
}
STANDARD = {
    *("argparse", "asyncio", "concurrent", "ctypes", "difflib", "email", "importlib.metadata"),
    *("logging", "random", "secrets", "shutil", "socket", "tempfile", "textwrap", "xml", "zipfile"),
}
SPARED_BY = {"inspect": SPARED | STANDARD | {"numpy"}, "verify": SPARED}
IMPORTED = """
import json, sys  # what Python's start has imported before is none of the command's doing
before = set(sys.modules)
from tfckpt.cli.main import main
assert main() == 0
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.mark.parametrize("command", SPARED_BY)
def test_a_look_at_a_checkpoint_imports_no_more_than_it_uses(command: str, tmp_path: Path) -> None:
    import tensorflow as tf

    import tfckpt

    prefix = tfckpt.Checkpoint(values=[tf.Variable(7), tf.Variable([1.0])]).save(tmp_path / "ckpt")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, command, prefix],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout.splitlines()[-1])
    assert "tfckpt.stored.bundles.bundle" in imported
    spared = tuple(f"{name}." for name in SPARED_BY[command])
    assert not [name for name in imported if f"{name}.".startswith(spared)]


def test_public_names_are_listed_in_order_and_are_all_there() -> None:
    import tfckpt

    assert list(tfckpt.__all__) == sorted(tfckpt.__all__)
    assert len(set(tfckpt.__all__)) == len(tfckpt.__all__)
    for name in tfckpt.__all__:
        assert getattr(tfckpt, name) is not None
    public = {
        name
        for name, value in vars(tfckpt).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"annotations", "TYPE_CHECKING", "Any"} <= set(tfckpt.__all__)
    assert set(tfckpt.__all__) <= set(dir(tfckpt))
