"""TF1's checkpoints into Keras 3 and into plain variables: the everyday cases, a few lines each.

Files are written in graph mode by ``tf.compat.v1.train.Saver``, with an optimizer's state in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from zoo.graphs import assert_holds, dense, restore, save, v1

import tfckpt

if TYPE_CHECKING:
    from zoo.graphs import Saved

BOTH = pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)


def trained() -> None:
    """Two hidden layers and a head, trained by Adam."""
    hidden = dense(dense(v1.placeholder(tf.float32, (None, 3)), 4, "first"), 5, "second")
    loss = tf.reduce_sum(dense(hidden, 2, "head"))
    v1.train.AdamOptimizer().minimize(loss, v1.train.get_or_create_global_step())


@pytest.fixture(scope="module", params=[v1.train.SaverDef.V2, v1.train.SaverDef.V1], ids="21")
def saved(request: Any, tmp_path_factory: Any) -> Saved:
    return save(tmp_path_factory.mktemp("tf1") / "model.ckpt-7", trained, version=request.param)


def network(keras: Any, *names: str, units: tuple[int, ...] = (4, 5, 2)) -> Any:
    layers = [keras.layers.Dense(n, name=name) for n, name in zip(units, names, strict=True)]
    return keras.Sequential([keras.Input((3,)), *layers])


@BOTH
def test_a_part_of_the_variables(tmp_path, saved, flavour) -> None:
    model = network(flavour, "first", "second", "head")
    head = model.get_layer("head").get_weights()
    restore(tmp_path, saved, 'include: ["model/first/**", "model/second/**"]', model=model)
    assert_holds(model, saved, first="first", second="second")
    np.testing.assert_equal(model.get_layer("head").get_weights(), head)


def test_a_variable_of_another_name(tmp_path, saved) -> None:
    model = network(keras, "first", "second", "head_x")
    policy = """
        include: ["model/**"]
        rename: [{checkpoint: "model/head/**", model: "model/head_x/**"}]
    """
    restore(tmp_path, saved, policy, model=model)
    assert_holds(model, saved, first="first", second="second", head_x="head")


def test_one_plain_variable_of_another_name(tmp_path) -> None:
    def three() -> None:
        for name in ("v1", "v2", "v3"):
            v1.get_variable(name, (3,))

    saved = save(tmp_path / "ckpt", three)
    v3_x = tf.Variable(tf.zeros(3))
    policy = """
        include: [v3_x]
        rename: [{checkpoint: v3, model: v3_x}]
        on_unexpected: ignore
    """
    restore(tmp_path, saved, policy, v3_x=v3_x)
    np.testing.assert_array_equal(v3_x.numpy(), saved.values["v3"])


def test_a_model_as_a_part_of_a_larger_one(tmp_path, saved) -> None:
    inputs = keras.Input((3,))
    encoder = network(keras, "first", "second", "head")
    encoder.name = "encoder"
    model = keras.Model(inputs, keras.layers.Dense(7, name="top")(encoder(inputs)))
    policy = """
        include: ["model/encoder/**"]
        rename: [{checkpoint: "model/**", model: "model/encoder/**"}]
    """
    restore(tmp_path, saved, policy, model=model)
    assert_holds(encoder, saved, first="first", second="second", head="head")


def test_a_part_of_a_larger_model_by_itself(tmp_path) -> None:
    def scoped() -> None:
        with v1.variable_scope("tower/net"):
            dense(dense(tf.zeros((1, 3)), 4, "first"), 2, "head")

    saved = save(tmp_path / "ckpt", scoped)
    model = network(keras, "first", "head", units=(4, 2))
    policy = 'rename: [{checkpoint: "model/tower/net/**", model: "model/**"}]'
    restore(tmp_path, saved, policy, model=model)
    assert_holds(model, saved, first="tower/net/first", head="tower/net/head")


def test_all_variables_renamed(tmp_path, saved) -> None:
    model = network(keras, "block_1", "block_2", "logits")
    policy = """
        include: ["model/**"]
        rename:
          - {checkpoint: "model/first/**", model: "model/block_1/**"}
          - {checkpoint: "model/second/**", model: "model/block_2/**"}
          - {checkpoint: "model/head/**", model: "model/logits/**"}
    """
    restore(tmp_path, saved, policy, model=model)
    assert_holds(model, saved, block_1="first", block_2="second", logits="head")


@BOTH
def test_all_but_the_last_layer(tmp_path, saved, flavour) -> None:
    model = network(flavour, "first", "second", "head", units=(4, 5, 9))
    head = model.get_layer("head").get_weights()
    policy = """
        include: ["model/**"]
        exclude: ["model/head/**"]
    """
    restore(tmp_path, saved, policy, model=model)
    assert_holds(model, saved, first="first", second="second")
    np.testing.assert_equal(model.get_layer("head").get_weights(), head)


@BOTH
def test_training_goes_on_with_adams_state(tmp_path, flavour) -> None:
    """The next step is the one that TF1 would have made, with the same rates."""
    path = str(tmp_path / "ckpt")
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    with tf.Graph().as_default(), v1.Session() as session:
        inputs = v1.placeholder(tf.float32, (None, 3))
        loss = tf.reduce_mean(tf.square(dense(inputs, 4, "first") - 1.0))
        optimizer = v1.train.AdamOptimizer(0.01, epsilon=1e-7)
        step = optimizer.minimize(loss, v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(step, {inputs: x})
        v1.train.Saver().save(session, path)
        for _ in range(5):
            session.run(step, {inputs: x})
        expected = session.run(v1.trainable_variables())
    model = network(flavour, "first", units=(4,))
    optimizer = flavour.optimizers.Adam(0.01, epsilon=1e-7)
    model.compile(optimizer, loss="mse")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nrestore: {{path: {path}, policy: tf1}}\npolicies:\n  tf1:\n"
        "    optimizer: {hyperparameters: config}\n"
        '    exclude_checkpoint: ["optimizer/beta*_power"]\n'
    )
    tfckpt.restore(config, model=model, optimizer=optimizer)
    for _ in range(5):
        model.train_on_batch(x, np.ones((8, 4), "float32"))
    for variable, value in zip(model.get_layer("first").weights, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-6, atol=1e-6)


def test_momentum_of_tf1_is_not_taken_for_keras_whose_means_something_else(tmp_path) -> None:
    def build() -> None:
        loss = tf.reduce_sum(dense(tf.ones((1, 3)), 4, "first"))
        v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)

    saved = save(tmp_path / "ckpt", build)
    model = network(keras, "first", units=(4,))
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    with pytest.raises(tfckpt.RefusedError, match="'momentum' in the checkpoint"):
        restore(tmp_path, saved, 'include: ["**"]', model=model, optimizer=optimizer)


def test_what_keras_built_in_graph_mode(tmp_path) -> None:
    """Recurrent layers, attention and depthwise convolutions, whose scopes are no attributes."""

    def layers(keras: Any) -> list[Any]:
        return [
            keras.Input((5, 4)),
            keras.layers.LSTM(3, return_sequences=True),
            keras.layers.Bidirectional(keras.layers.GRU(3, return_sequences=True)),
            keras.layers.Reshape((5, 6, 1)),
            keras.layers.DepthwiseConv2D(2),
            keras.layers.SeparableConv2D(2, 2),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]

    def build() -> None:
        tf_keras.Sequential(layers(tf_keras))

    saved = save(tmp_path / "ckpt", build)
    model = keras.Sequential(layers(keras))
    restore(tmp_path, saved, "assert: consumed", model=model)
    variables = [v for v in model.variables if "seed" not in v.path]
    assert len(variables) == len(saved.values)
    for variable, value in zip(variables, saved.values.values(), strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


@BOTH
def test_tfckpt_checkpoint_restores_it_by_name(saved, flavour) -> None:
    model = network(flavour, "first", "second", "head")
    status = tfckpt.Checkpoint(model=model).restore(saved.path)
    status.assert_existing_objects_matched().expect_partial()
    assert_holds(model, saved, first="first", second="second", head="head")


def test_tfckpt_checkpoint_restores_plain_variables_by_their_own_names_too(saved) -> None:
    kernel = tf.Variable(tf.zeros((3, 4)), name="first/kernel")
    module = tf.Module()
    module.bias = tf.Variable(tf.zeros(4), name="first/bias")
    tfckpt.Checkpoint(weights=kernel, module=module).restore(saved.path).expect_partial()
    np.testing.assert_array_equal(kernel.numpy(), saved.values["first/kernel"])
    np.testing.assert_array_equal(module.bias.numpy(), saved.values["first/bias"])


def test_a_subclassed_model_whose_variables_names_are_the_keys(tmp_path) -> None:
    """What TensorFlow restores by name; the canonical names are the attributes'."""

    class Network(tf_keras.Model):
        def __init__(self) -> None:
            super().__init__(name="network")
            self.hidden = tf_keras.layers.Dense(4, name="inside")
            self.last = tf_keras.layers.Dense(2, name="outside")

        def call(self, x: Any) -> Any:
            return self.last(self.hidden(x))

    def build() -> None:
        Network()(tf.ones((1, 3)))

    saved = save(tmp_path / "ckpt", build)
    model = Network()
    model(tf.ones((1, 3)))
    plain, report = Network(), None
    plain(tf.ones((1, 3)))
    tf.train.Checkpoint(model=plain).restore(saved.path)
    report = restore(tmp_path, saved, "assert: consumed", model=model)
    assert "model/hidden/kernel" in str(report)
    np.testing.assert_equal(model.get_weights(), list(saved.values.values()))
    np.testing.assert_equal(model.get_weights(), plain.get_weights())


