"""README.md: its pictures and its figures are those of what draws and counts them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from zoo.everyday.rows import ROWS
from zoo.everyday.shown import shares
from zoo.everyday.today import expected

PROJECT = Path(__file__).resolve().parents[2]
PICTURES = PROJECT / "docs" / "pictures"
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, PICTURES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_badges_say_what_is_set_up_and_tested() -> None:
    for name, drawn in script("badges").badges().items():
        assert (PICTURES / name).read_text(encoding="utf-8") == drawn, "run docs/pictures/badges.py"
        assert f"docs/pictures/{name}" in README


def test_the_terminal_is_drawn_in_both_colors_with_the_same_lines() -> None:
    light, dark = (
        re.findall(r">(.*)</text>", (PICTURES / f"terminal-{name}.svg").read_text(encoding="utf-8"))
        for name in ("light", "dark")
    )
    assert light == dark
    for line in "Killed", "training resumes after 2 epochs", "RefusedError", "exclude:", "RENAMED":
        assert any(line in shown for shown in light), "run docs/pictures/record.py"


def test_the_everyday_restores_are_as_many() -> None:
    cells = {
        (name, keras): expected(name, keras) for name, row in ROWS.items() for keras in row.flavours
    }
    counted = re.match(
        r"(\d+) restores: (\d+) first, (\d+) pasted, (\d+) refused, (\d+) WRONG", shares(cells)
    )
    assert counted is not None, shares(cells)
    number, first, pasted, refused, wrong = counted.groups()
    assert f"| {number} everyday restores" in README
    assert f"{wrong} wrong; {first} at once, {pasted} with the lines" in README
    assert f"{refused} refused" in README


def test_the_faults_are_as_many(tmp_path: Path) -> None:
    from faults.commits import SCENARIOS, Place, faults, moments, runs_at, steps_of

    number = 0
    for renames, directory in ((True, str(tmp_path.resolve())), (False, "mem://bucket/run")):
        place = Place(renames, directory)
        for scenario in filter(lambda name: runs_at(place, name), SCENARIOS):
            number += len([*moments(place, scenario)]) + len([*faults(steps_of(place, scenario))])
    assert f"{number:,} kills and failing calls" in README


@pytest.mark.parametrize(
    "command", re.findall(r"\| `(?:cd tests && python -m|pytest(?: -s)?) ([\w./]+)`", README)
)
def test_what_a_command_runs_is_there(command: str) -> None:
    assert (PROJECT / command).exists() or (PROJECT / "tests" / command.replace(".", "/")).is_dir()
