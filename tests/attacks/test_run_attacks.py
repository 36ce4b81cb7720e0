"""A run whose newest checkpoint or state file is damaged goes on, or says why it cannot."""

from __future__ import annotations

import collections
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest
from attacks.batches import try_all
from attacks.damage import KINDS, SEED
from attacks.state_files import ATTACKS

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.forkserver import ForkServer


SAMPLE = 60
ALL = 1000
COLUMNS = ("newest", "older", "partial", "refused", "silent", "error", "abort", "hang")


def check(server: ForkServer, template: str, place: Path, kind: str, count: int) -> None:
    cases = [[kind, number, (None, 2)[number % 2]] for number in range(count)]
    found = try_all(server, template, place, cases)
    ends = collections.Counter(one["ended"] for _, one in found)
    print(f"\nseed {SEED}: {kind:14} cases {count:5}", *(f"{c} {ends[c]:4}" for c in COLUMNS))
    faulty = [(case, fault) for case, one in found for fault in one["faults"]]
    examples = {fault: case for case, fault in reversed(faulty)}
    shown = "\n".join(f"{case}: {fault}" for fault, case in list(examples.items())[:10])
    assert not faulty, f"{len(faulty)} faults in {count} cases, among them\n{shown}"
    # Whoever seals a record says what is in it: what it does not mention, is missing, and named.
    assert not ends["partial"] or kind.startswith("forged")
    assert len(found) == sum(ends[column] for column in COLUMNS) == count


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_survived_or_refused(server, templates, tmp_path, kind) -> None:
    check(server, templates[False], tmp_path, kind, SAMPLE)


def test_slots_of_weights_that_a_record_lacks_are_named(server, templates, tmp_path) -> None:
    cases = [["forged record", number, None] for number in (16825, 19834)]
    found = [one for _, one in try_all(server, templates[False], tmp_path, cases)]
    assert [(one["ended"], one["faults"]) for one in found] == [("partial", [])] * 2


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_damage_is_survived_or_refused(server, templates, tmp_path, kind) -> None:
    check(server, templates[False], tmp_path, kind, ALL)


def test_plain_tensorflow_starts_afresh_where_tfckpt_goes_on(server, templates, tmp_path) -> None:
    cases = [["state file", number, None] for number in range(SAMPLE)]
    plain = server.run("attacks.trial:try_plain", templates[True], str(tmp_path), cases).result()
    ours = try_all(server, templates[False], tmp_path / "ours", cases)
    print("\nplain TensorFlow:", dict(collections.Counter(plain)))
    print("tfckpt:", dict(collections.Counter(one["ended"] for _, one in ours)))
    assert plain.count("fresh") > SAMPLE / 3
    assert [one["ended"] for _, one in ours] == ["newest"] * SAMPLE


@pytest.mark.parametrize("max_to_keep", [None, 2])
def test_a_state_file_leads_nobody_astray(server, templates, tmp_path, max_to_keep) -> None:
    cases = [[attack, 0, max_to_keep] for attack in ATTACKS]
    found = try_all(server, templates[False], tmp_path, cases)
    wrong = [(case[0], end) for case, end in found if end["ended"] != "newest" or end["faults"]]
    assert len(found) == len(ATTACKS)
    assert not wrong


def test_a_state_file_that_may_not_be_read_costs_nothing(server, templates) -> None:
    # Not below pytest's directory, which only its owner may enter.
    place = tempfile.mkdtemp()
    try:
        found = server.run("attacks.trial:try_unreadable", templates[False], place).result()
    finally:
        shutil.rmtree(place)
    assert (found["ended"], found["faults"]) == ("newest", [])
