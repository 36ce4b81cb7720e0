"""Beside Keras: the optimizers of ``tf.compat.v1.train``, and objects that stand for another."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.saved_model.registration import registration
from zoo.variables import inner

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.stored.commits import record_file
from tfckpt.stored.formats.open import open_checkpoint

V1 = tf.compat.v1.train
OPTIMIZERS = {
    "gradient_descent": lambda: V1.GradientDescentOptimizer(0.1),
    "momentum": lambda: V1.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: V1.AdamOptimizer(0.1),
    "adagrad": lambda: V1.AdagradOptimizer(0.1),
    "adadelta": lambda: V1.AdadeltaOptimizer(0.1),
    "rms_prop": lambda: V1.RMSPropOptimizer(0.1, momentum=0.9, centered=True),
    "ftrl": lambda: V1.FtrlOptimizer(0.1),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
either_writer = pytest.mark.parametrize("writer", [tf.train.Checkpoint, tfckpt.Checkpoint])


def net(k: Any = tf_keras) -> Any:
    layers = [k.layers.Dense(4, name="hidden"), k.layers.Dense(2, name="head")]
    return k.Sequential([k.Input((3,)), *layers])


def step(model: Any, optimizer: Any, value: float) -> None:
    variables = [inner(variable) for variable in model.trainable_variables]
    optimizer.apply_gradients([(tf.fill(v.shape, value), v) for v in variables])


def run(name: str, value: float, k: Any = tf_keras) -> tuple[Any, Any]:
    model, optimizer = net(k), OPTIMIZERS[name]()
    step(model, optimizer, value)
    return model, optimizer


def slots(model: Any, optimizer: Any) -> dict[tuple[str, str], np.ndarray]:
    return {
        (slot, variable.name): optimizer.get_slot(variable, slot).numpy()
        for variable in model.trainable_variables
        for slot in optimizer.get_slot_names()
    }


def values(optimizer: Any) -> list[bytes]:
    """Those of the slots and of what belongs to no variable; TensorFlow's order is by number."""
    return sorted(variable.numpy().tobytes() for variable in optimizer.variables())


@every_optimizer
@either_writer
def test_a_v1_optimizer_beside_a_model_comes_back_whole(name, writer, tmp_path) -> None:
    model, optimizer = run(name, 0.5)
    path = writer(model=model, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    other, fresh = run(name, -2.0)
    restored = tfckpt.Checkpoint(model=other, optimizer=fresh).restore(path)
    restored.assert_consumed()
    expected = slots(model, optimizer)
    for key, value in slots(other, fresh).items():
        np.testing.assert_array_equal(value, expected[key], str(key))
    assert values(fresh) == values(optimizer)
    for each in ((model, optimizer), (other, fresh)):
        step(*each, 0.25)
    for ours, theirs in zip(other.variables, model.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@every_optimizer
def test_every_variable_of_a_v1_optimizer_is_in_the_record_and_the_file(name, tmp_path) -> None:
    model, optimizer = run(name, 0.5)
    path = tfckpt.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    record = record_file.read(path)
    assert record is not None
    reader = tf.train.load_checkpoint(path)
    stored = [
        reader.get_tensor(entry.key).tobytes()
        for key, entry in record.inventory.entries.items()
        if key.startswith("optimizer/")
    ]
    assert values(optimizer) == sorted(stored)
    # Keras's RMSprop, whose state means the same, is spelled otherwise.
    assert record.inventory.optimizers == {"optimizer": name.replace("rms_prop", "rm_sprop")}


@every_optimizer
def test_plain_tensorflow_restores_a_saved_v1_optimizer(name, tmp_path) -> None:
    model, optimizer = run(name, 0.5)
    path = tfckpt.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    other, fresh = run(name, -2.0)
    status = tf.train.Checkpoint(model=other, optimizer=fresh).restore(path)
    status.assert_existing_objects_matched()
    expected = slots(model, optimizer)
    for key, value in slots(other, fresh).items():
        np.testing.assert_array_equal(value, expected[key], str(key))


def test_without_keras_a_v1_optimizer_is_restored_when_it_takes_its_first_step(tmp_path) -> None:
    def run(value: float) -> dict[str, Any]:
        return {"w": tf.Variable([value, value]), "optimizer": V1.AdamOptimizer(0.1)}

    def train(w: Any, optimizer: Any) -> None:
        optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])

    ours, theirs = run(1.0), run(2.0)
    train(**ours)
    path = tfckpt.Checkpoint(**ours).save(tmp_path / "ckpt")
    status = tfckpt.Checkpoint(**theirs).restore(path)
    for each in (ours, theirs):
        train(**each)
    status.assert_consumed()
    np.testing.assert_array_equal(theirs["w"].numpy(), ours["w"].numpy())
    assert values(theirs["optimizer"]) == values(ours["optimizer"])


