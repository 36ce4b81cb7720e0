"""Layers of automatic names that changed places, and those of which a person gave the name.

The count of the layers, their classes and their numbers are the same on both sides in each of
these: what feeds them, what they feed, their settings or their given names alone tell the one from
the other.
"""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf
from zoo.edits import CONSTANT, alike, behind_named, edited, suspect, two_ways

import tfckpt
from tfckpt.cli.main import main

ASSERTIONS = ["assert_consumed", "assert_existing_objects_matched", "assert_nontrivial_match"]
LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


def saved(model, tmp_path, library=tfckpt):
    return library.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


def test_layers_that_feed_what_another_one_fed_are_refused(flavour, tmp_path):
    """A ReLU changed sides, and two lines of the program did: numbers and positions are as before.

    The layer before `l` had the other one's number and position.
    """
    path = saved(two_ways(flavour, False), tmp_path)
    said = suspect(path, two_ways(flavour, True))
    assert (
        "model/dense in the model feeds the layer that model/dense_1 feeds in the checkpoint"
        in said
    )
    same = two_ways(flavour, False)
    for assertion in ASSERTIONS:
        getattr(tfckpt.Checkpoint(model=same).restore(path), assertion)()


def test_layers_that_are_fed_by_what_fed_another_one_are_refused(flavour, tmp_path):
    """Positions are as before: a ReLU behind `l` makes that one the first."""

    path = saved(behind_named(flavour, False), tmp_path)
    said = suspect(path, behind_named(flavour, True))
    assert (
        "model/dense in the model gets its input from the layer that feeds model/dense_1 in the "
        "checkpoint"
    ) in said


@pytest.mark.parametrize("edit", ["relu", "arguments", "outputs", "dict"])
def test_branches_are_right_or_refused(flavour, edit, tmp_path):
    """What the issue tells of: of the same layers, each made and called as before."""

    def model(edit, seed):
        inputs = flavour.Input((3,))
        one, other = flavour.layers.Dense(3), flavour.layers.Dense(3)
        ends = [one(inputs), other(inputs)]
        if edit == "relu":
            ends[0] = flavour.layers.ReLU()(ends[0])
        if edit == "arguments":
            ends = ends[::-1]
        outputs = {
            "relu": lambda: flavour.layers.Add()(ends),
            "arguments": lambda: flavour.layers.Add()(ends),
            "outputs": lambda: ends[::-1] if seed else ends,
            "dict": lambda: {"b": ends[0], "a": ends[1]} if seed else ends,
        }[edit or "relu"]()
        made = flavour.Model(inputs, outputs)
        rng = np.random.default_rng(seed)
        for layer in (one, other):
            layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
        return made, (one, other)

    before = "" if edit in ("relu", "arguments") else edit
    old, old_layers = model(before, 0)
    path = saved(old, tmp_path)
    new, new_layers = model(edit, 1)
    fresh = [w for layer in new_layers for w in layer.get_weights()]
    meant = [w for layer in old_layers for w in layer.get_weights()]
    with contextlib.suppress(tfckpt.RefusedError):
        tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
        fresh = meant
    found = [w for layer in new_layers for w in layer.get_weights()]
    for one, other in zip(found, fresh, strict=True):
        np.testing.assert_array_equal(one, other)


def chain(keras, *activations):
    layers = [keras.layers.Dense(3, activation=each) for each in activations]
    return keras.Sequential([keras.Input((3,)), *layers])


def listed(keras, *activations):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [keras.layers.Dense(3, activation=each) for each in activations]

        def call(self, inputs):
            for layer in self.blocks:
                inputs = layer(inputs)
            return inputs

    model = Net()
    model(CONSTANT)
    return model


@pytest.mark.parametrize(("build", "path"), [(chain, "dense"), (listed, "blocks/0")])
def test_layers_with_the_settings_of_another_one_are_refused(flavour, build, path, tmp_path):
    """The first of three was taken out, and one added: each has what its neighbour had."""
    old = build(flavour, "relu", "tanh", "sigmoid")
    said = suspect(saved(old, tmp_path), build(flavour, "tanh", "sigmoid", "relu"))
    other = path.replace("0", "1") if "/" in path else "dense_1"
    settings = f"model/{path} in the model has the settings that model/{other} has in the"
    assert settings in said
    assert "map them with `rename`" in said


