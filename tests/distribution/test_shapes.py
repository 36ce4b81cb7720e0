"""Saved under one strategy, restored under another: every value is the same, bit for bit.

Each strategy is a process or a cluster of its own, which saves a model of both flavours, one of
them by plain TensorFlow, too, and then reads what all others have saved. Expected values are
computed by NumPy from the names.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo.cluster import FLAVOURS, SEEN, digest, run_servers, run_workers, value_of
from zoo.forkserver import ForkServer, results

SHAPES = ["one device", "2 replicas", "2 workers", "4 workers", "2 partitions"]


def run_under(server: ForkServer, shape: str, function: str, *arguments: Any) -> list[Any]:
    """What a function returns in every process of a strategy."""
    count, _, kind = shape.partition(" ")
    if kind == "workers":
        return results(run_workers(server, int(count), function, *arguments))
    if kind == "partitions":
        return [run_servers(server, int(count), function, *arguments).result()]
    number = int(count) if kind == "replicas" else 1
    return [server.run("zoo.workers:replicas", function, number, *arguments).result()]


def check(server: ForkServer, shapes: Sequence[str], path: Path) -> None:
    """Save under each, restore each under each."""
    places = {shape: str(path / shape.replace(" ", "_")) for shape in shapes}
    canonical: list[Any] = []
    for shape, place in places.items():
        canonical += run_under(server, shape, "save_shapes", place)
    assert all(told == canonical[0] for told in canonical)
    wrong = []
    for below in shapes:
        for process in run_under(server, below, "restore_shapes", [*places.values()]):
            for above, flavour in itertools.product(shapes, (*FLAVOURS, "plain")):
                found = process[flavour][places[above]]
                wrong += [
                    f"{name} of {flavour}, saved under {above}, restored under {below}: {got}"
                    for name, got in found.items()
                    if got != expected(name, got)
                ]
    assert not wrong, "\n".join(wrong[:10])


def expected(name: str, got: str) -> str:
    """What the value should be, of the shape and type that it has."""
    if name == "seen":
        return digest(np.int64(SEEN))
    dtype, _, rest = got.partition("(")
    shape = tuple(int(side) for side in rest.partition(")")[0].split(",") if side.strip())
    return digest(value_of(name, shape, dtype))


# examples/distribute goes from workers and from parameter servers to one device
@pytest.mark.parametrize(
    "shapes", [SHAPES[:2], pytest.param(SHAPES, marks=pytest.mark.long)], ids=["two", "all"]
)
def test_every_shape_is_restored_under_every_other(server, tmp_path, shapes) -> None:
    check(server, shapes, tmp_path)


# The programs in examples/distribute, each as the script that it is

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "distribute"
SAYS = {
    "mirrored": "two devices trained, one has the same weights, bit for bit",
    "multi_worker": "  starts at step 5 from ckpt-1\nthe weights are the same, bit for bit",
    "parameter_server": "  on one device the table is [10, 4], bit for bit",
}


@pytest.mark.parametrize("name", SAYS)
def test_an_example_ends_as_it_says(name, server, tmp_path) -> None:
    path = str(EXAMPLES / f"{name}.py")
    outcome = server.run("zoo.cluster:script", path, str(tmp_path), timeout=300.0)
    outcome.result()
    # What is logged may come between two lines: with untested versions there is a warning.
    lines = outcome.output.splitlines(keepends=True)
    said = "".join(line for line in lines if not line.startswith("WARNING:absl:"))
    assert f"{SAYS[name]}\n" in said
    left = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert left in ([], ["__pycache__"])  # of the files that autograph writes
