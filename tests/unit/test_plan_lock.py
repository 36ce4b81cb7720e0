"""A plan, locked: written by command or in Python, refused where anything resolves otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
from tfckpt.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

LOCK = "finetune.lock.json"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(flavour) -> Callable[..., Any]:
    def build(seed: int, body: str = "body", classes: int = 2) -> Any:
        network = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name=body),
                flavour.layers.Dense(classes, name="head"),
            ]
        )
        random = np.random.default_rng(seed)
        network.set_weights([random.uniform(0.1, 1, w.shape) for w in network.get_weights()])
        return network

    return build


def config(path: str = "zoo/ckpt-1", **policy: Any) -> dict[str, Any]:
    policy = {"include": ["model/body/**"], "lock": LOCK, **policy}
    return {"version": 1, "restore": {"path": path, "policy": "p"}, "policies": {"p": policy}}


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
    for new, old in zip(network.get_weights(), before, strict=True):
        np.testing.assert_array_equal(new, old)
    messages = [problem.message for problem in caught.value.plan.drift]
    assert all(message.startswith(f"lock {LOCK}: ") for message in messages)
    assert "--lock" in caught.value.plan.drift[-1].hint
    assert LOCK in str(caught.value)
    return [message.removeprefix(f"lock {LOCK}: ") for message in messages]


def test_what_resolves_as_locked_is_restored(locked, model) -> None:
    target = model(2)
    tfckpt.restore(config(), model=target)
    for new, expected in zip(target.get_weights()[:2], model(1).get_weights()[:2], strict=True):
        np.testing.assert_array_equal(new, expected)


def test_it_is_sorted_json_of_one_value_a_line(locked) -> None:
    tree = json.loads(locked)
    assert tree["version"] == 1
    assert [source["path"] for source in tree["sources"]] == ["zoo/ckpt-1"]
    names = [value.get("name", value.get("from")) for value in tree["values"]]
    assert names == sorted(names)
    by_name = {value["name"]: value for value in tree["values"] if "name" in value}
    kernel = by_name["model/body/kernel"]
    assert (kernel["status"], kernel["from"]) == ("LOADED", "model/body/kernel")
    assert (kernel["dtype"], kernel["shape"], kernel["stored_shape"]) == ("float32", [4, 3], [4, 3])
    assert isinstance(kernel["crc32c"], int)
    assert by_name["model/head/kernel"]["status"] == "EXCLUDED"
    lines = [line for line in locked.splitlines() if '"model/body/kernel"' in line]
    assert len(lines) == 1


def test_a_source_of_which_a_byte_changed_is_refused(locked, model) -> None:
    network = model(1)
    changed = network.get_weights()
    changed[0][0, 0] += 1
    network.set_weights(changed)
    for file in Path("zoo").iterdir():
        file.unlink()
    tfckpt.Checkpoint(model=network).save("zoo/ckpt")
    messages = refused(config(), model(2))
    assert messages[0].startswith("zoo/ckpt-1: its content differs from that of zoo/ckpt-1")
    assert messages[1].startswith("model/body/kernel: crc32c ")
    assert len(messages) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":2}', "\xff", "[" * 100_000])
def test_a_file_that_is_no_lock_is_refused(locked, model, text) -> None:
    Path(LOCK).write_text(text, encoding="latin-1")
    assert refused(config(), model(2)) == ["this version of tfckpt cannot read it as a lock"]
    tree = json.loads(locked)
    for broken in ({**tree, "values": [3]}, {**tree, "sources": None}):
        Path(LOCK).write_text(json.dumps(broken), encoding="utf-8")
        assert refused(config(), model(2)) == ["this version of tfckpt cannot read it as a lock"]


def test_a_lock_that_is_absent_or_unreadable_is_refused(locked, model) -> None:
    Path(LOCK).unlink()
    assert refused(config(), model(2)) == ["the file does not exist"]
    Path(LOCK).mkdir()
    with pytest.raises(tfckpt.RestoreError, match="the lock cannot be read"):
        tfckpt.plan(config(), model=model(2))


def test_many_differences_are_counted(locked, model) -> None:
    tree = json.loads(locked)
    tree["values"] = [{"name": f"model/{number}", "status": "LOADED"} for number in range(50)]
    Path(LOCK).write_text(json.dumps(tree), encoding="utf-8")
    messages = refused(config(), model(2))
    assert len(messages) == 21
    assert messages[-1].endswith(" more")


def test_what_is_refused_cannot_be_locked(locked, model) -> None:
    plan = tfckpt.plan(config(include=["model/bdy/**"]), model=model(2))
    with pytest.raises(tfckpt.RefusedError, match="cannot be locked"):
        plan.lock()


def test_several_sources_are_one_lock(model) -> None:
    tfckpt.Checkpoint(model=model(1)).save("a/ckpt")
    tfckpt.Checkpoint(model=model(2)).save("b/ckpt")
    members = [
        {"path": "a/ckpt-1", "policy": {"include": ["model/body/**"], "lock": LOCK}},
        {"average": ["a/ckpt-1", "b/ckpt-1"], "policy": {"include": ["model/head/**"]}},
    ]
    declared = {"version": 1, "restore": {"all_of": members}}
    text = tfckpt.plan(declared, model=model(3)).lock()
    Path(LOCK).write_text(text, encoding="utf-8")
    assert tfckpt.plan(declared, model=model(3)).ok
    first, second = json.loads(text)["sources"]
    assert [share["weight"] for share in second["average"]] == [0.5, 0.5]
    assert second["average"][0]["sha256"] == first["sha256"]
    members[1]["weights"] = [2, 1]
    (message,) = refused(declared, model(3))
    assert message.startswith("the average of a/ckpt-1 and b/ckpt-1: its content differs")


# On the command line

SCRIPT = """
import keras

