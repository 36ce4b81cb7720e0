"""The programs in examples: the demo, the notebook, and loops that are killed and started again."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from zoo.forkserver import ForkServer

pytest.importorskip("sklearn", reason="the demo's data comes with scikit-learn")

PROJECT = Path(__file__).resolve().parents[2]
NOTEBOOK = PROJECT / "examples" / "notebook.ipynb"
LOOPS = PROJECT / "examples" / "loops"
STEPS, EVERY = 30, 10  # of 60 steps in the programs, half are enough
SEED = int(os.environ.get("TFCKPT_SEED", "4"))
# As the page says of tf_keras: layers that draw random numbers need generators with a state.
TF_KERAS = (
    "import tf_keras as keras\nkeras.backend.experimental.enable_tf_random_generator()",
    "import keras",
)


def test_the_demo_resumes_and_fine_tunes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROJECT / "examples" / "digits" / "demo.py")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
    killed = re.search(r"newest commit is (ckpt-\d+), (\d+) epochs finished", done.stdout)
    resumed = re.search(r"restored (ckpt-\d+), trained to epoch (\d+): (\d+) steps", done.stdout)
    assert killed is not None
    assert resumed is not None
    assert resumed[1] == killed[1]
    assert int(killed[2]) < int(resumed[2]) == 10
    (batches,) = {int(count) for count in re.findall(r"^(\d+)/\1 - ", done.stdout, re.MULTILINE)}
    assert int(resumed[3]) == 10 * batches
    (with_restore,) = re.findall(r"with the pre-trained layers +([\d.]+)%", done.stdout)
    (without,) = re.findall(r"the same training without them +([\d.]+)%", done.stdout)
    assert float(with_restore) > float(without)


def test_the_notebook_is_kept_without_outputs_and_shows_what_it_says(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)
    config = (PROJECT / "configs" / "notebook.yaml").read_text(encoding="utf-8")
    assert any(f'"""\n{config}"""' in cell.source for cell in code)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    outputs = [output for cell in code for output in cell.outputs]
    text = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert re.search(r"^restored runs/notebook/ckpt-3 \(epoch 3\)", text, re.MULTILINE)
    assert text.count("saved ckpt-") == 5
    data = (output.get("data", {}) for output in outputs)
    listed, contents, changed, plan, report = (
        one["text/html"] for one in data if "text/html" in one
    )
    assert listed.count("would be deleted") == 2
    assert "model/hidden/kernel" in contents
    assert "relative" in changed
    assert "refused" in plan
    assert "model/body/**" in plan
    assert re.search("RENAMED.*model/body/kernel", report, re.DOTALL)


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
    text = (LOOPS / script).read_text(encoding="utf-8").replace("STEPS = 60", f"STEPS = {STEPS}")
    if keras == "tf_keras":
        new, old = TF_KERAS
        assert text.count(old) == 1
        text = text.replace(old, new)
    names = {"__name__": "__main__", "__file__": str(LOOPS / script)}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, script, "exec"), names)
    return printed.getvalue()


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("script", "keras"),
    [
        *(("ring.py", "keras"), ("spirals.py", "keras"), ("replay.py", "keras")),
        ("spirals.py", "tf_keras"),
        *(
            pytest.param(name, "tf_keras", marks=pytest.mark.long)
            for name in ("ring.py", "replay.py")
        ),
    ],
)
def test_a_loop_that_is_killed_ends_as_one_that_was_not(
    script: str, keras: str, kills: int, server: ForkServer, tmp_path: Path
) -> None:
    def run(directory: str, at: int = -1, when: str = "", by: int = 0) -> Any:
        arguments = script, keras, str(tmp_path / directory), at, when, by
        return server.run((__file__, "train"), *arguments, timeout=300)

    def ending(printed: str) -> str:
        (found,) = re.findall(rf"^ends after step {STEPS} with \w{{16}}$", printed, re.MULTILINE)
        return found

    whole = run("whole").result()
    assert whole.startswith("begins after step 0\n")
    draw = random.Random(f"{SEED} {script} {keras}")
    at = [*sorted(draw.sample(range(1, STEPS - EVERY), kills)), STEPS - draw.randrange(1, EVERY)]
    when = [draw.choice(["before", "after"]) for _ in range(kills)]
    print(f"TFCKPT_SEED={SEED}: SIGKILL {when}, SIGTERM before the save of steps {at}")
    for step, moment in zip(at, when, strict=False):
        killed = run("killed", step, moment, signal.SIGKILL)
        assert killed.signal == signal.SIGKILL, killed
    begun = r"\d+"
    if script == "spirals.py" or kills > 1:
        stopped, begun = run("killed", at[-1], "before", signal.SIGTERM), str(at[-1])
        assert "SystemExit: 143" in str(stopped.error), stopped  # after a save of this very step
    resumed = run("killed").result()
    assert re.match(f"begins after step {begun}\n", resumed)
    assert ending(resumed) == ending(whole)
