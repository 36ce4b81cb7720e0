"""The same suggestion ends a refusal, in Python, on the command line, and in the drop-in."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from zoo import command_line
from zoo.variables import inner

import tfckpt

SCRIPT = """
import {keras} as keras

def build():
    layers = [keras.layers.Dense(8, name="stem"), keras.layers.Dense({classes}, name="head")]
    return keras.Sequential([keras.Input((4,)), *layers])
"""
LINES = (
    'rename: [{checkpoint: "model/body/**", model: "model/stem/**"}]',
    'exclude: ["model/head/**"]',
)


def build(k: Any, body: str, classes: int) -> Any:
    layers = [k.layers.Dense(8, name=body), k.layers.Dense(classes, name="head")]
    return k.Sequential([k.Input((4,)), *layers])


@pytest.fixture
def saved(flavour: Any, tmp_path: Any, monkeypatch: Any) -> Any:
    """A checkpoint of a model with a body and three classes; a script that has other ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("script", "other", "same"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    Path("script.py").write_text(SCRIPT.format(keras=flavour.__name__, classes=5))
    model = build(flavour, "body", 3)
    tfckpt.Checkpoint(model=model).save("ckpt")
    return model


def holds(model: Any, saved: Any) -> None:
    for one, other in zip(model.layers[0].weights, saved.layers[0].weights, strict=True):
        np.testing.assert_array_equal(inner(one).numpy(), inner(other).numpy())


def test_a_refusal_ends_with_it_and_has_it_as_a_policy(saved: Any, flavour: Any) -> None:
    model = build(flavour, "stem", 5)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore("ckpt-1", model)
    report, _, call = str(refused.value).partition("\n\nin Python:\n\n")
    assert "this policy restores 2 of 4 values; model/head stays new:" in report
    assert [line.strip() for line in report.splitlines()[-2:]] == list(LINES)
    untouched = model.get_layer("stem").get_weights()
    eval(call.strip().replace("…", "model"), {"tfckpt": tfckpt, "model": model})
    holds(model, saved)
    model.get_layer("stem").set_weights(untouched)
    tfckpt.restore("ckpt-1", model, policy=refused.value.suggestion)
    holds(model, saved)


def test_it_is_found_without_an_error(saved: Any, flavour: Any) -> None:
    model = build(flavour, "stem", 5)
    found = tfckpt.suggest("ckpt-1", model)
    assert found is not None
    assert [line.strip() for line in str(found).splitlines()[-2:]] == list(LINES)
    tfckpt.restore("ckpt-1", model, policy=found.policy)
    holds(model, saved)
    assert tfckpt.suggest("ckpt-1", build(flavour, "body", 3)) is None


def test_the_drop_in_shows_two_lines_of_python(saved: Any, flavour: Any) -> None:
    model = build(flavour, "stem", 5)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=model).restore("ckpt-1")
    policy, call = (line.strip() for line in str(refused.value).splitlines()[-2:])
    names: dict[str, Any] = {}
    exec(policy, names)
    assert call == "tfckpt.restore('ckpt-1', model=…, policy=policy)"
    tfckpt.restore("ckpt-1", model=model, policy=names["policy"])
    holds(model, saved)


def test_a_refused_callback_ends_with_the_call_that_takes_it(saved: Any, flavour: Any) -> None:
    directory, x = "runs/a run", np.ones((8, 4), "float32")
    saved.compile("sgd", "mse")
    saved.fit(x, x[:, :3], verbose=0, callbacks=[tfckpt.callbacks.resume(saved, directory)])
    model = build(flavour, "stem", 5)
    model.compile("sgd", "mse")
    with pytest.raises(tfckpt.RefusedError) as refused:
        model.fit(x, np.ones((8, 5)), callbacks=[tfckpt.callbacks.resume(model, directory)])
    (call,) = (line.strip() for line in str(refused.value).partition("\n\nin Python:\n\n")[2:])
    assert call.startswith("tfckpt.callbacks.resume(model, 'runs/a run', policy={")
    callback = eval(call, {"tfckpt": tfckpt, "model": model})
    model.fit(x, np.ones((8, 5)), verbose=0, callbacks=[callback])
    holds(model, saved)


