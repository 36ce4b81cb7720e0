"""TF1's checkpoints: variables, optimizers, and numbers of automatic layers."""

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


def test_automatic_layers_in_another_number_are_suspect(tmp_path) -> None:
    def build() -> None:
        dense(dense(dense(tf.ones((1, 3)), 3, "dense"), 3, "dense_1"), 3, "dense_2")

    saved = save(tmp_path / "ckpt", build)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), keras.layers.Dense(3)])
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError, match="2 layers of that class"):
        restore(tmp_path, saved, "expect_partial: true", model=model)
    np.testing.assert_equal(model.get_weights(), before)
    policy = "expect_partial: true\nmatch: name"
    restore(tmp_path, saved, policy, model=model)
    np.testing.assert_array_equal(model.get_weights()[0], saved.values["dense/kernel"])


def test_another_models_own_names_prove_nothing(tmp_path) -> None:
    """The second model of a process has names that are other layers' in the file."""

    def build() -> None:
        x = tf.ones((1, 3))
        for number in range(4):
            x = dense(x, 3, f"dense_{number}" if number else "dense")

    saved = save(tmp_path / "ckpt", build)
    tf_keras.backend.clear_session()
    for _ in range(2):
        model = tf_keras.Sequential([tf_keras.layers.Dense(3), tf_keras.layers.Dense(3)])
        model(tf.ones((1, 3)))
    assert model.layers[0].name == "dense_2"
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError, match="is an automatic name"):
        restore(tmp_path, saved, "expect_partial: true", model=model)
    np.testing.assert_equal(model.get_weights(), before)


def two_dense() -> None:
    x = dense(tf.ones((1, 3)), 3, "dense_1")
    dense(x, 3, "dense_2")


def test_layers_that_were_made_in_another_order_than_they_stand_in(tmp_path) -> None:
    """Keras and TF1 number layers as they are made; a functional model lists them by place."""
    saved = save(tmp_path / "ckpt", two_dense)
    first, second = keras.layers.Dense(3), keras.layers.Dense(3)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, first(second(inputs)))
    assert [layer.name for layer in model.layers[1:]] == [second.name, first.name]
    restore(tmp_path, saved, "assert: consumed", model=model)
    np.testing.assert_array_equal(first.kernel.numpy(), saved.values["dense_1/kernel"])
    np.testing.assert_array_equal(second.kernel.numpy(), saved.values["dense_2/kernel"])


class Attributes(keras.Model):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.parts = names
        for name in names:
            setattr(self, name, keras.layers.Dense(3))

    def call(self, x: Any) -> Any:
        for name in self.parts:
            x = getattr(self, name)(x)
        return x


@pytest.mark.parametrize("names", [("dense", "dense_1"), ("dense_0", "dense_1")])
def test_attributes_of_other_names_are_not_guessed(tmp_path, names) -> None:
    saved = save(tmp_path / "ckpt", two_dense)
    model = Attributes(*names)
    model(tf.ones((1, 3)))
    before = model.get_weights()
    with pytest.raises(tfckpt.RefusedError):
        restore(tmp_path, saved, 'include: ["**"]', model=model)
    np.testing.assert_equal(model.get_weights(), before)


train = v1.train
V1 = {
    "adam": lambda: train.AdamOptimizer(0.05),
    "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
    "rmsprop": lambda: train.RMSPropOptimizer(0.05, momentum=0.5),
    "rmsprop_centered": lambda: train.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
    "adagrad": lambda: train.AdagradOptimizer(0.05),
    "adadelta": lambda: train.AdadeltaOptimizer(0.5),
    "ftrl": lambda: train.FtrlOptimizer(0.05),
    "proximal_adagrad": lambda: train.ProximalAdagradOptimizer(0.05),
}
KERAS = {
    "adam": lambda: keras.optimizers.Adam(0.05, epsilon=1e-8),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05, epsilon=0.0),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5, epsilon=1e-8),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
}
X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
BEFORE, AFTER = 3, 4


def written(path: str, make: Any) -> list[Any]:
    """Train, save, train on: the weights at the end."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        loss = tf.reduce_mean(tf.square(dense(tf.constant(X), 2, "out") - 1.0))
        step = make().minimize(loss, train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        for _ in range(BEFORE):
            session.run(step)
        train.Saver().save(session, path, write_meta_graph=False)
        for _ in range(AFTER):
            session.run(step)
        return session.run(v1.trainable_variables())


def restore_values(path: str, **objects: Any) -> Any:
    policy = {"optimizer": {"hyperparameters": "config"}, "assert": "none"}
    return tfckpt.restore({"version": 1, "restore": {"path": path, "policy": policy}}, **objects)


@pytest.mark.parametrize("name", V1)
def test_the_same_optimizer_goes_on(tmp_path, name) -> None:
    expected = written(str(tmp_path / "ckpt"), V1[name])
    model = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(2, name="out")])
    optimizer = V1[name]()

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X) - 1.0))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step()  # which makes the slots
    report = restore_values(str(tmp_path / "ckpt"), model=model, optimizer=optimizer)
    slots = [step for step in report.plan.assignments if step.live.slot]
    assert len(slots) == 2 * len(optimizer.get_slot_names())
    for _ in range(AFTER):
        step()
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", KERAS)
def test_keras_3s_optimizer_goes_on(tmp_path, name) -> None:
    expected = written(str(tmp_path / "ckpt"), V1[name])
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    optimizer = KERAS[name]()
    optimizer.build(model.trainable_variables)
    restore_values(str(tmp_path / "ckpt"), model=model, optimizer=optimizer)
    assert int(optimizer.iterations.numpy()) == BEFORE
    for _ in range(AFTER):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(X) - 1.0))
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(gradients)
    for variable, value in zip(model.trainable_variables, expected, strict=True):
        np.testing.assert_allclose(variable.numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("writer", ["saver", "object"])
def test_tf1s_momentum_is_refused_by_keras(tmp_path, writer) -> None:
    path = str(tmp_path / "ckpt")
    if writer == "saver":
        written(path, V1["momentum"])
    else:
        other = tf_keras.Sequential([tf_keras.Input((3,)), tf_keras.layers.Dense(2, name="out")])
        momentum = V1["momentum"]()
        zeros = [tf.zeros_like(v) for v in other.trainable_variables]
        momentum.apply_gradients(zip(zeros, other.trainable_variables, strict=True))
        path = tf.train.Checkpoint(model=other, optimizer=momentum).write(path)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    with pytest.raises(tfckpt.RefusedError, match="'momentum' in the checkpoint"):
        restore_values(path, model=model, optimizer=optimizer)
