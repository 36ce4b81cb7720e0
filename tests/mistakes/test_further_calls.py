"""Further calls, configs and commands that are not meant so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from mistakes.scene import digits, fit, written
from zoo import command_line

import tfckpt
import tfckpt.callbacks


def test_a_run_is_given_as_the_callback(flavour, refused) -> None:
    model = digits(flavour)
    run = tfckpt.from_config({"version": 1, "manager": {"directory": "runs/a"}}, model=model)
    with refused(model) as seen:
        fit(model, run)
    seen.says(r"run\.callback\(\)")


@pytest.mark.parametrize(
    ("name", "meant"), [("load_weights", "restore"), ("save", "Checkpoint"), ("restor", "restore")]
)
def test_a_function_that_other_libraries_have(refused, name, meant) -> None:
    with refused(error=AttributeError) as seen:
        getattr(tfckpt, name)
    seen.says(f"'{name}'; did you mean '{meant}'")


def test_a_manager_of_a_model(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.CheckpointManager(model, "runs/a", 3)
    seen.says("Checkpoint", r"tfckpt\.Checkpoint\(model=")


def test_a_manager_whose_arguments_are_exchanged(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.CheckpointManager("runs/a", tfckpt.Checkpoint(model=model), 3)
    seen.says("Checkpoint", "str|text")


def unbuilt(keras: Any) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.head(x)

    return Net()


def test_a_model_is_saved_before_it_is_built(flavour, tries) -> None:
    with tries() as seen:
        tfckpt.Checkpoint(model=unbuilt(flavour)).save("runs/a/ckpt")
    seen.says("model", "no variables", "call (it|the model) once|build")


def test_nothing_is_saved(tries) -> None:
    with tries() as seen:
        tfckpt.Checkpoint().save("runs/a/ckpt")
    seen.says("nothing|no object|no model", "model=")


def test_a_metric_that_is_a_vector(model, refused) -> None:
    run = tfckpt.from_config({"version": 1, "manager": {"directory": "runs/a"}}, model=model)
    with refused(model, error=tfckpt.SaveError) as seen:
        run.save(metrics={"loss": tf.constant([1.0, 2.0])})
    seen.says("'loss'", "number")


CONFIGS = {
    "rename as a pair": (
        "version: 1\nrestore:\n  path: runs/digits/ckpt-3\n"
        "  policy: {rename: [[model/body/**, model/stem/**]]}\n",
        [r"t\.yaml:4", "expected a mapping, found a list", "checkpoint: .*model: "],
    ),
    "rename as a mapping": (
        "version: 1\nrestore:\n  path: runs/digits/ckpt-3\n"
        "  policy: {rename: {'model/body/**': 'model/stem/**'}}\n",
        [r"t\.yaml:4", "expected a list", r"\[\{checkpoint: .*model: "],
    ),
    "restore is text": (
        "version: 1\nrestore: runs/digits\n",
        [r"t\.yaml:2:10", "expected a mapping", "directory: runs/digits|directory: |path: "],
    ),
    "policies under restore": (
        "version: 1\nrestore:\n  path: runs/digits/ckpt-3\n  policy: p\n  policies: {p: {}}\n",
        [r"t\.yaml:5:3", "unknown key"],
    ),
    "keep is a number": (
        "version: 1\nmanager: {directory: runs/a, keep: 3}\n",
        [r"t\.yaml:2", "expected a list, found the number 3", "list of mappings", "`latest`"],
    ),
    "two documents": ("version: 1\n---\nversion: 1\n", [r"t\.yaml:2", "second YAML document"]),
    "a number as in 1e3": (
        "version: 1\nmanager: {directory: runs/a, save: {every_steps: 1e3}}\n",
        ["every_steps", r"whole number, found the number 1000\.0"],
    ),
}


@pytest.mark.parametrize("mistake", CONFIGS)
def test_a_config_that_means_something_else(run3, model, refused, mistake) -> None:
    text, words = CONFIGS[mistake]
    with refused(model, error=tfckpt.PolicyError) as seen:
        tfckpt.restore(written(text), model=model)
    seen.says(*words)


def policy(text: str) -> str:
    return written(f"version: 1\nrestore:\n  path: runs/digits/ckpt-3\n  policy: {{{text}}}\n")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("include: [model/body]", ["'model/body' matches nothing", r"model/body/"]),
        ("exclude: ['.*kernel']", [r"'\.\*kernel' matches nothing", r"re:\.\*kernel|model/body/k"]),
    ],
)
def test_a_selector_that_matches_nothing(run3, model, refused, rule, words) -> None:
    with refused(model, error=tfckpt.RefusedError) as seen:
        tfckpt.restore(policy(rule), model=model)
    seen.ends_with(*words, lines=20)


UNUSED = """
version: 1
restore: {path: runs/digits/ckpt-3}
policies:
  finetune: {include: ["model/body/**"]}
"""


def test_a_policy_that_no_source_names(run3, keras, refused) -> None:
    model = digits(keras, head="new", classes=5)
    with refused(model, error=tfckpt.TfckptError) as seen:
        tfckpt.restore(written(UNUSED), model=model)
    seen.says("finetune", "policy: finetune")


def test_a_policy_that_no_source_names_in_a_check(told) -> None:
    with told() as seen:
        seen.shows(command_line.run("policy", "check", written(UNUSED)))
    seen.says("finetune", "policy: finetune")


COMMANDS = {
    "inspekt runs/digits": ["'inspekt'", "'inspect'"],
    "list": ["a directory of checkpoints", "tfckpt list --help"],
    "verify run/digits": ["run/digits", "'?runs?/?"],
    "prune runs/digits --keep latest:3": ["'latest:3'", "=", "--help"],
    "diff runs/digits/ckpt-3": ["two checkpoints"],
    "inspect runs/digits --name head": [
        "'head' matches no value",
        r"did you mean .model/head/\*\*.",
    ],
    "policy check runs/digits": ["runs/digits", "directory"],
    "plan t.yaml --model trian:build": ["trian"],
    "plan t.yaml --model train:biuld": ["biuld"],
    "plan t.yaml --model train:build": ["train:build", "missing 1 required .*'classes'"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(run3, told, monkeypatch, command) -> None:
    written(UNUSED)
    Path("train.py").write_text("def build(classes): ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.delitem(__import__("sys").modules, "train", raising=False)
    with told() as seen:
        ended = command_line.run(*command.split())
        seen.shows(ended)
    assert ended.status in (1, 2)
    seen.says(*COMMANDS[command])
