"""Names of every value, live and as each writer writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfckpt
from golden.files import check, check_folder
from golden.lines import live_lines, sections, stored_lines
from golden.subjects import SUBJECTS, fresh
from golden.writers import written
from tfckpt import Inventory


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_value_has_the_name_that_it_had(name: str, tmp_path: Path) -> None:
    subject, found = SUBJECTS[name], dict[str, list[str]]()
    for flavour in subject.flavours:
        objects = subject.make(fresh(flavour))
        live = tfckpt.inventory(**objects)
        found[f"{flavour} live"] = live_lines(live)
        for writer, path in written(subject, objects, tmp_path / flavour):
            found[f"{flavour} {writer}"] = _names(path, live)
    check(f"names/{name}", sections(found))


def test_no_file_is_left_of_what_is_gone() -> None:
    check_folder("names", SUBJECTS)


def _names(path: str | Exception, live: Inventory) -> list[str]:
    if isinstance(path, Exception):
        return [f"not written: {type(path).__name__}"]
    try:
        return stored_lines(tfckpt.inspect(path).inventory, live)
    except tfckpt.TfckptError as error:
        return [f"refused: {type(error).__name__}"]
