"""Names of live objects and of what is in files: the same however an object came to be.

Tables of all names of all models, by every writer, stand in ``golden/names``; here is what they
must not depend on, and where names alone would mislead.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from golden.subjects import fresh
from zoo import command_line, optimizers
from zoo.models import WIDTH, called, chain, dense, in_turn, net, stack
from zoo.optimizers import compiled
from zoo.values import equal
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.errors import NamingError
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint

either_writer = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])


def named(role, *root, **objects):
    entries = tfckpt.inventory(*root, **objects).entries
    return {name for name, entry in entries.items() if entry.role == role}


# Of live objects


def test_names_do_not_depend_on_spelling_and_order(flavour):
    for attribute in ("encoder", "_encoder"):
        cls = in_turn(flavour.Model, **{attribute: lambda: flavour.layers.Dense(2)})
        names = {f"model/encoder/{name}" for name in ("kernel", "bias")}
        assert named("weight", model=called(cls())) == names
    objects = {"one": chain(flavour, "a"), "two": chain(flavour, "a"), "step": tf.Variable(1)}
    forward, backward = collect(objects), collect(dict(reversed(objects.items())))
    assert {id(v): n for n, v in forward.variables.items()} == {
        id(v): n for n, v in backward.variables.items()
    }


@pytest.mark.parametrize("cls", ["_Block", "ResNet50Block", "MyConv2D", "Block1d"])
def test_what_keras_calls_a_layer_of_ones_own_is_an_automatic_name(flavour, cls):
    block = type(cls, (flavour.layers.Dense,), {})
    block(3)  # a process that has built others
    model = flavour.Sequential([flavour.Input((3,)), block(3), block(3)])
    first, second = tfckpt.inventory(model=model).containers["model"].layers
    assert first.place == first.cls == second.cls
    assert (first.auto, second.auto, second.place) == (True, True, f"{first.cls}_1")


def test_a_given_name_that_keras_has_counted_meanwhile_is_still_the_given_one(flavour, tmp_path):
    """A Sequential of tf_keras tells how it is wired, one of Keras 3 does not."""
    fresh("keras3")

    def build(k):
        normal = k.layers.LayerNormalization(name="layer_normalization")
        return stack(k, normal, *dense(k, None))

    written = build(flavour)
    path = tfckpt.Checkpoint(model=written).write(str(tmp_path / "ckpt"))
    for k in (keras, tf_keras):
        k.layers.LayerNormalization()
        tfckpt.restore(path, model := build(k))
        assert equal(written, model)


def turned(k):
    """Its list has the layers in another order than that in which they were created."""
    second, first = k.layers.Dense(WIDTH), k.layers.Dense(WIDTH)
    return stack(k, first, k.layers.LayerNormalization(), second)


def subtracted(k):
    """Keras lists the layers as the arguments of the merge stand."""
    left, right, last = dense(k, None, None, None)
    x = k.Input((WIDTH,))
    return k.Model(x, last(k.layers.Subtract()([right(x), left(x)])))


@pytest.mark.parametrize("build", [turned, subtracted])
def test_an_automatic_name_is_the_one_that_keras_shows(flavour, build, tmp_path):
    fresh("tf_keras" if flavour is tf_keras else "keras3")
    model = build(flavour)
    distinguish(map(inner, model.weights))
    kernels = {layer.name: layer.kernel for layer in model.layers if hasattr(layer, "kernel")}
    assert sorted(kernels) != [*kernels]  # as `model.summary()` lists them
    wanted = {f"model/{name}/kernel": inner(one).numpy() for name, one in kernels.items()}
    files = [tf.train.Checkpoint(model=model).write(f"{tmp_path}/tf")]
    files += [tfckpt.Checkpoint(model=model).write(f"{tmp_path}/tfckpt")]
    files += [f"{tmp_path}/whole.keras", f"{tmp_path}/whole.h5"]
    for path in files[2:]:
        model.save(path)
    for path in files:
        with open_checkpoint(path) as file:
            for name, value in wanted.items():
                read = file.values.read(file.inventory.entries[name].key)
                np.testing.assert_array_equal(read, value, f"{name} of {path}")
    model.save_weights(f"{tmp_path}/by_order.weights.h5")
    chosen = min(kernels)
    for path in (*files, f"{tmp_path}/by_order.weights.h5"):
        again = build(flavour)  # in a process that has counted on
        (kept,) = (v for n, v in collect({"model": again}).variables.items() if n == min(wanted))
        before = inner(kept).numpy()
        report = tfckpt.restore(path, again, exclude=[f"model/{chosen}/**"])
        np.testing.assert_array_equal(inner(kept).numpy(), before)
        tfckpt.restore(path, again)
        assert report.plan.ok
        assert equal(model, again)


def test_a_keyword_that_is_the_models_name_is_refused(flavour):
    with pytest.raises(NamingError, match="'model' is reserved for the only model"):
        tfckpt.inventory(net=chain(flavour, "a"), model=tf.Variable(1.0))


def test_metrics_that_a_list_leaves_out_or_a_layer_has(flavour):
    class Net(flavour.Model):
        def __init__(self):
            super().__init__()
            self.seen = flavour.metrics.Mean(name="seen")
            self.extra = flavour.metrics.Sum(name="extra")

        @property
        def metrics(self):
            return [self.seen]

    names = {"seen/count", "seen/total"}
    found = {f"metrics/{name}" for name in (*names, "extra/total")}
    assert tfckpt.inventory(model=Net()).entries.keys() == found

    def parts():
        return {"seen": flavour.metrics.Mean(name="seen")}

    counting = net(flavour.layers.Layer, parts, lambda self, x: x, "Counting")
    assert named("metric", layer=counting()) == {f"layer/{name}" for name in names}
    assert named("metric", stack(flavour, counting())) == {f"metrics/{name}" for name in names}


# Of optimizers: one step with a gradient for one variable changes its slots and no others

WITHOUT_SLOTS = {"sgd"}  # it keeps no momentum, and tf_keras makes room for it all the same


@pytest.mark.parametrize(("flavour", "name"), optimizers.IN_FLAVOUR, indirect=["flavour"])
def test_a_step_changes_the_slots_of_its_variable_alone(flavour, name):
    optimizer = optimizers.OPTIMIZERS[name](flavour)
    layers = [flavour.layers.Dense(4), flavour.layers.LayerNormalization()]
    model = stack(flavour, *layers, flavour.layers.Dense(2, name="head"))
    live = collect({"model": compiled(model, optimizer)})
    slots = {
        name: (entry.of, inner(live.variables[name]))
        for name, entry in live.inventory.entries.items()
        if entry.of and entry.slot != "moving_average"  # which no gradient changes
    }
    every = hasattr(optimizer, "optimizers") or getattr(
        optimizer, "gradient_accumulation_steps", None
    )  # these want a gradient for each
    for one in model.trainable_variables:
        (mine,) = (n for n, v in live.variables.items() if inner(v) is inner(one))
        for _, value in slots.values():
            value.assign(tf.zeros_like(value))  # so that no gradient is no change
        before = {n: v.numpy() for n, (_, v) in slots.items()}
        given = model.trainable_variables if every else [one]
        optimizer.apply_gradients([(tf.ones(v.shape) * float(v is one), v) for v in given])
        changed = {of for n, (of, v) in slots.items() if (v.numpy() != before[n]).any()}
        assert changed == {mine} or (not changed and name in WITHOUT_SLOTS)


# In files


def compare(model, place):
    """Names of the live model, or of TensorFlow's file, alone, after a look at the values of both;
    seeds and metrics aside.
    """
    live = collect({"model": model})
    distinguish(live.variables.values())
    path = tf.train.Checkpoint(model=model).write(str(place / "ckpt"))
    with open_checkpoint(path, roots=live.roots, bases=live.weak_bases) as stored:
        ours, theirs = live.inventory.entries, stored.inventory.entries
        for name in ours.keys() & theirs.keys():
            one, other = ours[name], theirs[name]
            assert (one.role, one.slot, one.of) == (other.role, other.slot, other.of)
            if other.shape is not None:
                value = inner(live.variables[name]).numpy()
                np.testing.assert_array_equal(stored.values.read(other.key), value, name)
        unsaved = {"seed", "metric", "vocabulary"}
        missing = {n for n, e in ours.items() if n not in theirs and e.role not in unsaved}
        return missing, theirs.keys() - ours.keys() - {"save_counter"}, live


def test_the_scope_of_a_whole_model_is_no_name_of_a_layer(tmp_path):
    """A model of Keras 3 that is built by its first call makes all variables in its own scope."""
    head = keras.Sequential([keras.layers.Dense(4, name="mid")], name="head")
    model = called(in_turn(keras.Model, first=lambda: keras.layers.Dense(4), head=lambda: head)())
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    names = open_checkpoint(path).inventory.entries
    assert "model/head/layer_with_weights-0/kernel" in names, list(names)


def test_slots_of_some_variables_are_not_given_to_the_first_ones(tmp_path):
    class Own(keras.optimizers.SGD):
        def build(self, variables):
            super().build(variables)
            chosen = [v for v in variables if "bias" in v.path]
            self._memory = [self.add_variable_from_reference(v, name="memory") for v in chosen]

    model = compiled(chain(keras, "a", "b"), Own(0.1))
    missing, foreign, live = compare(model, tmp_path)
    assert (missing, foreign) == (set(), set())
    memory = {e.of: n for n, e in live.inventory.entries.items() if e.slot == "memory"}
    assert memory.keys() == {"model/a/bias", "model/b/bias"}
    assert live.variables[memory["model/b/bias"]] is model.optimizer._memory[-1]


@pytest.mark.parametrize("reader", [tf_keras, keras])
@either_writer
def test_a_layers_name_with_a_slash(reader, writer, tmp_path):
    """Keras 3 allows none, and has underscores there; as in DenseNet121 of either flavour."""

    def build(slash, k):
        return chain(k, f"conv1{slash}conv", f"conv1{slash}bn", "bn", "head")

    source = build("/", tf_keras)
    path = writer.Checkpoint(source).write(str(tmp_path / "ckpt"))
    for target in (build("_", reader), *([build("/", tf_keras)] if reader is tf_keras else [])):
        tfckpt.Checkpoint(model=target).read(path).assert_consumed()
        assert equal(source, target)


def test_a_layer_that_another_one_made_is_found_by_its_own_name(flavour, tmp_path):
    """In tf_keras it bears the other one's name as a scope, which looks like a slash."""

    def build(k):
        outer = called(k.Sequential(dense(k, "a", None), name="outer"))
        return stack(k, outer.layers[0], *dense(k, "b", "c"))

    source, target = build(tf_keras), build(flavour)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).assert_consumed()
    assert equal(source, target)


