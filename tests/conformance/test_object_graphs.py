"""One walk makes what TensorFlow's saver gathers: the object graph, its keys, the tensors."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph
from tensorflow.python.checkpoint import save_util
from zoo.models import chain, stack

import tfckpt
from tfckpt.live.inventory import collect
from tfckpt.live.private import graph as private
from tfckpt.stored.bundles.keys import edges

TRACKING = tf.__internal__.tracking
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
EXTRA = "_tfckpt/"
STEP = tf.Variable(7)
LEGACY = tf_keras.optimizers.legacy


def fitted(k, optimizer, *layers):
    model = k.Sequential([k.Input((4,)), *layers, k.layers.Dense(2)])
    model.compile(optimizer, "mse", metrics=["mae"])
    model.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
    return {"model": model}


def beside(k, optimizer, build="build"):
    model = chain(k, "a", "b")
    getattr(optimizer, build)(model.trainable_variables)
    return {"model": model, "optimizer": optimizer}


def subclassed(k):
    class Model(k.Model):
        def __init__(self):
            super().__init__()
            self.blocks = [k.layers.Dense(3), {"x": k.layers.Dense(2)}]
            self.first = self.blocks[0]
            self.drop = {"rate/1.5": k.layers.Dropout(0.5)}

        def call(self, x):
            return self.blocks[1]["x"](self.drop["rate/1.5"](self.first(x), training=True))

    model = Model()
    model(np.ones((1, 4)))
    return {"model": model}


def module():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    table.insert(["a", "b"], [1, 2])
    made = tf.Module()
    made.values = [tf.Variable(1.0), (tf.Variable([True, False]), tf.Variable("text"))]
    made.by_name = {"a.b/c": tf.Variable(tf.ones(3, tf.bfloat16)), "again": made.values[0]}
    made.table, made.back = table, made
    made.dense = tf.lookup.experimental.DenseHashTable(tf.int64, tf.int64, 0, -1, -2)
    made.function = tf.function(lambda x: x)
    return {"net": made, "list": [tf.Variable(2), made.by_name], "empty": tf.Module()}


class Words(tf.train.experimental.PythonState):
    def serialize(self):
        return "words"

    def deserialize(self, string_value):
        raise NotImplementedError


class Computed(tf.Module):
    """Its children and its tensors are computed."""

    def __init__(self):
        super().__init__()
        self.v = tf.Variable(3.0)
        self.list = [self.v]

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        return {**super()._trackable_children(save_type, **kwargs), "more": self.list}

    def _serialize_to_tensors(self):
        return {"a.b": tf.constant(1.0), "c": self.v * 2}

    def _restore_from_tensors(self, restored_tensors):
        pass


class Adds(TRACKING.AutoTrackable):
    def _trackable_children(self, save_type="checkpoint", **kwargs):
        return {**super()._trackable_children(save_type, **kwargs), "added": STEP}


class Inherited(keras.layers.Dense, Adds):
    """Keras's layer asks the next class in order."""


class Around(TRACKING.DelegatingTrackableMixin, TRACKING.Trackable):
    """Stands for another object."""


def instances():
    """What is set on objects, not on their classes."""
    saved, children = tf.Variable(1.0), tf.Module()
    saved._serialize_to_tensors = lambda: {"other": tf.constant(5.0)}
    children._trackable_children = lambda *_, **__: {"step": STEP}
    around = Around(tf.random.Generator.from_seed(1))
    return {"saved": saved, "children": children, "around": around}


def loaded(path):
    made = tf.Module()
    made.v, made.table = (
        tf.Variable(2.0),
        tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0),
    )
    tf.saved_model.save(made, str(path / "saved"))
    return {"loaded": tf.saved_model.load(str(path / "saved"))}


def mirrored(k):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        return beside(k, k.optimizers.Adam())


def on_read(path):
    del path
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        kinds = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM
        return {"v": tf.Variable(1.0, synchronization=kinds[0], aggregation=kinds[1])}


def sharded():
    parts = [tf.Variable([1.0, 2.0], name="w/part_0"), tf.Variable([3.0], name="w/part_1")]
    return {"v": tf.__internal__.distribute.ShardedVariable(parts, name="w")}


def resnet(path):
    del path
    model, optimizer = keras.applications.ResNet50(weights=None), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer}


CASES = {
    "mlp": lambda _: beside(keras, keras.optimizers.Adam()),
    "compiled": lambda _: fitted(keras, "adam", keras.layers.Dropout(0.5)),
    "compiled, tf_keras": lambda _: fitted(tf_keras, "adam", tf_keras.layers.Dropout(0.5)),
    "subclassed": lambda _: subclassed(keras),
    "subclassed, tf_keras": lambda _: subclassed(tf_keras),
    "module": lambda _: module(),
    "iterator": lambda _: {"it": iter(tf.data.Dataset.range(9)), "v": tf.Variable(1.0)},
    "words of Python": lambda _: {"words": Words(), "v": tf.Variable(1.0)},
    "computed": lambda _: {"a": Computed(), "model": stack(keras, Inherited(2))},
    "instances": lambda _: instances(),
    "loaded": loaded,
    "lookup": lambda _: {"words": keras.layers.StringLookup(vocabulary=["a"])},
    "mirrored": lambda _: mirrored(keras),
    "mirrored, tf_keras": lambda _: mirrored(tf_keras),
    "on read": on_read,
    "sharded": lambda _: sharded(),
    "loss scale": lambda _: beside(
        keras, keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    ),
    "loss scale, tf_keras": lambda _: fitted(
        tf_keras, tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam())
    ),
    "legacy": lambda _: fitted(tf_keras, LEGACY.Adam()),
    "legacy, loss scale": lambda _: fitted(
        tf_keras, tf_keras.mixed_precision.LossScaleOptimizer(LEGACY.Adam())
    ),
    "legacy, a layer that TensorFlow misses": lambda _: {
        **subclassed(keras),
        **beside(tf_keras, LEGACY.Adam(), "_create_all_weights"),
    },
    "mobilenet": lambda _: {"model": keras.applications.MobileNetV3Small(weights=None)},
}


