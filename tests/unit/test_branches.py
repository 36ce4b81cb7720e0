"""Layers that change places in Keras's list, or names, as other layers are added or removed.

Keras lists the layers of a functional model by their distance from the outputs, so a Dropout in one
branch moves its layers before those of the other one; automatic names go by this list. A file of
plain TensorFlow or Keras does not store what feeds a layer.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

tf_keras = pytest.importorskip("tf_keras")

WIDTH = 3


def branches(keras, names=(None, None), *, dropout=(False, False), head=False, last=False):
    """Two layers side by side, each with an output of its own, or one for both."""
    inputs = keras.Input((WIDTH,))
    layers = [keras.layers.Dense(WIDTH, name=name) for name in names]
    outputs = [layer(inputs) for layer in layers]
    outputs = [
        keras.layers.Dropout(0.5)(x) if each else x
        for x, each in zip(outputs, dropout, strict=True)
    ]
    if head:
        joined = keras.layers.Concatenate()(outputs)
        joined = keras.layers.Dropout(0.5)(joined) if last else joined
        outputs = keras.layers.Dense(1, name="head")(joined)
    model = keras.Model(inputs, outputs)
    for at, layer in enumerate(layers):
        layer.set_weights([np.full_like(each, at + 1) for each in layer.get_weights()])
    return model, layers


def refused(path, model):
    before = [each.numpy() for each in model.weights]
    with pytest.raises(tfckpt.RefusedError, match="SUSPECT") as caught:
        tfckpt.Checkpoint(model=model).restore(path)
    for one, other in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)
    return " ".join(str(caught.value).split())


def as_made(layers):
    """Whether each layer has the weights of the one that was made in its turn."""
    return [float(layer.get_weights()[0].min()) for layer in layers] == [1.0, 2.0]


def emptied(model):
    for each in model.weights:
        each.assign(tf.zeros_like(each))


def test_names_that_looked_automatic_are_removed_and_a_branch_gets_a_dropout(flavour, tmp_path):
    """Plain TensorFlow restores the one branch into the other."""
    flavour.backend.clear_session()
    old, _ = branches(flavour, ("dense_4", "dense_2"))
    path = tf.train.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    flavour.backend.clear_session()
    new, layers = branches(flavour, dropout=(False, True))
    tf.train.Checkpoint(model=new).restore(path)
    assert not as_made(layers)
    assert "another branch has a layer like it" in refused(path, new)


def test_branches_of_one_class_need_names_where_a_file_has_no_connections(flavour, tmp_path):
    flavour.backend.clear_session()
    old, _ = branches(flavour, head=True)
    path = tf.train.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    flavour.backend.clear_session()
    new, layers = branches(flavour, head=True)
    emptied(new)
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    assert as_made(layers)
    more, layers = branches(flavour, head=True, last=True)
    assert "another branch has a layer like it" in refused(path, more)
    same = {"checkpoint": "model/dense/**", "model": "model/dense/**"}
    other = {"checkpoint": "model/dense_1/**", "model": "model/dense_1/**"}
    tfckpt.restore(path, more, policy={"rename": [same, other]})
    assert as_made(layers)


def test_a_dropout_is_removed_from_a_branch_and_the_file_has_no_names(tmp_path):
    """Keras itself loads the one branch into the other, both into the wrong place."""
    old, _ = branches(tf_keras, ("left", "right"), dropout=(False, True))
    path = str(tmp_path / "a.weights.h5")
    old.save_weights(path)
    new, layers = branches(tf_keras, ("left", "right"))
    new.load_weights(path)
    assert not as_made(layers)
    emptied(new)
    assert "another branch has a layer like it" in refused(path, new)
    same, layers = branches(tf_keras, ("left", "right"), dropout=(False, True))
    emptied(same)
    tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
    assert as_made(layers)


def attributes(keras, one, other):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.one, self.other = one(), other()

        def call(self, inputs):
            return self.one(inputs) + self.other(inputs)

    model = Net()
    model(np.ones((1, WIDTH), "float32"))
    return model


@pytest.mark.parametrize("writer", [tfckpt.Checkpoint, tf.train.Checkpoint])
@pytest.mark.parametrize("names", [(None, None), ("first", "second")])
def test_layers_of_two_classes_change_attributes(flavour, writer, names, tmp_path):
    """``gamma`` and ``beta`` of each would fit into the other."""
    one = partial(flavour.layers.LayerNormalization, name=names[0])
    other = partial(flavour.layers.BatchNormalization, name=names[1])
    path = writer(model=attributes(flavour, one, other)).save(str(tmp_path / "ckpt"))
    new = attributes(flavour, other, one)
    said = refused(path, new)
    told = "that model/other has in the checkpoint", "model/one is the layer 'second' in the model"
    assert any(each in said for each in told)


def listed(keras, *names):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.layers.Dense(WIDTH, name=name) for name in names]

        def call(self, inputs):
            for block in self.blocks:
                inputs = block(inputs)
            return inputs

    model = Net()
    model(np.ones((1, WIDTH), "float32"))
    return model


def test_a_layer_has_the_name_that_another_one_was_given(flavour, tmp_path):
    """Keras counts on in a program that makes both models, so both are called ``dense_1``."""
    flavour.backend.clear_session()
    old = listed(flavour, None, "neck", "dense_1")
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    new = listed(flavour, "dense_1", "neck", None)
    assert [block.name for block in new.blocks] == ["dense_1", "neck", "dense_1"]
    assert "several layers are named 'dense_1'" in refused(path, new)


def test_a_layer_has_got_a_name_that_looks_automatic(tmp_path):
    """Either branch could be the one that has the name now."""
    tf_keras.backend.clear_session()
    old, _ = branches(tf_keras)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    tf_keras.backend.clear_session()
    new, _ = branches(tf_keras, (None, "dense_2"))
    assert "a name that was given on one side alone: 'dense_2' in the model" in refused(path, new)


def test_a_layer_changes_places_with_one_without_weights(flavour, tmp_path):
    """The first layer feeds now what the second one fed; nobody feeds what the first one did."""
    layers = flavour.layers
    inputs = flavour.Input((WIDTH,))
    first, second = layers.Dense(WIDTH), layers.Dense(WIDTH)
    outputs = layers.Concatenate()([second(first(inputs)), layers.ReLU()(inputs)])
    path = tfckpt.Checkpoint(model=flavour.Model(inputs, outputs)).save(str(tmp_path / "ckpt"))
    inputs = flavour.Input((WIDTH,))
    second, first = layers.Dense(WIDTH), layers.Dense(WIDTH)
    outputs = layers.Concatenate()([second(layers.ReLU()(inputs)), first(inputs)])
    said = refused(path, flavour.Model(inputs, outputs))
    assert "that feeds model/dense_1" in said or "that model/dense_1 feeds" in said


def test_two_chosen_names_at_one_place_are_two_layers(flavour, tmp_path):
    """What was first of its class is inside another model now, and the second one is first."""
    norm = flavour.layers.BatchNormalization

    def model(first, *inside):
        flavour.backend.clear_session()
        layers = [flavour.layers.Dense(WIDTH), *inside]  # Keras names and counts the first
        return flavour.Sequential([flavour.Input((WIDTH,)), *layers, norm(name=first)])

    old = model("batch_normalization_2")
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    inner = flavour.Sequential(
        [flavour.Input((WIDTH,)), norm(name="batch_normalization_2")], name="inner"
    )
    new = model("batch_normalization_4", inner)
    assert (
        "model/batch_normalization is the layer 'batch_normalization_4' in the model and "
        "'batch_normalization_2' in the checkpoint"
    ) in refused(path, new)
