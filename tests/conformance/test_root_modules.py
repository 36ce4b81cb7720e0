"""A module of TensorFlow's own that is the root object of its checkpoint, or is restored alone.

What comes back is compared as TensorFlow writes it: every key of a checkpoint of the module.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from zoo.kinds.agents import dqn, sac

import tfckpt
from tfckpt.errors import RefusedError


class Block(tf.Module):
    def __init__(self, size):
        super().__init__()
        self.w = tf.Variable(tf.random.normal((size, size)))
        self._b = tf.Variable(tf.random.normal((size,)))


def plain(_):
    module = tf.Module()
    module.blocks, module._hidden, module.hidden = [Block(3), Block(3)], Block(2), Block(2)
    module._layers = [Block(4), {"a": tf.Variable(tf.random.normal((1,)))}]
    module.table = {"a": tf.Variable(tf.random.normal(())), "b": Block(2)}
    module.again = module.blocks[1]
    module.words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    module.words.insert(["a"], tf.random.uniform((1,), 0, 1 << 40, tf.int64))
    return module


def networks(k):
    module = tf.Module()
    layers = [k.layers.Input((3,)), k.layers.Dense(4), k.layers.Dropout(0.5), k.layers.Dense(2)]
    module.encoder, module._decoder = k.Sequential(layers), k.layers.Dense(3)
    module._decoder.build((None, 2))
    module.scale, module._steps = tf.Variable(tf.random.normal((3,))), tf.Variable(4)
    module.seen = k.metrics.Mean()
    module.seen.update_state(float(tf.random.normal(())))
    return module


def agent(make):
    def made(k):
        whole = make(k)
        for _ in range(2):
            whole.step()
        return whole.objects["agent"]

    return made


MODULES = {
    "plain": plain,
    "networks": networks,
    "dqn": agent(dqn),
    "sac": agent(sac),
}


def rooted(writer):
    return writer.Checkpoint


def beside_a_step(writer):
    return lambda module: writer.Checkpoint(module, step=tf.Variable(7))


def keyed(keyword):
    return lambda writer: lambda module: writer.Checkpoint(**{keyword: module})


# how it is written; how it is restored
WAYS = {
    "root": (rooted, tfckpt.restore),
    "root, by keyword": (rooted, lambda path, new: tfckpt.restore(path, net=new)),
    "root and a step": (
        beside_a_step,
        lambda path, new: tfckpt.restore(path, new, exclude_checkpoint=["**/step"]),
    ),
    "root and a step, with it": (
        beside_a_step,
        lambda path, new: tfckpt.restore(path, new, step=tf.Variable(0)),
    ),
    "drop-in": (
        rooted,
        lambda path, new: tfckpt.Checkpoint(new).restore(path).assert_consumed(),
    ),
    "model": (keyed("model"), tfckpt.restore),
    "keyword": (keyed("net"), lambda path, new: tfckpt.restore(path, net=new)),
}
FLAVOURS = ("keras3", "tf_keras")
CASES = [
    *(("plain", way, "keras3") for way in WAYS),  # it holds nothing of Keras
    *(("networks", way, flavour) for way in WAYS for flavour in FLAVOURS),
    *((k, way, f) for k in ("dqn", "sac") for way in ("root", "model") for f in FLAVOURS),
]


def written(module, folder):
    reader = tf.train.load_checkpoint(tf.train.Checkpoint(module).write(str(folder)))
    keys = reader.get_variable_to_shape_map().keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}
    return {key: np.asarray(reader.get_tensor(key)) for key in keys}


@pytest.mark.parametrize(
    ("kind", "way", "flavour", "writer"),
    [
        pytest.param(*case, writer, marks=pytest.mark.long if (at + n) % 2 else ())
        for at, case in enumerate(CASES)
        for n, writer in enumerate((tf.train, tfckpt))
    ],
    indirect=["flavour"],
)
def test_a_module_comes_back_whole(kind, way, flavour, writer, tmp_path):
    saved, restore = WAYS[way]
    old, new = MODULES[kind](flavour), MODULES[kind](flavour)
    path = saved(writer)(old).save(str(tmp_path / "ckpt"))
    expected, before = written(old, tmp_path / "a"), written(new, tmp_path / "b")
    assert any(not np.array_equal(expected[key], before[key]) for key in expected)
    restore(path, new)
    found = written(new, tmp_path / "c")
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, key)


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])
@pytest.mark.parametrize(
    "saved",
    [rooted, keyed("net"), keyed("model")],
    ids=["root", "net", "model"],
)
def test_a_module_takes_nothing_of_another(writer, saved, tmp_path):
    """One attribute in common is no reason to restore the rest of something else."""
    old, new = tf.Module(), tf.Module()
    old.a, old.b = tf.Variable(1.0), tf.Variable(2.0)
    new.a, new.c = tf.Variable(0.0), tf.Variable(0.0)
    path = saved(writer)(old).save(str(tmp_path / "ckpt"))
    with pytest.raises(RefusedError, match=r"model/c"):
        tfckpt.restore(path, new)
    assert (float(new.a), float(new.c)) == (0.0, 0.0)


@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tf", "tfckpt"])
def test_an_attribute_of_a_root_is_restored_by_its_name(writer, tmp_path):
    old, new, whole = Block(2), Block(2), Block(2)
    old.model, whole.model = Block(2), Block(2)
    path = writer.Checkpoint(old).save(str(tmp_path / "ckpt"))
    tfckpt.restore(path, model=new, include=["model/**"])
    np.testing.assert_array_equal(new.w, old.model.w)
    np.testing.assert_array_equal(new._b, old.model._b)
    tfckpt.restore(path, whole)
    np.testing.assert_array_equal(whole.w, old.w)
    np.testing.assert_array_equal(whole.model.w, old.model.w)
