"""``restore`` and ``plan`` from a path, a model without its keyword, and calls not so meant."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.fits import fit

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = {"version": 1, "restore": {"directory": "runs/digits"}}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(flavour) -> Callable[..., Any]:
    """``model(seed, optimizer)``."""

    def build(seed: int = 1, optimizer: str | None = "adam") -> Any:
        flavour.utils.set_random_seed(seed)
        model = flavour.Sequential(
            [flavour.Input((4,)), flavour.layers.Dense(3, name="a"), flavour.layers.Dense(2)]
        )
        if optimizer is not None:
            model.compile(optimizer, "mse")
        return model

    return build


@pytest.fixture
def trained(model) -> Any:
    """A model after two epochs, each of them saved in ``runs/digits``."""
    model = model()
    fit(model, 2, tfckpt.callbacks.resume(model, "runs/digits", verbose=0))
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [weight.numpy() for weight in model.weights]


def refused(error: type[Exception], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(error) as caught:
        tfckpt.restore(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("as_path", [str, Path])
@pytest.mark.parametrize("source", ["runs/digits/ckpt-2", "runs/digits"])
def test_a_checkpoint_and_a_directory_are_sources(model, trained, source, as_path) -> None:
    for fresh, report in (
        (one := model(7), tfckpt.restore(as_path(source), one)),
        (two := model(7), tfckpt.restore(as_path(source), model=two)),
    ):
        np.testing.assert_equal(weights(fresh), weights(trained))
        assert int(fresh.optimizer.iterations) == int(trained.optimizer.iterations)
        assert report.path == "runs/digits/ckpt-2"
        assert report.epoch == 2


def test_a_model_without_its_keyword(model, trained) -> None:
    run = tfckpt.from_config(CONFIG, fresh := model(7))
    run.restore()
    np.testing.assert_equal(weights(fresh), weights(trained))
    tfckpt.restore(CONFIG, fresh := model(7))
    np.testing.assert_equal(weights(fresh), weights(trained))
    assert tfckpt.inventory(fresh) == tfckpt.inventory(model=fresh)
    with pytest.raises(TypeError, match="two models"):
        tfckpt.restore(CONFIG, fresh, model=fresh)


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_keras_files_are_sources(model, trained, ending) -> None:
    write = trained.save if ending == ".keras" else trained.save_weights
    write(f"best{ending}")
    fresh = model(7)
    fresh.optimizer.build(fresh.trainable_variables)
    # tf_keras's files have no learning rate among the values
    report = tfckpt.restore(f"best{ending}", fresh, optimizer={"hyperparameters": "config"})
    np.testing.assert_equal(weights(fresh), weights(trained))
    assert report.path == f"best{ending}"


def test_a_directory_of_another_name_and_one_of_several(trained, model) -> None:
    tf.train.Checkpoint(model=trained).save("other/model")
    report = tfckpt.restore("other", fresh := model(7))
    assert report.path == "other/model-1"
    np.testing.assert_equal(weights(fresh), weights(trained))
    tf.train.Checkpoint(model=trained).save("other/best")
    said = refused(tfckpt.CheckpointNotFoundError, "other", fresh)
    assert "'best', 'model'" in said
    assert "other/model-1" in said


def test_a_file_of_text_is_a_config_whatever_its_name(model, trained) -> None:
    for name in ("a.yaml", "a.yml", "a.conf", "a"):
        Path(name).write_text("version: 1\nrestore: {directory: runs/digits}\n", encoding="utf-8")
        assert tfckpt.restore(name, model(7)).path == "runs/digits/ckpt-2"


def test_what_is_neither_names_both_and_what_is_near(tmp_path) -> None:
    value = tf.Variable(1.0)
    tfckpt.Checkpoint(value=value).save("runs/digits/ckpt")
    absent = tfckpt.CheckpointNotFoundError
    said = refused(absent, "runs/digits/ckpt-7", value=value)
    assert f"neither a checkpoint nor a config file {tmp_path}/runs/digits/ckpt-7" in said
    assert "'runs/digits' contains 'ckpt-1'" in said
    said = refused(absent, "rnus/digits", value=value)
    assert "did you mean 'runs/digits'? It holds ckpt-1." in said
    said = refused(absent, None, value=value)
    assert "latest_checkpoint returns None" in said
    said = refused(tfckpt.PolicyError, "configs/nope.yaml", value=value)
    assert f"{tmp_path}/configs/nope.yaml does not exist" in said
    Path("configs").mkdir()
    Path("configs/flowers.yaml").write_text("version: 1\n", encoding="utf-8")
    for near in ("configs/flower.yaml", "config/flowers.yaml", "flowers.yaml"):
        said = refused(tfckpt.PolicyError, near, value=value)
        assert "did you mean 'configs/flowers.yaml'?" in said
    shutil.rmtree("runs/digits")
    Path("runs/digits").mkdir()
    said = refused(absent, "runs/digits", value=value)
    assert said == "runs/digits: there is no checkpoint in it\n  It is empty."
    Path("runs/digits/best.weights.h5").write_bytes(b"\0")
    assert "Use 'runs/digits/best.weights.h5'" in refused(absent, "runs/digits", value=value)


def test_a_checkpoint_in_place_of_a_config_says_what_to_write() -> None:
    value = tf.Variable(1.0)
    path = tfckpt.Checkpoint(value=value).save("runs/digits/ckpt")
    for wrong, what in ((path, "is a checkpoint"), ("runs/digits", "is a directory")):
        with pytest.raises(tfckpt.PolicyError, match=f"{what}, not a config") as caught:
            tfckpt.from_config(wrong, value=value)
        assert f"call `tfckpt.restore({wrong!r}, model=model)`" in str(caught.value)
    with pytest.raises(tfckpt.PolicyError, match="there is no config file"):
        tfckpt.from_config("runs/digits/ckpt-7", value=value)


@pytest.mark.parametrize("source", [CONFIG, "runs/digits"])
def test_without_an_object_one_line_says_so(source) -> None:
    tfckpt.Checkpoint(value=tf.Variable(1.0)).save("runs/digits/ckpt")
    for call, name in ((tfckpt.restore, "restore(source"), (tfckpt.plan, "plan(source")):
        with pytest.raises(tfckpt.TfckptError, match="no model was given") as caught:
            call(source)
        assert f"write {name}, model=model)" in str(caught.value)
    with pytest.raises(tfckpt.TfckptError, match="no model was given") as caught:
        tfckpt.from_config(CONFIG)
    assert "write from_config(config, model=model)" in str(caught.value)


def test_the_model_in_the_place_of_the_source(model) -> None:
    said = refused(tfckpt.PolicyError, model(), "runs/digits")
    assert said.endswith("write restore(source, model=model)")
    with pytest.raises(tfckpt.PolicyError, match="first argument is a Sequential"):
        tfckpt.from_config(model(), "a.yaml")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"exlude": ["value"]},
            "exlude: neither an object that can be restored.*did you mean `exclude`?",
        ),
        (
            {"layers": ["value"]},
            "layers: neither an object that can be restored nor a key of a policy",
        ),
        ({"include": "value"}, r"the arguments: include: expected a list.*\['value'\]"),
        ({"policy": {"incude": ["value"]}}, "incude: unknown key.*did you mean `include`?"),
        ({"policy": "finetune"}, "expected a Policy or a mapping, found the text 'finetune'"),
        ({"policy": {}, "include": ["value"]}, "write `include` into the policy"),
        ({"on_missing": "wran"}, "did you mean `warn`?"),
    ],
)
def test_a_keyword_that_is_neither_object_nor_policy(given, says) -> None:
    value = tf.Variable(1.0)
    tfckpt.Checkpoint(value=tf.Variable(2.0)).save("runs/digits/ckpt")
    with pytest.raises(tfckpt.PolicyError, match=f"(?s){says}"):
        tfckpt.restore("runs/digits", value=value, **given)
    assert float(value) == 1


def test_a_config_and_a_policy_besides_are_refused() -> None:
    tfckpt.Checkpoint(value=(value := tf.Variable(2.0))).save("runs/digits/ckpt")
    for given in ({"include": ["value"]}, {"policy": {}}):
        with pytest.raises(tfckpt.PolicyError, match="a config has its own policies") as caught:
            tfckpt.restore(CONFIG, value=value, **given)
        assert f"`{next(iter(given))}` was passed as well" in str(caught.value)


def test_an_object_by_a_keyword_that_is_a_key_of_policies() -> None:
    tfckpt.Checkpoint(include=tf.Variable(2.0)).save("runs/digits/ckpt")
    value = tf.Variable(1.0)
    tfckpt.restore("runs/digits", include=value)
    assert float(value) == 2
    with pytest.raises(
        tfckpt.PolicyError, match="include: the list has both objects and other values"
    ):
        tfckpt.restore("runs/digits", include=[value, "value"])
