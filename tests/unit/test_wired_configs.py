"""What feeds each layer, as the configurations in Keras's files tell it.

Whole models in a file of Keras's: `.keras`, `.h5` and, of tf_keras, a SavedModel. What they tell
is what the live model tells, or nothing.
"""

from __future__ import annotations

import json
import zipfile
from collections import OrderedDict

import h5py
import numpy as np
import pytest
from zoo.edits import alike, suspect, two_ways

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint

KINDS = pytest.mark.parametrize("kind", [".keras", ".h5", ""], ids=["keras", "h5", "saved_model"])


def written(model, path, kind):
    """The path of a file of a model, None where Keras 3 does not write that kind."""
    if not kind and not model.__class__.__module__.startswith("tf_keras"):
        return None
    model.save(f"{path}{kind}")
    return f"{path}{kind}"


@KINDS
def test_layers_that_feed_what_another_one_fed_are_refused(flavour, kind, tmp_path):
    old = two_ways(flavour, False)
    if (path := written(old, tmp_path / "model", kind)) is None:
        return
    said = suspect(path, two_ways(flavour, True))
    assert (
        "model/dense in the model feeds the layer that model/dense_1 feeds in the checkpoint"
        in said
    )
    same = two_ways(flavour, False)
    tfckpt.Checkpoint(model=same).restore(path).expect_partial()
    alike(old, same)


def _dense(keras, count, **settings):
    return [keras.layers.Dense(3, **settings) for _ in range(count)]


def branches(keras):
    inputs = keras.Input((3,))
    one, other = (layer(inputs) for layer in _dense(keras, 2))
    return keras.Model(inputs, keras.layers.Subtract()([keras.layers.ReLU()(one), other]))


def shared(keras):
    inputs = keras.Input((3,))
    one, other = _dense(keras, 2)
    return keras.Model(inputs, [one(one(inputs)), keras.layers.ReLU()(other(one(inputs)))])


def nested(keras):
    inputs, inner = keras.Input((3,)), branches(keras)
    sequential = keras.Sequential([keras.Input((3,)), *_dense(keras, 2)])
    found = inner(inputs)
    return keras.Model(inputs, [found, sequential(inner(found)), inner(sequential(found))])


def nested_last(keras):
    inputs, inner = keras.Input((3,)), branches(keras)
    return keras.Model(inputs, inner(keras.layers.Dense(3)(inner(inputs))))


def sequential_without_input(keras):
    inputs, inner = keras.Input((3,)), keras.Sequential(_dense(keras, 2))
    one, other = _dense(keras, 2)
    return keras.Model(inputs, keras.layers.Add()([inner(inputs), one(inner(other(inputs)))]))


def keywords(keras):
    inputs = keras.Input((4, 3))
    one, other = (layer(inputs) for layer in _dense(keras, 2))
    return keras.Model(inputs, keras.layers.MultiHeadAttention(2, 2)(one, value=other))


def operators(keras):
    inputs = keras.Input((3,))
    one, two, three = (layer(inputs) for layer in _dense(keras, 3))
    return keras.Model(inputs, one * 2 + two - 1 / three)


def states(keras):
    inputs = keras.Input((4, 3))
    first, *state = keras.layers.LSTM(3, return_state=True)(inputs)
    second = keras.layers.LSTM(3, return_sequences=True)(inputs, initial_state=state)
    third, *_ = keras.layers.LSTM(3, return_state=True)(second)
    one, other = _dense(keras, 2)
    return keras.Model(inputs, [one(third), other(first)])


def dicts(keras):
    inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
    one, other = _dense(keras, 2)
    return keras.Model(inputs, {"p": one(inputs["b"]), "q": other(inputs["a"])})


def tuples(keras):
    inputs = keras.Input((3,)), keras.Input((3,))
    one, two, three = _dense(keras, 3)
    found = keras.layers.Concatenate()((one(inputs[0]), two(inputs[1])))
    return keras.Model(inputs, (found, (three(inputs[0]),)))


def from_the_middle(keras):
    one, two, three = _dense(keras, 3)
    first = one(keras.Input((3,)))
    return keras.Model(first, [three(two(first)), two(first)])


def names(keras):
    inputs = keras.Input((3,))
    found = keras.layers.Dense(3, name="stem")(inputs)
    found = [keras.layers.Dense(3, name=name)(found) for name in (None, "dense_991", None)]
    return keras.Model(inputs, [keras.layers.Dropout(0.5)(found[0]), *found[1:]])


def own_classes(keras):
    class Merge(keras.layers.Layer):
        def call(self, inputs):
            return inputs["a"] - inputs["b"]

    class Two(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(3,), name="scale")
            self.built = True

        def call(self, inputs, other=None):
            return inputs * self.scale + (0 if other is None else other), inputs

    inputs = keras.Input((3,))
    one, two, three = _dense(keras, 3)
    left = Merge()({"a": one(inputs), "b": two(inputs)})
    right = Merge()({"a": two(inputs), "b": one(inputs)})
    _, found = Two()(three(left), other=right)
    return keras.Model(inputs, [found, Two()(found)[0]])


