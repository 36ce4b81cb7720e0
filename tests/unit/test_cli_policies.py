"""`tfckpt policy schema`, `policy show` and `policy check`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from zoo.command_line import document, run

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


def test_a_wrong_config_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("version: 1\nrestor: {}\n")
    ended = run("policy", "show", tmp_path / "c.yaml")
    assert ended.status == 1
    assert "c.yaml:2:" in ended.err


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
