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
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient
from zoo.forkserver import ForkServer

if TYPE_CHECKING:
    from collections.abc import Iterator


pytest.importorskip("sklearn", reason="the demo's data comes with scikit-learn")


PROJECT = Path(__file__).resolve().parents[2]


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


PAGE = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(PAGE, as_version=4)
    there = tmp_path_factory.mktemp("notebook")
    client = NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(there)}}, allow_errors=False
    )
    client.execute(env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    return notebook


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def html(notebook: Any) -> list[str]:
    shown = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    return [one.data["text/html"] for one in shown if "text/html" in one.get("data", {})]


def test_it_is_kept_without_outputs() -> None:
    notebook = nbformat.read(PAGE, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)
    assert {cell.execution_count for cell in code} == {None}


def test_the_second_fit_goes_on_where_the_first_ended(ran: Any) -> None:
    text = printed(ran)
    assert re.search(r"^restored runs/notebook/ckpt-3 \(epoch 3\)", text, re.MULTILINE)
    assert text.count("saved ckpt-") == 5


def test_what_it_looks_at_is_shown_as_tables(ran: Any) -> None:
    listed, contents, changed, plan, report = html(ran)
    assert listed.count("would be deleted") == 2
    assert "model/hidden/kernel" in contents
    assert "relative" in changed
    assert "refused" in plan
    assert "model/body/**" in plan
    assert re.search("RENAMED.*model/body/kernel", report, re.DOTALL)


def test_its_config_is_the_one_in_configs() -> None:
    config = (PAGE.parents[1] / "configs" / "notebook.yaml").read_text(encoding="utf-8")
    notebook = nbformat.read(PAGE, as_version=4)
    assert any(f'"""\n{config}"""' in cell.source for cell in notebook.cells)


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
