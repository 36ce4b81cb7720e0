"""Names of every value, live and as each writer writes it, and what a restore of it plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import tfckpt
from golden.files import check, check_folder
from golden.lines import live_lines, sections, stored_lines
from golden.plan_lines import plan_lines
from golden.subjects import SUBJECTS, fresh
from golden.writers import written

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt import Inventory

POLICIES: dict[str, dict[str, Any]] = {"": {}, ", the weights": {"include": ["model/**"]}}


class Lines(NamedTuple):
    subject: str
    names: dict[str, list[str]]
    plans: dict[str, list[str]]


@pytest.fixture(scope="module", params=SUBJECTS)
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """Both kinds of lines of a subject: it is made and written once."""
    subject, found = SUBJECTS[request.param], Lines(request.param, {}, {})
    for flavour in subject.flavours:
        objects = subject.make(fresh(flavour))
        live = tfckpt.inventory(**objects)
        found.names[f"{flavour} live"] = live_lines(live)
        files = dict(written(subject, objects, tmp_path_factory.mktemp(flavour)))
        for writer, path in files.items():
            found.names[f"{flavour} {writer}"] = _tried(_names, path, live)
        again = subject.make(fresh(flavour))
        for writer, path in files.items():
            for title, policy in POLICIES.items():
                if not title or subject.more:
                    found.plans[f"{flavour} {writer}{title}"] = _tried(_plan, path, policy, again)
    return found


def test_every_value_has_the_name_that_it_had(lines: Lines) -> None:
    check(f"names/{lines.subject}", sections(lines.names))


def test_the_same_program_is_restored_by_the_plan_that_it_was(lines: Lines) -> None:
    check(f"plans/same/{lines.subject}", sections(lines.plans))


def test_no_file_is_left_of_what_is_gone() -> None:
    check_folder("names", SUBJECTS)
    check_folder("plans/same", SUBJECTS)


def _names(path: str, live: Inventory) -> list[str]:
    return stored_lines(tfckpt.inspect(path).inventory, live)


def _plan(path: str, policy: dict[str, Any], objects: dict[str, Any]) -> list[str]:
    return plan_lines(tfckpt.plan(path, policy=policy, **objects))


def _tried(show: Callable[..., list[str]], path: str | Exception, *of: Any) -> list[str]:
    if isinstance(path, Exception):
        return [f"not written: {type(path).__name__}"]
    try:
        return show(path, *of)
    except tfckpt.TfckptError as error:
        return [f"refused: {type(error).__name__}"]
