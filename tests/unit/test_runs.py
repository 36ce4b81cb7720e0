"""A run by config: what it builds, restores, resets, saves, and says where it all came from."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.command_line import document, run
from zoo.restores import config, stack

import tfckpt
from tfckpt.policy import Policy

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def fill(seed: int, variables: list[Any]) -> None:
    """Every value its own."""
    random = np.random.default_rng(seed)
    for variable in variables:
        dtype = np.dtype(variable.numpy().dtype)
        low, high = (1, 1000) if dtype.kind in "iu" else (0.1, 1)
        variable.assign(random.uniform(low, high, size=variable.shape).astype(dtype))


def values(variables: Any) -> list[Any]:
    found = variables() if callable(variables) else variables
    return [variable.numpy().tolist() for variable in found]


@pytest.fixture
def network(flavour):
    def build(seed: int) -> Any:
        layers = [flavour.layers.Dense(3, name="body"), flavour.layers.Dense(2, name="head")]
        model = flavour.Sequential([flavour.Input((4,)), *layers])
        fill(seed, model.variables)
        return model

    return build


@pytest.fixture
def prefix(tmp_path) -> str:
    return str(tmp_path / "zoo" / "ckpt")


RESET = {"slots": "reset", "iterations": "reset", "hyperparameters": "config"}
OPTIMIZERS = [("Adagrad", {}), ("Adam", {}), ("Ftrl", {}), ("SGD", {"momentum": 0.9})]


@pytest.mark.parametrize(("name", "more"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_a_reset_optimizer_is_a_newly_built_one(network, flavour, prefix, name, more) -> None:
    usual = getattr(flavour.optimizers, name)

    class Odd(usual):
        def get_config(self) -> dict[str, Any]:
            raise NotImplementedError("no config")

    def optimizer(kind: Any, model: Any, seed: int) -> Any:
        found = kind(0.5, **more)
        found.build(model.trainable_variables)
        held = found.variables() if callable(found.variables) else found.variables
        fill(seed, [each for each in held if seed and "learning_rate" not in each.name])
        return found

    source, target = network(1), network(2)
    path = tfckpt.Checkpoint(model=source, optimizer=optimizer(usual, source, 3)).save(prefix)
    odd = optimizer(Odd, target, 4)
    before = values(target.variables), values(odd.variables)
    with pytest.raises(tfckpt.RestoreError, match="cannot be reset"):
        tfckpt.restore(config(path, optimizer={"slots": "reset"}), model=target, optimizer=odd)
    assert (values(target.variables), values(odd.variables)) == before
    used, new = optimizer(usual, target, 5), optimizer(usual, target, 0)
    assert values(used.variables) != values(new.variables)
    tfckpt.restore(config(path, optimizer=RESET), model=target, optimizer=used)
    assert values(used.variables) == values(new.variables)
    assert values(target.variables) == values(source.variables)
    target.compile(used, "mse", run_eagerly=True)
    target.fit(X, X[:, :2], verbose=0)


# Saves and restarts


def test_what_fails_leaves_the_run_as_it_was(tmp_path) -> None:
    place = tmp_path / "run"
    manager = {"directory": str(place), "save": {"every_steps": 1, "on_signal": ["SIGTERM"]}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(1))
    for wrong in ({"epoch": -1}, {"metrics": {"loss": "low"}}):
        with pytest.raises(tfckpt.SaveError, match=r"epoch|metric"):
            run.save(**wrong)
        assert not place.exists()
    place.write_text("in the way")
    with pytest.raises(tfckpt.TfckptError):
        run.save(epoch=4)
    assert (run.epoch, int(run.checkpoint.save_counter)) == (0, 0)
    place.unlink()
    with ThreadPoolExecutor(1) as other, pytest.raises(tfckpt.TfckptError, match="main thread"):
        other.submit(run.save_if_due).result()
    assert run.save_if_due().endswith("ckpt-1")
    for step in ("x", [1, 2], float("nan")):
        with pytest.raises(tfckpt.TfckptError, match="another keyword"):
            tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(step))


def test_a_step_that_is_no_number_is_refused_before_anything_is_assigned(tmp_path) -> None:
    step, value = tf.Variable(float("nan")), tf.Variable(1.0)
    path = tfckpt.Checkpoint(step=step, value=value).save(str(tmp_path / "ckpt"))
    step, value = tf.Variable(3.0), tf.Variable(2.0)
    run = tfckpt.from_config({"version": 1, "restore": {"path": path}}, step=step, value=value)
    with pytest.raises(tfckpt.RestoreError, match="`step` is not the number of a training step"):
        run.restore()
    assert (step.numpy(), value.numpy(), run.report) == (3.0, 2.0, None)


def test_without_a_restore_section_there_is_nothing_to_restore() -> None:
    step, declared = tf.Variable(1), {"version": 1}
    run = tfckpt.from_config(declared, step=step)
    for ask, given in (
        *((call, {}) for call in (run.restore, run.plan)),
        *((call, {"step": step}) for call in (tfckpt.restore, tfckpt.plan)),
    ):
        with pytest.raises(tfckpt.RestoreError, match="`restore`"):
            ask(*([declared] if given else []), **given)
    assert run.report is None


def test_restore_none_starts_from_scratch_each_time(tmp_path) -> None:
    declared = {"version": 1, "manager": {"directory": str(tmp_path)}, "restore": "none"}
    for start in (1, 2):
        step = tf.Variable(7)
        run = tfckpt.from_config(declared, step=step)
        assert (run.restore().path, int(step)) == ("", 7)
        assert str(run.report).startswith("restore: none: nothing is restored")
        step.assign(8)
        assert run.save().endswith(f"ckpt-{start}")
    with pytest.raises(tfckpt.TfckptError, match="the callback would do nothing"):
        run.callback()


@pytest.mark.parametrize(
    "restore",
    [
        None,
        "own",
        {"directory": "own", "policy": "all"},
        {"first_of": ["own", {"path": "${ELSEWHERE}", "policy": "all"}]},
    ],
)
def test_a_run_goes_on_in_its_own_directory(restore, tmp_path, monkeypatch) -> None:
    """Without a word, too; and a first start takes another source, or the values of the model."""
    step = tf.Variable(7)
    elsewhere = tfckpt.Checkpoint(step=step).save(str(tmp_path / "elsewhere" / "ckpt"))
    monkeypatch.setenv("ELSEWHERE", elsewhere)
    config = {
        "version": 1,
        "manager": {"directory": str(tmp_path / "$own"), "checkpoint_name": "mine"},
        "policies": {
            "base": {"assert": "consumed", "exclude_checkpoint": ["save_counter"]},
            "all": {"extends": "base", "api": "read"},
        },
        "restore": restore,
    }
    config["manager"]["directory"] = config["manager"]["directory"].replace("$", "$$")
    first = 7 if isinstance(restore, dict) and "first_of" in restore else 0
    for start, expected in enumerate((first, 1)):
        step = tf.Variable(0)
        run = tfckpt.from_config(config, step=step)
        report = run.restore()
        assert (int(step), bool(report.path)) == (expected, bool(start or expected))
        step.assign(1)
        assert os.path.split(run.save()) == (str(tmp_path / "$own"), f"mine-{start + 1}")


# Models that have no variables before their first call


@pytest.fixture
def subclassed(flavour):
    """A model that takes one input, or two, and counts its calls."""

    class Net(flavour.Model):
        def __init__(self, inputs: int = 1) -> None:
            super().__init__()
            self.branches = [flavour.layers.Dense(3, name=f"branch_{n}") for n in range(inputs)]
            self.head = flavour.layers.Dense(2, name="head")
            self.calls = 0

        def call(self, inputs: Any) -> Any:
            self.calls += 1
            if isinstance(inputs, dict):
                inputs = [inputs["left"], inputs["right"]]
            inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            return self.head(
                sum(branch(each) for branch, each in zip(self.branches, inputs, strict=True))
            )

    return Net


SPEC = {"shape": [None, 4]}
BUILDS = [
    (1, SPEC, X),
    (2, [SPEC, {"shape": [None, 4], "dtype": "float32"}], [X, X]),
    (2, {"left": SPEC, "right": SPEC}, {"left": X, "right": X}),
]


@pytest.mark.parametrize(("inputs", "spec", "batch"), BUILDS, ids=["one", "list", "names"])
def test_a_model_never_called_is_built_by_its_spec_once(
    subclassed, prefix, inputs, spec, batch
) -> None:
    source, target = subclassed(inputs), subclassed(inputs)
    expected = source(batch).numpy()
    path = tfckpt.Checkpoint(model=source).save(prefix)
    tfckpt.restore(config(path, build={"model": spec}), model=target)
    np.testing.assert_array_equal(target(batch).numpy(), expected)
    calls = target.calls
    tfckpt.restore(config(path, build={"model": spec}), model=target)
    assert target.calls == calls


def test_a_spec_that_is_missing_or_wrong_is_said(subclassed, prefix) -> None:
    source = subclassed(2)
    source([X, X])
    path = tf.train.Checkpoint(model=source).save(prefix)  # without a record of how it was built
    for spec, given, said in (
        ({}, subclassed(2), ["Net", "model(tf.zeros(", "build:"]),
        ({"model": SPEC}, subclassed(2), ["zeros of the declared shape"]),
        ({"modle": SPEC}, subclassed(2), ["given as 'modle'; models and layers given: model"]),
        ({"model": SPEC}, tf.Variable(1), ["given as 'model'; other objects given: step"]),
    ):
        objects = {"step" if isinstance(given, tf.Variable) else "model": given}
        with pytest.raises(tfckpt.NotBuiltError) as error:
            tfckpt.restore(config(path, build=spec), **objects)
        assert not [each for each in said if each not in str(error.value)]
    wide = [{"shape": [None, 7]}] * 2
    with pytest.raises(tfckpt.RefusedError, match="model/branches"):
        tfckpt.restore(config(path, build={"model": wide}), model=subclassed(2))


def renamed(old: str, new: str, **more: Any) -> dict[str, Any]:
    rename = [{"checkpoint": f"{old}/**", "model": f"{new}/**"}]
    return {"assert": "existing_objects_matched", "rename": rename, **more}


def test_what_a_rule_renames_is_built_as_it_was_saved(flavour, network, subclassed, prefix) -> None:
    source, target = subclassed(), subclassed()
    source(X)
    path = tfckpt.Checkpoint(backbone=source, head=network(1)).save(prefix)
    policy = renamed("backbone", "encoder", api="read")
    tfckpt.restore(config(path, **policy), encoder=target, head=network(2))
    np.testing.assert_array_equal(target(X).numpy(), source(X).numpy())
    adam, new, model = flavour.optimizers.Adam(), flavour.optimizers.Adam(), network(1)
    adam.build(model.trainable_variables)
    ones = [np.ones(weight.shape, "float32") for weight in model.trainable_variables]
    adam.apply_gradients(zip(ones, model.trainable_variables, strict=True))
    path = tfckpt.Checkpoint(model=model, old=adam).save(prefix)
    policy = renamed("old", "new", expect_missing=["other/**"])
    names = {"model": network(2), "new": new, "other": flavour.optimizers.SGD()}
    tfckpt.restore(config(path, **policy), **names)
    assert values(new.variables) == values(adam.variables)
    assert np.any(values(new.variables)[-1])


# Where a checkpoint's values come from: in its record, through resumes, and shown

BODY = {"include": ["model/body/**"]}
FINETUNE: dict[str, Any] = {
    "version": 1,
    "manager": {"directory": "run"},
    "restore": {
        "first_of": [{"directory": "run"}, {"path": "zoo/ckpt-1", "policy": "finetune"}]
    },
    "policies": {"finetune": BODY},
}  # fmt: skip


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def build(*names: str) -> Any:
        return stack(keras, *names or ("body", "head"), width=4)

    return build


def recorded(path: str) -> list[dict[str, Any]]:
    return json.loads(Path(path + ".tfckpt.json").read_text(encoding="utf-8"))["lineage"]


def paths_of(path: str) -> list[str]:
    return [source["path"] for restored in recorded(path) for source in restored["sources"]]


def digest(path: str) -> str:
    return hashlib.sha256(Path(path + ".index").read_bytes()).hexdigest()


def test_a_fine_tuned_run_says_from_what_and_a_resumed_one_still_does(model) -> None:
    zoo = tfckpt.Checkpoint(model=model()).save("zoo/ckpt")
    assert recorded(zoo) == []
    tuned = tfckpt.from_config(FINETUNE, model=model())
    tuned.restore()
    path = tuned.save()
    (restored,) = recorded(path)
    (source,) = restored["sources"]
    assert (source["path"], source["policy"]) == ("zoo/ckpt-1", "finetune")
    assert source["sha256"] == digest("zoo/ckpt-1")
    assert source["policy_sha256"] == Policy(include=("model/body/**",)).digest
    assert restored["counts"] == {"LOADED": 2, "EXCLUDED": 3}
    for _ in range(2):
        resumed = tfckpt.from_config(FINETUNE, model=model())
        assert resumed.restore().path.startswith("run/")
        assert recorded(resumed.save()) == recorded(tuned.save()) == [restored]
    shown = run("inspect", "run/ckpt-1").out
    assert f"from zoo/ckpt-1 (sha256 {digest('zoo/ckpt-1')[:12]}…)" in shown
    assert "by policy 'finetune' (sha256 " in shown
    assert "EXCLUDED 3, LOADED 2" in shown
    assert document("inspect", "zoo/ckpt-1")["lineage"] == []
    manager = tfckpt.CheckpointManager(resumed.checkpoint, Path.cwd() / "run", max_to_keep=2)
    assert manager.restore_or_initialize() is not None
    assert recorded(manager.save()) == [restored]


def test_several_sources_are_named(model) -> None:
    for name in "ab":
        tfckpt.Checkpoint(model=model()).save(f"{name}/ckpt")
    policies = BODY, {"include": ["model/head/**"]}
    paths = ("a/ckpt-1", "b/ckpt-1")
    members = [{"path": p, "policy": each} for p, each in zip(paths, policies, strict=True)]
    declared = {"version": 1, "manager": {"directory": "run"}, "restore": {"all_of": members}}
    merged = tfckpt.from_config(declared, model=model())
    merged.restore()
    (restored,) = recorded(merged.save())
    found = [(source["path"], source["sha256"]) for source in restored["sources"]]
    assert found == [(path, digest(path)) for path in paths]


def test_restores_add_up_until_one_gives_every_weight_and_what_is_put_back_is_not_named(
    model,
) -> None:
    tfckpt.Checkpoint(x=model("x")).save("a/ckpt")
    tfckpt.Checkpoint(y=model("y")).save("b/ckpt")
    checkpoint = tfckpt.Checkpoint(x=model("x"), y=model("y"))
    checkpoint.restore("a/ckpt-1").expect_partial()
    checkpoint.restore("b/ckpt-1").expect_partial()
    with pytest.raises(tfckpt.CheckpointError):
        checkpoint.restore("b/ckpt-7")
    both = checkpoint.save("both/ckpt")
    assert paths_of(both) == ["a/ckpt-1", "b/ckpt-1"]
    checkpoint.restore(both)
    assert paths_of(checkpoint.write("run/one")) == [both]
    more = tfckpt.Checkpoint(x=model("x"), more=tf.Variable(1.0))
    with pytest.raises(tfckpt.StatusAssertionError, match="has its old value again"):
        more.restore("a/ckpt-1").assert_existing_objects_matched()
    assert recorded(more.save("more/ckpt")) == []
