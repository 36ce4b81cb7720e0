"""Lookup layers and tables where TensorFlow's graph does not reach them, and FeatureSpace.

Plain TensorFlow saves a Keras 3 model that has them in a list, and passes them over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["red", "green", "green", "blue", "blue", "blue"]


def lookups(k: Any, words: list[str]) -> list[Any]:
    """Layers that count words until they are adapted, and look them up since."""
    layers = [
        k.layers.StringLookup(),
        k.layers.IntegerLookup(),
        k.layers.TextVectorization(output_sequence_length=3),
    ]
    if words:
        layers[0].adapt(tf.constant(words))
        layers[1].adapt(tf.constant([len(word) for word in words], tf.int64))
        layers[2].adapt(tf.constant(words))
    return layers


def table(pairs: dict[str, int]) -> Any:
    made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    if pairs:
        made.insert(tf.constant([*pairs]), tf.constant([*pairs.values()], tf.int64))
    return made


def net(k: Any, held: Any) -> Any:
    class Net(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.head = k.layers.Dense(2, name="head")
            self.held = held

        def call(self, inputs: Any) -> Any:
            return self.head(inputs)

    model = Net()
    model(np.ones((1, 3), np.float32))
    return model


def in_list(layers: list[Any]) -> Any:
    return layers


def in_dict(layers: list[Any]) -> Any:
    return {f"key{index}": layer for index, layer in enumerate(layers)}


def deeper(layers: list[Any]) -> Any:
    return {"all": [layers]}


held = pytest.mark.parametrize("hold", [in_list, in_dict, deeper])


@held
def test_lookup_layers_come_back(flavour: Any, hold: Any, tmp_path: Path) -> None:
    old = lookups(flavour, WORDS)
    path = tfckpt.Checkpoint(model=net(flavour, hold(old))).save(tmp_path / "ckpt")

    new = lookups(flavour, [])
    tfckpt.Checkpoint(model=net(flavour, hold(new))).restore(path).assert_consumed()
    asked = [
        tf.constant(["red", "blue", "violet", "green"]),
        tf.constant([3, 4, 5, 6], tf.int64),
        tf.constant(["blue red violet", "green"]),
    ]
    for before, after, words in zip(old, new, asked, strict=True):
        np.testing.assert_array_equal(after(words), before(words))


@held
def test_an_adaptation_that_is_not_finished_goes_on(
    flavour: Any, hold: Any, tmp_path: Path
) -> None:
    old, new = flavour.layers.StringLookup(), flavour.layers.StringLookup()
    old.update_state(tf.constant(["red", "red", "blue"]))
    path = tfckpt.Checkpoint(model=net(flavour, hold([old]))).save(tmp_path / "ckpt")

    tfckpt.Checkpoint(model=net(flavour, hold([new]))).restore(path).assert_consumed()
    for layer in (old, new):
        layer.update_state(tf.constant(["blue", "blue"]))
        layer.finalize_state()
    assert old.get_vocabulary() == new.get_vocabulary() == ["[UNK]", "blue", "red"]


@held
def test_hash_tables_come_back(flavour: Any, hold: Any, tmp_path: Path) -> None:
    old = [table({"red": 1, "green": 2}), table({"blue": 3})]
    path = tfckpt.Checkpoint(model=net(flavour, hold(old))).save(tmp_path / "ckpt")

    new = [table({}), table({"blue": 7, "grey": 8})]
    tfckpt.Checkpoint(model=net(flavour, hold(new))).restore(path).assert_consumed()
    words = tf.constant(["red", "green", "blue", "grey"])
    assert [found.lookup(words).numpy().tolist() for found in new] == [
        [1, 2, -1, -1],
        [-1, -1, 3, -1],
    ]


def test_plain_tensorflow_restores_the_weights_beside_them(flavour: Any, tmp_path: Path) -> None:
    model = net(flavour, [*lookups(flavour, WORDS), table({"red": 1})])
    path = tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")

    other = net(flavour, [*lookups(flavour, WORDS), table({})])
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other.head.kernel, model.head.kernel)


def test_an_iterator_in_a_list_comes_back(flavour: Any, tmp_path: Path) -> None:
    old, new = iter(tf.data.Dataset.range(9)), iter(tf.data.Dataset.range(9))
    for _ in range(4):
        next(old)
    path = tfckpt.Checkpoint(model=net(flavour, [old])).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(model=net(flavour, [new])).restore(path).assert_consumed()
    assert next(new) == 4


def features(k: Any) -> Any:
    space = k.utils.FeatureSpace
    return space(
        features={
            "colour": space.string_categorical(num_oov_indices=1),
            "size": space.float_normalized(),
            "count": space.integer_categorical(),
            "price": space.float_discretized(num_bins=3),
        },
        crosses=[space.cross(("colour", "count"), crossing_dim=8)],
        output_mode="concat",
    )


def rows(factor: float = 1.0) -> dict[str, Any]:
    return {
        "colour": ["red", "blue", "green", "red"],
        "size": [1.0 * factor, 2.0, 3.0, 5.0],
        "count": [1, 2, 3, 3],
        "price": [0.1, 0.2, 0.3, 0.4],
    }


def dataset(factor: float = 1.0) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows(factor)).batch(2)


def test_a_feature_space_comes_back(flavour: Any, tmp_path: Path) -> None:
    old, new = features(flavour), features(flavour)
    old.adapt(dataset())
    new.adapt(dataset(factor=7.0))  # another mean
    inputs = {name: tf.constant(values) for name, values in rows().items()}
    expected = np.asarray(old(inputs))
    assert not np.array_equal(new(inputs), expected)

    path = tfckpt.Checkpoint(space=old).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(space=new).restore(path).assert_consumed()
    np.testing.assert_array_equal(new(inputs), expected)


def test_a_feature_space_that_is_not_adapted_is_told_to_be(flavour: Any, tmp_path: Path) -> None:
    old = features(flavour)
    old.adapt(dataset())
    path = tfckpt.Checkpoint(space=old).save(tmp_path / "ckpt")
    with pytest.raises(tfckpt.NotBuiltError, match=r"feature_space\.adapt\(dataset\)"):
        tfckpt.Checkpoint(space=features(flavour)).restore(path)


def test_features_without_names_are_told_apart_by_their_keys(flavour: Any, tmp_path: Path) -> None:
    """Keras counts such names through the whole process."""

    def make() -> Any:
        space = flavour.utils.FeatureSpace
        numbers = {"a": space.float_normalized(), "b": space.float_normalized()}
        return space(features=numbers, output_mode="concat")

    def data(a: float, b: float) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices({"a": [a, 2 * a], "b": [b, 3 * b]}).batch(2)

    old, new = make(), make()
    old.adapt(data(1.0, 10.0))
    new.adapt(data(4.0, 5.0))
    inputs = {"a": tf.constant([1.0, 2.0]), "b": tf.constant([3.0, 4.0])}
    path = tfckpt.Checkpoint(space=old).save(tmp_path / "ckpt")
    tfckpt.Checkpoint(space=new).restore(path).assert_consumed()
    np.testing.assert_array_equal(new(inputs), old(inputs))
