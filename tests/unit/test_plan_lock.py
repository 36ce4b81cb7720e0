"""A plan, locked: written by command or in Python, refused where anything resolves otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from zoo.command_line import document, run
from zoo.restores import same, stack

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

LOCK = "finetune.lock.json"
UNREADABLE = "this version of tfckpt cannot read it as a lock"


@pytest.fixture
def model(flavour, tmp_path, monkeypatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)

    def build(seed: int, classes: int = 2) -> Any:
        network = stack(flavour, "body", flavour.layers.Dense(classes, name="head"))
        random = np.random.default_rng(seed)
        network.set_weights([random.uniform(0.1, 1, w.shape) for w in network.get_weights()])
        return network

    return build


def config(**policy: Any) -> dict[str, Any]:
    policy = {"include": ["model/body/**"], "lock": LOCK, **policy}
    return {"version": 1, "restore": {"path": "zoo/ckpt-1", "policy": policy}}


@pytest.fixture
def locked(model) -> str:
    """The content of the lock of a model's fine-tuning."""
    tfckpt.Checkpoint(model=model(1)).save("zoo/ckpt")
    text: str = tfckpt.plan(config(), model=model(2)).lock()
    Path(LOCK).write_text(text, encoding="utf-8")
    return text


def refused(declared: dict[str, Any], network: Any) -> list[str]:
    """The messages of a restore that the lock refuses, and that changes nothing."""
    before = network.get_weights()
    assert not tfckpt.plan(declared, model=network).ok
    with pytest.raises(tfckpt.RefusedError) as caught:
        tfckpt.restore(declared, model=network)
    same(network.get_weights(), before)
    messages = [problem.message for problem in caught.value.plan.drift]
    assert all(message.startswith(f"lock {LOCK}: ") for message in messages)
    assert "--lock" in caught.value.plan.drift[-1].hint
    assert LOCK in str(caught.value)
    return [message.removeprefix(f"lock {LOCK}: ") for message in messages]


def test_what_resolves_as_locked_is_restored_and_the_lock_is_sorted_json(locked, model) -> None:
    target = model(2)
    tfckpt.restore(config(), model=target)
    same(target.get_weights()[:2], model(1).get_weights()[:2])
    tree = json.loads(locked)
    assert tree["version"] == 1
    assert [source["path"] for source in tree["sources"]] == ["zoo/ckpt-1"]
    names = [value.get("name", value.get("from")) for value in tree["values"]]
    assert names == sorted(names)
    by_name = {value["name"]: value for value in tree["values"] if "name" in value}
    kernel = by_name["model/body/kernel"]
    assert (kernel["status"], kernel["from"]) == ("LOADED", "model/body/kernel")
    assert (kernel["dtype"], kernel["shape"], kernel["stored_shape"]) == ("float32", [3, 3], [3, 3])
    assert isinstance(kernel["crc32c"], int)
    assert by_name["model/head/kernel"]["status"] == "EXCLUDED"
    assert len([line for line in locked.splitlines() if '"model/body/kernel"' in line]) == 1


def test_a_source_of_which_a_byte_changed_is_refused(locked, model) -> None:
    network = model(1)
    changed = network.get_weights()
    changed[0][0, 0] += 1
    network.set_weights(changed)
    for file in Path("zoo").iterdir():
        file.unlink()
    tfckpt.Checkpoint(model=network).save("zoo/ckpt")
    first, second = refused(config(), model(2))
    assert first.startswith("zoo/ckpt-1: its content differs from that of zoo/ckpt-1")
    assert second.startswith("model/body/kernel: crc32c ")


def test_what_is_no_lock_or_another_one_is_refused(locked, model) -> None:
    tree = json.loads(locked)
    broken = [json.dumps({**tree, "values": [3]}), json.dumps({**tree, "sources": None})]
    for text in ("", "[]", "{}", '{"version":2}', "\xff", "[" * 100_000, *broken):
        Path(LOCK).write_text(text, encoding="latin-1")
        assert refused(config(), model(2)) == [UNREADABLE]
    tree["values"] = [{"name": f"model/{number}", "status": "LOADED"} for number in range(50)]
    Path(LOCK).write_text(json.dumps(tree), encoding="utf-8")
    messages = refused(config(), model(2))
    assert len(messages) == 21
    assert messages[-1].endswith(" more")
    Path(LOCK).unlink()
    assert refused(config(), model(2)) == ["the file does not exist"]
    plan = tfckpt.plan(config(include=["model/bdy/**"]), model=model(2))
    with pytest.raises(tfckpt.RefusedError, match="cannot be locked"):
        plan.lock()
    Path(LOCK).mkdir()
    with pytest.raises(tfckpt.RestoreError, match="the lock cannot be read"):
        tfckpt.plan(config(), model=model(2))


def test_several_sources_are_one_lock(model) -> None:
    tfckpt.Checkpoint(model=model(1)).save("a/ckpt")
    tfckpt.Checkpoint(model=model(2)).save("b/ckpt")
    members = [
        {"path": "a/ckpt-1", "policy": {"include": ["model/body/**"], "lock": LOCK}},
        {"path": "b/ckpt-1", "policy": {"include": ["model/head/**"]}},
    ]
    declared = {"version": 1, "restore": {"all_of": members}}
    text = tfckpt.plan(declared, model=model(3)).lock()
    Path(LOCK).write_text(text, encoding="utf-8")
    assert tfckpt.plan(declared, model=model(3)).ok
    assert [source["path"] for source in json.loads(text)["sources"]] == ["a/ckpt-1", "b/ckpt-1"]


SCRIPT = """
import keras

def build(classes=2):
    layers = [keras.layers.Dense(3, name="body"), keras.layers.Dense(classes, name="head")]
    return keras.Sequential([keras.Input((3,)), *layers])

def another():
    return build(7)
"""


def test_the_command_locks_holds_against_it_and_locks_anew(model, locked, monkeypatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    Path("lock_script.py").write_text(SCRIPT, encoding="utf-8")
    Path("c.yaml").write_text(json.dumps(config()), encoding="utf-8")
    Path("bad.yaml").write_text(json.dumps(config(include=["model/bdy/**"])), encoding="utf-8")
    Path(LOCK).unlink()

    def plan(target: str, *more: str, of: str = "c.yaml") -> Any:
        return run("plan", of, "--model", f"lock_script:{target}", *more)

    assert plan("build", "--lock", LOCK, of="bad.yaml").status == 1
    assert not Path(LOCK).exists()  # a refused plan writes none
    ended = plan("build")
    assert (ended.status, "the file does not exist" in ended.out) == (1, True)
    assert plan("build", "--lock", LOCK).status == 0
    first = Path(LOCK).read_text(encoding="utf-8")
    assert plan("build").status == 0
    ended = plan("another")
    assert (ended.status, "model/head/bias: shape [2] → [7]" in ended.out) == (1, True)
    assert Path(LOCK).read_text(encoding="utf-8") == first
    assert plan("another", "--lock", LOCK).status == 0
    assert plan("another").status == 0
    told = document("plan", "c.yaml", "--model", "lock_script:build", status=1)
    assert told["ok"] is False
    messages = [problem["message"] for problem in told["problems"]]
    assert f"lock {LOCK}: model/head/bias: shape [7] → [2]" in messages
    ended = plan("build", "--lock", "absent/lock.json")
    assert (ended.status, "absent/lock.json: cannot write the lock" in ended.err) == (1, True)
