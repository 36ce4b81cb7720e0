"""`tfckpt plan --expect FILE`: a plan against what `--json` printed before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml
from zoo.command_line import run

import tfckpt

SCRIPT = """
import tensorflow as tf

def build(classes=2, head="head"):
    model = tf.Module()
    model.body = tf.Variable([[1.0, 2.0]])
    setattr(model, head, tf.Variable([0.0] * classes))
    return model

def wider():
    return build(3)

def renamed():
    return build(head="top")
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    """A checkpoint, a config, and its plan in `plan.json`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("expect_script.py").write_text(SCRIPT, encoding="utf-8")
    saved = tf.Module()
    saved.body, saved.head = tf.Variable([[5.0, 6.0]]), tf.Variable([7.0, 8.0])
    tfckpt.Checkpoint(model=saved).write("zoo/net")
    write_config()
    Path("plan.json").write_text(planned("--json").out, encoding="utf-8")


def write_config(path: str = "zoo/net", **policy: Any) -> None:
    policy = {"api": "read", "on_missing": "ignore", "on_unexpected": "ignore", **policy}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    Path("c.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def planned(*more: str, build: str = "build") -> Any:
    return run("plan", "c.yaml", "--model", f"expect_script:{build}", *more)


def compared(build: str = "build") -> tuple[int, list[str]]:
    ended = planned("--expect", "plan.json", build=build)
    return ended.status, ended.out.splitlines()


def test_the_same_plan_is_as_expected_wherever_its_files_are() -> None:
    assert compared() == (0, ["as in plan.json: 2 values"])
    shutil.move("zoo", "moved")
    write_config("moved/net", include=["model/**"], on_missing="warn")
    assert compared() == (0, ["as in plan.json: 2 values"])
    ended = planned("--expect", "plan.json", "--json")
    assert (ended.status, ended.err.splitlines()[-1]) == (0, "as in plan.json: 2 values")
    assert json.loads(ended.out)["ok"]


HEAD = "LOADED, from model/head, float32 [2]"
NO_MORE = "UNEXPECTED, from model/head, float32 [2]"
WIDER = "MISMATCH, from model/head, float32 [3] ← float32 [2]"
RENAMED = {"checkpoint": "model/head", "model": "model/top"}
# the model, the policy, and what differs: value, then, now
CHANGED = {
    "excluded": ("build", {"exclude": ["model/head"]},
                 [("model/head", HEAD, "EXCLUDED, from model/head, float32 [2]")]),
    "another shape": ("wider", {"on_shape_mismatch": "skip"},
                      [("model/head", HEAD, WIDER)]),
    "another name": ("renamed", {}, [("model/head", HEAD, NO_MORE),
                                     ("model/top", "nothing", "MISSING, float32 [2]")]),
    "renamed": ("renamed", {"rename": [RENAMED]},
                [("model/head", HEAD, "nothing"),
                 ("model/top", "nothing", "RENAMED, from model/head, float32 [2]")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_what_differs_is_listed_then_and_now(case) -> None:
    build, policy, expected = CHANGED[case]
    write_config(**policy)
    status, (first, *lines) = compared(build)
    assert status == 1
    assert first.startswith(f"not as in plan.json: {len(expected)} of ")
    for name, then, now in expected:
        assert lines[:3] == [f"  {name}", f"    then  {then}", f"    now   {now}"]
        del lines[:3]
    assert not lines


def test_a_refused_plan_is_printed_and_never_as_expected() -> None:
    write_config(on_missing="error", on_unexpected="error")
    status, lines = compared("renamed")
    assert status == 1
    assert any(line.startswith("Plan: refused") for line in lines)
    Path("plan.json").write_text(planned("--json", build="renamed").out, encoding="utf-8")
    ended = planned("--expect", "plan.json", build="renamed")
    assert ended.status == 1
    assert "plan.json: is a plan that is refused" in ended.err


STEP = {"name": "", "source": "a", "status": "LOADED", "parts": [], "live": None, "stored": None}
DAMAGED = [
    "",
    "[]",
    "{}",
    "\xff",
    "[" * 100_000,
    '{"version":1,"ok":true,"steps":[{}]}',
    '{"steps":3}',
]
DAMAGED += [json.dumps({"version": 1, "ok": True, "steps": [{**STEP, "changes": [1]}]})]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_what_is_no_plan_is_named(text) -> None:
    Path("plan.json").write_text(text, encoding="latin-1")
    ended = planned("--expect", "plan.json")
    assert (ended.status, ended.out) == (1, "")
    assert "tfckpt: plan.json: is not what `tfckpt plan --json` prints\n" in ended.err
    Path("plan.json").unlink()
    assert "plan.json: cannot be read: " in planned("--expect", "plan.json").err
