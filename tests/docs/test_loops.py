"""The loops in examples/loops: killed at any step and started again, they end with the same bits.

Each runs as the script that it is, once through, and once with interruptions: the process sends
itself SIGKILL before or after the save of a random step, and at last SIGTERM.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOPS = Path(__file__).resolve().parents[2] / "examples" / "loops"
SCRIPTS = ["ring.py", "spirals.py", "replay.py"]
STEPS, EVERY = 60, 10
SEED = int(os.environ.get("TFCKPT_SEED", "4"))
# As the page says of tf_keras: layers that draw random numbers need generators with a state.
TF_KERAS = (
    "import tf_keras as keras\nkeras.backend.experimental.enable_tf_random_generator()",
    "import keras",
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module", params=["keras", "tf_keras"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, ForkServer]]:
    pytest.importorskip(request.param)
    with ForkServer(preload=("tensorflow", request.param, "tfckpt")) as server:
        yield request.param, server


def train(script: str, keras: str, run_dir: str, at: int, when: str, by: int) -> str:
    """Run a script; what it prints. A signal comes before or after what it does at a step."""
    import tfckpt

    go_on = tfckpt.Run.save_if_due

    def save_if_due(self: Any, **more: Any) -> str | None:
        here = int(self.checkpoint.step) == at
        if here and when == "before":
            os.kill(os.getpid(), by)
        path = go_on(self, **more)
        if here and when == "after":
            os.kill(os.getpid(), by)
        return path

    tfckpt.Run.save_if_due = save_if_due
    os.environ["RUN_DIR"] = run_dir
    sys.path.insert(0, str(LOOPS))
    text = (LOOPS / script).read_text(encoding="utf-8")
    if keras == "tf_keras":
        new, old = TF_KERAS
        assert text.count(old) == 1
        text = text.replace(old, new)
    printed = io.StringIO()
    names = {"__name__": "__main__", "__file__": str(LOOPS / script)}
    with contextlib.redirect_stdout(printed):
        exec(compile(text, script, "exec"), names)
    return printed.getvalue()


def ending(printed: str) -> str:
    (found,) = re.findall(r"^ends after step 60 with \w{16}$", printed, re.MULTILINE)
    return found


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_loop_that_is_killed_ends_as_one_that_was_not(script, kills, server, tmp_path) -> None:
    keras, server = server

    def run(directory: str, at: int = -1, when: str = "", by: int = 0) -> Any:
        arguments = script, keras, str(tmp_path / directory), at, when, by
        return server.run((__file__, "train"), *arguments, timeout=300)

    whole = run("whole").result()
    assert whole.startswith("begins after step 0\n")
    draw = random.Random(f"{SEED} {script} {keras}")
    at = [*sorted(draw.sample(range(1, STEPS - EVERY), kills)), STEPS - draw.randrange(1, EVERY)]
    when = [draw.choice(["before", "after"]) for _ in range(kills)]
    print(f"TFCKPT_SEED={SEED}: SIGKILL {when}, SIGTERM before the save of steps {at}")
    for step, moment in zip(at, when, strict=False):
        killed = run("killed", step, moment, signal.SIGKILL)
        assert killed.signal == signal.SIGKILL, killed
    stopped = run("killed", at[-1], "before", signal.SIGTERM)
    assert "SystemExit: 143" in str(stopped.error), stopped  # after a save of this very step
    resumed = run("killed").result()
    assert resumed.startswith(f"begins after step {at[-1]}\n")
    assert ending(resumed) == ending(whole)