def test_a_name_as_printed_is_taken_in_every_key(flavour, tmp_path):
    """A subclassed model, as `save_weights` of Keras 2 wrote it by TensorFlow: without a root."""

    enc, dec = lambda: flavour.layers.Dense(3), lambda: flavour.layers.Dense(4)
    cls = in_turn(flavour.Model, enc=enc, dec=dec)
    first, second = (called(cls(), np.ones((1, 4), "float32")) for _ in range(2))
    path = str(tf.train.Checkpoint(first).write(str(tmp_path / "weights")))
    printed = command_line.run("inspect", path).out.split()
    (name,) = (word for word in printed if word.endswith("enc/kernel"))
    kernels = [inner(model.enc.kernel).numpy() for model in (first, second)]
    scope = name.removesuffix("kernel") + "**"
    report = tfckpt.restore(path, second, exclude=[scope], exclude_checkpoint=[name])
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), kernels[1])
    np.testing.assert_array_equal(inner(second.dec.kernel).numpy(), inner(first.dec.kernel).numpy())
    assert len(report.plan.assignments) == 2
    tfckpt.restore(path, second, include=[name], on_unexpected="ignore")
    np.testing.assert_array_equal(inner(second.enc.kernel).numpy(), kernels[0])

    layers = [flavour.layers.Dense(3, name="a"), flavour.layers.Dense(4, name="b")]
    rename = [
        {"checkpoint": name.replace("enc/kernel", f"{old}/**"), "model": f"model/{new}/**"}
        for old, new in (("enc", "a"), ("dec", "b"))
    ]
    tfckpt.restore(path, stack(flavour, *layers, shape=(4,)), rename=rename)
    np.testing.assert_array_equal(inner(layers[0].kernel).numpy(), kernels[0])
