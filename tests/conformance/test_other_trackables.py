"""Beside Keras: the optimizers of ``tf.compat.v1.train``, and objects that stand for another."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.saved_model.registration import registration
from zoo.models import chain
from zoo.values import read, untouched

import tfckpt
from tfckpt.stored.commits import record_file

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
either_writer = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])


def step(variables, optimizer, value):
    optimizer.apply_gradients([(tf.fill(v.shape, value), v) for v in variables])


def run(name, value):
    model, optimizer = chain(tf_keras, "hidden", "head"), OPTIMIZERS[name]()
    step(model.trainable_variables, optimizer, value)
    return model, optimizer


def slots(model, optimizer):
    return {
        (slot, variable.name): optimizer.get_slot(variable, slot).numpy()
        for variable in model.trainable_variables
        for slot in optimizer.get_slot_names()
    }


def values(optimizer):
    """Those of the slots and of what belongs to no variable; TensorFlow's order is by number."""
    return sorted(variable.numpy().tobytes() for variable in optimizer.variables())


@pytest.mark.parametrize("name", OPTIMIZERS)
@either_writer
def test_a_v1_optimizer_beside_a_model_comes_back_whole(name, writer, tmp_path):
    model, optimizer = run(name, 0.5)
    path = writer.Checkpoint(model=model, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    for reader in (tf.train, tfckpt) if writer is tfckpt else (tfckpt,):
        other, fresh = run(name, -2.0)
        status = reader.Checkpoint(model=other, optimizer=fresh).restore(path)
        status.assert_consumed() if reader is tfckpt else status.assert_existing_objects_matched()
        np.testing.assert_equal(slots(other, fresh), slots(model, optimizer))
    assert values(fresh) == values(optimizer)
    if writer is tfckpt:
        record = record_file.read(path)
        entries, stored = record.inventory.entries.items(), tf.train.load_checkpoint(path)
        kept = [stored.get_tensor(e.key) for key, e in entries if key.startswith("optimizer/")]
        assert values(optimizer) == sorted(value.tobytes() for value in kept)
        # Keras's RMSprop, whose state means the same, is spelled otherwise.
        assert record.inventory.optimizers == {"optimizer": name.replace("rms_prop", "rm_sprop")}
    for one, solver in ((model, optimizer), (other, fresh)):
        step(one.trainable_variables, solver, 0.25)
    np.testing.assert_equal(read(other), read(model))


@either_writer
def test_a_v1_optimizer_without_keras(writer, tmp_path):
    """It is restored at its first step; slots that exist hinder no value that is late."""

    def made(value):
        fresh = {"w": tf.Variable([value, value]), "optimizer": V1.AdamOptimizer(0.1)}
        return {**fresh, "more": tf.Module()}

    def late(optimizer, w, more, value):
        step([w], optimizer, 1.0)
        more.late = tf.Variable(value)

    for first in (False, True):
        ours, theirs = made(1.0), made(2.0)
        late(**ours, value=3.0)
        path = writer.Checkpoint(**ours).save(str(tmp_path / "ckpt"))
        if first:
            step([theirs["w"]], theirs["optimizer"], 2.0)
        status = tfckpt.Checkpoint(**theirs).restore(path)
        if first:
            theirs["more"].late = tf.Variable(4.0)
        else:
            step([ours["w"]], ours["optimizer"], 1.0)
            late(**theirs, value=4.0)
        status.assert_consumed()
        np.testing.assert_array_equal(theirs["w"].numpy(), ours["w"].numpy())
        assert theirs["more"].late.numpy() == 3.0
        assert values(theirs["optimizer"]) == values(ours["optimizer"])


# Objects that hold one value: as the root, beside a model, and by another that stands for them


class Standing(
    tf.__internal__.tracking.DelegatingTrackableMixin, tf.__internal__.tracking.Trackable
):
    """An object that is, to a checkpoint, another one."""


class Halved(tf.__internal__.tracking.Trackable):
    """An object that says itself what is stored of it."""

    def __init__(self, value):
        self.value = value

    def _serialize_to_tensors(self):
        return {"half": tf.constant(self.value / 2)}

    def _restore_from_tensors(self, tensors):
        self.value = 2 * float(tensors["half"])


def table(value):
    made = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    made.insert(["a"], tf.constant([value], tf.int64))
    return made


def iterator(position):
    made = iter(tf.data.Dataset.range(9))
    for _ in range(position):
        next(made)
    return made


def module(value):
    made = tf.Module()
    made.w, made.more = tf.Variable(value), [tf.Variable([value, -value])]
    return made


# How to make one, what it holds (asking an iterator moves it), and the names below it.
HOLDERS = {
    "variable": (tf.Variable, lambda it: it.numpy(), [""]),
    "table": (table, lambda it: it.lookup(tf.constant("a")).numpy(), [""]),
    "iterator": (iterator, lambda it: next(it).numpy(), [""]),
    "own": (Halved, lambda it: it.value, [""]),
    "module": (module, lambda it: -it.more[0].numpy()[1], ["/w", "/more/0"]),
}


@pytest.mark.parametrize("kind", [*HOLDERS, *(f"standing for {kind}" for kind in HOLDERS)])
@either_writer
def test_an_object_may_be_a_value_itself_and_stand_for_another(kind, writer, tmp_path):
    make, held, names = HOLDERS[kind.rpartition(" ")[2]]
    stands = Standing if kind.startswith("standing") else lambda it: it

    root, beside = make(3), tf.Variable(4)
    path = writer.Checkpoint(stands(root), beside=beside).save(str(tmp_path / "root"))
    if names == [""]:
        found = tfckpt.inspect(path).inventory.entries.keys()
        assert found == {"root", "beside", "save_counter"}
    for reader in (tfckpt, tf.train):
        root, beside = make(5), tf.Variable(6)
        reader.Checkpoint(stands(root), beside=beside).restore(path).assert_consumed()
        assert (held(root), beside.numpy()) == (3, 4)

    objects = {"net": chain(keras, "a"), "it": stands(make(3))}
    path = writer.Checkpoint(**objects).save(str(tmp_path / "beside"))
    assert {f"it{name}" for name in names} <= tfckpt.inspect(path).inventory.entries.keys()
    it = make(5)
    status = tfckpt.Checkpoint(net=chain(keras, "a"), it=stands(it)).restore(path)
    status.assert_consumed()
    assert held(it) == 3


# Objects with a saver of their own, which TensorFlow lets register


class Doubled(ResourceVariable):
    """A variable that is stored by a saver of its own, as its double."""

    def __init__(self, value):
        self._init_from_args(value)


class Bare(tf.Module):
    """An object that holds nothing but has that saver, too."""


def save_doubled(trackables, file_prefix):
    found = {f"{path}/double": it for path, it in trackables.items() if isinstance(it, Doubled)}
    tf.raw_ops.SaveV2(
        prefix=file_prefix,
        tensor_names=[*found],
        shape_and_slices=[""] * len(found),
        tensors=[2 * variable.read_value() for variable in found.values()],
    )
    return file_prefix


def restore_doubled(trackables, merged_prefix):
    for path, variable in trackables.items():
        names = {"tensor_names": [f"{path}/double"], "shape_and_slices": [""]}
        (double,) = tf.raw_ops.RestoreV2(prefix=merged_prefix, dtypes=[tf.float32], **names)
        variable.assign(double / 2)


@either_writer
def test_a_saver_of_its_own(writer, monkeypatch, tmp_path):
    registry = type(registration._saver_registry)("saver")
    monkeypatch.setattr(registration, "_saver_registry", registry)
    registration.register_checkpoint_saver(
        name="doubled",
        predicate=lambda it: isinstance(it, (Doubled, Bare)),
        save_fn=save_doubled,
        restore_fn=restore_doubled,
    )
    path = writer.Checkpoint(a=Doubled(1.5), b=tf.Variable(2.0)).save(str(tmp_path / "ckpt"))
    for reader in (tfckpt, tf.train):
        a, b = Doubled(0.0), tf.Variable(0.0)
        reader.Checkpoint(a=a, b=b).restore(path).assert_consumed()
        assert (a.numpy(), b.numpy()) == (1.5, 2.0)

    # It is not restored beside a model of Keras, nor into an object that has no saver.
    path = writer.Checkpoint(net=chain(keras, "a"), a=Doubled(1.5)).save(str(tmp_path / "net"))
    model, a = chain(keras, "a"), Doubled(0.0)
    with untouched(model, a), pytest.raises((tfckpt.RestoreError, tfckpt.RefusedError)):
        tfckpt.Checkpoint(net=model, a=a).restore(path)
    path = writer.Checkpoint(Bare(), a=Doubled(1.5)).write(str(tmp_path / "bare"))
    for reader in (tf.train, tfckpt):
        root, a = tf.Module(), Doubled(0.0)
        with untouched(a), pytest.raises(ValueError, match="doubled"):
            reader.Checkpoint(root, a=a).read(path)


@pytest.mark.parametrize("outside", [False, True])
def test_a_file_of_a_saver_is_one_of_the_checkpoint(outside, monkeypatch, tmp_path):
    def save_notes(trackables, file_prefix):
        path = tf.strings.join([file_prefix, "-notes.txt"])
        if outside:
            path = tf.strings.regex_replace(path, "/[^/]*$", "/elsewhere.txt")
        tf.io.write_file(path, "what a saver wrote")
        return []

    registry = type(registration._saver_registry)("saver")
    monkeypatch.setattr(registration, "_saver_registry", registry)
    registration.register_checkpoint_saver(
        name="notes",
        predicate=lambda it: isinstance(it, Bare),
        save_fn=save_notes,
        restore_fn=lambda trackables, prefix: None,
    )
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(a=Bare(), b=tf.Variable(1.0)), tmp_path, 1)
    if outside:
        with pytest.raises(tfckpt.SaveError, match=r"wrote 'elsewhere\.txt' outside of the"):
            manager.save()
        assert not [*tmp_path.glob("ckpt*"), *tmp_path.glob("elsewhere*")]
        return
    for number in (1, 2):  # the first is deleted with its checkpoint
        manager.save()
        (notes,) = tmp_path.glob("*.txt")
        assert notes.name == f"ckpt-{number}-Custom.notes-notes.txt"
        assert notes.read_text() == "what a saver wrote"


def test_slots_are_left_out_as_by_tensorflow(tmp_path):
    def trained():
        model = tf_keras.Sequential([tf_keras.layers.InputLayer((2,)), tf_keras.layers.Dense(1)])
        optimizer = tf_keras.optimizers.legacy.Adam(0.1)
        step(model.trainable_variables, optimizer, 1.0)
        return model, optimizer

    model, optimizer = trained()
    path = tfckpt.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "ckpt"))
    options = tf.train.CheckpointOptions(experimental_skip_slot_variables=True)
    for reader in (tf.train, tfckpt):
        other, fresh = trained()
        for variable in fresh.variables()[1:]:
            variable.assign(tf.fill(variable.shape, 9.0))
        reader.Checkpoint(model=other, optimizer=fresh).read(path, options)
        np.testing.assert_array_equal(other.weights[0], model.weights[0])
        assert all((variable.numpy() == 9).all() for variable in fresh.variables()[1:])
