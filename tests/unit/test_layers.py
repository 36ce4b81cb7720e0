"""Models that were edited since the save: which layer is which, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tensorflow as tf
import yaml
from zoo.restores import (
    BATCH,
    WRITERS,
    branches,
    filled,
    holding,
    refused,
    restored,
    same,
    stack,
    written,
)

import tfckpt

HOLDERS = ["attributes", "layer", "nested dict", "nested list", "list", "module"]


def subclassed(k: Any, hold: str, *names: str | None, called: Sequence[int] = ()) -> Any:
    """Dense layers, made in this order, held so, and called in this order or another one."""
    layers = [k.layers.Dense(3, name=name) for name in names]

    class Inner(k.layers.Layer):
        def __init__(self) -> None:
            super().__init__(name="inner")
            self.second, self.last = layers[-2:]

        def call(self, inputs: Any) -> Any:
            return self.last(self.second(inputs))

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            if hold == "layer":
                self.first, self.inner = layers[0], Inner()
            elif hold == "nested dict":
                self.parts = {"x": {"a": layers[0], "b": layers[1]}, "y": {"a": layers[2]}}
            elif hold == "nested list":
                self.parts = [layers[:2], layers[2:]]
            elif hold == "list":
                self.parts = layers
            else:
                self.module = tf.Module()
                holder = self.module if hold == "module" else self
                for attribute, layer in zip("abc", layers, strict=False):
                    setattr(holder, attribute, layer)

        def call(self, inputs: Any) -> Any:
            if hold == "layer":
                return self.inner(layers[0](inputs))
            for at in called or range(len(layers)):
                inputs = layers[at](inputs)
            return inputs

    model = Net()
    model(BATCH)
    return model


def norms(k: Any, last: str) -> Any:
    made = [k.layers.LayerNormalization(), k.layers.Dense(3), getattr(k.layers, last)()]
    model = holding(k, blocks=made)
    for layer in made:
        layer(BATCH)
    return model


def listed(k: Any, order: str) -> Any:
    """A list of two layers, made in this order."""
    made = {name: k.layers.Dense(3) for name in order}
    model = holding(k, blocks=[made["a"], made["b"]])
    for layer in made.values():
        layer(BATCH)
    return model


def subtracted(k: Any, edit: str = "") -> Any:
    """Keras lists layers as the graph needs them; their numbers tell when they were made."""
    inputs = k.Input((3,))
    one, other = k.layers.Dense(3), k.layers.Dense(3)
    if edit == "lines":
        one, other = other, one
    pair = [one(inputs), other(inputs)]
    return k.Model(inputs, k.layers.Subtract()(pair[::-1] if edit == "arguments" else pair))


def made_last_first(k: Any) -> Any:
    """`summary()` shows `dense_1` first, and then `dense`."""
    one, two = k.layers.Dense(3), k.layers.Dense(3)
    inputs = k.Input((3,))
    return k.Model(inputs, one(two(inputs)))


def dense_attributes(k: Any, *, turned: bool = False) -> Any:
    """`turned`: Keras calls the layer at `self.dense_1` `dense`, and the other one `dense_1`."""

    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            layers = [k.layers.Dense(3), k.layers.Dense(3)]
            self.dense, self.dense_1 = layers[::-1] if turned else layers

        def call(self, inputs: Any) -> Any:
            return self.dense(self.dense_1(inputs))

    model = Net()
    model(BATCH)
    return model


def attributes_in(k: Any, *names: str) -> Any:
    """On a layer: Keras's file tells its attributes, not those of a model."""

    class Pair(k.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.value = (k.layers.Dense(3, name=name) for name in names)

        def call(self, inputs: Any) -> Any:
            return self.query(inputs) - self.value(inputs)

    return stack(k, Pair())


def two_ways(k: Any, swapped: bool = False) -> Any:
    """Two unnamed layers, each before a named one, and a ReLU on one of the two ways."""
    first, second = k.layers.Dense(3), k.layers.Dense(3)
    inputs = k.Input((3,))
    ends = [layer(inputs) for layer in ((second, first) if swapped else (first, second))]
    ends[not swapped] = k.layers.ReLU()(ends[not swapped])
    outputs = [k.layers.Dense(3, name=n)(x) for n, x in zip("lr", ends, strict=True)]
    return k.Model(inputs, k.layers.Subtract()(outputs))


class Edit(NamedTuple):
    """A program that wrote, one that reads, and what is said; nothing, if it is restored."""

    old: Callable[[Any], Any]
    new: Callable[[Any], Any]
    said: str
    kinds: tuple[str, ...] = ("tfckpt",)
    only: str = ""
    settled: dict[str, Any] | None = None  # the policy by which it goes


BOTH = ("tfckpt", "tensorflow")
ITSELF = [
    {"checkpoint": f"model/{name}/**", "model": f"model/{name}/**"} for name in ("dense", "dense_1")
]
ORDER = "the layers of that class in 'model' were created in another order in the model"


def attributes(k: Any, *names: str) -> Any:
    return subclassed(k, "attributes", *names)


def turned(build: Callable[..., Any], said: str, kind: str, only: str) -> dict[str, Edit]:
    """Two layers whose names have changed places."""
    pairs = [("x", "y"), ("dense_991", "dense_992")]
    return {
        f"{build.__name__} that changed places in {kind}: {one}": Edit(
            lambda k, one=one, other=other: build(k, one, other),
            lambda k, one=one, other=other: build(k, other, one),
            said.format(one, other), (kind,), only)
        for one, other in pairs
    }  # fmt: skip


def activated(k, *activations):
    return stack(k, *(k.layers.Dense(3, activation=each) for each in activations))


SIDEWAYS = "another branch has a layer like it"
EDITS = {
    "another class in a list": Edit(
        lambda k: norms(k, "LayerNormalization"), lambda k: norms(k, "BatchNormalization"),
        "index 2 is of class 'batch_normalization' in the model"),
    **{
        f"a list, made {new} after {old}": Edit(
            lambda k, old=old: listed(k, old), lambda k, new=new: listed(k, new),
            "its index in a list, but layers of one class were created in another order")
        for old, new in (("ab", "ba"), ("ba", "ab"))
    },
    "arguments": Edit(subtracted, lambda k: subtracted(k, "arguments"), ORDER, BOTH),
    "lines": Edit(subtracted, lambda k: subtracted(k, "lines"), ORDER, BOTH),
    "under another one's attribute": Edit(
        lambda k: attributes(k, "x", "y"), lambda k: attributes(k, "y", "x"),
        "model/a is the layer 'y' in the model and 'x' in the checkpoint, which is model/b in the"),
    "a new name under its attribute": Edit(
        lambda k: attributes(k, "x", "y"), lambda k: attributes(k, "x", "new"), ""),
    # Keras itself loads the one branch into the other
    "a dropout less on a branch, and no names": Edit(
        lambda k: branches(k, ("left", "right"), dropout=(1,)),
        lambda k: branches(k, ("left", "right")), SIDEWAYS, (".weights.h5",), "tf_keras"),
    "a name that looks automatic": Edit(
        branches, lambda k: branches(k, (None, "dense_2")),
        "a name that was given on one side alone: 'dense_2' in the model", only="tf_keras"),
    "layers that look like attributes": Edit(
        made_last_first, lambda k: dense_attributes(k, turned=True),
        "an attribute on the other side", BOTH),
    "branches in a file without connections": Edit(
        lambda k: branches(k, head=True), lambda k: branches(k, head=True, last=True),
        SIDEWAYS, ("tensorflow",), settled={"rename": ITSELF}),
    # Keras 3 names no variable by a layer inside, tf_keras leaves names out of its file
    **turned(attributes, "model/b is the layer '{}' in the model and '{}' in the checkpoint",
             "tensorflow", "tf_keras"),
    **turned(attributes, "'{}'", ".weights.h5", "keras"),
    **turned(attributes_in, "'{}'", ".weights.h5", "keras"),
    "what another one fed": Edit(
        two_ways, lambda k: two_ways(k, swapped=True),
        "model/dense in the model feeds the layer that model/dense_1 feeds in the checkpoint",
        (".keras", ".h5", "saved_model"), "tf_keras"),
    # their names and shapes are as they were, and only their settings have changed places
    "the settings of another one": Edit(
        lambda k: activated(k, "relu", "tanh"), lambda k: activated(k, "tanh", "relu"),
        "model/dense in the model has the settings that model/dense_1 has in the checkpoint"),
}  # fmt: skip


FLAVORS = {"keras": "keras3", "tf_keras": "tf_keras"}


@pytest.mark.parametrize(
    ("flavour", "case"),
    [
        (FLAVORS.get(EDITS[case].only) or ("keras3", "tf_keras")[number % 2], case)
        for number, case in enumerate(EDITS)
    ],
    indirect=["flavour"],
)
def test_a_layer_that_may_be_another_is_refused_and_the_same_program_is_restored(
    flavour, case, tmp_path
) -> None:
    edit = EDITS[case]
    for kind in edit.kinds:
        flavour.backend.clear_session()
        old = filled(edit.old(flavour))
        path = written(old, kind, tmp_path)
        flavour.backend.clear_session()
        new = edit.new(flavour)
        if not edit.said:
            restored(path, old, new).assert_consumed()
            continue
        said = refused(path, new)
        assert "SUSPECT" in said
        assert edit.said in said
        if edit.settled:
            tfckpt.restore(path, new, policy=edit.settled)
            same(new.get_weights(), old.get_weights())
        flavour.backend.clear_session()
        restored(path, old, edit.old(flavour)).expect_partial()


def test_a_rename_of_a_whole_layer_is_final_from_wherever_it_comes(flavour, tmp_path):
    """Of a wrapped layer that was the second: no name, number or position says so."""
    flavour.backend.clear_session()
    pair = [flavour.layers.Dense(3) for _ in range(2)]
    old = filled(stack(flavour, flavour.Sequential(pair, name="inner"), flavour.layers.Dense(3)))
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    new = stack(flavour, *(flavour.layers.Dense(3) for _ in range(3)))
    rename = [
        {"checkpoint": f"model/{a}/**", "model": f"model/{b}/**"}
        for a, b in [("inner/dense", "dense"), ("dense", "dense_1"), ("inner/dense_1", "dense_2")]
    ]
    tfckpt.restore(path, new, rename=rename)
    for layer, was in zip(new.layers, (pair[0], old.layers[1], pair[1]), strict=True):
        same(layer.get_weights(), was.get_weights())


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("number", [4, 9])
def test_a_layer_that_lost_its_name_to_another_one_is_refused(flavour, holder, number, tmp_path):
    """Of 4, Keras counts up to it in the edited model."""
    name = f"dense_{number}"
    flavour.backend.clear_session()
    path = written(subclassed(flavour, holder, name, None, None), "tfckpt", tmp_path)
    said = refused(path, subclassed(flavour, holder, None, None, name))
    assert f"layers are named {name!r}" in said or f"is the layer {name!r} in the model" in said


UNNAMED, NAMED = ["dense?", "dense?", "dense?"], ["a", "b", "c"]
STACKS = {
    "the middle one of three unnamed is removed": (UNNAMED, [0, 2]),
    "the first one is removed": (UNNAMED, [1, 2]),
    "one is put before": (UNNAMED, [None, 0, 1, 2]),
    "two change places": (["dense?", "wide?", "dense?"], [1, 0, 2]),
    "one is renamed": (NAMED, [0, "1:new", 2]),
    "two are renamed": (NAMED, ["0:x", "1:y", 2]),
    "one is removed": (NAMED, [0, 2]),
    "one is named": (UNNAMED, [0, "1:named", 2]),
}


def of_equal_layers(k: Any, names: list[str]) -> Any:
    """Those of another class have the same values."""

    class Wide(k.layers.Dense):
        pass

    return stack(
        k,
        *(
            (Wide if name == "wide?" else k.layers.Dense)(
                3, use_bias=False, name=None if name.endswith("?") else name
            )
            for name in names
        ),
    )


def hinted(hint: str) -> list[dict[str, Any]]:
    """The policies that a hint tells to write."""
    renames = re.findall(r"rename: (\[\{.*?\}\])", hint)
    found: list[dict[str, Any]] = [{"rename": yaml.safe_load(rule)} for rule in renames]
    return [*found, *({"match": word} for word in re.findall(r"`match: (\w+)`", hint))]


@WRITERS
@pytest.mark.parametrize("case", STACKS)
def test_what_a_hint_says_gives_the_weights_that_were_meant(flavour, case, writer, tmp_path):
    names, after = STACKS[case]
    old = filled(of_equal_layers(flavour, names))
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    called, wanted = [], []  # 0 is for a new one
    for each in after:
        at, _, name = str(each).partition(":")
        called.append(name or ("dense?" if each is None else names[int(at)]))
        wanted.append(0 if each is None else int(at) + 1)
    new = of_equal_layers(flavour, called)
    lenient = {"api": "read", "on_missing": "warn", "on_unexpected": "warn"}
    hints = set()
    for policy in ({"api": "read"}, lenient):
        hints |= {step.hint for step in tfckpt.plan(path, model=new, policy=policy).errors}
    for rule in [each for hint in sorted(hints) for each in hinted(hint)]:
        filled(new, -9.0)
        tfckpt.restore(path, model=new, policy={**lenient, "allow_empty": True, **rule})
        got = [float(weight[0, 0]) for weight in new.get_weights()]
        assert all(one in (-9, other) for one, other in zip(got, wanted, strict=True)), rule


# Variables and modules in lists: names before and after, and what is said

LENGTHS = "the list has length 2 in the model and 3 in the checkpoint"
LISTS = [
    ("a b c", "a c", LENGTHS),
    ("a c", "a b c", "the list has length 3 in the model and 2 in the checkpoint"),
    ("- - -", "- -", LENGTHS),
    ("a b c", "a c b", "vs/1 is the variable 'c' in the model and 'b' in the checkpoint"),
    ("x/w y/w z/w", "x/w z/w", "the list has length 2 in the model"),
    ("a b c", "a b c", ""),
    ("a b c", "a b d", ""),  # one has a new name
    ("a b c", "- - -", ""),
    ("dense/w dense_1/w", "dense_1/w dense_2/w", ""),  # which Keras counted
    ("w w", "w w", ""),
]


def variables(names: str, start: int) -> list[Any]:
    return [
        tf.Variable([float(start and start + at)] * 3, name=name.strip("-") or None)
        for at, name in enumerate(names.split())
    ]


@WRITERS
@pytest.mark.parametrize(("stored", "live", "said"), LISTS)
def test_an_index_is_believed_where_the_list_and_the_names_agree(
    writer, stored, live, said, tmp_path
) -> None:
    path = writer.Checkpoint(vs=variables(stored, 1)).save(str(tmp_path / "ckpt"))
    now = variables(live, 0)
    if not said:
        tfckpt.Checkpoint(vs=now).restore(path).assert_consumed()
        assert [v.numpy()[0] for v in now] == list(range(1, len(now) + 1))
        return
    with pytest.raises(tfckpt.RefusedError) as caught:
        tfckpt.Checkpoint(vs=now).restore(path)
    text = " ".join(str(caught.value).split())
    assert said in text
    named = "give the variables explicit names where the model is built"
    assert named in text or 'match="name"' in text
    assert not any(v.numpy().any() for v in now)


@WRITERS
def test_modules_in_a_list_which_may_grow_later(writer, tmp_path: Path) -> None:
    """Which of the three stored ones the first two are, nothing tells."""

    def parts(count: int, start: float = 0.0) -> list[Any]:
        made = [tf.Module() for _ in range(count)]
        for at, part in enumerate(made):
            part.factor = tf.Variable([start + at] * 2)
        return made

    path = writer.Checkpoint(parts=parts(3, 1.0)).save(str(tmp_path / "ckpt"))
    grows = "in the model and 3 in the checkpoint; a list that grows later must be complete before"
    for count in (2, 4):
        with pytest.raises(tfckpt.RefusedError, match="identified by its index in a list") as found:
            tfckpt.Checkpoint(parts=parts(count)).restore(path)
        assert (grows in " ".join(str(found.value).split())) == (count == 2)
    now = parts(3)
    tfckpt.Checkpoint(parts=now).restore(path).assert_consumed()
    assert [part.factor.numpy()[0] for part in now] == [1.0, 2.0, 3.0]
