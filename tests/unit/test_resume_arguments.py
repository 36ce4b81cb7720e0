"""The callback of one line: what it is given wrongly, and in whose words the error is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tfckpt
import tfckpt.callbacks
from tfckpt.policy import Policy


@pytest.fixture
def model(flavour) -> Any:
    return flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])


def test_the_model_comes_first(model, tmp_path) -> None:
    with pytest.raises(TypeError, match=r"^resume\(model, directory\): the model comes first"):
        tfckpt.callbacks.resume("runs/digits", model)
    with pytest.raises(TypeError, match="the model comes first, found the text '/"):
        tfckpt.callbacks.resume(tmp_path, model)
    with pytest.raises(TypeError, match="the directory must be a path, found Sequential"):
        tfckpt.callbacks.resume(model, model)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'directory'"):
        tfckpt.callbacks.resume(model)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("save_best_only", "Keras: `save_best=1` keeps the best besides the newest"),
        ("save_weights_only", "Keras: a restart also needs the optimizer"),
        ("filepath", "Keras: the directory is the second argument"),
        ("backup_dir", "Keras: the directory is the second argument"),
        ("period", "Keras: `save_freq` is 'epoch' or a number of batches"),
        ("best", "Keras: `save_best=2` keeps the two best"),
        ("save_before_preemption", r"Keras: `on_signal=\['SIGTERM'\]`"),
        ("max_to_kep", "did you mean `max_to_keep`?"),
        ("on_exception", r"`on_signal=\['SIGINT'\]` saves on Ctrl-C"),
    ],
)
def test_a_word_of_keras_names_the_one_that_stands_for_it(model, tmp_path, word, said) -> None:
    with pytest.raises(TypeError, match=rf"^resume\(\) has no argument '{word}'.*{said}"):
        tfckpt.callbacks.resume(model, tmp_path, **{word: True})
    assert list(tmp_path.iterdir()) == []


def test_pythons_own_signature_is_readable() -> None:
    parameters = inspect.signature(tfckpt.callbacks.resume).parameters
    assert list(parameters)[:3] == ["model", "directory", "save_freq"]
    assert list(parameters)[-1] == "objects"


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("save_freq", "batch", "save_freq: expected 'epoch' or a number of batches, found 'batch'"),
        ("save_freq", 1.5, "save_freq: expected a whole number, found the number 1.5"),
        ("save_freq", 0, "save_freq: expected more than 0, found the number 0"),
        ("mode", "least", "mode: expected 'min' or 'max', found the text 'least'"),
        ("save_best", True, "save_best: expected a whole number, found true"),
        ("max_to_keep", 0, "max_to_keep: expected more than 0, found the number 0"),
        ("on_signal", "SIGTERM", "on_signal: expected a list, found the text 'SIGTERM'"),
        ("on_signal", ["SIGKILL"], r"on_signal\[0\]: no program can save when it receives SIGKILL"),
        ("policy", {"exlude": ["a"]}, "policy.exlude: unknown key\n  did you mean `exclude`?"),
        ("policy", "resme", "policy: there is no policy `resme`"),
    ],
)
def test_an_error_names_the_argument(model, tmp_path, argument, value, said) -> None:
    said = said.replace("?", r"\?")
    with pytest.raises(tfckpt.PolicyError, match=f"^tfckpt.callbacks.resume: {said}") as error:
        tfckpt.callbacks.resume(model, tmp_path, **{argument: value})
    assert "manager." not in str(error.value)
    assert "mapping:" not in str(error.value)


@pytest.mark.parametrize("kind", [dict, Policy.model_validate], ids=["mapping", "Policy"])
def test_a_policy_is_a_mapping_or_a_policy(model, tmp_path, kind) -> None:
    policy = kind({"training_state": ["epoch", "seeds", "callbacks"]})
    model.compile("sgd", "mse")
    assert tfckpt.callbacks.resume(model, tmp_path, policy=policy) is not None