def layer_of_both(keras):
    """Its weights are in the file once; by which of the models, Keras chooses."""
    layer = keras.layers.Dense(3)
    inputs = keras.Input((3,))
    inner = keras.Model(inputs, keras.layers.Dense(3)(layer(inputs)))
    outer = keras.Input((3,))
    found = [inner(outer), layer(outer), keras.layers.Dense(3)(outer)]
    return keras.Model(outer, keras.layers.Add()(found))


def layer_of_an_attribute(keras):
    """Its weights are in the file where the attribute is."""

    class Net(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.a = self.layers[1]

    inputs = keras.Input((3,))
    one, other = (layer(inputs) for layer in _dense(keras, 2))
    return Net(inputs, [one, keras.layers.ReLU()(other)])


def order_of_a_dict(keras):
    """Keras 3 takes these as they stand, a dict by its keys, and writes both alike."""
    inputs = keras.Input((3,))
    one, other = (layer(inputs) for layer in _dense(keras, 2))
    return keras.Model(inputs, OrderedDict([("q", one), ("p", other)]))


def three_arguments(keras):
    """tf_keras tells arguments without a name as keywords."""
    inputs = keras.Input((4, 3))
    found = (layer(inputs) for layer in _dense(keras, 3))
    return keras.Model(inputs, keras.layers.MultiHeadAttention(2, 2)(*found))


TOLD = [branches, shared, nested, nested_last, sequential_without_input, keywords, operators]
TOLD += [states, dicts, tuples, from_the_middle, names, own_classes]
PARTLY = [layer_of_both, layer_of_an_attribute, order_of_a_dict, three_arguments]


def _wires(inventory):
    """Layer → what feeds it and what it feeds; of models that tell it."""
    return {
        f"{path}/{layer.place}": (layer.fed, layer.feeds)
        for path, held in inventory.containers.items()
        for layer in held.layers
        if layer.fed or layer.feeds
    }


@KINDS
@pytest.mark.parametrize("build", [*TOLD, *PARTLY])
def test_a_file_tells_what_the_live_model_tells_or_nothing(flavour, kind, build, tmp_path):
    model = build(flavour)
    if (path := written(model, tmp_path / "model", kind)) is None:
        return
    live = collect({"model": model})
    with open_checkpoint(path, roots=live.roots, bases=live.weak_bases) as stored:
        told, found = _wires(live.inventory), _wires(stored.inventory)
    assert found.items() <= told.items()
    if build in TOLD:  # a tf_keras sequential model's configuration lists its layers alone
        assert found.keys() == {name for name in told if "/sequential/" not in name}


@pytest.mark.parametrize("build", PARTLY[1:])
def test_what_a_configuration_does_not_tell_is_no_difference(flavour, build, tmp_path):
    old, new = build(flavour), build(flavour)
    old.save(str(tmp_path / "model.keras"))
    tfckpt.Checkpoint(model=new).restore(str(tmp_path / "model.keras")).assert_consumed()
    for one, other in zip(old.weights, new.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


NONSENSE = {
    "text": "Dense",
    "number": [1],
    "nothing": [[]],
    "unknown": [[["nobody", 0, 0, {}]]],
    "far": [[["dense", 7, 0, {}]]],
    "itself": [[["relu", 0, 0, {}]]],
    "negative": [[["dense", -1, -1, {}]]],
    "truth": [[["dense", True, False, None]]],
    "keras3": [{"args": None, "kwargs": [{"class_name": "__keras_tensor__", "config": 3}]}],
    "cycle": [{"args": [["relu", 0, 0]], "kwargs": {}}],
    "deep": json.loads("[" * 900 + "]" * 900),
}


@pytest.mark.parametrize("nodes", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("kind", [".keras", ".h5"])
def test_a_configuration_that_makes_no_sense_tells_nothing(flavour, kind, nodes, tmp_path):
    def model():
        flavour.backend.clear_session()
        inputs = flavour.Input((3,))
        found = flavour.layers.Dense(3)(inputs)
        return flavour.Model(inputs, flavour.layers.ReLU(name="relu")(found))

    old = model()
    path = written(old, tmp_path / "model", kind)
    _edit(path, lambda _: nodes, only="relu")
    new = model()
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    np.testing.assert_array_equal(old.weights[0].numpy(), new.weights[0].numpy())


def _edit(path, edit, only=""):
    """Put other nodes into the configuration of each layer, or of one."""

    def edited(text):
        config = json.loads(text)
        for layer in config["config"]["layers"]:
            if only in ("", layer["name"]):
                layer["inbound_nodes"] = edit(layer["inbound_nodes"])
        return json.dumps(config)

    if path.endswith(".h5"):
        with h5py.File(path, "r+") as file:
            file.attrs["model_config"] = edited(file.attrs["model_config"])
        return
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, edited(content) if name == "config.json" else content)
