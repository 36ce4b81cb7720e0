"""Commands of policies and of bug reports, the bar of progress, and TensorFlow's log lines."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from zoo.command_line import document, run
from zoo.command_line import run as command

import tfckpt
from tfckpt.cli.main import main
from tfckpt.cli.terminal import amount_and_speed

PROJECT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((PROJECT / "configs").glob("*.yaml"))
SAVING = """
version: 1
manager:
  directory: "runs/$$5/${NAME:-a}"
  save: {every_steps: 5, on_signal: [SIGTERM], grace_seconds: 3}
  max_to_keep: 2
  enable_async: true
  if_busy: skip
restore:
  first_of:
    - {path: "zoo/ckpt-1", policy: {exclude: ["re:model/a$"], assert: none}}
    - {directory: "runs/$$5", select: 3}
"""


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> None:
    for config in CONFIGS:
        for name in re.findall(r"\$\{(\w+)", config.read_text(encoding="utf-8")):
            monkeypatch.setenv(name, "runs/new")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
@pytest.mark.usefixtures("env")
def test_show_prints_what_the_file_says_and_more(config: Path) -> None:
    """Each key of the file is there, as YAML and as JSON."""
    ended = run("policy", "show", config)
    assert ended.status == 0
    shown = yaml.safe_load(ended.out)
    assert document("policy", "show", config)["config"] == shown
    written = yaml.safe_load(config.read_text(encoding="utf-8"))
    assert shown["version"] == 1
    assert shown["policies"].keys() == written.get("policies", {}).keys()
    for name, policy in written.get("policies", {}).items():
        assert policy.keys() - {"preset"} <= shown["policies"][name].keys()
    assert written.get("manager", {}).keys() <= shown.get("manager", {}).keys()


def test_show_resolves_presets_and_variables(tmp_path: Path) -> None:
    (tmp_path / "saving.yaml").write_text(SAVING)
    found = document("policy", "show", tmp_path / "saving.yaml")["config"]
    assert found["manager"]["directory"] == "runs/$5/a"
    assert found["restore"]["first_of"][0]["policy"]["on_missing"] == "warn"


def test_the_schema_is_the_one_that_editors_read() -> None:
    schema = PROJECT / "tfckpt" / "policy" / "schema.json"
    published = json.loads(schema.read_text(encoding="utf-8"))
    assert json.loads(run("policy", "schema").out) == published
    assert run("policy", "schema", "more").status == 2


def test_check_says_that_nothing_is_saved_by_itself(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("version: 1\nmanager: {directory: runs/a}\n")
    ended = run("policy", "check", config)
    note = (
        "nothing is saved during `fit`: the config has no `manager.save`; add "
        "`save: {every_epochs: 1}`"
    )
    assert (ended.status, ended.out.splitlines()[1:]) == (0, [f"note: {note}"])
    found = document("policy", "check", config)
    assert (found["ok"], found["notes"]) == (True, [note])
    for fine in ("manager: {directory: a, save: {every_steps: 1}}", "restore: {directory: a}"):
        config.write_text(f"version: 1\n{fine}\n")
        assert document("policy", "check", config)["notes"] == []


def test_what_suggests_a_policy_is_said() -> None:
    ended = run("policy", "suggest", "zoo/ckpt-1", "--model", "train:build")
    assert ended.status == 2
    assert "`tfckpt plan PATH --model MODULE:CALLABLE --write FILE` writes a policy" in ended.err


def saved(directory: Path, steps: int = 3) -> list[str]:
    step = tf.Variable(0)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(step=step), directory, None)
    return [manager.save(step=10 * (number + 1), epoch=number + 1) for number in range(steps)]


def test_versions_are_those_that_are_imported() -> None:
    facts = dict(tfckpt.doctor())
    assert facts["tfckpt"] == tfckpt.__version__
    assert facts["Python"].startswith(platform.python_version())
    assert facts["tensorflow"].startswith(f"{tf.__version__} (tested: 2.16 to ")
    assert facts["keras"].startswith(f"{keras.__version__} (tested: 3.1 to ")


def test_a_directory_says_what_the_next_start_does(tmp_path) -> None:
    directory = tmp_path / "run"
    facts = dict(tfckpt.doctor(directory))
    assert facts["next start"] == "begins from initial values, and creates the directory"
    paths = saved(directory)
    facts = dict(tfckpt.doctor(directory))
    assert facts["checkpoints"].startswith("3 committed; ")
    assert facts["next start"] == "resumes from ckpt-3, step 30, epoch 3"
    assert facts["writable"] == "yes"
    for data in directory.glob("ckpt-3.data-*"):
        data.unlink()
    facts = dict(tfckpt.doctor(directory))
    assert "ckpt-3" in facts
    assert facts["next start"] == "passes over ckpt-3; resumes from ckpt-2, step 20, epoch 2"
    again = tfckpt.Checkpoint(step=tf.Variable(0))
    manager = tfckpt.CheckpointManager(again, directory, None)
    assert manager.restore_or_initialize() == paths[1]


def test_who_saves_into_it_is_named(tmp_path) -> None:
    saved(tmp_path, 1)
    assert f"process {os.getpid()} on " in dict(tfckpt.doctor(tmp_path))["lock"]
    program = "import sys, tfckpt; print(dict(tfckpt.doctor(sys.argv[1]))['lock'])"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], check=True, capture_output=True, text=True
    )
    assert f"process {os.getpid()} on " in done.stdout
    assert dict(tfckpt.doctor(tmp_path / ".."))["lock"] == "free: no process saves into it"


def test_the_command_prints_twenty_short_lines_and_a_document(tmp_path) -> None:
    saved(tmp_path)
    status, out, _ = command("doctor", tmp_path)
    assert status == 0
    assert len(out.splitlines()) <= 25
    assert max(map(len, out.splitlines())) <= 80
    assert document("doctor", tmp_path)["facts"] == dict(tfckpt.doctor(tmp_path))
    assert command("doctor", "a", "b").status == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    import tensorflow as tf

    return [
        str(
            tf.train.Checkpoint(v=tf.Variable(np.full(3000, n, "float32"))).write(f"{tmp_path}/{n}")
        )
        for n in (1, 2)
    ]


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize("command", ["diff", "inspect", "verify", "convert"])
def test_a_bar_says_how_much_is_done(
    command: str, person: bool, pair: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {
        "diff": [*pair, "--values"],
        "inspect": [pair[0], "--values"],
        "verify": [pair[0]],
        "convert": [pair[0], str(tmp_path / "a.npz")],
    }
    shown = Terminal() if person else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["tfckpt", command, *arguments[command]]) == (command == "diff")
    if not person:
        assert shown.getvalue() == ""
        return
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    total = {"diff": "23.4 KiB", "verify": "11"}.get(command, "11.7 KiB")
    assert re.search(rf"\d \w+ of {re.escape(total)}", frames)
    assert "?" not in frames
    assert "TB/s" not in frames


@pytest.mark.parametrize(
    ("done", "total", "elapsed", "speed", "text"),
    [
        (0, None, 0.0, None, ""),
        (0, 100, 0.0, None, "0 B of 100 B"),
        (1 << 20, 5 << 30, 0.1, 5e12, "1.0 MiB of 5.0 GiB"),
        (1 << 30, 5 << 30, 8.0, float(128 << 20), "1.0 GiB of 5.0 GiB, 128.0 MiB/s, 32 s left"),
        (0, 900 << 30, 9.0, float(1 << 30), "0 B of 900.0 GiB, 1.0 GiB/s, 15 min left"),
        (100, 100, 9.0, 0.0, "100 B of 100 B"),
    ],
)
def test_speed_and_time_are_shown_once_they_are_known(
    done: int, total: int | None, elapsed: float, speed: float | None, text: str
) -> None:
    assert amount_and_speed(done, total, elapsed, speed) == text


CONFIG = "version: 1\nrestore: {directory: runs/empty, if_none: initialize}\n"


def plan(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    environment = {name: one for name, one in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-m", "tfckpt", "plan", "config.yaml", "--model", "train:build"]
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def test_a_plan_begins_with_the_plan(tmp_path: Path) -> None:
    program = """
import sys
import tensorflow as tf

def build():
    print("built", file=sys.stderr)
    return tf.Module()
"""
    done = plan(tmp_path, program)
    assert "oneDNN" not in done.stderr
    assert "cudart" not in done.stderr
    assert done.stderr.splitlines()[0] == "built"  # what the program itself says is shown


def test_what_was_logged_is_shown_where_the_import_fails(tmp_path: Path) -> None:
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text(
        "import os\nos.write(2, b'F0000 no AVX\\n')\nraise ImportError('cannot load')\n"
    )
    done = plan(tmp_path, "def build():\n    return None\n")
    assert done.returncode != 0
    assert "F0000 no AVX" in done.stderr
