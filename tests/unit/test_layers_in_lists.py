"""Variables, modules, lookups and layers in lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


WRITERS = [tf.train.Checkpoint, tfckpt.Checkpoint]


class Scale(tf.Module):  # type: ignore[misc]
    def __init__(self, value: float) -> None:
        super().__init__()
        self.factor = tf.Variable([value, value])


def variables(names: Sequence[str], start: float = 0.0) -> list[Any]:
    """Variables of one shape; those of a saved list begin with 1, 2, 3."""
    step = 1.0 if start else 0.0
    return [
        tf.Variable([start + step * at] * 3, name=name or None) for at, name in enumerate(names)
    ]


def firsts(found: Sequence[Any]) -> list[float]:
    return [float(each.numpy()[0]) for each in found]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("saved", "live", "said"),
    [
        ("abc", "ac", "the list has length 2 in the model and 3 in the checkpoint"),
        ("ac", "abc", "the list has length 3 in the model and 2 in the checkpoint"),
        (["", "", ""], ["", ""], "the list has length 2 in the model and 3 in the checkpoint"),
        ("abc", "acb", "vs/1 is the variable 'c' in the model and 'b' in the checkpoint"),
        (["x/w", "y/w", "z/w"], ["x/w", "z/w"], "the list has length 2 in the model"),
    ],
)
def test_an_index_is_not_believed_where_the_list_or_the_names_differ(
    writer: Any, saved: Sequence[str], live: Sequence[str], said: str, tmp_path: Path
) -> None:
    prefix = writer(vs=variables(saved, 1.0)).save(str(tmp_path / "ckpt"))
    now = variables(live)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(vs=now).restore(prefix)
    text = " ".join(str(refused.value).split())
    assert said in text
    assert "give the variables explicit names where the model is built" in text
    assert firsts(now) == [0.0] * len(now)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_list_that_grows_after_the_restore_is_refused_with_the_way_out(
    writer: Any, tmp_path: Path
) -> None:
    """Which of the three stored ones the first two are, nothing tells."""

    class Net(tf.Module):  # type: ignore[misc]
        def __init__(self, count: int) -> None:
            super().__init__()
            self.parts = [Scale(float(at)) for at in range(count)]

    prefix = writer(net=Net(3)).save(str(tmp_path / "ckpt"))
    grows = "in the model and 3 in the checkpoint; a list that grows later must be complete before"
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(net=Net(2)).restore(prefix)
    assert grows in " ".join(str(refused.value).split())
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.Checkpoint(net=Net(4)).restore(prefix)
    assert "grows later" not in str(refused.value)
    net = Net(3)
    for part in net.parts:
        part.factor.assign([9.0, 9.0])
    tfckpt.Checkpoint(net=net).restore(prefix).assert_consumed()
    assert firsts([part.factor for part in net.parts]) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("saved", "live"),
    [
        ("abc", "abc"),
        ("abc", "abd"),  # one has a new name
        ("abc", ["", "", ""]),
        (["dense/w", "dense_1/w"], ["dense_1/w", "dense_2/w"]),  # which Keras counted
        (["w", "w"], ["w", "w"]),
    ],
)
def test_a_list_of_the_same_length_is_restored_by_index(
    writer: Any, saved: Sequence[str], live: Sequence[str], tmp_path: Path
) -> None:
    prefix = writer(vs=variables(saved, 1.0)).save(str(tmp_path / "ckpt"))
    now = variables(live)
    tfckpt.Checkpoint(vs=now).restore(prefix).assert_consumed()
    assert firsts(now) == [1.0, 2.0, 3.0][: len(now)]


@pytest.mark.parametrize("writer", WRITERS)
def test_modules_in_a_list(writer: Any, tmp_path: Path) -> None:
    saved = [Scale(1.0), Scale(2.0), Scale(3.0)]
    prefix = writer(parts=saved).save(str(tmp_path / "ckpt"))
    same = [Scale(0.0) for _ in saved]
    tfckpt.Checkpoint(parts=same).restore(prefix).assert_consumed()
    np.testing.assert_array_equal([s.factor for s in same], [s.factor for s in saved])
    fewer = [Scale(0.0), Scale(0.0)]
    with pytest.raises(tfckpt.RefusedError, match="identified by its index in a list"):
        tfckpt.Checkpoint(parts=fewer).restore(prefix)
    assert firsts([each.factor for each in fewer]) == [0.0, 0.0]


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


def nested(flavour, below=("d1", "d2"), around=("backbone", "head"), compiled=False) -> Any:
    layers, inner, outer = flavour.layers, flavour.Input((4,)), flavour.Input((4,))
    output = inner
    for name in below:
        output = layers.Dense(4, name=name)(output)
    output = flavour.Model(inner, output, name=around[0])(outer)
    for name in around[1:]:
        output = layers.Dense(4, name=name)(output)
    model = flavour.Model(outer, output)
    if compiled:
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def fill(model, value) -> Any:
    model.set_weights([np.full_like(weight, value) for weight in model.get_weights()])
    return model


def contents(model) -> set[float]:
    return {float(value) for weight in model.get_weights() for value in np.ravel(weight)}


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def compiled(request) -> bool:
    return request.param


def test_the_manager_restores_what_tensorflow_restores(flavour, compiled, tmp_path) -> None:
    source = fill(nested(flavour, compiled=compiled), 7)
    tf.train.CheckpointManager(tf.train.Checkpoint(model=source), str(tmp_path), 3).save()
    ours = fill(nested(flavour, compiled=compiled), 1)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=ours), str(tmp_path), 3)
    assert manager.restore_or_initialize() is not None
    assert contents(ours) == {7}


@pytest.mark.parametrize(
    "change",
    [{"below": ("d1", "d2", "d3")}, {"around": ("backbone", "neck", "head")}],
    ids=["inside", "outside"],
)
def test_a_model_that_may_be_another_is_refused_and_left_as_it_is(flavour, change, tmp_path):
    path = tf.train.Checkpoint(model=fill(nested(flavour), 7)).save(str(tmp_path / "ckpt"))
    ours = fill(nested(flavour, **change), 1)
    with pytest.raises(tfckpt.RefusedError, match="does not store the names"):
        tfckpt.Checkpoint(model=ours).restore(path)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=ours), str(tmp_path), 3)
    with pytest.raises(tfckpt.TfckptError):
        manager.restore_or_initialize()
    assert contents(ours) == {1}


def test_an_inserted_dropout_disturbs_no_weight_and_gets_no_neighbours_seed(flavour, tmp_path):
    def model(*seeds) -> Any:
        dropouts = [flavour.layers.Dropout(0.1, seed=seed) for seed in seeds]
        return flavour.Sequential(
            [flavour.Input((4,)), *dropouts, flavour.layers.Dense(4, name="a")]
        )

    path = tfckpt.Checkpoint(model=fill(model(1), 7)).save(str(tmp_path / "ckpt"))
    ours = fill(model(2, 3), 1)
    before = [np.asarray(variable) for variable in ours.non_trainable_variables]
    tfckpt.Checkpoint(model=ours).restore(path).assert_existing_objects_matched()
    for weight in ours.trainable_variables:
        np.testing.assert_array_equal(np.asarray(weight), np.full(weight.shape, 7))
    for old, new in zip(before, ours.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(np.asarray(new), old)