@either_writer
def test_slots_that_exist_are_no_hindrance_to_values_that_come_later(writer, tmp_path) -> None:
    def made(value: float) -> dict[str, Any]:
        w, optimizer = tf.Variable([value]), V1.MomentumOptimizer(0.1, 0.9)
        optimizer.apply_gradients([(tf.constant([value]), w)])
        return {"w": w, "optimizer": optimizer, "more": tf.Module()}

    ours, theirs = made(1.0), made(2.0)
    ours["more"].late = tf.Variable(3.0)
    path = writer(**ours).save(str(tmp_path / "ckpt"))
    status = tfckpt.Checkpoint(**theirs).restore(path)
    theirs["more"].late = tf.Variable(4.0)
    status.assert_consumed()
    assert theirs["more"].late.numpy() == 3.0
    assert values(theirs["optimizer"]) == values(ours["optimizer"])


@either_writer
@pytest.mark.parametrize("beside", ["a model", "a variable"])
def test_a_v1_optimizer_that_scales_the_loss_has_its_scale_in_the_checkpoint(
    writer, beside, tmp_path
) -> None:
    mixed = tf.compat.v1.mixed_precision

    def made(value: int) -> tuple[dict[str, Any], Any, Any]:
        scale = mixed.DynamicLossScale(float(value), increment_period=2, multiplier=2.0)
        inside = V1.MomentumOptimizer(0.1, 0.9)
        optimizer = mixed.MixedPrecisionLossScaleOptimizer(inside, scale)
        it = net() if beside == "a model" else tf.Variable([1.0])
        variables = it.trainable_variables if beside == "a model" else [it]
        for _ in range(value):
            optimizer.apply_gradients([(tf.fill(v.shape, float(value)), v) for v in variables])
        return {"it": it, "optimizer": optimizer}, inside, scale

    def held(scale: Any) -> list[float]:
        return [float(weight.numpy()) for weight in scale._weights.values()]

    ours, inside, scale = made(3)
    assert len(held(scale)) == 2
    path = writer(**ours).save(str(tmp_path / "ckpt"))
    theirs, other, fresh = made(6)
    assert held(fresh) != held(scale)
    tfckpt.Checkpoint(**theirs).restore(path).assert_consumed()
    assert held(fresh) == held(scale)
    assert values(other) == values(inside)


class Standing(
    tf.__internal__.tracking.DelegatingTrackableMixin, tf.__internal__.tracking.Trackable
):
    """An object that is, to a checkpoint, another one."""


def holder(value: float) -> tf.Module:
    module = tf.Module()
    module.w, module.more = tf.Variable(value), [tf.Variable([value, -value])]
    return module


@either_writer
def test_an_object_that_stands_for_another_is_saved_and_restored_as_it(writer, tmp_path) -> None:
    ours, theirs = holder(1.0), holder(2.0)
    path = writer(net=net(keras), it=Standing(ours)).save(str(tmp_path / "ckpt"))
    checkpoint = tfckpt.Checkpoint(net=net(keras), it=Standing(theirs))
    checkpoint.restore(path).assert_consumed()
    assert theirs.w.numpy() == 1.0
    np.testing.assert_array_equal(theirs.more[0].numpy(), [1.0, -1.0])
    assert {"it/w", "it/more/0"} <= set(collect({"it": Standing(ours)}).variables)


@either_writer
def test_it_may_stand_for_a_variable_or_a_table(writer, tmp_path) -> None:
    def things(value: float) -> dict[str, Any]:
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, -1.0)
        table.insert(["a"], [value])
        return {"variable": tf.Variable(value), "table": table}

    ours, theirs = things(1.0), things(2.0)
    standing = {name: Standing(thing) for name, thing in ours.items()}
    path = writer(net=net(keras), **standing).save(str(tmp_path / "ckpt"))
    standing = {name: Standing(thing) for name, thing in theirs.items()}
    checkpoint = tfckpt.Checkpoint(net=net(keras), **standing)
    checkpoint.restore(path).assert_consumed()
    assert theirs["variable"].numpy() == 1.0
    assert theirs["table"].lookup(tf.constant("a")).numpy() == 1.0


class Halved(tf.__internal__.tracking.Trackable):
    """An object that says itself what is stored of it."""

    def __init__(self, value: float) -> None:
        self.value = value

    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {"half": tf.constant(self.value / 2)}

    def _restore_from_tensors(self, tensors: dict[str, tf.Tensor]) -> None:
        self.value = 2 * float(tensors["half"])


def table(value: int) -> Any:
    made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    made.insert(["a"], tf.constant([value], tf.int64))
    return made