class Missed(tf.Module):
    """The child for what TensorFlow does not reach: key → object."""

    def __init__(self, children):
        super().__init__()
        self.children = children

    def _trackable_children(self, save_type="checkpoint", **kwargs):
        return self.children


def gathered(checkpoint, missed):
    """The object graph that TensorFlow makes."""
    view = checkpoint._saver._graph_view
    extra = TRACKING.TrackableReference("_tfckpt", Missed(missed))
    attached = [*(view.attached_dependencies or ()), extra]
    return save_util.serialize_graph_view(TRACKING.ObjectGraphView(view.root, attached))[-1]


def in_order(graph):
    """The same graph, its nodes numbered breadth first, as TensorFlow numbers them."""
    order = [0]
    for at in order:
        order += [c.node_id for c in graph.nodes[at].children if c.node_id not in order]
    order += [slot.slot_variable_node_id for n in order for slot in graph.nodes[n].slot_variables]
    new = {old: number for number, old in enumerate(order)}
    found = TrackableObjectGraph(nodes=[graph.nodes[old] for old in order])
    for node in found.nodes:
        for child in node.children:
            child.node_id = new[child.node_id]
        for slot in node.slot_variables:
            slot.original_variable_node_id = new[slot.original_variable_node_id]
            slot.slot_variable_node_id = new[slot.slot_variable_node_id]
    return found


@pytest.mark.parametrize("case", [*CASES, pytest.param("resnet", marks=pytest.mark.long)])
def test_the_graph_keys_and_values_are_tensorflow_s(case, tmp_path):
    objects = {**CASES, "resnet": resnet}[case](tmp_path)
    checkpoint, plain = tfckpt.Checkpoint(**objects), tf.train.Checkpoint(**objects)
    path, expected = checkpoint.write(tmp_path / "ours"), plain.write(str(tmp_path / "plain"))
    ours, theirs = (tf.train.load_checkpoint(each) for each in (path, expected))
    keys = [key for key in ours.get_variable_to_dtype_map() if key.startswith(EXTRA)]
    names = [edges(key)[1] for key in keys]
    missed = {name: v for name, v in collect(objects).variables.items() if name in names}

    stored = ours.get_tensor(GRAPH)
    graph = gathered(checkpoint, missed)
    if missed:
        stored, graph = in_order(TrackableObjectGraph.FromString(stored)), in_order(graph)
        assert stored == graph
    else:
        assert stored == graph.SerializeToString()

    dtypes = theirs.get_variable_to_dtype_map()
    assert {*ours.get_variable_to_dtype_map()} - {*keys} == {*dtypes}
    for key in dtypes.keys() - {GRAPH}:
        if dtypes[key] != tf.variant:
            np.testing.assert_array_equal(ours.get_tensor(key), theirs.get_tensor(key), key)


@pytest.mark.parametrize("gone", ["_execute", "_in_a_list"])
def test_what_tensorflow_may_not_have_is_done_slowly(gone, monkeypatch, tmp_path):
    monkeypatch.setattr(private, gone, None if gone == "_execute" else lambda: False)
    objects, kept = subclassed(keras), {"v": tf.Variable([1.0, 2.0])}
    path = tfckpt.Checkpoint(**objects, **kept).write(tmp_path / "ckpt")
    stored = tf.train.load_checkpoint(path)
    expected = tf.train.load_checkpoint(
        tf.train.Checkpoint(**objects, **kept).write(tmp_path / "x")
    )
    for key in expected.get_variable_to_dtype_map().keys() - {GRAPH}:
        np.testing.assert_array_equal(stored.get_tensor(key), expected.get_tensor(key))


@pytest.mark.parametrize("reads", ["together", "one by one"])
def test_a_variable_without_a_value_hides_no_other(reads, monkeypatch):
    if reads == "one by one":
        monkeypatch.setattr(private, "_execute", None)
    variables = {"a": tf.Variable(1.0), "b": tf.Variable(2.0)}
    empty = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="no value")
    variables["a"]._handle = empty
    assert {key: value.numpy() for key, value in private.read_all(variables).items()} == {"b": 2.0}


def test_blocks_that_refer_to_their_model_and_to_each_other(tmp_path):
    """Each leads to all of the others: what is as near to the root is not below it."""

    def build(value):
        net, last = tf.Module(), None
        net.blocks = []
        for number in range(300):
            block = tf.Module()
            block.net, block.before = net, last
            block.w = tf.Variable(value + number)
            net.blocks.append(block)
            last = block
        return net

    path = tf.train.Checkpoint(net=build(1)).write(str(tmp_path / "ckpt"))
    net = build(0)
    report = tfckpt.restore(path, net=net)
    assert [step.name for step in report.plan.assignments][:1] == ["net/blocks/0/w"]
    assert [int(block.w) for block in net.blocks] == [*range(1, 301)]
