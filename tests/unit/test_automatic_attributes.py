"""Attributes that are called as Keras calls layers: `self.dense_1`.

An automatic name is a position, an attribute is a name. Each layer has a value of its own, and the
values that a restore gives are those of the layer that the programs mean, or it is refused.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from zoo.edits import CONSTANT, suspect

import tfckpt
from tfckpt.cli.main import main

LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


def saved(model, tmp_path, library=tfckpt):
    return library.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


def numbered(layers):
    """Fill each layer with its place in the list, from 1."""
    for value, layer in enumerate(layers, 1):
        layer.set_weights([np.full(weight.shape, value) for weight in layer.get_weights()])
    return layers


def values(layers):
    return [float(layer.get_weights()[0].flat[0]) for layer in layers]


def functional(keras, names):
    """A model of `Dense` layers that are called in this order, and the layers; None is unnamed."""
    keras.backend.clear_session()
    layers = [keras.layers.Dense(3, name=name) for name in names]
    inputs = outputs = keras.Input((3,))
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs), numbered(layers)


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
@pytest.mark.parametrize("order", [("dense", "dense_1"), ("dense_1", "dense"), ("dense",)])
@pytest.mark.parametrize("into", ["subclass", "functional"])
def test_an_attribute_with_an_automatic_name_is_right_or_refused(
    flavour, order, into, library, tmp_path
):
    """Restored is what only one order of the layers can mean."""

    def build(kind, names):
        unnamed = [None] * len(names)
        return subclass(flavour, names) if kind == "subclass" else functional(flavour, unnamed)

    old, _ = build("functional" if into == "subclass" else "subclass", order)
    path = saved(old, tmp_path, library)
    for more in ((), ("more",)):
        new, layers = build(into, (*order, *more))
        numbered(reversed(layers))
        # Keras 3 shows TensorFlow no order of attributes
        told = library is tfckpt or flavour.__name__ == "tf_keras" or into == "subclass"
        if not more and ((order == ("dense", "dense_1") and told) or order == ("dense",)):
            tfckpt.Checkpoint(model=new).restore(path).assert_nontrivial_match()
            assert values(layers) == [1, 2][: len(order)]
        else:  # `more` may be one of them, too
            suspect(path, new)
            assert values(layers) == [*range(len(layers), 0, -1)]


@LIBRARIES
@pytest.mark.parametrize("attributes", [("dense", "dense_1"), ("dense_1", "dense")])
def test_a_class_of_ones_own_makes_no_difference(flavour, attributes, library, tmp_path):
    class Projection(flavour.layers.Dense):
        pass

    path = saved(functional(flavour, [None, None])[0], tmp_path, library)
    new, layers = subclass(flavour, attributes, make=lambda _: Projection(3))
    if attributes[0] == "dense":
        tfckpt.Checkpoint(model=new).restore(path).assert_nontrivial_match()
        assert values(layers) == [1, 2]
    else:
        assert "an attribute on the other side" in suspect(path, new)


@LIBRARIES
@pytest.mark.parametrize("base", ["Layer", "Module"])
@pytest.mark.parametrize("attributes", [("dense", "dense_1"), ("dense_1", "dense")])
def test_the_attributes_of_a_layer_or_module_are_believed_in_the_order_of_their_creation(
    flavour, base, attributes, library, tmp_path
):

    def build(encoder):
        flavour.backend.clear_session()
        head = flavour.layers.Dense(2)
        model = with_attributes(
            flavour.Model, {"encoder": encoder(), "head": head}.get, *[("encoder", "head")] * 2
        )
        model(CONSTANT)
        return model

    def sequential():
        layers = [flavour.layers.Dense(3) for _ in range(2)]
        return flavour.Sequential([flavour.Input((3,)), *layers])

    def other():
        bases = {"Layer": flavour.layers.Layer, "Module": tf.Module}
        make = lambda _: flavour.layers.Dense(3)  # noqa: E731
        return with_attributes(bases[base], make, attributes, attributes)

    path = saved(build(sequential), tmp_path, library)
    new = build(other)
    if base == "Layer" and library is not tfckpt and flavour.__name__ == "keras":
        suspect(path, new)  # Keras 3 shows TensorFlow no names inside of a layer
    elif attributes[0] == "dense":
        tfckpt.Checkpoint(model=new).restore(path).assert_nontrivial_match()
    else:
        assert "an attribute on the other side" in suspect(path, new)


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


def test_names_that_were_given_are_those_of_attributes_in_any_order(flavour, tmp_path):
    path = saved(functional(flavour, ["dense", "dense_1"])[0], tmp_path)
    new, layers = subclass(
        flavour,
        ("dense_1", "dense"),
        ("dense", "dense_1"),
        make=lambda name: flavour.layers.Dense(3, name=name),
    )
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    assert values(layers) == [1, 2]
    named = lambda name: flavour.layers.Dense(3, name=name)  # noqa: E731
    more, layers = subclass(flavour, ("head", "dense", "dense_1"), make=named)
    numbered(reversed(layers))
    tfckpt.restore(path, more, policy={"on_missing": "warn"})
    assert values(layers) == [3, 1, 2]
    path = saved(functional(flavour, ["dense_1", "dense"])[0], tmp_path / "other")
    suspect(path, new)


@pytest.mark.parametrize("attributes", [("dense", "head"), ("one", "two"), ("dense_1", "dense")])
def test_a_file_that_lists_layers_restores_attributes_by_position(flavour, attributes, tmp_path):
    """But not where the names say that two have changed places."""
    of_keras_2 = [".h5"] if flavour.__name__ == "tf_keras" else []
    for suffix in (".keras", ".weights.h5", *of_keras_2):
        old, _ = functional(flavour, [None, None])
        path = str(tmp_path / f"model{suffix}")
        (old.save if suffix == ".keras" else old.save_weights)(path)
        new, layers = subclass(flavour, attributes)
        numbered(reversed(layers))
        if attributes[0] == "dense_1":
            suspect(path, new)
        else:
            tfckpt.restore(path, new)
            assert values(layers) == [1, 2]


@pytest.mark.parametrize("into", ["subclass", "functional"])
def test_a_rule_for_one_of_two_layers_decides_for_the_other(flavour, into, tmp_path):
    """`head` is `dense_1`; then only one layer is left on both sides."""
    made = functional(flavour, [None, None]), subclass(flavour, ("dense", "head"))
    (old, _), (new, layers) = made if into == "subclass" else reversed(made)
    path = saved(old, tmp_path)
    numbered(reversed(layers))
    suspect(path, new)
    pair = ["model/dense_1/**", "model/head/**"][:: 1 if into == "subclass" else -1]
    tfckpt.restore(path, new, policy={"rename": [{"checkpoint": pair[0], "model": pair[1]}]})
    assert values(layers) == [1, 2]


def test_a_rule_for_a_variable_does_not_decide_for_its_layer(flavour, tmp_path):
    path = saved(functional(flavour, [None, None])[0], tmp_path)
    new, _ = subclass(flavour, ("dense_1", "head"))
    rule = {"checkpoint": "model/dense/kernel", "model": "model/head/kernel"}
    policy = {"rename": [rule], "on_missing": "warn", "on_unexpected": "warn"}
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, new, policy=policy)
    assert {step.name for step in refused.value.plan.errors} == {
        "model/dense_1/kernel",
        "model/dense_1/bias",
    }


@pytest.mark.parametrize("into", ["subclass", "functional"])
def test_an_attribute_with_the_same_variables_may_be_the_layer(flavour, into, tmp_path):
    """The single unnamed layer of one side may be either attribute of the other."""
    made = functional(flavour, [None]), subclass(flavour, ("dense", "head"))
    (old, _), (new, _) = made if into == "subclass" else reversed(made)
    path = saved(old, tmp_path)
    partial = {"on_missing": "warn", "on_unexpected": "warn"}
    with pytest.raises(tfckpt.RefusedError, match="head"):
        tfckpt.restore(path, new, policy=partial)
    other = subclass(
        flavour, ("dense", "head"), make=lambda a: flavour.layers.Dense(3 + (a == "head"))
    )
    made = functional(flavour, [None]), other
    (old, _), (new, layers) = made if into == "subclass" else reversed(made)
    path = saved(old, tmp_path / "other")
    layers[0].set_weights([weight * 0 + 9 for weight in layers[0].get_weights()])
    tfckpt.restore(path, new, policy=partial)
    assert values(layers)[0] == 1


def test_attributes_go_to_automatic_names_by_a_rule(flavour, tmp_path):
    """Nothing else tells which of the two is which."""
    path = saved(subclass(flavour, ("dense_1", "dense"))[0], tmp_path)
    new, layers = functional(flavour, [None, None])
    numbered(reversed(layers))
    said = suspect(path, new)
    assert "'dense' is an automatic name in the model ('dense'), but an attribute" in said
    pairs = [("model/dense_1/**", "model/dense/**"), ("model/dense/**", "model/dense_1/**")]
    rules = [{"checkpoint": checkpoint, "model": model} for checkpoint, model in pairs]
    tfckpt.restore(path, new, policy={"rename": rules})
    assert values(layers) == [1, 2]


@LIBRARIES
def test_one_layer_is_not_one_of_two_attributes(flavour, library, tmp_path):
    path = saved(subclass(flavour, ("dense_1", "dense"))[0], tmp_path, library)
    new, layers = functional(flavour, [None])
    layers[0].set_weights([np.full(weight.shape, 9) for weight in new.get_weights()])
    partial = {"on_missing": "warn", "on_unexpected": "warn"}
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, new, policy=partial)
    reason = refused.value.plan.errors[0].reason
    assert "but an attribute on the other side, and there are several layers like it" in reason
    assert values(layers) == [9]


def test_a_layer_that_a_rewrite_moves_away_leaves_the_others_in_order(flavour, tmp_path):
    path = saved(functional(flavour, [None] * 3)[0], tmp_path)
    rewritten = str(tmp_path / "rewritten")
    main(["tfckpt", "rewrite", path, rewritten, "--rename", "model/dense_2/**=model/x/dense_2/**"])
    new, layers = functional(flavour, [None, None])
    numbered(reversed(layers))
    tfckpt.restore(rewritten, new, policy={"on_unexpected": "warn"})
    assert values(layers) == [1, 2]
