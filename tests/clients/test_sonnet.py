"""Sonnet: every module of its own conformance tests, and a loop with its optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from clients.exchange import WAYS, Program, checksums, exchanged, resumed, trained
from sonnet.src.conformance import goldens

import tfckpt

pytestmark = pytest.mark.long
IN_LISTS = "resnet50"
LATER = "a list that grows later must be complete before the restore, with all variables"


def build(seed: int) -> Program:
    tf.random.set_seed(seed)
    model, optimizer = snt.nets.MLP([8, 1]), snt.optimizers.Adam(0.01)
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 4)), tf.float32)

    def train() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x)[:, 0] - tf.reduce_sum(x, 1)) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)

    return Program(
        {"model": model, "optimizer": optimizer},
        lambda: [*model.variables, *optimizer.m, *optimizer.v, optimizer.step],
        train,
        output=lambda: model(x),
    )


def train(directory: str, stop: int | None) -> list[str]:
    return trained(build(1), directory, stop)


@WAYS
@pytest.mark.parametrize(("name", "golden"), goldens.named_goldens())
def test_a_conformance_module_is_exchanged(name, golden, writer, reader, tmp_path) -> None:
    old, new = golden.create_module(), golden.create_module()
    expected, found = golden.create_all_variables(old), golden.create_all_variables(new)
    for variable in expected:
        variable.assign(goldens.range_like(variable))
    path = writer.Checkpoint(module=old).save(str(tmp_path / "ckpt"))
    reader.Checkpoint(module=new).restore(path).assert_consumed()
    assert checksums(found) == checksums(expected)


@pytest.mark.parametrize(("name", "golden"), goldens.named_goldens())
def test_variables_created_after_the_restore(name, golden, tmp_path, outcome) -> None:
    """As with TensorFlow: some modules count the call that creates them."""
    old, new, plain = (golden.create_module() for _ in range(3))
    for variable in golden.create_all_variables(old):
        variable.assign(goldens.range_like(variable))
    path = tfckpt.Checkpoint(module=old).save(str(tmp_path / "ckpt"))
    if name == IN_LISTS:
        with pytest.raises(tfckpt.RefusedError) as refused:
            tfckpt.Checkpoint(module=new).restore(path)
        assert LATER in " ".join(str(refused.value).split())
        outcome(f"refused for ResNet50: {LATER}")
        golden.create_all_variables(new)
        tfckpt.Checkpoint(module=new).restore(path).assert_consumed()
        return
    status = tfckpt.Checkpoint(module=new).restore(path)
    tf.train.Checkpoint(module=plain).restore(path)
    found, expected = golden.create_all_variables(new), golden.create_all_variables(plain)
    status.assert_consumed()
    assert checksums(found) == checksums(expected)


test_a_model_is_exchanged_with_tensorflow = exchanged(build)
test_a_killed_loop_goes_on_exactly = resumed(__file__)
