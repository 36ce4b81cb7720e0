"""What the drop-in classes say of what they leave out, and where they send who needs a policy."""

from __future__ import annotations

import logging
import re
import textwrap
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


@pytest.fixture
def warnings(caplog) -> Callable[[], list[str]]:
    """What was warned of since the last call."""

    def since() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        caplog.clear()
        return [text for text in found if "deleted with unrestored values" not in text]

    return since


@pytest.fixture
def stack(flavour) -> Callable[..., Any]:
    """``stack(*names)``: a model of layers of those names, all alike."""

    def build(*names: str, optimizer: Any = None, units: int = 3) -> Any:
        layers = [flavour.layers.Dense(units, name=name) for name in names]
        model = flavour.Sequential([flavour.Input((3,)), *layers])
        if optimizer is not None:
            model.compile(optimizer, "mse")
            model.optimizer.build(model.trainable_variables)
        return model

    return build


def left_out(path: str) -> str:
    """What is said of a layer `b` that is called `stem` now."""
    return (
        f"{path}: 2 weights not in the checkpoint, unchanged in the model: model/stem/bias, "
        "model/stem/kernel; 2 weights in the checkpoint, not used: model/b/bias, "
        f"model/b/kernel. To restore more: `tfckpt.restore({path!r}, model=…, policy="
        '{"rename": [{"checkpoint": "model/b/**", "model": "model/stem/**"}]})`. To fail when '
        "a value is missing: `checkpoint.restore(…).assert_existing_objects_matched()`"
    )


@WRITERS
def test_a_renamed_layer_is_named_and_the_call_that_is_said_restores_it(
    writer, stack, tmp_path, warnings
) -> None:
    saved = stack("a", "b", "c")
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    model = stack("a", "stem", "c")
    status = tfckpt.Checkpoint(model=model).restore(path)
    assert warnings() == [left_out(path)]
    status.expect_partial()
    assert warnings() == []
    tfckpt.Checkpoint(model=model).read(path)
    assert warnings() == [left_out(path)]
    (policy,) = re.findall(r"policy=(.*?)\)`", left_out(path))
    tfckpt.restore(path, model=model, policy=eval(policy))
    data = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(model(data), saved(data))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"names": "ab"}, {"names": "abc"}),
        ({"names": "abc"}, {"names": "ab"}),
        ({"names": "ab"}, {"names": "ab", "optimizer": "adam"}),
    ],
    ids=["added", "removed", "optimizer new"],
)
def test_what_one_side_alone_has_is_left_to_the_assertions(
    old, new, stack, tmp_path, warnings
) -> None:
    old, new = ({**side} for side in (old, new))
    path = tfckpt.Checkpoint(model=stack(*old.pop("names"), **old)).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(model=stack(*new.pop("names"), **new)).restore(path).expect_partial()
    assert warnings() == []


def adapted(rank: int) -> Any:
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(5, 3, name="words"),
            keras.layers.Conv1D(3, 2, name="conv"),
            keras.layers.Dense(3, name="out"),
        ]
    )
    for layer in model.layers if rank else ():
        layer.enable_lora(rank)
        layer.trainable_variables[-1].assign(tf.ones(layer.trainable_variables[-1].shape))
    return model


@WRITERS
def test_low_rank_adapters_that_are_left_out_are_named(writer, tmp_path, warnings) -> None:
    saved = adapted(2)
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=adapted(0)).restore(path)
    hint = (
        "Call `enable_lora(rank)` on the layers before restoring: without its low-rank adapters "
        "(LoRA) a layer computes what it did before they were trained"
    )
    assert warnings() == [
        f"{path}: 6 weights in the checkpoint, not used, in layers whose other weights were "
        "restored: model/conv/lora_kernel_a, model/conv/lora_kernel_b, model/out/lora_kernel_a "
        f"and 3 more. {hint}"
    ]
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, adapted(0))
    assert hint in " ".join(str(refused.value).split())
    model, data = adapted(2), np.arange(8).reshape(2, 4) % 5
    tfckpt.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(model(data), saved(data))
    assert warnings() == []


@WRITERS
@pytest.mark.parametrize("names", [("right", "left"), ("right", "other"), ("left", "right")])
def test_the_attribute_decides_whatever_its_layer_is_called(
    writer, names, flavour, tmp_path
) -> None:
    class Pair(flavour.Model):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.left = flavour.layers.Dense(3, name=names[0])
            self.right = flavour.layers.Dense(3, name=names[1])
            self(tf.ones((1, 3)))
            self.left.bias.assign(tf.fill((3,), value))
            self.right.bias.assign(tf.fill((3,), value + 1))

        def call(self, data: Any) -> Any:
            return self.left(self.right(data))

    path = writer.Checkpoint(model=Pair(1.0)).save(str(tmp_path / "ckpt"))
    model = Pair(7.0)
    tfckpt.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
    assert [float(layer.bias[0]) for layer in (model.left, model.right)] == [1.0, 2.0]


