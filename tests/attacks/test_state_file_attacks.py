"""A state file is a cache: whatever it says or is, the newest checkpoint is restored.

Nothing that it names is followed, listed or deleted, and the next save goes on above all numbers.
"""

from __future__ import annotations

import shutil
import tempfile

import pytest
from attacks.batches import try_all
from attacks.state_files import ATTACKS


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
