"""One model, given to a checkpoint in one way and restored in another; both flavours.

As the root, as a keyword, with its optimizer or without, by `save_weights`, in a SavedModel: it is
the same model, and its values go where they belong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.optimizers import compiled
from zoo.variables import distinguish, inner

import tfckpt
from tfckpt.live.inventory import collect

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = np.ones((2, 4), "float32")


def stack(k: Any) -> Any:
    layers = [k.layers.Dense(5), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((4,)), *layers])


def subclassed(k: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = k.Sequential([k.Input((4,)), k.layers.Dense(5)])
            self.decoder = k.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.decoder(self.encoder(x))

    model = Net()
    model(BATCH)
    return model


Given = tuple[tuple[Any, ...], dict[str, Any]]
PLAIN: dict[str, Callable[[Any], Given]] = {
    "root": lambda m: ((m,), {}),
    "model": lambda m: ((), {"model": m}),
    "net": lambda m: ((), {"net": m}),
}
SOLVED: dict[str, Callable[[Any], Given]] = {
    "model, optimizer": lambda m: ((), {"optimizer": m.optimizer, "model": m}),
    "net, opt": lambda m: ((), {"net": m, "opt": m.optimizer}),
    "root, opt": lambda m: ((m,), {"opt": m.optimizer}),
}


def made(make: Any, k: Any, solved: bool) -> Any:
    model = make(k)
    return compiled(model, k.optimizers.Adam()) if solved else model


def state(model: Any) -> dict[str, Any]:
    live = collect({"model": model})
    seen = {n: e for n, e in live.inventory.entries.items() if e.role not in ("seed", "metric")}
    return {name: inner(live.variables[name]).numpy() for name in seen}


@pytest.mark.parametrize("solved", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("make", [stack, subclassed])
@pytest.mark.parametrize(
    ("writer", "reader"), [(tf_keras, keras), (keras, tf_keras), (tf_keras, tf_keras)]
)
def test_a_model_is_the_same_however_it_was_given(writer, reader, make, solved, tmp_path) -> None:
    source, target = made(make, writer, solved), made(make, reader, solved)
    distinguish(source.weights + (source.optimizer.variables if writer is keras and solved else []))
    ways = PLAIN | (SOLVED if solved else {})
    paths = {}
    for name, given in ways.items():
        args, keywords = given(source)
        paths[name] = tf.train.Checkpoint(*args, **keywords).write(str(tmp_path / name))
    if writer is tf_keras:
        paths["save_weights"] = str(tmp_path / "weights")
        source.save_weights(paths["save_weights"])
        source.save(str(tmp_path / "saved"), save_format="tf")
        paths["SavedModel"] = str(tmp_path / "saved")
    wanted = state(source)
    for path in paths.values():
        for given in ways.values():
            distinguish(inner(v) for v in reversed(target.weights))
            args, keywords = given(target)
            tfckpt.Checkpoint(*args, **keywords).read(path).assert_existing_objects_matched()
            found = state(target)
            assert found.keys() == wanted.keys()
            for name, value in wanted.items():
                np.testing.assert_array_equal(found[name], value, f"{path}: {name}")


def test_a_part_of_a_model_is_found_by_its_keyword(flavour, tmp_path) -> None:
    source, target = subclassed(tf_keras), subclassed(flavour)
    path = tf.train.Checkpoint(encoder=source.encoder).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).expect_partial()
    for found, wanted in zip(target.encoder.weights, source.encoder.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


def test_a_part_is_restored_out_of_a_whole_model(flavour, tmp_path) -> None:
    source, target = subclassed(tf_keras), subclassed(flavour)
    path = tf.train.Checkpoint(source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(encoder=target.encoder).read(path).expect_partial()
    for found, wanted in zip(target.encoder.weights, source.encoder.weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


def test_a_model_and_its_backbone_saved_side_by_side_are_one(flavour, tmp_path) -> None:
    """As tf-models does it: `Checkpoint(model=model, **model.checkpoint_items)`."""
    source, target = subclassed(tf_keras), subclassed(flavour)
    both = tf.train.Checkpoint(backbone=source.encoder, model=source)
    path = both.write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).assert_consumed()
    for name, value in state(source).items():
        np.testing.assert_array_equal(state(target)[name], value)


def test_two_models_of_a_file_are_not_taken_for_one(flavour, tmp_path) -> None:
    pair = {"generator": stack(tf_keras), "discriminator": stack(tf_keras)}
    path = tf.train.Checkpoint(**pair).write(str(tmp_path / "ckpt"))
    target = stack(flavour)
    with pytest.raises(tfckpt.RefusedError, match="discriminator/"):
        tfckpt.Checkpoint(model=target).read(path)
    rename = [{"checkpoint": "generator/**", "model": "model/**"}]
    policy = {"api": "read", "rename": rename, "exclude_checkpoint": ["discriminator/**"]}
    config = {"version": 1, "restore": {"path": path, "policy": policy}}
    tfckpt.restore(config, model=target)
    for found, wanted in zip(target.weights, pair["generator"].weights, strict=True):
        np.testing.assert_array_equal(inner(found), inner(wanted))


@pytest.mark.parametrize("writer", [keras, tf_keras])
def test_an_optimizer_of_a_name_of_its_own_is_of_the_same_class(writer, flavour, tmp_path) -> None:
    source = compiled(stack(writer), writer.optimizers.Adam(name="generator_adam"))
    target = compiled(stack(flavour), flavour.optimizers.Adam())
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(model=target).read(path).assert_existing_objects_matched()


def trained(model: Any, optimizer: Any) -> Any:
    """By a step of its own: tf_keras's optimizers tell their class in the names they make then."""
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(BATCH, np.ones((2, 2)), verbose=0)
    return model


@pytest.mark.parametrize("writer", [keras, tf_keras])
def test_an_optimizer_of_another_class_is_refused(writer, flavour, tmp_path) -> None:
    source = trained(stack(writer), writer.optimizers.Nadam())
    target = compiled(stack(flavour), flavour.optimizers.Adam())
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="'nadam' in the"):
        tfckpt.Checkpoint(model=target).read(path)


def test_a_legacy_optimizer_tells_its_class(flavour, tmp_path) -> None:
    source = trained(stack(tf_keras), tf_keras.optimizers.legacy.Adam())
    target = compiled(stack(flavour), flavour.optimizers.Adamax())
    path = tf.train.Checkpoint(model=source).write(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="'adam' in the"):
        tfckpt.Checkpoint(model=target).read(path)