@pytest.mark.parametrize("build", [chain, listed])
@pytest.mark.parametrize("activations", [("relu", "tanh"), ("elu", "tanh"), ("elu", "elu")])
def test_other_settings_are_no_other_layer(flavour, build, activations, tmp_path):
    old, new = build(flavour, "relu", "tanh"), build(flavour, *activations)
    tfckpt.Checkpoint(model=new).restore(saved(old, tmp_path)).assert_consumed()
    for one, other in zip(old.weights, new.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("edit", ["dropout", "append", "head", "loaded"])
def test_an_edit_that_moves_no_layer_is_restored(flavour, edit, tmp_path):
    old, new = edited(flavour, ""), edited(flavour, edit)
    if edit == "loaded":
        new.save(str(tmp_path / "model.keras"))
        new = flavour.models.load_model(str(tmp_path / "model.keras"))
    tfckpt.Checkpoint(model=new).restore(saved(old, tmp_path)).expect_partial()
    for one, other in list(zip(old.weights, new.weights, strict=False))[:6]:
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def named_blocks(keras, *names):
    """A Sequential of layers of a class of one's own, ``Block``, whose names are given or not."""

    class Block(keras.layers.Dense):
        pass

    return keras.Sequential([keras.Input((3,)), *(Block(3, name=name) for name in names)])


@LIBRARIES
def test_names_that_look_automatic_are_believed_over_places(flavour, library, tmp_path):
    """`block_1` was taken out, and `block_4` added."""
    old = named_blocks(flavour, "block_91", "block_92", "block_93")
    path = saved(old, tmp_path, library)
    said = suspect(path, named_blocks(flavour, "block_92", "block_93", "block_94"))
    assert "'block_92'" in said
    new = named_blocks(flavour, "block_91", "block_92", "block_93")
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    alike(old, new)


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


def test_given_names_of_attributes_are_names_whatever_they_look_like(flavour, tmp_path):
    path = saved(attributes(flavour, "dense_991", "dense_992"), tmp_path)
    said = suspect(path, attributes(flavour, "dense_992", "dense_991"))
    assert (
        "model/key is the layer 'dense_991' in the model and 'dense_992' in the checkpoint, which "
        "is model/query in the model"
    ) in said


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("left left right right", "right right left left", "bcde"),
        ("l r r o", "r r l o", "bd"),
        ("l l r o", "r l l o", "bd"),
    ],
)
def test_names_that_several_layers_were_given_change_places_aloud(
    flavour, before, after, moved, tmp_path
):
    def build(names):
        class Net(flavour.Model):
            def __init__(self):
                super().__init__()
                for attribute, name in zip("bcde", names.split(), strict=True):
                    setattr(self, attribute, flavour.layers.Dense(3, name=name))

            def call(self, x):
                return self.e(self.d(self.c(self.b(x))))

        model = Net()
        model(CONSTANT)
        return model

    path = saved(build(before), tmp_path)
    tfckpt.Checkpoint(model=build(before)).restore(path).assert_consumed()
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(model=build(after)).restore(path)
    steps = refused.value.plan.errors
    assert {step.name.split("/")[1] for step in steps} == set(moved)
    name, other = after.split()["bcde".index(moved[0])], before.split()["bcde".index(moved[0])]
    assert f"model/{moved[0]} is the layer {name!r} in the model and {other!r}" in str(
        refused.value
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("proj proj", "proj -"), ("proj proj -", "proj - -"), ("proj proj", "- proj")],
)
def test_a_list_with_a_name_less_may_have_lost_another_layer(flavour, before, after, tmp_path):
    """The first one was taken out, and an unnamed one added."""

    def build(names):
        class Net(flavour.Model):
            def __init__(self):
                super().__init__()
                given = [None if name == "-" else name for name in names.split()]
                self.blocks = [flavour.layers.Dense(3, name=name) for name in given]

            def call(self, x):
                for block in self.blocks:
                    x = block(x)
                return x

        model = Net()
        model(CONSTANT)
        return model

    path = saved(build(before), tmp_path)
    tfckpt.Checkpoint(model=build(before)).restore(path).assert_consumed()
    assert "is the layer 'proj' in the checkpoint, which is model/blocks/" in suspect(
        path, build(after)
    )


@pytest.mark.parametrize("made_before", [(0, 2), (2, 0), (5, 2)])
def test_a_given_name_that_keras_generates_for_another_layer_is_no_change(
    flavour, made_before, tmp_path
):
    """In the same program, where other layers have been made before: dense_2, dense_3, dense_3."""

    def build(count):
        flavour.backend.clear_session()
        for _ in range(count):
            flavour.layers.Dense(3)

        class Net(flavour.Model):
            def __init__(self):
                super().__init__()
                self.a = flavour.layers.Dense(3)
                self.b = flavour.layers.Dense(3, name="dense_3")
                self.c = flavour.layers.Dense(3)

            def call(self, x):
                return self.c(self.b(self.a(x)))

        model = Net()
        model(CONSTANT)
        return model

    first, second = map(build, made_before)
    tfckpt.Checkpoint(model=second).restore(saved(first, tmp_path)).assert_consumed()
    np.testing.assert_equal(second.get_weights(), first.get_weights())


def built_when_made(keras, hold, names):
    """Two blocks, each with a layer inside that bears a name of the other one."""

    class Block(keras.layers.Layer):
        def __init__(self, name, inner):
            super().__init__(name=name)
            self.inner = keras.layers.Dense(3, name=inner)
            self.inner(CONSTANT)

        def call(self, x):
            return self.inner(x)

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            made = [Block(*each) for each in zip(names, reversed(names), strict=True)]
            if hold == "attributes":
                self.one, self.two = made
            else:
                self.blocks = made

        def call(self, x):
            blocks = [self.one, self.two] if hold == "attributes" else self.blocks
            return blocks[1](blocks[0](x))

    model = Net()
    model(CONSTANT)
    return model