def build(classes=2):
    layers = [keras.layers.Dense(3, name="body"), keras.layers.Dense(classes, name="head")]
    return keras.Sequential([keras.Input((4,)), *layers])

def another():
    return build(7)
"""
YAML = """version: 1
restore: {path: zoo/ckpt-1, policy: p}
policies:
  p: {include: ["model/body/**"], lock: finetune.lock.json}
"""


def test_the_command_locks_holds_against_it_and_locks_anew(tmp_path, monkeypatch, capsys) -> None:
    import keras

    monkeypatch.syspath_prepend(tmp_path)
    Path("lock_script.py").write_text(SCRIPT, encoding="utf-8")
    Path("c.yaml").write_text(YAML, encoding="utf-8")
    source = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(3, name="body"), keras.layers.Dense(2, name="head")]
    )
    tfckpt.Checkpoint(model=source).save("zoo/ckpt")

    def run(target: str, *more: str) -> int:
        return main(["tfckpt", "plan", "c.yaml", "--model", f"lock_script:{target}", *more])

    assert run("build") == 1
    assert "the file does not exist" in capsys.readouterr().out
    assert run("build", "--lock", LOCK) == 0
    first = Path(LOCK).read_text(encoding="utf-8")
    assert run("build") == 0
    assert run("another") == 1
    assert Path(LOCK).read_text(encoding="utf-8") == first
    assert "model/head/bias: shape [2] → [7]" in capsys.readouterr().out
    assert run("another", "--lock", LOCK) == 0
    assert run("another") == 0
    capsys.readouterr()
    assert run("build", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert f"lock {LOCK}: model/head/bias: shape [7] → [2]" in [
        problem["message"] for problem in document["problems"]
    ]
    assert run("build", "--lock", "absent/lock.json") == 1
    assert "absent/lock.json: cannot write the lock" in capsys.readouterr().err


def test_a_refused_plan_writes_no_lock(tmp_path, monkeypatch) -> None:
    import keras

    monkeypatch.syspath_prepend(tmp_path)
    Path("lock_script.py").write_text(SCRIPT, encoding="utf-8")
    Path("c.yaml").write_text(YAML.replace("body", "bdy"), encoding="utf-8")
    tfckpt.Checkpoint(model=keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])).save(
        "zoo/ckpt"
    )
    assert main(["tfckpt", "plan", "c.yaml", "--model", "lock_script:build", "--lock", LOCK]) == 1
    assert not Path(LOCK).exists()
