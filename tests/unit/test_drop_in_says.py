"""What the drop-in classes say of what they leave out, and where they send who needs a policy."""

from __future__ import annotations

import logging
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import WRITERS, stack

import tfckpt

DATA = np.ones((2, 3), np.float32)


@pytest.fixture
def warnings(caplog):
    """What was warned of since the last call."""

    def since() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        caplog.clear()
        return [text for text in found if "deleted with unrestored values" not in text]

    return since


def compiled(model: Any, optimizer: str) -> Any:
    model.compile(optimizer, "mse", run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


def left_out(path: str) -> str:
    """What is said of a layer `b` that is called `stem` now."""
    return (
        f"{path}: 2 weights not in the checkpoint, unchanged in the model: model/stem/bias, "
        "model/stem/kernel; 2 weights in the checkpoint, not used: model/b/bias, "
        f"model/b/kernel. To restore more: `tfckpt.restore({path!r}, model=model, "
        'rename=[{"checkpoint": "model/b/**", "model": "model/stem/**"}])`. To fail when '
        "a value is missing: `checkpoint.restore(…).assert_existing_objects_matched()`"
    )


@WRITERS
def test_a_renamed_layer_is_named_once_and_the_call_that_is_said_restores_it(
    writer, flavour, tmp_path, warnings
) -> None:
    saved = stack(flavour, "a", "b", "c")
    first, second = (
        writer.Checkpoint(model=saved).save(str(tmp_path / name / "ckpt")) for name in ("1", "2")
    )
    other = tfckpt.Checkpoint(critic=stack(flavour, "a", "x", "y")).save(tmp_path / "other")
    model = stack(flavour, "a", "stem", "c")
    evaluated = tfckpt.Checkpoint(model=model)
    for _ in range(2):
        for path in (first, second):
            evaluated.restore(path).expect_partial()
    assert warnings() == [left_out(first)]
    for _ in range(2):
        evaluated.restore(other).expect_partial()
    keyword, weights = warnings()
    assert "the model was saved as `critic=`" in keyword
    assert "not used: model/x/bias" in weights
    checkpoint = tfckpt.Checkpoint(model=model)
    assert tfckpt.CheckpointManager(checkpoint, tmp_path / "2", 3).restore_or_initialize() == second
    assert warnings() == [left_out(second)]
    (call,) = re.findall(r"`(tfckpt.restore.*?)`", left_out(first))
    eval(call)
    np.testing.assert_array_equal(model(DATA), saved(DATA))


ANOTHER = (
    "the model was saved as `critic=` and restored as `actor=`, since it is the only model in "
    "the checkpoint and among the objects given; TensorFlow restores nothing here"
)
# The layers of what was saved, with its optimizer, those of what is live, and what is said.
# What one side alone has is left to the assertions; a lone model may have another keyword.
SAID = {
    "added": ("model ab", "model abc", []),
    "removed": ("model abc", "model ab", []),
    "optimizer new": ("model ab", "model ab adam", []),
    "another keyword": ("critic ab", "actor ab", [ANOTHER]),
    "another keyword, trained": ("critic ab adam", "actor ab adam", [ANOTHER]),
    "the same keyword": ("critic ab", "critic ab", []),
    # An attribute of a model that was given by itself is no keyword.
    "no keyword": ("- ab", "model ab", []),
    "no keyword, trained": ("- ab adam", "model ab adam", []),
}


@WRITERS
@pytest.mark.parametrize("case", SAID)
def test_what_is_said_of_two_sides(writer, case, flavour, tmp_path, warnings) -> None:
    class Net(flavour.Model):
        def __init__(self, *names: str) -> None:
            super().__init__()
            self.net = stack(flavour, *names)

        def call(self, data: Any) -> Any:
            return self.net(data)

    def checkpoint(by: Any, words: str) -> Any:
        keyword, names, *optimizer = words.split()
        model = Net(*names) if case.startswith("no keyword") else stack(flavour, *names)
        model(DATA)
        if optimizer:
            compiled(model, optimizer[0])
        if keyword == "-":
            return by.Checkpoint(model)
        both = optimizer and keyword != "model"
        return by.Checkpoint(**{keyword: model}, **({"optimizer": model.optimizer} if both else {}))

    old, new, said = SAID[case]
    path = checkpoint(writer, old).save(str(tmp_path / "ckpt"))
    status = checkpoint(tfckpt, new).restore(path)
    if old.split()[1:] == new.split()[1:]:
        status.assert_existing_objects_matched()
    status.expect_partial()
    assert warnings() == [f"{path}: {each}" for each in said]


def adapted(rank: int) -> Any:
    layers = [
        keras.layers.Embedding(5, 3, name="words"),
        keras.layers.Conv1D(3, 2, name="conv"),
        keras.layers.Dense(3, name="out"),
    ]
    for layer in (model := keras.Sequential([keras.Input((4,), dtype="int32"), *layers])).layers:
        if rank:
            layer.enable_lora(rank)
            layer.trainable_variables[-1].assign(tf.ones(layer.trainable_variables[-1].shape))
    return model


@WRITERS
def test_low_rank_adapters_that_are_left_out_are_named(writer, tmp_path, warnings) -> None:
    saved = adapted(2)
    path = writer.Checkpoint(model=saved).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=adapted(0)).restore(path)
    hint = (
        "In Keras 3, call `enable_lora(rank)` on the layers before restoring: without its low-rank "
        "adapters (LoRA) a layer computes what it did before they were trained"
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


def test_fit_says_it_too(tmp_path, capsys, warnings) -> None:
    path = tfckpt.Checkpoint(model=stack(keras, "a", "b")).save(tmp_path / "ckpt")
    policy = {"include": ["model/**"], "on_missing": "warn"}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    missing = "2 values not in the checkpoint, unchanged in the model: model/c/bias, model/c/kernel"
    for verbose in (1, 0):
        model = compiled(stack(keras, "a", "b", "c"), "sgd")
        callback = tfckpt.from_config(config, model).callback(verbose=verbose)
        model.fit(DATA, DATA, verbose=0, callbacks=[callback])
        assert (f"{path}: {missing}" in capsys.readouterr().out.splitlines()) == bool(verbose)
        assert (f"{path}: {missing}" in warnings()) != bool(verbose)
