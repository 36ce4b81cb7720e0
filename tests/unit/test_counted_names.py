"""Given names that Keras could have generated, in programs that are edited and run in one process.

Keras counts up to a number that a user has given, and generates the very name. What the checkpoint
knows of the given name decides then: whose name it was, and that it says no order of creation.
"""

from __future__ import annotations

import itertools

import pytest
import tensorflow as tf
from zoo.edits import CONSTANT, alike, suspect

import tfckpt

HOLDERS = ["attribute", "layer", "nested dict", "nested list", "list", "module"]
LISTS = ["nested list", "list"]


def build(keras, holder, names):
    """Three layers, held so that the first and the last are in different containers, or in one."""
    first, second, last = (keras.layers.Dense(3, name=name) for name in names)

    class Inner(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="inner")
            self.second, self.last = second, last

        def call(self, inputs):
            return self.last(self.second(inputs))

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = first, second, last

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            if holder == "attribute":
                self.first, self.second, self.last = first, second, last
            elif holder == "layer":
                self.first, self.inner = first, Inner()
            elif holder == "nested dict":
                self.parts = {"x": {"a": first, "b": second}, "y": {"a": last}}
            elif holder == "nested list":
                self.parts = [[first, second], [last]]
            elif holder == "list":
                self.parts = [first, second, last]
            else:
                self.module = Module()

        def call(self, inputs):
            if holder == "layer":
                return self.inner(first(inputs))
            return last(second(first(inputs)))

    model = Net()
    model(CONSTANT)
    return model


def saved(flavour, holder, names, tmp_path):
    flavour.backend.clear_session()
    model = build(flavour, holder, names)
    return model, tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


def twice(layers):
    """Whether two layers of a list have one name."""
    lists = layers if isinstance(layers[0], list) else [layers]
    return any(len({layer.name for layer in each}) < len(each) for each in lists)


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("number", [4, 9])
def test_a_layer_that_lost_its_name_to_another_one_is_refused(flavour, holder, number, tmp_path):
    """Of 4, Keras counts up to it in the edited model."""
    name = f"dense_{number}"
    _, path = saved(flavour, holder, (name, None, None), tmp_path)
    said = suspect(path, build(flavour, holder, (None, None, name)))
    assert f"layers are named {name!r}" in said or f"is the layer {name!r} in the model" in said


@pytest.mark.parametrize("holder", HOLDERS[:-1])
def test_it_is_refused_in_a_new_process_too(flavour, holder, tmp_path):
    """There the names of the edited model are 0, 1 and 2, in turn: Keras's, for what it tells.

    The layers of a module have no order: its names are in turn on both sides.
    """
    _, path = saved(flavour, holder, (None, "dense_2", None), tmp_path)
    edited = (None, None, "dense_2")
    flavour.backend.clear_session()
    said = suspect(path, build(flavour, holder, edited))
    assert "'dense_2' in the " in said


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize(
    "names", list(itertools.product((None, "dense_2"), (None, "dense_3"), (None, "dense_4")))
)
def test_a_program_that_runs_again_is_restored(flavour, holder, names, tmp_path):
    """As a cell of a notebook is, whatever Keras has counted up to since.

    An index is no name: a list with two layers of one name could as well be one that was edited.
    """
    old, path = saved(flavour, holder, names, tmp_path)
    for _ in range(3):
        flavour.layers.Dense(3)
        same = build(flavour, holder, names)
        if holder in LISTS and twice(same.parts):
            assert "several layers are named 'dense_" in suspect(path, same)
            continue
        tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
        alike(old, same)