@pytest.mark.parametrize("version", [v1.train.SaverDef.V2, v1.train.SaverDef.V1], ids="21")
def test_sharded_files_and_parted_variables_with_their_slots(tmp_path, version) -> None:
    def build() -> None:
        with v1.device("/cpu:0"):
            out = dense(tf.ones((1, 8)), 4, "first", partitioner=v1.fixed_size_partitioner(3))
        with v1.device("/cpu:1"):
            out = dense(out, 2, "head")
        v1.train.AdamOptimizer().minimize(tf.reduce_sum(out))

    saved = save(tmp_path / "ckpt-5", build, version=version, sharded=True, devices={"CPU": 2})

    def whole(name: str, slot: str = "") -> Any:
        parts = [saved.values[f"{name}/part_{n}{slot}"] for n in range(3)]
        return np.concatenate(parts)

    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(4, name="first"), keras.layers.Dense(2, name="head")]
    )
    optimizer = keras.optimizers.Adam()
    policy = """
        on_missing: ignore
        on_unexpected: ignore
    """
    restore(tmp_path, saved, policy, model=model, optimizer=optimizer)
    first, head = model.get_layer("first"), model.get_layer("head")
    np.testing.assert_array_equal(first.kernel.numpy(), whole("first/kernel"))
    np.testing.assert_array_equal(head.kernel.numpy(), saved.values["head/kernel"])

    def slot(ending: str) -> Any:
        (found,) = (v.numpy() for v in optimizer.variables if v.name.endswith(ending))
        return found

    np.testing.assert_array_equal(slot("first_kernel_momentum"), whole("first/kernel", "/Adam"))
    head_v = saved.values["head/kernel/Adam_1"]
    np.testing.assert_array_equal(slot("head_kernel_velocity"), head_v)


