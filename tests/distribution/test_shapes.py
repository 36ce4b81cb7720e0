"""Saved under one strategy, restored under another: every value is the same, bit for bit.

Each strategy is a process or a cluster of its own, which saves a model of both flavours, one of
them by plain TensorFlow, too, and then reads what all others have saved. Expected values are
computed by NumPy from the names.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.cluster import FLAVOURS, SEEN, digest, run_servers, run_workers, value_of
from zoo.forkserver import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from zoo.forkserver import ForkServer


def strategies(server: ForkServer) -> dict[str, Callable[..., list[Any]]]:
    """How to run a function under each; what it returns in every process."""

    def replicas(count: int) -> Callable[..., list[Any]]:
        return lambda function, *arguments: [
            server.run("zoo.workers:replicas", function, count, *arguments).result()
        ]

    def workers(count: int) -> Callable[..., list[Any]]:
        return lambda function, *arguments: results(
            run_workers(server, count, function, *arguments)
        )

    return {
        "one device": replicas(1),
        "2 replicas": replicas(2),
        "2 workers": workers(2),
        "4 workers": workers(4),
        "2 partitions": lambda function, *arguments: [
            run_servers(server, 2, function, *arguments).result()
        ],
    }


def check(server: ForkServer, names: Iterable[str], path: Path) -> None:
    """Save under each, restore each under each, and print the table."""
    run = {name: under for name, under in strategies(server).items() if name in names}
    places = {name: str(path / name.replace(" ", "_")) for name in run}
    canonical: list[Any] = []
    for name, under in run.items():
        canonical += under("save_shapes", places[name])
    assert all(told == canonical[0] for told in canonical)
    print(f"\n{'saved under':<14}" + "".join(f"{name:>14}" for name in run))
    rows = {name: f"{name:<14}" for name in run}
    wrong = []
    for below, under in run.items():
        for process in under("restore_shapes", list(places.values())):
            for above, place in places.items():
                for flavour in (*FLAVOURS, "plain"):
                    wrong += [
                        (above, below, flavour, name, got)
                        for name, got in process[flavour][place].items()
                        if got != expected(name, got)
                    ]
        for above in run:
            bad = any(case[:2] == (above, below) for case in wrong)
            rows[above] += f"{'DIFFERENT' if bad else 'bit-equal':>14}"
    print("\n".join(rows.values()))
    assert not wrong, wrong[:10]


def test_a_sample_of_shapes(server, tmp_path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    others = ["2 replicas", "2 workers", "2 partitions"]
    check(server, ["one device", random.Random(seed).choice(others)], tmp_path)


@pytest.mark.long
def test_every_shape_is_restored_under_every_other(server, tmp_path) -> None:
    check(server, list(strategies(server)), tmp_path)


def expected(name: str, got: str) -> str:
    """What the value should be, of the shape and type that it has."""
    if name == "seen":
        return digest(np.int64(SEEN))
    dtype, _, rest = got.partition("(")
    shape = tuple(int(side) for side in rest.partition(")")[0].split(",") if side.strip())
    return digest(value_of(name, shape, dtype))
