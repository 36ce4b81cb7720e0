"""What is installed, and what a source distribution holds: no file of the project is left out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="it builds the packages")
PROJECT = Path(__file__).resolve().parents[2]
MADE = (".*", "__pycache__", "*.py[cod]", "*.egg-info", "build", "dist")


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project as it is published."""
    copy = tmp_path_factory.mktemp("packages") / "project"
    shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(*MADE))
    return copy


def build(project: Path, *command: str) -> None:
    command = (sys.executable, "setup.py", "-q", *command)
    subprocess.run(command, cwd=project, check=True, capture_output=True)


def test_every_file_of_the_package_is_installed(project: Path, tmp_path: Path) -> None:
    build(project, "build_py", "--build-lib", str(tmp_path))
    assert files(tmp_path / "tfckpt") == files(project / "tfckpt")
    assert "tfckpt/policy/schema.json" in files(tmp_path)


def test_a_source_distribution_holds_every_file_of_the_project(
    project: Path, tmp_path: Path
) -> None:
    wanted = files(project)
    build(project, "sdist", "--dist-dir", str(tmp_path))
    (sdist,) = tmp_path.iterdir()
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - packed == set()
