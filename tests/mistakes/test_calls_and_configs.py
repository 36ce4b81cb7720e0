"""A call, a config or a command that is not meant so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mistakes.scene import digits, fit, values, written
from zoo import command_line

import tfckpt
import tfckpt.callbacks

RESTORE = "version: 1\nrestore: {directory: runs/digits}\n"


def stored(keras) -> list[np.ndarray]:
    """The weights as plain TensorFlow reads them."""
    model = digits(keras, optimizer=None)
    tf.train.Checkpoint(model=model).restore("runs/digits/ckpt-3").expect_partial()
    return values(model)


def test_17_a_model_without_its_keyword(keras, run3, model, told) -> None:
    with told() as seen:
        print(tfckpt.restore(written(RESTORE), model))
    seen.says("LOADED", "model/body/kernel")
    np.testing.assert_equal(values(model)[:4], stored(keras))


def test_18_a_model_without_its_keyword_for_a_run(keras, run3, model, told) -> None:
    with told() as seen:
        print(tfckpt.from_config(written(RESTORE), model).restore())
    seen.says("LOADED", "model/body/kernel")
    np.testing.assert_equal(values(model)[:4], stored(keras))


def test_19_no_model_at_all(run3, refused) -> None:
    with refused() as seen:
        tfckpt.restore(written(RESTORE))
    seen.says("no (model|object)", "model=model")
    assert len(seen.text.splitlines()) <= 4


def test_20_a_function_in_place_of_a_model(run3, keras, refused) -> None:
    def build() -> object:
        return digits(keras)

    with refused(error=ValueError) as seen:
        tfckpt.restore(written(RESTORE), model=build)
    seen.says("model", "function", r"build\(\)|call it|what it returns")
    seen.never_says("open an issue")


def test_26_a_save_that_no_manager_is_there_for(run3, model, refused) -> None:
    with refused(model, error=tfckpt.TfckptError) as seen:
        tfckpt.from_config(written(RESTORE), model=model).save()
    seen.says("`manager`", "add `manager: {directory: ")


def test_35_resume_without_a_directory(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume(model)
    seen.says("directory")


def test_36_the_word_of_model_checkpoint(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume(model, "runs/digits", save_best_only=True)
    seen.says("save_best_only", r"save_best\b")


def test_37_directory_and_model_the_other_way_round(model, refused) -> None:
    with refused(model, error=TypeError) as seen:
        tfckpt.callbacks.resume("runs/digits", model)
    seen.says(r"resume\(model, |model.*first")


def test_38_a_save_freq_that_keras_does_not_know_either(model, refused) -> None:
    with refused(model, error=ValueError) as seen:
        tfckpt.callbacks.resume(model, "runs/digits", save_freq="batch")
    seen.says("save_freq", "epoch", "number")
    seen.never_says("the config mapping")


def test_64_a_number_in_place_of_a_variable(refused) -> None:
    with refused(error=ValueError) as seen:
        tfckpt.Checkpoint(step=7)
    seen.says("step", r"tf\.Variable\(7\)")


def test_64_a_number_that_is_set_later(refused) -> None:
    checkpoint = tfckpt.Checkpoint(v=tf.Variable(1.0))
    with refused(error=ValueError) as seen:
        checkpoint.epoch = 7
    seen.says("epoch", r"tf\.Variable\(7\)")


def test_65_the_callbacks_after_nothing_but_import_tfckpt(monkeypatch, told) -> None:
    monkeypatch.delitem(sys.modules, "tfckpt.callbacks")
    monkeypatch.delattr(tfckpt, "callbacks")
    with told() as seen:
        print(tfckpt.callbacks.resume.__name__)
    seen.says("resume")


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


MISTAKES = {
    "06 a key that is misspelt": (
        "version: 1\nrestore:\n  directory: runs/digits\n  polcy: strict\n",
        [r"t\.yaml:4:3", "unknown key", "`policy`"],
    ),
    "07 a tab": ("version: 1\nrestore:\n\tdirectory: runs/digits\n", [r"t\.yaml:3:1", "spaces"]),
    "08 no version": ("restore: {directory: runs/digits}\n", [r"t\.yaml:1:1", "version: 1"]),
    "09 a variable that is not set": (
        "version: 1\nrestore: {directory: '${NO_SUCH_DIR}'}\n",
        ["NO_SUCH_DIR is not set", r"\$\{NO_SUCH_DIR:-"],
    ),
    "13 text for a list": (
        "version: 1\nrestore: {directory: runs/digits, policy: {include: model/**}}\n",
        [r"t\.yaml:2", "list", r"\['model/\*\*'\]"],
    ),
    "21 a policy that is not there": (
        "version: 1\nrestore: {directory: runs/digits, policy: resme}\npolicies: {resume: {}}\n",
        ["`resme`", "`resume`"],
    ),
    "22 wrong indentation": (
        "version: 1\nrestore:\n  directory: runs/digits\n   policy: strict\n",
        [r"t\.yaml:4", "indent"],
    ),
    "23 yes": (
        "version: 1\nrestore:\n  directory: runs/digits\n  policy: {expect_partial: yes}\n",
        [r"t\.yaml:4", "write true"],
    ),
    "27 every_epoch": (
        "version: 1\nmanager: {directory: runs/digits, save: {every_epoch: 1}}\n",
        ["`every_epochs`"],
    ),
    "27 a mapping for a list": (
        "version: 1\nmanager: {directory: runs/digits, keep: {latest: 3}}\n",
        [r"manager\.keep", "expected a list", r"\[\{'?latest'?: 3\}\]"],
    ),
    "28 best without mode": (
        "version: 1\nmanager: {directory: runs/digits, keep: [{best: 1, monitor: val_loss}]}\n",
        ["needs `mode`", "monitor: val_loss, mode: min"],
    ),
    "29 ignore for a mismatch": (
        "version: 1\nrestore: {directory: d, policy: {on_shape_mismatch: ignore}}\n",
        ["on_shape_mismatch", "'error' or 'skip'"],
    ),
    "30 an empty file": ("", [r"t\.yaml", "empty", "version: 1"]),
    "31 nothing to restore from": (
        "version: 1\nmanager: {directory: runs/digits}\n",
        ["add `restore: {directory: "],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_06_31_a_config(run3, model, refused, mistake) -> None:
    text, words = MISTAKES[mistake]
    with refused(model, error=tfckpt.TfckptError) as seen:
        tfckpt.restore(written(text), model=model)
    seen.says(*words)


def test_10_a_config_that_does_not_exist(place, model, refused) -> None:
    with refused(model, error=tfckpt.PolicyError) as seen:
        tfckpt.restore("configs/nope.yaml", model=model)
    seen.says("configs/nope.yaml", "No such file|does not exist", str(place))
