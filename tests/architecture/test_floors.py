"""The floors of the house: which room may import which, and that the light half stays light."""

from __future__ import annotations

import ast
import collections
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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
    {"callbacks", "flags", "tools"},
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


@functools.cache
def nodes() -> list[tuple[Path, ast.AST]]:
    return [
        (path, node)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]


def imports() -> Iterator[tuple[Path, str, int]]:
    """File, every module that it imports, absolute, anywhere in it, and the line."""
    for path, node in nodes():
        if isinstance(node, ast.Import):
            yield from ((path, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(PROJECT).parent.parts
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            origin = ".".join(part for part in (base, node.module) if part)
            yield from ((path, f"{origin}.{alias.name}", node.lineno) for alias in node.names)


def test_every_module_belongs_to_a_floor_and_every_room_says_what_it_is_for() -> None:
    for path in modules():
        known = home(path) in {*FLOOR, ROOT, "__init__"} or path.name == "__init__.py"
        assert known, module_id(path)
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
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            where[node.name.lstrip("_")].append(f"{module_id(path)}:{node.lineno}")
    assert not {name: found for name, found in where.items() if len(found) > 1}


def test_tensorflow_keras_and_flags_are_imported_only_where_they_belong() -> None:
    for path, name, line in imports():
        room, top = home(path).split("/")[0], name.split(".")[0]
        if top in KERAS | TENSORFLOW:
            allowed = top in HEAVY_ROOMS.get(room, set())
        else:  # the programs' own are defined in `flags`, and parsed by them
            allowed = room in ("cli", "flags") or not name.startswith(("absl.flags", "absl.app"))
        assert allowed, f"{module_id(path)}:{line} imports {name}"


# What a look at a checkpoint of tfckpt's has no use for: other rooms, other formats, whoever
# writes, and packages. NumPy, with whatever it imports, is for those who read values.
SPARED = {
    *(f"tfckpt.{name}" for name in ("live", "manager", "core.names", "policy", "run", "training")),
    *(f"tfckpt.stored.formats.{name}" for name in ("keras_files", "safetensors", "saved_model")),
    *(f"tfckpt.stored.formats.{name}" for name in ("tf1", "unrecorded")),
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
LIGHT = """
import importlib, sys, tfckpt
for module in ("stored", "policy", "planning", "cli.plan"):
    importlib.import_module(f"tfckpt.{module}")
assert not {"tensorflow", "keras", "tf_keras"} & {*sys.modules}
print("callbacks" in dir(tfckpt))
"""


def printed(code: str, *arguments: str) -> str:
    """The last line that a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_the_light_half_does_not_import_tensorflow() -> None:
    assert printed(LIGHT) == "True"


def test_a_look_at_a_checkpoint_imports_no_more_than_it_uses(tmp_path: Path) -> None:
    import tensorflow as tf

    import tfckpt

    prefix = tfckpt.Checkpoint(values=[tf.Variable(7), tf.Variable([1.0])]).save(tmp_path / "ckpt")
    for command, spared in SPARED_BY.items():
        imported = json.loads(printed(IMPORTED, command, prefix))
        assert "tfckpt.stored.bundles.bundle" in imported
        places = tuple(f"{name}." for name in spared)
        assert not [name for name in imported if f"{name}.".startswith(places)]
    imported = json.loads(printed(IMPORTED, "prune", str(tmp_path), "--keep", "latest=1"))
    assert not {"tensorflow", "keras", "tf_keras"} & {*imported}


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
    promises = re.findall(
        r"^\| (?!-|promise).* \|$", text.split("| held by |")[1].split("\n\n")[0], re.M
    )
    assert len(promises) > 20
    for promise in promises:
        *_, module, tests, _ = promise.split("|")
        assert ["tests/" in column for column in (module, tests)] == [False, True], promise
