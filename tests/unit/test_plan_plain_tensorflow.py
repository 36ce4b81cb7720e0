"""A model in a model, saved by plain TensorFlow, comes back whole or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt


def nested(flavour, below=("d1", "d2"), around=("backbone", "head"), compiled=False) -> Any:
    layers, inner, outer = flavour.layers, flavour.Input((4,)), flavour.Input((4,))
    output = inner
    for name in below:
        output = layers.Dense(4, name=name)(output)
    output = flavour.Model(inner, output, name=around[0])(outer)
    for name in around[1:]:
        output = layers.Dense(4, name=name)(output)
    model = flavour.Model(outer, output)
    if compiled:
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def fill(model, value) -> Any:
    model.set_weights([np.full_like(weight, value) for weight in model.get_weights()])
    return model


def contents(model) -> set[float]:
    return {float(value) for weight in model.get_weights() for value in np.ravel(weight)}


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request) -> bool:
    return request.param


def test_checkpoint_restores_what_tensorflow_restores(flavour, compiled, tmp_path) -> None:
    source = fill(nested(flavour, compiled=compiled), 7)
    path = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    theirs, ours = (fill(nested(flavour, compiled=compiled), 1) for _ in range(2))
    tf.train.Checkpoint(model=theirs).restore(path).assert_existing_objects_matched()
    tfckpt.Checkpoint(model=ours).restore(path).assert_existing_objects_matched()
    assert contents(ours) == contents(theirs) == {7}


def test_the_manager_restores_what_tensorflow_restores(flavour, compiled, tmp_path) -> None:
    source = fill(nested(flavour, compiled=compiled), 7)
    tf.train.CheckpointManager(tf.train.Checkpoint(model=source), str(tmp_path), 3).save()
    ours = fill(nested(flavour, compiled=compiled), 1)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=ours), str(tmp_path), 3)
    assert manager.restore_or_initialize() is not None
    assert contents(ours) == {7}


def test_an_optimizers_state_follows_its_variables(flavour, tmp_path) -> None:
    source, ours = (nested(flavour, compiled=True) for _ in range(2))
    source.fit(np.ones((8, 4)), np.ones((8, 4)), verbose=0)
    path = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=ours).restore(path)
    there = tfckpt.Checkpoint(model=source).save(str(tmp_path / "there"))
    here = tfckpt.Checkpoint(model=ours).save(str(tmp_path / "here"))
    expected, found = tf.train.load_checkpoint(there), tf.train.load_checkpoint(here)
    slots = [key for key in expected.get_variable_to_shape_map() if "optimizer" in key]
    assert slots
    for key in slots:
        np.testing.assert_array_equal(found.get_tensor(key), expected.get_tensor(key))


@pytest.mark.parametrize(
    "change",
    [{"below": ("d1", "d2", "d3")}, {"around": ("backbone", "neck", "head")}],
    ids=["inside", "outside"],
)
def test_a_model_that_may_be_another_is_refused_and_left_as_it_is(flavour, change, tmp_path):
    path = tf.train.Checkpoint(model=fill(nested(flavour), 7)).save(str(tmp_path / "ckpt"))
    ours = fill(nested(flavour, **change), 1)
    with pytest.raises(tfckpt.RefusedError, match="does not store the names"):
        tfckpt.Checkpoint(model=ours).restore(path)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=ours), str(tmp_path), 3)
    with pytest.raises(tfckpt.TfckptError):
        manager.restore_or_initialize()
    assert contents(ours) == {1}


def listed(flavour, *layers) -> Any:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = [flavour.layers.Dense(4, name=name) for name in layers]

        def call(self, inputs: Any) -> Any:
            for block in self.blocks:
                inputs = block(inputs)
            return inputs

    model = Net()
    model(np.zeros((1, 4), "float32"))
    return model


def test_layers_that_change_places_in_a_list_do_not_get_each_others_weights(flavour, tmp_path):
    path = tfckpt.Checkpoint(model=fill(listed(flavour, "a", "b"), 7)).save(str(tmp_path / "c"))
    other = fill(listed(flavour, "b", "a"), 1)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=other).restore(path)
    said = " ".join(str(refused.value).split())
    assert "'b' in the model and 'a' in the checkpoint" in said
    assert contents(other) == {1}
    same = fill(listed(flavour, "a", "b"), 1)
    tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
    assert contents(same) == {7}


def test_an_inserted_dropout_disturbs_no_weight_and_gets_no_neighbours_seed(flavour, tmp_path):
    def model(*seeds) -> Any:
        dropouts = [flavour.layers.Dropout(0.1, seed=seed) for seed in seeds]
        return flavour.Sequential(
            [flavour.Input((4,)), *dropouts, flavour.layers.Dense(4, name="a")]
        )

    path = tfckpt.Checkpoint(model=fill(model(1), 7)).save(str(tmp_path / "ckpt"))
    ours = fill(model(2, 3), 1)
    before = [np.asarray(variable) for variable in ours.non_trainable_variables]
    tfckpt.Checkpoint(model=ours).restore(path).assert_existing_objects_matched()
    for weight in ours.trainable_variables:
        np.testing.assert_array_equal(np.asarray(weight), np.full(weight.shape, 7))
    for old, new in zip(before, ours.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(np.asarray(new), old)
