"""TF1's checkpoints: numbers of automatic layers, optimizers, parts, what Keras built."""

import itertools
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from zoo.graphs import dense, save, v1
from zoo.optimizers import compiled
from zoo.pairs.build import start_anew
from zoo.pasted import equal

import tfckpt

train = v1.train

# --- Numbers of automatic layers; lines of refusals are pasted in `zoo/everyday/tf1.py` ---

SIZES = (3, 4, 5, 2)
SHAPES = [shape for both in itertools.pairwise(SIZES) for shape in (both, both[1:])]


def network(k, *names, units=SIZES[1:]):
    made = [k.layers.Dense(n, name=name) for n, name in zip(units, names, strict=False)]
    return k.Sequential([k.Input((3,)), *made])


def pair(k):
    return network(k, None, None, units=(3, 3))


def backwards(k):
    """Keras and TF1 number layers as they are made; a functional model lists them by place."""
    first, second = k.layers.Dense(3), k.layers.Dense(3)
    inputs = k.Input((3,))
    return k.Model(inputs, first(second(inputs)))


def second_of_the_process(k):
    """Its names are other layers' in the file."""
    pair(k)
    return pair(k)


def attributes(k):
    made = k.Model()
    for name in ("dense", "dense_1"):
        layer = k.layers.Dense(3)
        layer.build((None, 3))
        setattr(made, name, layer)
    made.built = True
    return made


# Layers in the file, a model, a policy; the scopes that its layers hold then, or the refusal.
PARTLY = {"expect_partial": True}
NUMBERED = {
    "another number": ("dense dense_1 dense_2", pair, PARTLY, "2 layers of that class"),
    "by name": ("dense dense_1 dense_2", pair, {**PARTLY, "match": "name"}, ["dense", "dense_1"]),
    "another model's": (
        *("dense dense_1 dense_2 dense_3", second_of_the_process),
        *(PARTLY, "is an automatic name"),
    ),
    "backwards": ("dense_1 dense_2", backwards, {"assert": "consumed"}, ["dense_2", "dense_1"]),
    "attributes": ("dense_1 dense_2", attributes, {"include": ["**"]}, "model/"),
}


@pytest.mark.parametrize("case", NUMBERED)
def test_layers_that_tf1_numbered(case, flavour, tmp_path):
    """Each layer holds what it is to have, and no other value has changed."""
    scopes, make, policy, expected = NUMBERED[case]

    def build():
        for scope in scopes.split():
            dense(tf.ones((1, 3)), 3, scope)

    saved = save(tmp_path / "model.ckpt-7", build)
    start_anew(flavour)
    model = make(flavour)
    before = model.get_weights()
    if isinstance(expected, str):
        with pytest.raises(tfckpt.RefusedError, match=expected):
            tfckpt.restore(saved.path, model, policy=policy)
        equal(before, model.weights)
    else:
        tfckpt.restore(saved.path, model, policy=policy)
        equal([value for scope in expected for value in saved.of(scope)], model.weights)


def test_which_of_several_scopes_it_is_is_asked_once(tmp_path):
    places = ("eval", "target", "worker_0")
    shapes = [
        (f"{place}/l{at // 2}/{'wb'[at % 2]}{at // 2}", (1, *shape)[-2:])
        for place in places
        for at, shape in enumerate(SHAPES)
    ]
    saved = save(
        tmp_path / "model.ckpt-7",
        lambda: [v1.Variable(tf.zeros(shape), name=name) for name, shape in shapes],
    )
    made = network(keras, None, None, None)
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(saved.path, made)
    text = str(refused.value).partition("once you decide:")[2]
    question = "model may be one of model/eval, model/target, model/worker_0 of the checkpoint"
    assert question in " ".join(text.split())
    answers = text.split("    → if model is the checkpoint's ")[1:]
    assert [each.partition(":")[0] for each in answers] == [f"model/{place}" for place in places]
    lines = answers[1].partition(":\n")[2]
    tfckpt.restore(saved.path, made, policy=yaml.safe_load(textwrap.dedent(lines)))
    meant = [value for name, value in saved.values.items() if name.startswith("target")]
    equal(map(np.squeeze, meant), made.weights)


# --- Optimizers stay in the file ---

OPTIMIZERS = {
    "adam": lambda: train.AdamOptimizer(0.05),
    "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
    "rmsprop": lambda: train.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
    "adagrad": lambda: train.AdagradOptimizer(0.05),
    "adagrad_da": lambda: train.AdagradDAOptimizer(0.05, train.get_or_create_global_step()),
    "adadelta": lambda: train.AdadeltaOptimizer(0.5),
    "ftrl": lambda: train.FtrlOptimizer(0.05),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.05),
    "legacy": lambda: tf_keras.optimizers.legacy.Adam(0.05),
}