def iterator(position: int) -> Any:
    made = iter(tf.data.Dataset.range(9))
    for _ in range(position):
        next(made)
    return made


# How to make one, and what it holds; asking an iterator moves it.
ROOTS = {
    "variable": (tf.Variable, lambda it: it.numpy()),
    "table": (table, lambda it: it.lookup(tf.constant("a")).numpy()),
    "iterator": (iterator, lambda it: next(it).numpy()),
    "own": (Halved, lambda it: it.value),
    "standing": (lambda value: Standing(tf.Variable(value)), lambda it: it._trackable.numpy()),
}


@pytest.mark.parametrize("what", ROOTS)
@either_writer
def test_the_root_object_may_be_a_value_itself(what, writer, tmp_path) -> None:
    make, held = ROOTS[what]
    root, beside = make(3), tf.Variable(4)
    path = writer(root, beside=beside).save(str(tmp_path / "ckpt"))
    with open_checkpoint(path) as stored:
        assert set(stored.inventory.entries) == {"root", "beside", "save_counter"}
    root, beside = make(5), tf.Variable(6)
    tfckpt.Checkpoint(root, beside=beside).restore(path).assert_consumed()
    assert (held(root), beside.numpy()) == (3, 4)
    theirs = tf.train.Checkpoint(make(5), beside=tf.Variable(6))
    theirs.restore(path).assert_consumed()
    assert held(theirs.root) == 3


class Doubled(ResourceVariable):
    """A variable that is stored by a saver of its own, as its double."""

    def __init__(self, value: float) -> None:
        self._init_from_args(value)


class Bare(tf.Module):
    """An object that holds nothing but has that saver, too."""


def save_doubled(trackables: dict[str, Doubled], file_prefix: tf.Tensor) -> tf.Tensor:
    found = {path: it for path, it in trackables.items() if isinstance(it, Doubled)}
    tensors = [2 * variable.read_value() for variable in found.values()]
    names = [f"{path}/double" for path in found]
    tf.raw_ops.SaveV2(
        prefix=file_prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=tensors,
    )
    return file_prefix


def restore_doubled(trackables: dict[str, Doubled], merged_prefix: tf.Tensor) -> None:
    for path, variable in trackables.items():
        (double,) = tf.raw_ops.RestoreV2(
            prefix=merged_prefix,
            tensor_names=[f"{path}/double"],
            shape_and_slices=[""],
            dtypes=[tf.float32],
        )
        variable.assign(double / 2)


@pytest.fixture
def saver_of_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = type(registration._saver_registry)("saver")
    monkeypatch.setattr(registration, "_saver_registry", registry)
    registration.register_checkpoint_saver(
        name="doubled",
        predicate=lambda it: isinstance(it, (Doubled, Bare)),
        save_fn=save_doubled,
        restore_fn=restore_doubled,
    )


@either_writer
@pytest.mark.usefixtures("saver_of_doubled")
def test_a_variable_with_a_saver_of_its_own_is_restored_by_that(writer, tmp_path) -> None:
    path = writer(a=Doubled(1.5), b=tf.Variable(2.0)).save(str(tmp_path / "ckpt"))
    a, b = Doubled(0.0), tf.Variable(0.0)
    status = tfckpt.Checkpoint(a=a, b=b).restore(path)
    status.assert_consumed()
    assert (a.numpy(), b.numpy()) == (1.5, 2.0)
    plain = tf.train.Checkpoint(a=Doubled(0.0), b=tf.Variable(0.0))
    plain.restore(path).assert_consumed()
    assert plain.a.numpy() == 1.5


@either_writer
@pytest.mark.usefixtures("saver_of_doubled")
def test_beside_keras_it_is_refused_and_nothing_changes(writer, tmp_path) -> None:
    path = writer(net=net(keras), a=Doubled(1.5)).save(str(tmp_path / "ckpt"))
    model, a = net(keras), Doubled(0.0)
    before = model.get_weights()
    with pytest.raises((tfckpt.RestoreError, tfckpt.RefusedError)):
        tfckpt.Checkpoint(net=model, a=a).restore(path)
    assert a.numpy() == 0.0
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@either_writer
@pytest.mark.usefixtures("saver_of_doubled")
def test_what_has_a_saver_is_not_restored_into_what_has_none(writer, tmp_path) -> None:
    path = writer(Bare(), a=Doubled(1.5)).write(str(tmp_path / "ckpt"))
    for reader in (tf.train.Checkpoint, tfckpt.Checkpoint):
        root, a = tf.Module(), Doubled(0.0)
        with pytest.raises(ValueError, match="doubled"):
            reader(root, a=a).read(path)
        assert a.numpy() == 0.0
