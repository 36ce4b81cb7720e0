"""A model that was edited since the save: what tells its layers apart, and when nothing does."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from zoo.edits import refused

import tfckpt

LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
CONSTANT = np.ones((2, 3), "float32")


def sequential(keras, *names):
    layers = [keras.layers.Dense(3, name=name) for name in names]
    return keras.Sequential([keras.Input((3,)), *layers])


def subclassed(keras, keep, *names):
    """A model that keeps one layer of each name as ``keep`` does."""

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            keep(self, [keras.layers.Dense(3, name=name) for name in names])

        def call(self, inputs):
            return sum(layer(inputs) for layer in self.layers)

    model = Net()
    model(CONSTANT)
    return model


def in_list(model, layers):
    model.blocks = layers


def in_attributes(model, layers):
    for attribute, layer in zip("abc", layers, strict=False):
        setattr(model, attribute, layer)


def saved(library, model, tmp_path):
    return library.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


def restored(path, old, new):
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    for one, other in zip(old.weights, new.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    np.testing.assert_allclose(np.array(old(CONSTANT)), np.array(new(CONSTANT)))


def test_a_layer_more_or_less_in_a_list_is_refused(flavour, tmp_path):
    path = saved(tfckpt, subclassed(flavour, in_list, None, None), tmp_path)
    for layers, count in (((None,), 1), ((None, None, None), 3)):
        said = refused(path, subclassed(flavour, in_list, *layers))
        assert "is identified by its index in a list" in said
        assert f"the list has length {count} in the model and 2 in the checkpoint" in said
        assert "map them with `rename`" in said


def test_plain_tensorflows_list_is_refused_as_well(tmp_path):
    keras = pytest.importorskip("tf_keras")  # Keras 3 saves no list
    path = saved(tf.train, subclassed(keras, in_list, None, None), tmp_path)
    said = refused(path, subclassed(keras, in_list, None))
    assert "the list has length 1 in the model and 2 in the checkpoint" in said


def test_another_class_in_a_list_is_refused(flavour, tmp_path):
    def keep(norm):
        def keep(model, layers):
            model.blocks = [flavour.layers.LayerNormalization(), *layers, norm()]

        return keep

    old = subclassed(flavour, keep(flavour.layers.LayerNormalization), None)
    new = subclassed(flavour, keep(flavour.layers.BatchNormalization), None)
    said = refused(saved(tfckpt, old, tmp_path), new)
    assert "index 2 is of class 'batch_normalization' in the model" in said


def test_the_same_list_is_restored(flavour, tmp_path):
    old, new = (subclassed(flavour, in_list, None, None) for _ in range(2))
    restored(saved(tfckpt, old, tmp_path), old, new)


def test_names_settle_a_list_that_has_grown(flavour, tmp_path):
    old = subclassed(flavour, in_list, "x", "y")
    new = subclassed(flavour, in_list, "x", "y", "z")
    status = tfckpt.Checkpoint(model=new).restore(saved(tfckpt, old, tmp_path))
    assert {s.name for s in status.report.plan.steps if s.status == "MISSING"} == {
        "model/blocks/2/kernel",
        "model/blocks/2/bias",
    }
    for one, other in zip(old.blocks, new.blocks, strict=False):
        np.testing.assert_array_equal(one.kernel.numpy(), other.kernel.numpy())


@LIBRARIES
def test_a_layer_that_got_a_name_while_one_was_added_is_refused(flavour, library, tmp_path):
    path = saved(library, sequential(flavour, None, None), tmp_path)
    said = refused(path, sequential(flavour, "stem", None, None))
    assert "'dense' is an automatic name, and 'stem', which has no counterpart, may be" in said
    assert "`match:" not in said


@LIBRARIES
def test_a_head_that_is_replaced_says_nothing_of_the_body(flavour, library, tmp_path):
    old = sequential(flavour, None, None, "old")
    new = sequential(flavour, None, None, "new")
    path = saved(library, old, tmp_path)
    report = tfckpt.Checkpoint(model=new).restore(path).report
    assert not [step for step in report.plan.steps if step.status == "SUSPECT"]
    for one, other in zip(old.weights[:4], new.weights[:4], strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@LIBRARIES
@pytest.mark.parametrize("edit", ["arguments", "lines"])
def test_branches_in_another_order_are_refused(flavour, library, edit, tmp_path):
    """Keras lists layers as the graph needs them; their numbers tell when they were made."""

    def branches(edit):
        inputs = flavour.Input((3,))
        one, other = flavour.layers.Dense(3), flavour.layers.Dense(3)
        if edit == "lines":
            one, other = other, one
        pair = [one(inputs), other(inputs)]
        outputs = flavour.layers.Subtract()(pair[::-1] if edit == "arguments" else pair)
        return flavour.Model(inputs, outputs)

    old = branches("")
    path = saved(library, old, tmp_path)
    restored(path, old, branches(""))
    said = refused(path, branches(edit))
    assert "the layers of that class in 'model' were created in another order in the model" in said


@pytest.mark.parametrize("kind", ["file", "list"])
def test_a_named_layer_of_the_class_does_not_hide_the_order_of_the_others(kind, flavour, tmp_path):
    """The name that one was given since is the number that the next one had."""
    if kind == "file" and flavour.__name__ == "tf_keras":
        pytest.skip("tf_keras leaves names out of its files")

    def model(exchanged):
        flavour.backend.clear_session()
        layers = [flavour.layers.Dense(3, name=name) for name in (None, "mid", None, None)]
        if kind == "list":
            order = (0, 1, 3, 2) if exchanged else (0, 1, 2, 3)
            return subclassed(flavour, lambda net, _: in_list(net, [layers[at] for at in order]))
        if exchanged:
            flavour.backend.clear_session()
            names = (None, "mid", "dense_2", None)
            layers = [flavour.layers.Dense(3, name=name) for name in names]
        inputs = flavour.Input((3,))
        stem = layers[0](inputs)
        both = flavour.layers.Subtract()([layers[1](stem), layers[2](stem)])
        return flavour.Model(inputs, layers[3](both))

    old = model(exchanged=False)
    path = str(tmp_path / "ckpt.weights.h5")
    if kind == "list":
        path = saved(tfckpt, old, tmp_path)
    else:
        old.save_weights(path)
    restored(path, old, model(exchanged=False))
    said = refused(path, model(exchanged=True))
    assert "layers of that class" in said or "layers of one class" in said


def test_a_layer_under_another_ones_attribute_is_refused(flavour, tmp_path):
    path = saved(tfckpt, subclassed(flavour, in_attributes, "x", "y"), tmp_path)
    said = refused(path, subclassed(flavour, in_attributes, "y", "x"))
    text = (
        "model/a is the layer 'y' in the model and 'x' in the checkpoint, which is model/b in the"
    )
    assert f"{text} model" in said
    new = subclassed(flavour, in_attributes, "x", "new")
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()  # the attribute is its name


def in_list_and_attribute(model, layers):
    model.blocks, model.c = layers[:1], layers[1]


def in_dict_and_list(model, layers):
    model.parts, model.blocks = {"key": layers[0]}, layers[1:]


def in_blocks(model, layers):
    """Each as the attribute of a layer of its own."""

    class Block(type(layers[0]).__mro__[1]):
        def __init__(self, layer):
            super().__init__()
            self.inner = layer

        def call(self, inputs):
            return self.inner(inputs)

    model.one, model.two = map(Block, layers)


HELD = [
    (in_list_and_attribute, "model/blocks/0", "model/c"),
    (in_dict_and_list, "model/parts/key", "model/blocks/0"),
    (in_blocks, "model/one/inner", "model/two/inner"),
]


@pytest.mark.parametrize("names", [("x", None), (None, "x")])
@pytest.mark.parametrize(("keep", "one", "other"), HELD)
def test_a_named_layer_that_moved_to_another_holder_is_refused(
    flavour, keep, one, other, names, tmp_path
):
    path = saved(tfckpt, subclassed(flavour, keep, *names), tmp_path)
    said = refused(path, subclassed(flavour, keep, *reversed(names)))
    if names[0] is None:
        one, other = other, one
    assert f"{one} is the layer 'x' in the checkpoint, which is {other} in the model" in said
    assert f"{other} is the layer 'x' in the model, which is {one} in the checkpoint" in said


@pytest.mark.parametrize("keep", [keep for keep, *_ in HELD])
def test_a_name_that_several_layers_have_says_nothing_of_a_move(flavour, keep, tmp_path):
    """Blocks are built alike; and a layer may take a name that another one has kept."""
    for number, (before, now) in enumerate(
        [(("x", "x"), ("x", None)), (("x", None), ("x", "x")), (("x", None), (None, None))]
    ):
        where = tmp_path / str(number)
        path = saved(tfckpt, subclassed(flavour, keep, *before), where)
        new = subclassed(flavour, keep, *now)
        tfckpt.Checkpoint(model=new).restore(path).assert_consumed()


def test_named_layers_of_a_list_in_another_order_are_refused_from_kerass_file(tmp_path):
    """It tells the names of a list's layers and not their indices."""
    keras = pytest.importorskip("keras")
    old = subclassed(keras, in_list, "x", "y")
    path = str(tmp_path / "ckpt.weights.h5")
    old.save_weights(path)
    same = subclassed(keras, in_list, "x", "y")
    restored(path, old, same)
    said = refused(path, subclassed(keras, in_list, "y", "x"))
    assert "position 1 is 'y' in the model and 'x' in the checkpoint" in said


def test_numbered_layers_of_a_list_in_another_order_are_refused(flavour, tmp_path):
    """Names that look automatic: their numbers tell an order, whoever gave them."""
    path = saved(tfckpt, subclassed(flavour, in_list, "dense_1", "dense_2"), tmp_path)
    said = refused(path, subclassed(flavour, in_list, "dense_2", "dense_1"))
    assert "layers of one class were created in another order in the model" in said
