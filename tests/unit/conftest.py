"""What several modules of unit tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from zoo.gate import Gate, built_in


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
