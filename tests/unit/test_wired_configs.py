"""What feeds each layer, as the configurations in Keras's files tell it.

Whole models in a file of Keras's: `.keras`, `.h5` and, of tf_keras, a SavedModel. What they tell
is what the live model tells, or nothing.
"""

from __future__ import annotations

import json
import zipfile
from collections import OrderedDict
from typing import Any

import h5py
import pytest
from zoo.restores import same, stack, written

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.formats.open import open_checkpoint


def dense(k: Any, inputs: Any, count: int = 2) -> list[Any]:
    """Layers, called on an input, or on one each."""
    each = inputs if isinstance(inputs, list) else [inputs] * count
    return [k.layers.Dense(3)(x) for x in each]


def branches(k: Any, x: Any) -> Any:
    one, other = dense(k, x)
    return k.layers.Subtract()([k.layers.ReLU()(one), other])


def shared(k: Any, x: Any) -> Any:
    one, other = k.layers.Dense(3), k.layers.Dense(3)
    return [one(one(x)), k.layers.ReLU()(other(one(x)))]


def model_of(k: Any, build: Any, *shape: int) -> Any:
    inputs = k.Input(shape or (3,))
    return k.Model(inputs, build(k, inputs))


def nested(k: Any, x: Any) -> Any:
    inner, sequential = model_of(k, branches), stack(k, None, None)
    found = inner(x)
    return [found, sequential(inner(found)), inner(sequential(found))]


def keywords(k: Any, x: Any) -> Any:
    one, other = dense(k, x)
    return k.layers.MultiHeadAttention(2, 2)(one, value=other)


def own_classes(k: Any, x: Any) -> Any:
    class Merge(k.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs["a"] - inputs["b"]

    class Two(k.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(3,), name="scale")
            self.built = True

        def call(self, inputs: Any, other: Any = None) -> Any:
            return inputs * self.scale + (0 if other is None else other), inputs

    one, two, three = (k.layers.Dense(3) for _ in range(3))
    left = Merge()({"a": one(x), "b": two(x)})
    right = Merge()({"a": two(x), "b": one(x)})
    _, found = Two()(three(left), other=right)
    return [found, Two()(found)[0]]


def dicts(k: Any) -> Any:
    inputs = {"a": k.Input((3,), name="a"), "b": k.Input((3,), name="b")}
    one, other = dense(k, [inputs["b"], inputs["a"]])
    return k.Model(inputs, {"p": one, "q": other})


def layer_of_both(k: Any) -> Any:
    """Its weights are in the file once; by which of the models, Keras chooses."""
    layer, outer = k.layers.Dense(3), k.Input((3,))
    inner = model_of(k, lambda k, x: k.layers.Dense(3)(layer(x)))
    return k.Model(outer, k.layers.Add()([inner(outer), layer(outer), k.layers.Dense(3)(outer)]))


def order_of_a_dict(k: Any) -> Any:
    """Keras 3 takes these as they stand, a dict by its keys, and writes both alike."""
    return model_of(k, lambda k, x: OrderedDict(zip("qp", dense(k, x), strict=True)))


def three_arguments(k: Any) -> Any:
    """tf_keras tells arguments without a name as keywords."""
    return model_of(k, lambda k, x: k.layers.MultiHeadAttention(2, 2)(*dense(k, x, 3)), 4, 3)


TOLD = {
    **{
        build.__name__: lambda k, build=build: model_of(k, build)
        for build in (branches, shared, nested, own_classes)
    },
    "keywords": lambda k: model_of(k, keywords, 4, 3),
    "dicts": dicts,
}
PARTLY = {each.__name__: each for each in (layer_of_both, order_of_a_dict, three_arguments)}
TRACED = {"tf_keras": ("branches", "nested", "dicts")}  # of which one takes seconds


def wires(inventory: Any) -> dict[str, Any]:
    """Layer → what feeds it and what it feeds; of models that tell it."""
    return {
        f"{path}/{layer.place}": (layer.fed, layer.feeds)
        for path, held in inventory.containers.items()
        for layer in held.layers
        if layer.fed or layer.feeds
    }


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
@pytest.mark.parametrize("case", {**TOLD, **PARTLY})
def test_a_file_tells_what_the_live_model_tells_or_nothing(flavour, case, tmp_path) -> None:
    build = {**TOLD, **PARTLY}[case]
    model = build(flavour)
    live = collect({"model": model})
    for kind in (".keras", ".h5", *["saved_model"] * (case in TRACED.get(flavour.__name__, ()))):
        path = written(model, kind, tmp_path)
        with open_checkpoint(path, roots=live.roots, bases=live.weak_bases) as stored:
            told, found = wires(live.inventory), wires(stored.inventory)
        assert found.items() <= told.items()
        if case in TOLD:  # a tf_keras sequential model's configuration lists its layers alone
            assert found.keys() == {name for name in told if "/sequential/" not in name}
        elif kind == ".keras" and case != "layer_of_both":  # and is no difference
            new = build(flavour)
            tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
            same(new.weights, model.weights)


NONSENSE = {
    "text": "Dense",
    "nothing": [[]],
    "unknown": [[["nobody", 0, 0, {}]]],
    "itself": [[["relu", 0, 0, {}]]],
    "negative": [[["dense", -1, -1, {}]]],
    "truth": [[["dense", True, False, None]]],
    "keras3": [{"args": None, "kwargs": [{"class_name": "__keras_tensor__", "config": 3}]}],
    "cycle": [{"args": [["relu", 0, 0]], "kwargs": {}}],
    "deep": json.loads("[" * 900 + "]" * 900),
}


def test_a_configuration_that_makes_no_sense_tells_nothing(flavour, tmp_path) -> None:
    def model() -> Any:
        flavour.backend.clear_session()
        return model_of(flavour, lambda k, x: k.layers.ReLU(name="relu")(k.layers.Dense(3)(x)))

    old, new = model(), model()
    for number, nodes in enumerate(NONSENSE.values()):
        path = written(old, (".keras", ".h5")[number % 2], tmp_path)
        edit(path, nodes)
        for variable in new.weights:
            variable.assign(variable * 0)
        tfckpt.Checkpoint(model=new).restore(path).assert_consumed()
        same(new.weights, old.weights)


def edit(path: str, nodes: Any) -> None:
    """Put other nodes into the configuration of the ReLU."""

    def edited(text: Any) -> str:
        config = json.loads(text)
        for layer in config["config"]["layers"]:
            if layer["name"] == "relu":
                layer["inbound_nodes"] = nodes
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
