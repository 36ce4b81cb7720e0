"""How often a directory of many checkpoints is asked: as often as one of few."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tfckpt.stored.commits.discovery import candidates

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(PROJECT))
    from benchmarks import scale

    return scale


def asked(scale, checkpoints: int, *, renames: bool, work: Callable[[object], object]) -> Counter:
    store = scale.Store(checkpoints, renames=renames)
    store.write_atomic(f"{scale.PLACE}/checkpoint", scale.state_file(store))
    store.calls.clear()
    work(store)
    return store.calls


def decided_again(scale, store) -> None:
    directory = scale.opened(store)
    for _ in range(2):
        store.calls.clear()  # what the first decision has read counts no more
        found, rules = directory.checkpoints(), scale.RULES["latest"]
        directory.decide(found, rules, anchor=0.0, preserved=(), in_use=())
        directory.write_state(found, 0.0)


@pytest.mark.parametrize("renames", [True, False])
@pytest.mark.parametrize(
    ("what", "records"),
    [("names", 0), ("newest", 0), ("manager", 1), ("again", 0)],
)
def test_no_more_records_are_read_than_a_question_needs(
    scale, what: str, records: int, *, renames: bool
) -> None:
    works = {
        "names": lambda store: candidates(scale.PLACE, files=store),
        "newest": lambda store: next(scale.opened(store).restorable()),
        "manager": lambda store: scale.opened(store).history(),
        "again": lambda store: decided_again(scale, store),
    }
    few, many = (asked(scale, n, renames=renames, work=works[what]) for n in (30, 600))
    state_files = few["open_read"] - records
    assert 0 <= state_files <= 2
    assert few == many
    assert many["listdir"] == 1
    assert many["exists"] <= 18


def test_the_simulation_runs(scale, capsys: pytest.CaptureFixture[str]) -> None:
    store = scale.Store(50, renames=False)
    scale.of_a_directory(store)
    scale.of_a_directory(scale.Store(50, renames=True))
    scale.of_a_model(30)
    printed = capsys.readouterr().out
    assert "rules: latest: the first decision" in printed
    assert "a plan" in printed
