"""Names of attributes and layers that look automatic, and branches without names."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from zoo.edits import CONSTANT, alike, suspect
from zoo.two_branches import as_made, branches, emptied, is_suspect

import tfckpt

LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


def saved(model, tmp_path, library=tfckpt):
    return library.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


def numbered(layers):
    """Fill each layer with its place in the list, from 1."""
    for value, layer in enumerate(layers, 1):
        layer.set_weights([np.full(weight.shape, value) for weight in layer.get_weights()])
    return layers


def with_attributes(base, make, attributes, called):
    class Holder(base):
        def __init__(self):
            super().__init__()
            for attribute in attributes:
                setattr(self, attribute, make(attribute))

        def __call__(self, x):
            return self.call(x) if base is tf.Module else super().__call__(x)

        def call(self, x):
            for attribute in called:
                x = getattr(self, attribute)(x)
            return x

    return Holder()


def subclass(keras, attributes, called=None, make=None):
    """A model with these attributes, called in that order or another one, and the layers."""
    keras.backend.clear_session()
    called = called or attributes
    make = make or (lambda _: keras.layers.Dense(3))
    model = with_attributes(keras.Model, make, attributes, called)
    model(CONSTANT)
    return model, numbered([getattr(model, attribute) for attribute in called])


@LIBRARIES
def test_layers_in_another_order_than_they_were_created_in_are_no_attributes(
    flavour, library, tmp_path
):
    """`summary()` shows `dense_1` first, which `self.dense_1` seems to be, and is not by name."""
    flavour.backend.clear_session()
    one, two = flavour.layers.Dense(3), flavour.layers.Dense(3)
    inputs = flavour.Input((3,))
    path = saved(flavour.Model(inputs, one(two(inputs))), tmp_path, library)
    new, _ = subclass(flavour, ("dense", "dense_1"), ("dense_1", "dense"))
    assert "an attribute on the other side" in suspect(path, new)


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
    assert "another branch has a layer like it" in is_suspect(path, more)
    same = {"checkpoint": "model/dense/**", "model": "model/dense/**"}
    other = {"checkpoint": "model/dense_1/**", "model": "model/dense_1/**"}
    tfckpt.restore(path, more, policy={"rename": [same, other]})
    assert as_made(layers)


def attributes(keras, first, second):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.query = keras.layers.Dense(3, name=first)
            self.key = keras.layers.Dense(3, name=second)

        def call(self, inputs):
            return self.query(inputs) - self.key(inputs)

    model = Net()
    model(CONSTANT)
    return model


def attributes_in(keras, first, second):
    """The same on a layer: Keras's file tells its attributes, not those of a model."""

    class Pair(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.query = keras.layers.Dense(3, name=first)
            self.value = keras.layers.Dense(3, name=second)

        def call(self, inputs):
            return self.query(inputs) - self.value(inputs)

    return keras.Sequential([keras.Input((3,)), Pair()])


def test_plain_tensorflow_s_names_of_attributes_are_compared(tmp_path):
    keras = pytest.importorskip("tf_keras")  # Keras 3 names no variable by a layer inside
    for one, other in (("x", "y"), ("dense_991", "dense_992")):
        old = attributes(keras, one, other)
        path = saved(old, tmp_path, tf.train)
        said = suspect(path, attributes(keras, other, one))
        text = f"model/key is the layer '{one}' in the model and '{other}' in the checkpoint"
        assert text in said
        same = attributes(keras, one, other)
        tfckpt.Checkpoint(model=same).restore(path).assert_existing_objects_matched()
        alike(old, same)


@pytest.mark.parametrize("build", [attributes, attributes_in])
@pytest.mark.parametrize(("one", "other"), [("x", "y"), ("dense_991", "dense_992")])
def test_keras_s_file_is_refused_where_names_of_attributes_changed_places(
    build, one, other, tmp_path
):
    keras = pytest.importorskip("keras")  # tf_keras leaves names out
    old = build(keras, one, other)
    path = str(tmp_path / "model.weights.h5")
    old.save_weights(path)
    assert f"{one!r}" in suspect(path, build(keras, other, one))
    same = build(keras, one, other)
    tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
    alike(old, same)
