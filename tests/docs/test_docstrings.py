"""Every example in a docstring of the package, run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import tempfile
from typing import TYPE_CHECKING

import pytest

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

MODULES = ["tfckpt", *(m.name for m in pkgutil.walk_packages(tfckpt.__path__, "tfckpt."))]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert not result.failed, capsys.readouterr().out