def test_variables_of_no_name_there_are_refused(saved) -> None:
    checkpoint = tfckpt.Checkpoint(elsewhere=tf.Variable(tf.zeros(4)))
    with pytest.raises(tfckpt.RefusedError, match="no value would be restored"):
        checkpoint.restore(saved.path)


def test_several_models_are_told_by_the_first_scope(tmp_path) -> None:
    def build() -> None:
        with v1.variable_scope("generator"):
            dense(tf.ones((1, 3)), 4, "first")
        with v1.variable_scope("discriminator"):
            dense(tf.ones((1, 3)), 4, "first")

    saved = save(tmp_path / "ckpt", build)
    models = {name: network(keras, "first", units=(4,)) for name in ("generator", "discriminator")}
    restore(tmp_path, saved, "assert: consumed", **models)
    for name, model in models.items():
        assert_holds(model, saved, first=f"{name}/first")


class Pair(tf_keras.Model):
    """Its layers' attributes are not what they are called."""

    def __init__(self) -> None:
        super().__init__(name="pair")
        self.one = tf_keras.layers.Dense(3, name="front")
        self.other = tf_keras.layers.Dense(2, name="back")

    def call(self, inputs: Any) -> Any:
        return self.other(self.one(inputs))


def pair_after_a_step(value: float) -> tuple[Any, Any, Any]:
    """A model, its optimizer, and what has to run in graph mode."""
    model = Pair()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.fill((1, 2), value)))
    optimizer = tf_keras.optimizers.legacy.Adam(value)
    weights = model.trainable_variables
    gradients = tape.gradient(loss, weights)
    return model, optimizer, optimizer.apply_gradients(zip(gradients, weights, strict=True))


def held(model: Any, optimizer: Any) -> list[np.ndarray]:
    """Values by the order of the model's variables, slots and hyperparameters included."""
    slots = [optimizer.get_slot(v, slot) for v in model.variables for slot in ("m", "v")]
    hyper = [optimizer._hyper[name] for name in sorted(optimizer._hyper)]
    return [v.numpy() for v in (*model.variables, *slots, *hyper, optimizer.iterations)]


def test_names_that_all_fit_decide_for_the_optimizers_values_too(tmp_path) -> None:
    """A model that was built as in the graph has the variables' names of the file, all of them."""
    with tf.Graph().as_default(), v1.Session() as session:
        _, _, train = pair_after_a_step(0.5)
        session.run(v1.global_variables_initializer())
        session.run(train)
        path = v1.train.Saver().save(session, str(tmp_path / "ckpt"))
    restored = []
    for checkpoint in (tf.train.Checkpoint, tfckpt.Checkpoint):
        model, optimizer, _ = pair_after_a_step(-0.25)
        more = tf.Variable(1.0, name="not_in_the_file")
        status = checkpoint(model=model, optimizer=optimizer).read(path)
        status.assert_consumed()
        restored.append(held(model, optimizer))
        status = checkpoint(model=model, optimizer=optimizer, more=more).read(path)
        with pytest.raises(AssertionError):
            status.assert_existing_objects_matched()
    for theirs, ours in zip(*restored, strict=True):
        np.testing.assert_array_equal(ours, theirs)
