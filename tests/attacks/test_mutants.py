"""Mutants of every container that tfckpt opens: read or refused, in bounded time and memory."""

from __future__ import annotations

import pytest
from attacks import mutants
from zoo.resident import MEASURED

SEED = 20261129


@MEASURED
@pytest.mark.parametrize("count", [5, pytest.param(1700, marks=pytest.mark.long)])
def test_no_mutant_aborts_hangs_fills_the_memory_or_lies(server, tmp_path, count: int) -> None:
    print(f"seed {SEED}: {count} of each container")
    paths = mutants.write_all(tmp_path, mutants.CONTAINERS)
    endings, faults = mutants.run(server, paths, SEED, range(count))
    assert not faults, "\n\n".join(faults)
    for name, ended in endings.items():
        assert ended.total() == count, name
        assert ended["refused"] >= count / 5, name