@pytest.mark.parametrize(
    ("name", "k"), [*zip(OPTIMIZERS, itertools.cycle((keras, tf_keras)), strict=False)]
)
def test_an_optimizer_of_tf1_stays_in_the_file_and_is_named(name, k, tmp_path, caplog):
    """The weights need no policy; the model's optimizer is as it was."""

    def build():
        out = dense(tf.ones((1, 3)), 2, "out")
        weights, average = v1.trainable_variables(), train.ExponentialMovingAverage(0.9)
        with v1.variable_scope("train"):
            gradients = tf.gradients(tf.reduce_sum(out), weights)
            OPTIMIZERS[name]().apply_gradients(zip(gradients, weights, strict=True))
        average.apply(weights)
        train.get_or_create_global_step()

    saved = save(tmp_path / "ckpt-5", build)
    of_optimizer = len(saved.values) - 2 * 2  # weights and their averages
    for optimizer in (None, k.optimizers.Adam(), k.optimizers.SGD(0.1, momentum=0.9)):
        made = network(k, "out", units=(2,))
        if optimizer:
            compiled(made, optimizer)
        state = [v.numpy() for v in optimizer.variables] if optimizer else []
        tfckpt.restore(saved.path, made)
        equal(saved.of("out"), made.weights)
        equal(state, optimizer.variables if optimizer else [])
        left = f"{of_optimizer} values only in the checkpoint: state of an optimizer of TF1"
        assert left in caplog.text
        caplog.clear()


def test_sharded_files_and_parted_variables(tmp_path):
    def build():
        with v1.device("/cpu:0"):
            out = dense(tf.ones((1, 8)), 4, "first", partitioner=v1.fixed_size_partitioner(3))
        with v1.device("/cpu:1"):
            out = dense(out, 2, "head")
        train.AdamOptimizer().minimize(tf.reduce_sum(out))

    saved = save(tmp_path / "ckpt-5", build, sharded=True)

    layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(2, name="head")]
    tfckpt.restore(saved.path, keras.Sequential([keras.Input((8,)), *layers]))
    whole = np.concatenate([saved.values[f"first/kernel/part_{n}"] for n in range(3)])
    equal([whole, saved.values["head/kernel"]], [layer.kernel for layer in layers])


def test_what_keras_built_in_graph_mode(tmp_path):
    """Recurrent layers, attention and depthwise convolutions, whose scopes are no attributes."""

    def layers(k):
        return [
            k.Input((5, 4)),
            k.layers.LSTM(3, return_sequences=True),
            k.layers.Bidirectional(k.layers.GRU(3, return_sequences=True)),
            k.layers.Reshape((5, 6, 1)),
            k.layers.DepthwiseConv2D(2),
            k.layers.SeparableConv2D(2, 2),
            k.layers.BatchNormalization(),
            k.layers.Flatten(),
            k.layers.Dense(2),
        ]

    saved = save(tmp_path / "ckpt", lambda: tf_keras.Sequential(layers(tf_keras)))
    made = keras.Sequential(layers(keras))
    tfckpt.restore(saved.path, made, policy={"assert": "consumed"})
    equal(saved.values.values(), [v for v in made.variables if "seed" not in v.path])


def after_a_step(value):
    """A model, its optimizer, and what has to run in graph mode."""
    made = tf_keras.Model(name="pair")  # its layers' attributes are not what they are called
    made.one = tf_keras.layers.Dense(3, name="front")
    made.other = tf_keras.layers.Dense(2, name="back")
    with tf.GradientTape() as tape, tf.name_scope("pair/"):
        loss = tf.reduce_sum(made.other(made.one(tf.fill((1, 2), value))))
    made.built = True
    optimizer = tf_keras.optimizers.legacy.Adam(value)
    weights = made.trainable_variables
    gradients = tape.gradient(loss, weights)
    return made, optimizer, optimizer.apply_gradients(zip(gradients, weights, strict=True))


def held(made, optimizer):
    """Values by the order of the model's variables, slots and hyperparameters included."""
    slots = [optimizer.get_slot(v, slot) for v in made.variables for slot in ("m", "v")]
    hyper = [optimizer._hyper[name] for name in sorted(optimizer._hyper)]
    return [v.numpy() for v in (*made.variables, *slots, *hyper, optimizer.iterations)]


def test_names_that_all_fit_decide_for_the_optimizers_values_too(tmp_path):
    """A model that was built as in the graph has the variables' names of the file, all of them."""
    with tf.Graph().as_default(), v1.Session() as session:
        _, _, step = after_a_step(0.5)
        session.run(v1.global_variables_initializer())
        session.run(step)
        path = train.Saver().save(session, str(tmp_path / "ckpt"))
    restored = []
    for library in (tf.train, tfckpt):
        made, optimizer, _ = after_a_step(-0.25)
        more = tf.Variable(1.0, name="not_in_the_file")
        library.Checkpoint(model=made, optimizer=optimizer).read(path).assert_consumed()
        restored.append(held(made, optimizer))
        status = library.Checkpoint(model=made, optimizer=optimizer, more=more).read(path)
        with pytest.raises(AssertionError):
            status.assert_existing_objects_matched()
    equal(*restored)
