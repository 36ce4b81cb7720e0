"""F6, F9 to F12, F14 and F15: what a restore puts where, by TensorFlow and by tfckpt.

TensorFlow matches layers of functional and sequential models by position, and optimizers by the
place in one list of slots; what finds no place waits for objects that may come later, and shapes
are looked at one by one, while values are assigned.

An outcome names the values that changed: ``a`` has the stored value of its own name, ``c<-b`` that
of ``b``; before them stands the error. A fact without a writer's flavor holds for both.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
import tensorflow as tf
from zoo.models import stack, wired

import tfckpt


def model(names, build=wired, **last):
    """Layers of one shape, but the last one; ``-`` is left to Keras to name."""

    def make(k):
        *first, end = [k.layers.Dense(3, name=n if n != "-" else None) for n in names.split()]
        if last:
            end = k.layers.Dense(**{"units": 3, "name": end.name, **last})
        return {"model": build(k, *first, end)}

    return make


def solved(optimizer, *, frozen=False, **options):
    """Two layers without biases: all variables, and so all slots, are of one shape."""

    def make(k):
        layers = [k.layers.Dense(3, use_bias=False, name=name) for name in "ab"]
        model = wired(k, *layers)
        layers[0].trainable = not frozen
        made = getattr(k.optimizers, optimizer)(**options)
        made.build(model.trainable_variables)
        return {"model": model, "optimizer": made}

    return make


def variables(**values):
    return lambda k: {name: tf.Variable(value) for name, value in values.items()}


class Fact(NamedTuple):
    """Objects that are saved, and others that are restored; what comes of it.

    `says` is what TensorFlow's status asserts without an error; `text` is in tfckpt's error. With a
    `policy`, tfckpt restores by that; with `alone`, only that keyword is restored; with `keyword`,
    the model is given by that.
    """

    stored: Any
    live: Any
    plain: str | dict[str, str] | None
    tfckpt: str | dict[str, str]
    flavours: tuple[tuple[str, str], ...] = (("keras", "keras"), ("tf_keras", "tf_keras"))
    says: str = "expect_partial"
    text: str = ""
    write: str = "save"
    read: str = "restore"
    policy: dict[str, Any] | None = None
    suffix: str = ""
    alone: str = ""
    keyword: str = ""


K3 = (("keras", "keras"),)
NEWER = (("tf_keras", "keras"),)
NONTRIVIAL, MATCHED = "assert_nontrivial_match", "assert_existing_objects_matched"
NOT_FOUND, PREFIX = "CheckpointNotFoundError", r"ckpt-1(?!\.)\b"
ADAM, FROZEN = solved("Adam"), solved("Adam", frozen=True)
SGD = solved("SGD", momentum=0.9)
WHOLE = "a b m/a m/b rate step v/a v/b"
UNRELATED = variables(other=1.0)


def by_position(build):
    abc, numbered = model("a b c", build), model("- - -", build)
    refused = {"plain": None, "tfckpt": "RefusedError", "text": "SUSPECT"}
    return {
        "gone": Fact(abc, model("a c", build), "a c<-b", "a c", says=MATCHED),
        "new": Fact(abc, model("a new b c", build), "a b<-c new<-b", "a b c", says=NONTRIVIAL),
        "numbered, gone": Fact(numbered, model("- -", build), **refused),
        "numbered, new": Fact(numbered, model("- - - -", build), **refused),
    }


FACTS = {
    **{f"F6 a functional layer, {name}": fact for name, fact in by_position(wired).items()},
    **{f"F6 a sequential layer, {name}": fact for name, fact in by_position(stack).items()},
    "F6 Keras's file": Fact(
        *(model("a b c"), model("a c"), "a c<-b", {"names": "a c", "": "RefusedError"}),
        write="keras",
        read="keras",
        policy={"on_unexpected": "ignore"},
    ),
    "F9 velocity for momentum": Fact(
        ADAM, ADAM, "m/a<-v/a m/b<-v/b rate step v/a<-m/b", WHOLE, NEWER
    ),
    "F9 past a frozen layer": Fact(
        *(ADAM, FROZEN),
        {
            "keras": "b<-a m/b<-m/a rate step v/b<-v/a",
            "tf_keras": "a b m/b<-m/a rate step v/b<-v/a",
        },
        "a b m/b rate step v/b",
        says=NONTRIVIAL,
    ),
    "F9 Adam's state for SGD": Fact(
        *(ADAM, SGD, "a b m/a m/b<-v/a rate step", "RefusedError"), says=MATCHED
    ),
    "F10 unrelated": Fact(UNRELATED, model("a"), "", "RefusedError", says=NONTRIVIAL),
    "F10 unrelated, by a manager": Fact(
        *(UNRELATED, model("a"), "", "RefusedError"), write="manager", read="manager"
    ),
    "F10 restore of a file": Fact(
        model("a"), model("a"), "", NOT_FOUND, suffix=".index", text=PREFIX
    ),
    "F10 read of a file": Fact(
        model("a"), model("a"), "", NOT_FOUND, suffix=".index", text=PREFIX, read="read"
    ),
    "F10 restore of a data file": Fact(
        *(model("a"), model("a"), "DataLossError", NOT_FOUND),
        suffix=".data-00000-of-00001",
        text=PREFIX,
    ),
    "F10 a wrong keyword": Fact(model("a"), model("a"), "", "a", keyword="net"),
    "F11 the model with its optimizer": Fact(
        ADAM, ADAM, WHOLE, "m/a m/b rate step v/a v/b", K3, alone="optimizer"
    ),
    "F11 the saved learning rate": Fact(ADAM, ADAM, WHOLE, WHOLE, says="assert_consumed"),
    "F11 the configured learning rate": Fact(
        # https://github.com/tensorflow/tensorflow/issues/33842
        *(ADAM, ADAM, WHOLE, "a b m/a m/b step v/a v/b"),
        policy={"optimizer": {"hyperparameters": "config"}},
    ),
    "F12 a TF1 checkpoint": Fact(None, model("a"), "", "a", K3, write="tf1"),
    "F12 a TF1 checkpoint of another": Fact(
        *(None, model("b"), None, "RefusedError"), write="tf1", text="no value would be restored"
    ),
    "F14 the other flavor": Fact(model("a b"), model("a b"), "", "a b", NEWER),
    "F14 the other flavor, by Keras": Fact(
        model("a b"), model("a b"), "ValueError", "a b", NEWER, read="keras", policy={}
    ),
    "F15 another shape": Fact(
        *(model("a b"), model("a b", units=2), "ValueError a", "RefusedError"),
        text="model/b/kernel",
    ),
    "F15 another dtype": Fact(
        *(model("a b"), model("a b", dtype="float64"), "InvalidArgumentError", "RefusedError"),
        text="model/b/kernel",
    ),
    "F15 one number for a scalar": Fact(
        *(variables(x=[1.0], y=2.0), variables(x=0.0, y=0.0), "ValueError", "RefusedError"),
        write="write",
        read="read",
    ),
}


def by_name(objects):
    """The variables by layers, slots and keywords, as each flavor names them."""
    found = {}
    for keyword, thing in objects.items():
        if isinstance(thing, tf.Variable):
            found[keyword] = [thing]
        elif hasattr(thing, "layers"):
            found |= {layer.name: layer.weights for layer in thing.layers if layer.weights}
        else:
            found |= {"step": [thing.iterations], "rate": [thing._learning_rate]}
            for variable in thing.variables:  # `a_kernel_momentum`, and `Adam/m/a/kernel:0`
                newer = re.fullmatch(r"(\w+)_kernel_(m|v)(omentum|elocity)", variable.name)
                older = re.search(r"\b(?P<slot>m|v)/(?P<layer>\w+)/kernel:0", variable.name)
                if newer or older:
                    slot, layer = (newer[2], newer[1]) if newer else older.groups()
                    found[f"{slot}/{layer}"] = [variable]
    return found


def fill(objects, seed):
    draw = np.random.default_rng(seed)
    for variable in (each for group in by_name(objects).values() for each in group):
        variable.assign(draw.uniform(1, 1000, variable.shape).astype(variable.numpy().dtype))


def values(objects):
    return {n: [v.numpy().tobytes() for v in group] for n, group in by_name(objects).items()}


def written(fact, k, place):
    """The stored values by name, and the path."""
    if fact.write == "tf1":
        v1 = tf.compat.v1
        with tf.Graph().as_default(), v1.Session() as session:
            pair = [v1.get_variable("a/kernel", (3, 3)), v1.get_variable("a/bias", (3,))]
            session.run(v1.global_variables_initializer())
            path = v1.train.Saver(pair).save(session, str(place / "tf1"))
            return {"a": [value.tobytes() for value in session.run(pair)]}, path
    stored = fact.stored(k)
    fill(stored, 1)
    if fact.write == "keras":
        path = str(place / "it.weights.h5")
        stored["model"].save_weights(path)
    elif fact.write == "manager":
        path = tf.train.CheckpointManager(tf.train.Checkpoint(**stored), str(place), 3).save()
    else:
        path = getattr(tf.train.Checkpoint(**stored), fact.write)(str(place / "ckpt"))
    return values(stored), path


def names_in(path):
    """Whether a file of Keras has the layers' names; those of tf_keras and Keras 3.1 have none."""
    with h5py.File(path) as file:
        return file.visititems(lambda _, item: "name" in item.attrs or None)


