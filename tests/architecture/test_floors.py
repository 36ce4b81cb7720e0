"""The floors of the house: which room may import which, and that the light half stays light."""

from __future__ import annotations

import ast
import collections
import json
import re
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
# From the ground up. A room imports itself and what is below; rooms of one floor not each other.
FLOORS: list[set[str]] = [
    {"errors", "version"},
    {"core"},
    {"stored/io"},
    {"policy"},
    {"stored/bundles"},
    {"stored/commits"},
    {"stored/formats"},
    {"planning/matching"},
    {"planning/adaptation"},
    {"planning/checks"},
    {"planning"},
    {"planning/suggestion"},
    {"live/private"},
    {"live"},
    {"manager"},
    {"training/state"},
    {"training"},
    {"run"},
    {"calls"},
    {"callbacks", "tools"},
    {"pages"},
    {"cli"},
    {"__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# However high the one stands, it must not know the other.
STRANGERS = {("stored", "policy"), ("cli", "callbacks")}
KERAS = {"keras", "tf_keras"}
TENSORFLOW = {"tensorflow"}
HEAVY_ROOMS = {"live": KERAS | TENSORFLOW, "training": KERAS}
ROOT = ""  # tfckpt/__init__.py, which re-exports what is public


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_id(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def room_of(module: str) -> str:
    """Of a module or a name in one, dotted: its folder, or itself where it stands alone."""
    parts = module.split(".")[1:]
    folder = PACKAGE
    depth = 0
    for part in parts:
        folder = folder / part
        if not folder.is_dir():
            break
        depth += 1
    if depth:
        return "/".join(parts[:depth])
    return parts[0] if parts and (PACKAGE / f"{parts[0]}.py").is_file() else ROOT


def home(path: Path) -> str:
    return room_of(".".join(path.relative_to(PROJECT).with_suffix("").parts))


def imports() -> Iterator[tuple[Path, str, int]]:
    """File, every module that it imports, absolute, anywhere in it, and the line."""
    for path in modules():
        package = path.relative_to(PROJECT).parent.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield path, alias.name, node.lineno
            elif isinstance(node, ast.ImportFrom):
                base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
                origin = ".".join(part for part in (base, node.module) if part)
                for alias in node.names:
                    yield path, f"{origin}.{alias.name}", node.lineno


def test_every_module_belongs_to_a_floor() -> None:
    for path in modules():
        known = home(path) in {*FLOOR, ROOT, "__init__"} or path.name == "__init__.py"
        assert known, module_id(path)


def test_every_room_says_what_it_is_for() -> None:
    for room in sorted(FLOOR):
        about = PACKAGE / room / "__init__.py"
        if about.is_file():
            assert ast.get_docstring(ast.parse(about.read_text(encoding="utf-8"))), room


def test_imports_point_downward() -> None:
    for path, name, line in imports():
        if name.split(".")[0] != PACKAGE.name or path == PACKAGE / "__init__.py":
            continue
        room, other, where = home(path), room_of(name), f"{module_id(path)}:{line}"
        if other == ROOT:
            top = room.startswith("cli") or room == "callbacks"
            assert top, f"{where} imports the package that re-exports it"
            continue
        if path.name == "__init__.py" and other.startswith(f"{room}/"):
            continue  # a room hands on what its own rooms have
        assert other == room or FLOOR[other] < FLOOR[room], f"{where}: {room} is below {other}"
        tops = room.split("/")[0], other.split("/")[0]
        assert tops not in STRANGERS, f"{where}: {room} must not know {other}"


def test_a_class_name_means_one_thing() -> None:
    where = collections.defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                where[node.name.lstrip("_")].append(f"{module_id(path)}:{node.lineno}")
    assert not {name: found for name, found in where.items() if len(found) > 1}


def test_tensorflow_and_keras_are_imported_only_where_they_belong() -> None:
    for path, name, line in imports():
        allowed = HEAVY_ROOMS.get(home(path).split("/")[0], set())
        top = name.split(".")[0]
        if top in KERAS | TENSORFLOW:
            assert top in allowed, f"{module_id(path)}:{line} imports {name}"


def test_absl_flags_are_parsed_only_by_the_command_line() -> None:
    for path, name, line in imports():
        if name.startswith(("absl.flags", "absl.app")):
            assert home(path).startswith("cli"), f"{module_id(path)}:{line} imports {name}"


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
    ["tfckpt", "tfckpt.stored", "tfckpt.policy", "tfckpt.planning", "tfckpt.cli.plan"],
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
    *(f"tfckpt.{name}" for name in ("live", "manager", "core.names", "policy", "run", "training")),
    *(f"tfckpt.stored.formats.{name}" for name in ("keras_files", "safetensors", "saved_model")),
    *(f"tfckpt.stored.formats.{name}" for name in ("saver_v1", "tf1_names", "unrecorded")),
    *(f"tfckpt.{name}" for name in ("stored.io.locks", "stored.io.preallocate", "tools.listing")),
    *(f"tfckpt.stored.commits.{name}" for name in ("commit", "new_file", "writer_lock")),
    *("absl", "h5py", "keras", "pydantic", "rich", "tensorflow", "tf_keras", "yaml"),
}
STANDARD = {
    *("asyncio", "concurrent", "ctypes", "difflib", "email", "importlib.metadata"),
    *("logging", "random", "secrets", "shutil", "socket", "tempfile", "xml", "zipfile"),
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


def test_what_contributors_read_names_modules_that_are_there() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?)`", text))
    places = PACKAGE, PROJECT, PROJECT / "tests", PACKAGE / "planning", PACKAGE / "pages"
    assert not {name for name in named if not any((at / name).exists() for at in places)}
