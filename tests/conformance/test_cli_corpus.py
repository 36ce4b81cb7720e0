"""Every command on every kind of checkpoint that other people wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from zoo.command_line import document, run

PROJECT = Path(__file__).resolve().parents[2]
CORPUS = Path(os.environ.get("TFCKPT_CORPUS", PROJECT.parent / "shared" / "corpus"))


def _items() -> dict[str, dict[str, Any]]:
    manifest = CORPUS / "MANIFEST.jsonl"
    lines = manifest.read_text(encoding="utf-8").splitlines() if manifest.is_file() else []
    return {item["id"]: item for item in map(json.loads, lines)}


ITEMS = _items()


@pytest.fixture(autouse=True)
def _needs(corpus: Path) -> None:
    """Skips, saying so, where the corpus is absent."""


def path_of(name: str) -> str:
    item = ITEMS[name]
    inside = item["prefix"] if "prefix" in item else next(iter(item["files"]))
    return f"{CORPUS / name}/{inside}"


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / "expected" / f"{name}.json").read_text())
    return found["tensors"]


def whole(name: str) -> bool:
    return not ITEMS[name]["absent_files"]


@pytest.mark.parametrize("name", ITEMS)
def test_inspect_in_every_view(name: str) -> None:
    path, status = path_of(name), 0 if whole(name) else 1
    found = document("inspect", path, status=status)
    by_key = {value["key"]: value for value in found["values"]}
    for key, tensor in expected(name).items():
        if key in by_key and "error" not in tensor and by_key[key]["shape"] is not None:
            assert by_key[key]["shape"] == tensor["shape"], key
    for flags in ((), ("--values",), ("--keys",)):
        ended = run("inspect", path, *flags)
        assert ended.status == status
        assert "Traceback" not in ended.err
        long = [line for line in ended.out.splitlines() if len(line) > 80]
        assert all(len(line.split()) == 1 for line in long), long  # a name, which is never broken
    if whole(name):
        statistics = document("inspect", path, "--values")["statistics"]
        known = {name for name, one in statistics.items() if one and "error" not in one}
        numbers = [value for value in found["values"] if value["dtype"].startswith("float")]
        assert known >= {value["name"] for value in numbers}


@pytest.mark.parametrize("name", ITEMS)
def test_verify_finds_nothing_or_what_is_missing(name: str) -> None:
    if whole(name):
        (found,) = document("verify", path_of(name))["checkpoints"]
        assert found["values"] > 0
    else:
        (found,) = document("verify", path_of(name), status=1)["checkpoints"]
        absent = {f"{CORPUS / name}/{file}" for file in ITEMS[name]["absent_files"]}
        assert {fault["file"] for fault in found["faults"]} == absent


@pytest.mark.parametrize("name", [name for name in ITEMS if whole(name)])
def test_nothing_differs_from_itself(name: str) -> None:
    found = document("diff", path_of(name), path_of(name), "--values")
    assert found["same"] is True


def test_two_that_have_nothing_in_common_differ() -> None:
    ok = [name for name in ITEMS if whole(name)]
    for one, other in zip(ok[::2], ok[1::2], strict=False):
        found = document("diff", path_of(one), path_of(other), "--values", status=1)
        assert found["differences"], (one, other)


@pytest.mark.parametrize("name", ITEMS)
def test_a_directory_is_listed(name: str) -> None:
    directory = Path(f"{path_of(name)}.index").parent
    there = [file.name for file in directory.iterdir()]
    kinds = (".index", ".h5", ".keras")
    if not any(one.endswith(kinds) for one in there):  # of TF1's Saver, without a suffix
        assert run("list", directory).status == 1
        return
    status = 0 if whole(name) else 1
    found = document("list", directory, status=status)["checkpoints"]
    assert len(found) == sum(one.endswith(kinds) for one in there)
    assert {one["state"] for one in found} <= {"foreign"} if whole(name) else {"damaged"}
    assert len(document("verify", directory, status=status)["checkpoints"]) == len(found)
