"""What is installed and distributed, and public names: `typed.py` has what mypy makes of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
MADE = (".*", "__pycache__", "*.py[cod]", "*.egg-info", "build", "dist")


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_no_file_is_left_out_of_what_is_installed_or_distributed(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="it builds the packages")
    project, lib, dist = (tmp_path / name for name in ("project", "lib", "dist"))
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns(*MADE))
    wanted = files(project)
    commands = f"build_py --build-lib {lib} sdist --dist-dir {dist}".split()
    command = [sys.executable, "setup.py", "-q", *commands]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    assert files(lib / "tfckpt") == files(project / "tfckpt")
    assert "tfckpt/policy/schema.json" in files(lib)
    (sdist,) = dist.iterdir()
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - packed == set()


def test_a_misspelt_name_is_told_what_was_meant() -> None:
    import tfckpt

    with pytest.raises(AttributeError, match=r"'Chekpoint'; did you mean 'Checkpoint'\?"):
        tfckpt.Chekpoint  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'zzz'$"):
        tfckpt.zzz  # noqa: B018
    assert not hasattr(tfckpt, "__wrapped__")
