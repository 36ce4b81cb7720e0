"""Models that were edited since the save: which layer is which, or a refusal."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from zoo.edits import CONSTANT, refused, suspect
from zoo.two_branches import as_made, branches, emptied, is_suspect

import tfckpt

LIBRARIES = pytest.mark.parametrize("library", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


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


def test_another_class_in_a_list_is_refused(flavour, tmp_path):
    def keep(norm):
        def keep(model, layers):
            model.blocks = [flavour.layers.LayerNormalization(), *layers, norm()]

        return keep

    old = subclassed(flavour, keep(flavour.layers.LayerNormalization), None)
    new = subclassed(flavour, keep(flavour.layers.BatchNormalization), None)
    said = refused(saved(tfckpt, old, tmp_path), new)
    assert "index 2 is of class 'batch_normalization' in the model" in said


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


def test_a_layer_under_another_ones_attribute_is_refused(flavour, tmp_path):
    path = saved(tfckpt, subclassed(flavour, in_attributes, "x", "y"), tmp_path)
    said = refused(path, subclassed(flavour, in_attributes, "y", "x"))
    text = (
        "model/a is the layer 'y' in the model and 'x' in the checkpoint, which is model/b in the"
    )
    assert f"{text} model" in said
    new = subclassed(flavour, in_attributes, "x", "new")
    tfckpt.Checkpoint(model=new).restore(path).assert_consumed()  # the attribute is its name


tf_keras = pytest.importorskip("tf_keras")


def test_a_dropout_is_removed_from_a_branch_and_the_file_has_no_names(tmp_path):
    """Keras itself loads the one branch into the other, both into the wrong place."""
    old, _ = branches(tf_keras, ("left", "right"), dropout=(False, True))
    path = str(tmp_path / "a.weights.h5")
    old.save_weights(path)
    new, layers = branches(tf_keras, ("left", "right"))
    new.load_weights(path)
    assert not as_made(layers)
    emptied(new)
    assert "another branch has a layer like it" in is_suspect(path, new)
    same, layers = branches(tf_keras, ("left", "right"), dropout=(False, True))
    emptied(same)
    tfckpt.Checkpoint(model=same).restore(path).assert_consumed()
    assert as_made(layers)


def test_a_layer_has_got_a_name_that_looks_automatic(tmp_path):
    """Either branch could be the one that has the name now."""
    tf_keras.backend.clear_session()
    old, _ = branches(tf_keras)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    tf_keras.backend.clear_session()
    new, _ = branches(tf_keras, (None, "dense_2"))
    assert "a name that was given on one side alone: 'dense_2' in the model" in is_suspect(
        path, new
    )


HOLDERS = ["attribute", "layer", "nested dict", "nested list", "list", "module"]


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


def saved_program(flavour, holder, names, tmp_path):
    flavour.backend.clear_session()
    model = build(flavour, holder, names)
    return model, tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("number", [4, 9])
def test_a_layer_that_lost_its_name_to_another_one_is_refused(flavour, holder, number, tmp_path):
    """Of 4, Keras counts up to it in the edited model."""
    name = f"dense_{number}"
    _, path = saved_program(flavour, holder, (name, None, None), tmp_path)
    said = suspect(path, build(flavour, holder, (None, None, name)))
    assert f"layers are named {name!r}" in said or f"is the layer {name!r} in the model" in said


SEQUENCE = ["dense?", "dense?", "dense?"]
EDITS = {
    "the middle one of three unnamed is removed": (SEQUENCE, [0, 2]),
    "the first one is removed": (SEQUENCE, [1, 2]),
    "one is put before": (SEQUENCE, [None, 0, 1, 2]),
    "two change places": (["dense?", "wide?", "dense?"], [1, 0, 2]),
    "one is renamed": (["a", "b", "c"], [0, "1:new", 2]),
    "two are renamed": (["a", "b", "c"], ["0:x", "1:y", 2]),
    "one is removed": (["a", "b", "c"], [0, 2]),
    "one is named": (SEQUENCE, [0, "1:named", 2]),
}


def built(k: Any, layers: list[tuple[str, int]]) -> Any:
    """A stack of equal layers; those of another class have the same values."""

    class Wide(k.layers.Dense):
        pass

    made = [k.Input((3,))]
    for name, fill in layers:
        cls = Wide if name == "wide?" else k.layers.Dense
        named = {} if name.endswith("?") else {"name": name}
        init = k.initializers.Constant(fill)
        made.append(cls(3, use_bias=False, kernel_initializer=init, **named))
    return k.Sequential(made)


def edited(k: Any, edit: str) -> tuple[Any, Any, list[int]]:
    """The model before, the model after, and what its layers are to have; 0 for a new one."""
    names, after = EDITS[edit]
    old = built(k, [(name, number + 1) for number, name in enumerate(names)])
    layers, wanted = [], []
    for each in after:
        at, _, name = str(each).partition(":")
        number = None if each is None else int(at)
        layers.append((name or (SEQUENCE[0] if number is None else names[number]), -9))
        wanted.append(0 if number is None else number + 1)
    return old, built(k, layers), wanted


def rules(hint: str) -> list[dict[str, Any]]:
    """The policies that a hint tells to write."""
    renames = re.findall(r"rename: (\[\{.*?\}\])", hint)
    found: list[dict[str, Any]] = [{"rename": yaml.safe_load(rule)} for rule in renames]
    return [*found, *({"match": word} for word in re.findall(r"`match: (\w+)`", hint))]


@LIBRARIES
@pytest.mark.parametrize("edit", EDITS)
def test_what_a_hint_says_gives_the_weights_that_were_meant(
    flavour, edit, library, tmp_path
) -> None:
    old, new, wanted = edited(flavour, edit)
    path = library.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    lenient = {"api": "read", "on_missing": "warn", "on_unexpected": "warn"}
    hints = set()
    for policy in ({"api": "read"}, lenient):
        plan = tfckpt.plan(path, model=new, policy=policy)
        hints |= {step.hint for step in plan.errors}
    for rule in [each for hint in sorted(hints) for each in rules(hint)]:
        new.set_weights([np.full((3, 3), -9.0) for _ in wanted])
        tfckpt.restore(path, model=new, policy={**lenient, "allow_empty": True, **rule})
        got = [float(weight[0, 0]) for weight in new.get_weights()]
        assert all(one in (-9, other) for one, other in zip(got, wanted, strict=True)), rule
