"""Saves of a checkpoint whose objects change in any way between them.

What is known of the objects from one save to the next must never be what they were. So each save is
compared with those of checkpoints that have not seen the objects before: TensorFlow's, and one of
tfckpt's.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st

import tfckpt
from tfckpt.stored.commits import record
from tfckpt.stored.commits.record_file import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfckpt.core.inventory import Inventory

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
OTHER_METRICS: list[Any] = []  # nothing of the model tells what stands here


def objects(flavour: Any) -> dict[str, Any]:
    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = dense(flavour)
            self.blocks = [dense(flavour)]
            self.nested = [[dense(flavour)], []]
            self.table = {"one": dense(flavour)}
            self.stack = flavour.Sequential([flavour.Input((1,)), dense(flavour)])
            self.seen = flavour.metrics.Mean(name="seen")
            self.steps = 0

        @property
        def metrics(self) -> list[Any]:
            return [self.seen, *OTHER_METRICS]

        def call(self, x: Any) -> Any:
            return self.head(x)

    OTHER_METRICS.clear()
    model = Net()
    model.built = True
    model.compile(flavour.optimizers.SGD(momentum=0.5), "mse")
    plain = tf.Module()
    plain.weight = tf.Variable([1.0])
    plain.list = [tf.Variable(1), tf.Variable(2)]
    plain.dict = {"a": tf.Variable(3)}
    plain.tuple = (tf.Variable(4), [])
    loose = tf.Variable([1.0], shape=[None])
    return {"model": model, "plain": plain, "loose": loose, "checkpoint": None, "flavour": flavour}


def dense(flavour: Any) -> Any:
    layer = flavour.layers.Dense(1)
    layer.build((None, 1))
    return layer


def _set(path: str, made: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """A change that puts something new on an attribute."""
    owner, attribute = path.split(".")
    return lambda given: setattr(given[owner], attribute, made(given))


def _remove(path: str) -> Callable[[dict[str, Any]], None]:
    owner, attribute = path.split(".")

    def change(given: dict[str, Any]) -> None:
        if hasattr(given[owner], attribute):
            delattr(given[owner], attribute)

    return change


def rename(given: dict[str, Any]) -> None:
    layer = given["model"].stack.layers[0]
    setattr(layer, "name" if given["flavour"] is keras else "_name", f"{layer.name}_renamed")


def freeze(given: dict[str, Any]) -> None:
    given["model"].head.trainable = not given["model"].head.trainable


def build_optimizer(given: dict[str, Any]) -> None:
    given["model"].optimizer.build(given["model"].head.trainable_variables)


def recompile(given: dict[str, Any]) -> None:
    given["model"].compile(given["flavour"].optimizers.Adam(), "mse")


def train(given: dict[str, Any]) -> None:
    for variable in (*given["model"].weights, *given["plain"].trainable_variables):
        variable.assign(variable + 1)
    given["model"].steps += 1


def move(given: dict[str, Any]) -> None:
    plain = given["plain"]
    if hasattr(plain, "weight"):
        weight = plain.weight
        del plain.weight
        plain.moved = weight


def replace_in_list(given: dict[str, Any]) -> None:
    if given["flavour"] is keras and given["model"].blocks:  # as for `pop`
        given["model"].blocks[0] = dense(given["flavour"])


def pop(given: dict[str, Any]) -> None:
    if given["flavour"] is keras and given["model"].blocks:  # tf_keras refuses to save it then
        given["model"].blocks.pop()


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "nothing": lambda given: None,
    "train": train,
    "add a layer": _set("model.added", lambda given: dense(given["flavour"])),
    "replace a layer": _set("model.head", lambda given: dense(given["flavour"])),
    "replace it by one there is": _set("model.head", lambda given: given["model"].table["one"]),
    "remove a layer": _remove("model.added"),
    "append a layer": lambda given: given["model"].blocks.append(dense(given["flavour"])),
    "pop a layer": pop,
    "replace within a list": replace_in_list,
    "append within a list": lambda given: given["model"].nested[1].append(dense(given["flavour"])),
    "an entry": lambda given: given["model"].table.update({"two": dense(given["flavour"])}),
    "rename": rename,
    "a layer on top": lambda given: given["model"].stack.add(dense(given["flavour"])),
    "freeze": freeze,
    "build the optimizer": build_optimizer,
    "recompile": recompile,
    "a metric": _set("model.extra", lambda given: given["flavour"].metrics.Sum(name="extra")),
    "a variable of a metric": lambda given: given["model"].seen.add_weight(
        name=f"more_{len(given['model'].seen.variables)}", shape=(), initializer="zeros"
    ),
    "a metric that a property tells of": lambda given: OTHER_METRICS.append(
        given["flavour"].metrics.Mean(name=f"other_{len(OTHER_METRICS)}")
    ),
    "another variable": _set("plain.weight", lambda given: tf.Variable([1.0])),
    "move a variable": move,
    "a variable in a list": lambda given: given["plain"].list.append(tf.Variable(5)),
    "another in a dict": lambda given: given["plain"].dict.update({"a": tf.Variable(10)}),
    "a variable in a dict": lambda given: given["plain"].dict.update({"b": tf.Variable(6)}),
    "a variable in a tuple's list": lambda given: given["plain"].tuple[1].append(tf.Variable(7)),
    "another shape": lambda given: given["loose"].assign(tf.repeat(given["loose"], 2)[:3]),
    "a keyword": _set("checkpoint.late", lambda given: tf.Variable(8)),
    "a module": _set("plain.inner", lambda given: tf.Module()),
    "a variable in a module": lambda given: (
        setattr(given["plain"].inner, "weight", tf.Variable(9))
        if hasattr(given["plain"], "inner")
        else None
    ),
}


def content(prefix: str) -> dict[str, Any]:
    reader = tf.train.load_checkpoint(prefix)
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        (one[key] == other[key]) if key == GRAPH else (one[key] == other[key]).all() for key in one
    )


def inventory(prefix: str) -> Inventory:
    path = path_of(prefix)
    found = record.parse(Path(path).read_bytes(), path, prefix).inventory
    return dataclasses.replace(found, source="")


def of(kind: Any, given: dict[str, Any]) -> Any:
    return kind(model=given["model"], plain=given["plain"], loose=given["loose"])


def saves_as_if_new(given: dict[str, Any], directory: Path) -> None:
    paths = [str(directory / name) for name in ("known", "new", "tensorflow")]
    given["checkpoint"].write(paths[0])
    for path, kind in zip(paths[1:], (tfckpt.Checkpoint, tf.train.Checkpoint), strict=True):
        checkpoint = of(kind, given)
        if hasattr(given["checkpoint"], "late"):
            checkpoint.late = given["checkpoint"].late
        checkpoint.write(path)
    known, new, plain = map(content, paths)
    assert same(known, new)
    assert inventory(paths[0]) == inventory(paths[1])
    ours = {key: value for key, value in known.items() if not key.startswith("_tfckpt/")}
    assert same({**ours, GRAPH: plain[GRAPH]}, plain)


def saved_after_each(flavour: Any, changes: list[str]) -> None:
    given = objects(flavour)
    given["checkpoint"] = of(tfckpt.Checkpoint, given)
    with tempfile.TemporaryDirectory() as directory:
        saves_as_if_new(given, Path(directory))
        for change in changes:
            CHANGES[change](given)
            saves_as_if_new(given, Path(directory))


each_flavour = pytest.mark.parametrize("flavour", [keras, tf_keras], ids=["keras3", "tf_keras"])
several_changes = st.lists(st.sampled_from(list(CHANGES)), min_size=1, max_size=5)


@each_flavour
@settings(max_examples=6)
@given(changes=several_changes)
def test_a_save_has_what_the_objects_have_now(flavour: Any, changes: list[str]) -> None:
    saved_after_each(flavour, changes)


@pytest.mark.long
@each_flavour
@settings(max_examples=100)
@given(changes=several_changes)
def test_each_of_many_saves_has_what_the_objects_have_then(
    flavour: Any, changes: list[str]
) -> None:
    saved_after_each(flavour, changes)


@each_flavour
def test_no_change_goes_unnoticed(flavour: Any) -> None:
    saved_after_each(flavour, list(CHANGES))