@LIBRARIES
def test_the_name_of_what_a_layer_calls_when_it_is_made_is_not_its_own(flavour, library, tmp_path):
    held = ["attributes", "list"] if flavour.__name__ == "tf_keras" else ["attributes"]
    for hold in held:  # TensorFlow saves nothing of a list of Keras 3
        old, new = (built_when_made(flavour, hold, ["a", "b"]) for _ in range(2))
        path = saved(old, tmp_path / hold, library)
        tfckpt.Checkpoint(model=new).read(path).assert_existing_objects_matched()
        alike(old, new)


@pytest.mark.parametrize("side", ["stored", "live"])
@pytest.mark.parametrize("how", ["loaded", "cleared"])
def test_automatic_names_of_another_count_are_not_taken_for_given_ones(
    flavour, how, side, tmp_path
):
    """A model from a `.keras` file has the names of the program that made it.

    After `clear_session` Keras has forgotten its count.
    """

    def model(before):
        flavour.backend.clear_session()
        for _ in range(before):
            flavour.layers.Dense(1)
        return chain(flavour, None, None, None)

    def strange():
        made = model(1)
        if how == "loaded":
            file = str(tmp_path / "model.keras")
            made.save(file)
        flavour.backend.clear_session()
        return flavour.models.load_model(file) if how == "loaded" else made

    if side == "stored":
        old = strange()
        path = saved(old, tmp_path)
        new = model(0)
    else:
        old = model(0)
        path = saved(old, tmp_path)
        new = strange()
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    alike(old, new)


@pytest.mark.parametrize("side", ["stored", "live"])
@pytest.mark.parametrize("how", ["cleared", "thread"])
def test_a_count_that_began_anew_makes_no_given_names(flavour, how, side, tmp_path):
    """Keras gives `dense` once more, and `dense_1` and `dense_2` are beyond its count."""

    def model(before):
        flavour.backend.clear_session()
        for _ in range(before):
            flavour.layers.Dense(1)
        return chain(flavour, None, None, None)

    def strange(use):
        made = model(0)
        if how == "cleared":
            flavour.backend.clear_session()
            flavour.layers.Dense(1)
            return use(made)
        found = []
        thread = threading.Thread(target=lambda: (flavour.layers.Dense(1), found.append(use(made))))
        thread.start()
        thread.join()
        return found[0]

    if side == "stored":
        old, path = strange(lambda made: (made, saved(made, tmp_path)))
        new = model(1)
        tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    else:
        old = model(1)
        path = saved(old, tmp_path)
        new = strange(
            lambda made: (tfckpt.Checkpoint(model=made).restore(path).assert_consumed(), made)[1]
        )
    alike(old, new)


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


@pytest.mark.parametrize("edit", ["lines", "named"])
def test_keras_s_file_tells_when_unnamed_layers_were_made(edit, tmp_path):
    keras = pytest.importorskip("keras")

    def model(edit):
        inputs = keras.Input((3,))
        names = ("stem", None) if edit == "named" else (None, None)
        one, other = (keras.layers.Dense(3, name=name) for name in names)
        if edit == "lines":
            one, other = other, one
        found = keras.layers.Subtract()([one(inputs), other(inputs)])
        return keras.Model(inputs, keras.layers.Dense(3)(found) if edit == "named" else found)

    old = model("")
    path = str(tmp_path / "model.weights.h5")
    old.save_weights(path)
    said = suspect(path, model(edit))
    told = {
        "lines": "the layers of that class in 'model' were created in another order in the model",
        "named": "'stem', which has no counterpart, may be a layer of its class under another name",
    }
    assert told[edit] in said
    same = model("")
    tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
    alike(old, same)


def test_a_rewrite_keeps_the_names_of_attributes(flavour, tmp_path):
    path = saved(attributes(flavour, "x", "y"), tmp_path)
    main(["tfckpt", "rewrite", path, str(tmp_path / "new" / "ckpt-1")])
    said = suspect(str(tmp_path / "new" / "ckpt-1"), attributes(flavour, "y", "x"))
    text = "model/key is the layer 'x' in the model and 'y' in the checkpoint, which is model/q"
    assert text in said


def test_layers_that_tell_little_of_themselves_are_saved_and_restored(flavour, tmp_path):
    """An attribute that answers nothing, a graph that was cut, a Sequential without inputs."""

    class Context:
        def __getattr__(self, name):
            raise RuntimeError("no context")

    class Told(flavour.layers.Dense):
        def __init__(self, size):
            super().__init__(size)
            self.context = Context()

    def model():
        made = chain(flavour, None, None)
        made.layers[-1]._inbound_nodes = []
        outer = flavour.Sequential([made, Told(3)])
        outer.build((None, 3))
        return outer

    old, new = model(), model()
    path = saved(old, tmp_path)
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
    alike(old, new)
    unbuilt = flavour.Sequential([chain(flavour, None, None), Told(3)])
    if unbuilt.built:  # Keras 3 asks the first layer for its shape
        return
    with pytest.raises(tfckpt.NotBuiltError, match=r"call the .* once on a batch"):
        tfckpt.Checkpoint(model=unbuilt).restore(path)
