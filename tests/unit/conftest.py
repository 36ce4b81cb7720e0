"""What several modules of unit tests share."""

from __future__ import annotations

import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from zoo.gate import Gate, built_in

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each row of a table is tried in one flavor of Keras, in turn; with the long ones, in both.

    So are the rows of tests that name the flavors themselves, since the two differ in it.
    """
    rows: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        test, _, row = item.nodeid.partition("[")
        flavor = item.callspec.params.get("flavour") if row else None
        named = any("flavour" in mark.args[0] for mark in item.iter_markers("parametrize"))
        if flavor and not named and item.path.parent == HERE:
            rows.setdefault((test, row.replace(flavor, "")), []).append(item)
    turns = Counter[str]()
    for (test, _), both in rows.items():
        turn = bin(turns[test]).count("1") + zlib.crc32(test.encode())  # each with each writer
        turns[test] += 1
        if len(both) == 2:
            both[turn % 2].add_marker(pytest.mark.long)


@pytest.fixture
def gate(monkeypatch) -> Iterator[Gate]:
    """Saves in the background wait behind it until it is opened."""
    found = built_in(monkeypatch)
    yield found
    found.open()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of runs and files, for commands and pages."""
    from zoo.places import built  # trains models

    with built(tmp_path_factory.mktemp("place")) as root:
        yield root


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the working directory."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "place"))
    return tmp_path / "place"