def test_fit_says_it_too(stack, tmp_path, capsys, warnings) -> None:
    path = tfckpt.Checkpoint(model=stack("a", "b")).save(tmp_path / "ckpt")
    policy = {"include": ["model/**"], "on_missing": "warn"}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    missing = "2 values not in the checkpoint, unchanged in the model: model/c/bias, model/c/kernel"
    data = np.ones((2, 3), np.float32)
    for verbose in (1, 0):
        model = stack("a", "b", "c", optimizer="sgd")
        callback = tfckpt.from_config(config, model).callback(verbose=verbose)
        model.fit(data, data, verbose=0, callbacks=[callback])
        assert (f"{path}: {missing}" in capsys.readouterr().out.splitlines()) == bool(verbose)
        assert (f"{path}: {missing}" in warnings()) != bool(verbose)


@WRITERS
def test_a_lone_model_under_another_keyword_is_restored_and_that_is_said(
    writer, stack, tmp_path, warnings
) -> None:
    for optimizer in (None, "adam"):
        saved = stack("a", "b", optimizer=optimizer)
        given = {} if optimizer is None else {"optimizer": saved.optimizer}
        path = writer.Checkpoint(critic=saved, **given).save(str(tmp_path / f"{optimizer}"))
        model = stack("a", "b", optimizer=optimizer)
        given = {} if optimizer is None else {"optimizer": model.optimizer}
        tfckpt.Checkpoint(actor=model, **given).restore(path).assert_existing_objects_matched()
        assert warnings() == [
            f"{path}: the model was saved as `critic=` and restored as `actor=`, since it is the "
            "only model in the checkpoint and among the objects given; TensorFlow restores nothing "
            "here"
        ]
        tfckpt.Checkpoint(critic=model, **given).restore(path)
        assert warnings() == []


@WRITERS
@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_an_attribute_of_a_model_that_was_given_by_itself_is_no_keyword(
    writer, optimizer, flavour, stack, tmp_path, warnings
) -> None:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.net = stack("a", "b")
            self(tf.zeros((1, 3)))
            if optimizer:
                self.compile(optimizer, "mse")
                self.optimizer.build(self.trainable_variables)

        def call(self, data: Any) -> Any:
            return self.net(data)

    path = writer.Checkpoint(Net()).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=Net()).restore(path).assert_existing_objects_matched()
    assert warnings() == []


def test_a_loop_over_checkpoints_says_once_what_each_leaves_out(stack, tmp_path, warnings) -> None:
    checkpoint = tfckpt.Checkpoint(model=stack("a", "b"))
    first, second = (checkpoint.save(tmp_path / "ckpt") for _ in range(2))
    other = tfckpt.Checkpoint(critic=stack("a", "c")).save(tmp_path / "other")
    evaluated = tfckpt.Checkpoint(model=stack("a", "stem"))
    for _ in range(2):
        for path in (first, second):
            evaluated.restore(path).expect_partial()
    assert warnings() == [left_out(first)]
    for _ in range(2):
        evaluated.restore(other).expect_partial()
    keyword, weights = warnings()
    assert "the model was saved as `critic=`" in keyword
    assert "not used: model/c/bias" in weights
    tfckpt.Checkpoint(model=stack("a", "stem")).restore(first).expect_partial()
    assert warnings() == [left_out(first)]


def test_a_model_of_which_every_layer_was_renamed_is_refused_with_the_way(
    flavour, tmp_path
) -> None:
    def model(first: str, second: str) -> Any:
        layers = [flavour.layers.Dense(4, name=first), flavour.layers.Dense(2, name=second)]
        return flavour.Sequential([flavour.Input((3,)), *layers])

    saved = model("a", "b")
    path = tfckpt.Checkpoint(model=saved).save(tmp_path / "ckpt")
    new = model("x", "y")
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=new).restore(path)
    _, _, lines = str(refused.value).partition("this policy restores 4 of 4 values:\n")
    exec(textwrap.dedent(lines).replace("model=…", "model=new"), {"tfckpt": tfckpt, "new": new})
    np.testing.assert_array_equal(new(data := np.ones((2, 3), np.float32)), saved(data))