def restore(fact, library, live, path):
    if library is tfckpt and fact.policy is not None:
        tfckpt.restore(path, policy=fact.policy, **live)
        return
    if fact.read == "keras":
        live["model"].load_weights(path)
        return
    given = {fact.keyword: live["model"]} if fact.keyword else live
    given = {fact.alone: live[fact.alone]} if fact.alone else given
    checkpoint = library.Checkpoint(**given)
    if fact.read == "manager":
        manager = library.CheckpointManager(checkpoint, path.rpartition("/")[0], 3)
        assert manager.restore_or_initialize() == path
    else:
        status = getattr(checkpoint, fact.read)(path + fact.suffix)
        getattr(status, fact.says if library is tf.train else "expect_partial")()


@pytest.mark.parametrize(
    ("name", "library", "writer", "reader"),
    [
        pytest.param(name, library, *pair, id=f"{kind}-{name}-{'-'.join(dict.fromkeys(pair))}")
        for name, fact in FACTS.items()
        for kind, library in (("plain", tf.train), ("tfckpt", tfckpt))
        if getattr(fact, kind) is not None  # where layers have numbers of this process
        for pair in fact.flavours
    ],
)
def test_what_a_restore_puts_where(name, library, writer, reader, tmp_path):
    fact = FACTS[name]
    expected = fact.tfckpt if library is tfckpt else fact.plain
    stored, path = written(fact, importlib.import_module(writer), tmp_path)
    live = fact.live(importlib.import_module(reader))
    fill(live, 2)
    before, found, text = values(live), [], ""
    try:
        restore(fact, library, live, path)
    except Exception as error:
        found, text = [type(error).__name__], str(error)
    assert library is tf.train or re.search(fact.text, text)
    for value_name, value in sorted(values(live).items()):
        if value != before[value_name]:
            origins = [other for other, theirs in stored.items() if theirs == value] or ["?"]
            same = value_name in origins
            found.append(value_name if same else f"{value_name}<-{origins[0]}")
    if isinstance(expected, dict):
        told = ("names" if names_in(path) else "") if fact.write == "keras" else reader
        expected = expected[told]
    assert " ".join(found) == expected
