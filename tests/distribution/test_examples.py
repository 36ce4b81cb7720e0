"""The programs in examples/distribute: each runs as the script that it is, and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

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