def test_plan_ends_with_it(saved: Any, flavour: Any) -> None:
    Path("c.yaml").write_text("version: 1\nrestore: {path: ckpt-1}\n")
    ended = command_line.run("plan", "c.yaml", "--model", "script:build")
    assert ended.status == 1
    assert [line.strip() for line in ended.out.splitlines()[-2:]] == list(LINES)


def test_plan_writes_a_config_that_works(saved: Any, flavour: Any) -> None:
    arguments = "plan", "ckpt-1", "--model", "script:build", "--write", "c.yaml"
    ended = command_line.run(*arguments)
    assert (ended.status, ended.err) == (0, "c.yaml: written\n")
    assert [line.strip() for line in ended.out.splitlines()[-2:]] == list(LINES)
    model = build(flavour, "stem", 5)
    tfckpt.restore("c.yaml", model)
    holds(model, saved)
    again = command_line.run(*arguments)
    assert (again.status, again.err) == (1, "tfckpt: c.yaml already exists; choose another name\n")
    ended = command_line.run("plan", "c.yaml", "--model", "script:build", "--write", "d.yaml")
    assert ended.status == 2
    assert "--write needs a checkpoint, not a config: add the lines to c.yaml" in ended.err


def test_plan_writes_nothing_where_no_policy_is_needed_or_found(saved: Any, flavour: Any) -> None:
    Path("other.py").write_text(
        f"import {flavour.__name__} as keras\n\n\ndef build():\n"
        "    layers = [keras.Input((7,)), keras.layers.Dense(9, name='x')]\n"
        "    return keras.Sequential(layers)\n"
    )
    Path("same.py").write_text(
        SCRIPT.format(keras=flavour.__name__, classes=3).replace("stem", "body")
    )
    none = command_line.run("plan", "ckpt-1", "--model", "other:build", "--write", "c.yaml")
    assert none.status == 1
    assert none.err == "c.yaml: not written: no policy was found that would restore it\n"
    fine = command_line.run("plan", "ckpt-1", "--model", "same:build", "--write", "c.yaml")
    assert fine.status == 0
    assert fine.err == "c.yaml: not written: no policy is needed\n"
    assert not Path("c.yaml").exists()


def test_a_run_that_counts_its_saves_asks_for_no_counter(saved: Any, flavour: Any) -> None:
    """The checkpoint has none; the head is another one, and nothing else is suggested."""
    path = tfckpt.Checkpoint(model=saved).write("written")
    run = tfckpt.from_config({"version": 1, "restore": {"path": path}}, build(flavour, "body", 5))
    with pytest.raises(tfckpt.RefusedError) as refused:
        run.restore()
    assert refused.value.suggestion.model_fields_set - {"name"} == {"exclude"}
    assert str(refused.value).splitlines()[-1].strip() == 'exclude: ["model/head/**"]'


def test_plan_as_json_has_the_policy(saved: Any, flavour: Any) -> None:
    found = command_line.document("plan", "ckpt-1", "--model", "script:build", status=1)
    assert found["ok"] is False
    model = build(flavour, "stem", 5)
    tfckpt.restore("ckpt-1", model, policy=found["suggestion"])
    holds(model, saved)


ALIKE = """
import {keras} as keras

def build(names=("a", "b")):
    layers = [keras.layers.Dense(8, name=name) for name in names]
    return keras.Sequential([keras.Input((8,)), *layers])
"""


def test_plan_where_a_person_must_decide(flavour: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "alike", raising=False)
    Path("alike.py").write_text(ALIKE.format(keras=flavour.__name__))
    alike = importlib.import_module("alike")
    tfckpt.Checkpoint(model=alike.build("xy")).write("two")
    ended = command_line.run("plan", "two", "--model", "alike:build", "--write", "c.yaml")
    assert ended.status == 1
    assert "model/a, model/b: each may be one of model/x, model/y" in ended.out
    assert 'rename: [{checkpoint: "model/x/**", model: "model/a/**"}]' in ended.out
    assert not Path("c.yaml").exists()
    found = tfckpt.suggest("two", alike.build("ab"))
    assert found is not None
    assert found.policy is None
    assert {one.live: one.stored for one in found.choices} == {
        "model/a": ("model/x", "model/y"),
        "model/b": ("model/x", "model/y"),
    }
    assert found.choices[0].rename == ("model/x/**", "model/a/**")
