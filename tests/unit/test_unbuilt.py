"""Keras objects without variables: never left at their initial values by a restore that passes.

Plain TensorFlow saves what is restored here, under a keyword of its own choice.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
LATE = "has no variables yet, but the checkpoint has"


@pytest.fixture
def net(flavour) -> Callable[[], Any]:
    """A subclassed model, which has no variables before its first call."""

    class Net(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = flavour.layers.Dense(3, name="body")
            self.head = flavour.layers.Dense(2, name="head")

        def call(self, inputs: Any) -> Any:
            return self.head(self.body(inputs))

    return Net


@pytest.fixture
def built(net) -> Any:
    model = net()
    model(X)
    return model


@pytest.fixture
def saved(built, tmp_path) -> str:
    """Plain TensorFlow's checkpoint of ``net=`` and a step."""
    return str(tf.train.Checkpoint(net=built, step=tf.Variable(7)).save(str(tmp_path / "ckpt")))


def config(path: str, **policy: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"path": path, "policy": policy}}


def given(net: Callable[[], Any], flavour: Any) -> dict[str, Callable[[], dict[str, Any]]]:
    """Ways to give what has no variables under another keyword than it was saved under."""

    class Holder(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = {"models": [net()]}
            self.gain = tf.Variable(1.0)

    class Renamed(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.add_weight(shape=(), name="scale")
            self.inner = net()

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs) * self.scale

    return {
        "model": lambda: {"model": net()},
        "beside what matches": lambda: {"model": net(), "step": tf.Variable(0)},
        "list": lambda: {"models": [net(), net()]},
        "dict": lambda: {"models": {"a": net()}},
        "module": lambda: {"module": Holder()},
        "partly built": lambda: {"model": Renamed(), "step": tf.Variable(0)},
        "layer": lambda: {"layer": flavour.layers.Dense(2), "step": tf.Variable(0)},
    }


WAYS = ("model", "beside what matches", "list", "dict", "module", "partly built", "layer")


@pytest.mark.parametrize("how", ["restore", "read"])
@pytest.mark.parametrize("way", WAYS)
def test_under_another_keyword_it_is_not_left_random(flavour, net, saved, way, how) -> None:
    objects = given(net, flavour)[way]()
    with pytest.raises(tfckpt.NotBuiltError) as error:
        getattr(tfckpt.Checkpoint(**objects), how)(saved)
    message = str(error.value)
    assert "no variables yet, but the checkpoint has" in message
    assert "4 values that may belong to it, the first is 'net/body/bias'" in message
    assert "once on a batch before restoring" in message
    if "step" in objects:
        assert int(objects["step"]) == 0


def test_once_called_it_is_restored(net, built, saved) -> None:
    model = net()
    model(X)
    tfckpt.Checkpoint(model=model).restore(saved)
    np.testing.assert_array_equal(model(X).numpy(), built(X).numpy())


def test_a_renamed_attribute_of_a_built_model(flavour, tmp_path) -> None:
    class Outer(flavour.Model):
        def __init__(self, attribute: str) -> None:
            super().__init__()
            self.stem = flavour.layers.Dense(3)
            setattr(self, attribute, flavour.layers.Dense(2))
            self.attribute = attribute

        def call(self, inputs: Any, features: bool = False) -> Any:
            found = self.stem(inputs)
            return found if features else getattr(self, self.attribute)(found)

    source, target = Outer("old_head"), Outer("head")
    source(X)
    target(X, features=True)
    path = tf.train.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    before = target.stem.kernel.numpy()
    with pytest.raises(tfckpt.NotBuiltError, match=r"model/head .* 2 values that may belong to it"):
        tfckpt.Checkpoint(model=target).restore(path).expect_partial()
    np.testing.assert_array_equal(target.stem.kernel.numpy(), before)


def test_what_leaves_the_model_elsewhere_is_not_for_it(flavour, net, built, tmp_path) -> None:
    """A head that the checkpoint has more says nothing about another object."""
    source, target = (flavour.Sequential([flavour.Input((4,))]) for _ in range(2))
    source.add(flavour.layers.Dense(3, name="body"))
    target.add(flavour.layers.Dense(3, name="body"))
    source.add(flavour.layers.Dense(2, name="head"))
    path = tf.train.Checkpoint(first=source).save(str(tmp_path / "ckpt"))
    report = tfckpt.Checkpoint(first=target, second=net()).restore(path).report
    assert report.counts[tfckpt.Status.LOADED] == 3
    np.testing.assert_array_equal(target.layers[0].kernel.numpy(), source.layers[0].kernel.numpy())


def test_a_layer_without_weights_is_none_of_them(flavour, built, saved) -> None:
    class Outer(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.body = flavour.layers.Dense(3)
            self.unused = flavour.layers.Activation("relu")

        def call(self, inputs: Any) -> Any:
            return self.body(inputs)

    model = Outer()
    model(X)
    tfckpt.Checkpoint(net=model).restore(saved).expect_partial()
    np.testing.assert_array_equal(model.body.kernel.numpy(), built.body.kernel.numpy())


def test_an_optimizer_under_another_keyword(flavour, tmp_path) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2)])
    solver = flavour.optimizers.Adam()
    solver.build(model.trainable_variables)
    path = tf.train.Checkpoint(solver=solver, step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    step, optimizer = tf.Variable(0), flavour.optimizers.Adam()
    with pytest.raises(
        tfckpt.NotBuiltError, match=r"opt \(Adam\) .* 4 values that may belong to it"
    ):
        tfckpt.Checkpoint(opt=optimizer, step=step).restore(path)
    assert int(step) == 0


def test_restore_or_initialize_does_not_pass_over_it(net, saved) -> None:
    directory = saved.rpartition("/")[0]
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=net()), directory, max_to_keep=3)
    with pytest.raises(tfckpt.NotBuiltError, match="4 values that may belong to it"):
        manager.restore_or_initialize()


@pytest.mark.parametrize("policy", [{}, {"on_unexpected": "ignore"}, {"expect_partial": True}])
def test_by_config(net, saved, policy) -> None:
    with pytest.raises(tfckpt.NotBuiltError, match="4 values that may belong to it"):
        tfckpt.restore(config(saved, **policy), model=net(), step=tf.Variable(0))


@pytest.mark.parametrize("kind", ["weights.h5", "saved_model", "tf1"])
def test_other_formats(flavour, net, built, tmp_path, kind) -> None:
    if kind == "weights.h5":
        path = str(tmp_path / "net.weights.h5")
        built.save_weights(path)
    elif kind == "saved_model":
        path = str(tmp_path / "exported")
        built.export(path)
    else:
        names = {f"scope/{w}": tf.Variable(v) for w, v in (("w", X), ("b", X[0]))}
        path = str(tf.compat.v1.train.Saver(names).save(None, str(tmp_path / "tf1" / "model")))
    with pytest.raises(tfckpt.NotBuiltError, match=LATE):
        tfckpt.Checkpoint(model=net()).restore(path)


def test_nothing_but_the_counter_is_refused(net, tmp_path) -> None:
    path = tf.train.Checkpoint(step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.RefusedError, match="no value would be restored"):
        tfckpt.Checkpoint(model=net()).restore(path)


def test_a_model_without_any_weights_restores_what_it_saved(flavour, tmp_path) -> None:
    model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Flatten()])
    for checkpoint in (tf.train.Checkpoint, tfckpt.Checkpoint):
        path = checkpoint(model=model).save(str(tmp_path / checkpoint.__module__ / "ckpt"))
        tfckpt.Checkpoint(model=model).restore(path).assert_consumed()


def test_a_plain_module_may_still_come_later(tmp_path) -> None:
    """As in plain TensorFlow, whose delayed restoration is sound for what is no Keras object."""
    source = tf.Module()
    source.value = tf.Variable([1.0, 2.0])
    path = tf.train.Checkpoint(module=source).save(str(tmp_path / "ckpt"))
    target = tf.Module()
    tfckpt.Checkpoint(module=target).restore(path)
    target.value = tf.Variable([0.0, 0.0])
    np.testing.assert_array_equal(target.value.numpy(), [1.0, 2.0])


NONE = (
    "{}(None): no checkpoint was given, so nothing is restored and training starts from the "
    "initial values (tf.train.latest_checkpoint returns None if it finds none)"
)


@pytest.mark.parametrize("how", ["restore", "read"])
def test_none_is_said_once_a_call(built, caplog, tmp_path, how) -> None:
    checkpoint = tfckpt.Checkpoint(model=built)
    nothing = tf.train.latest_checkpoint(str(tmp_path))
    plain = getattr(tf.train.Checkpoint(model=built), how)(nothing)
    with caplog.at_level("WARNING"):
        status = getattr(checkpoint, how)(nothing)
    assert [record.getMessage() for record in caplog.records] == [NONE.format(how)]
    assert type(status) is type(plain)


def test_in_graph_mode_none_is_tensorflows_own(caplog) -> None:
    with tf.Graph().as_default(), caplog.at_level("WARNING"):
        tfckpt.Checkpoint(step=tf.Variable(1)).restore(None)
    assert not caplog.records


# What a policy does not select needs no variables.


def trained(flavour: Any, *, steps: int = 1) -> Any:
    layers = flavour.layers.Dense(3, name="body"), flavour.layers.Dense(2, name="head")
    model = flavour.Sequential([flavour.Input((4,)), *layers])
    model.compile(flavour.optimizers.Adam(0.1), "mse")
    for _ in range(steps):
        model.train_on_batch(X, np.ones((2, 2)))
    return model


def written(model: Any, kind: str, directory: Path) -> str:
    path = str(directory / f"model{kind}")
    if kind == ".weights.h5":
        model.save_weights(path)
    elif kind:
        model.save(path)
    else:
        path = tf.train.Checkpoint(model=model).save(path)
    return path


def state(optimizer: Any) -> list[Any]:
    variables = optimizer.variables
    return variables() if callable(variables) else variables


@pytest.mark.parametrize("kind", ["", ".weights.h5", ".h5", ".keras"])
@pytest.mark.parametrize(
    "policy",
    [{"include": ["model/**"]}, {"exclude": ["optimizer/**"]}],
    ids=["include", "exclude"],
)
def test_weights_alone_need_no_optimizer(flavour, tmp_path, kind, policy) -> None:
    source, target = trained(flavour), trained(flavour, steps=0)
    before = len(state(target.optimizer))
    path = written(source, kind, tmp_path)
    expected = source.get_weights()
    tfckpt.restore(config(path, **policy, expect_partial=True), model=target)
    for one, other in zip(target.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(state(target.optimizer)) == before


@pytest.mark.parametrize("kind", [".weights.h5", ".h5"])
def test_our_own_config_of_keras_2_weights(flavour, tmp_path, monkeypatch, kind) -> None:
    source, target = trained(flavour), trained(flavour, steps=0)
    monkeypatch.setenv("SOURCE", written(source, kind, tmp_path))
    tfckpt.restore("configs/keras2_weights.yaml", model=target)
    for one, other in zip(target.get_weights(), source.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["", ".weights.h5", ".h5", ".keras"])
def test_state_that_is_selected_builds_the_optimizer(flavour, tmp_path, kind) -> None:
    """Also where the file does not say whose slots it has: Keras itself leaves them out then."""
    source, target = trained(flavour), trained(flavour, steps=0)
    path = written(source, kind, tmp_path)
    tfckpt.restore(config(path, expect_partial=True), model=target)
    own, theirs = state(target.optimizer), state(source.optimizer)
    assert len(own) == len(theirs)
    for one, other in zip(own, theirs, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("kind", ["", ".weights.h5", ".h5", ".keras"])
def test_a_reset_gives_a_new_optimizer(flavour, tmp_path, kind) -> None:
    source, target = trained(flavour), trained(flavour, steps=0)
    path = written(source, kind, tmp_path)
    reset = {"slots": "reset", "iterations": "reset"}
    tfckpt.restore(config(path, optimizer=reset, expect_partial=True), model=target)
    target.optimizer.build(target.trainable_variables)
    assert int(target.optimizer.iterations) == 0
    rate = float(target.optimizer.learning_rate)
    found = [np.ravel(v.numpy()).tolist() for v in state(target.optimizer)]
    assert {*itertools.chain(*found)} <= {0.0, rate}
    np.testing.assert_array_equal(target.get_weights()[0], source.get_weights()[0])


def test_an_excluded_part_needs_no_variables(flavour, net, tmp_path) -> None:
    source, target = net(), net()
    source(X)
    target.body(X)
    path = tf.train.Checkpoint(net=source).save(str(tmp_path / "ckpt"))
    policy = {"exclude": ["model/head/**"], "on_missing": "error"}
    report = tfckpt.restore(config(path, **policy), model=target)
    assert report.counts[tfckpt.Status.EXCLUDED] == 2
    np.testing.assert_array_equal(target.body.kernel.numpy(), source.body.kernel.numpy())
    assert not target.head.variables


def test_another_object_that_is_left_out_needs_none(flavour, net, built, tmp_path) -> None:
    first, second = trained(flavour, steps=0), net()
    path = tf.train.Checkpoint(first=trained(flavour), second=built).save(str(tmp_path / "ckpt"))
    policy = {"include": ["first/**", "save_counter"], "exclude": ["first/optimizer/**"]}
    tfckpt.restore(config(path, **policy, expect_partial=True), first=first, second=second)
    assert not second.variables


def test_what_is_selected_still_needs_them(flavour, net, saved) -> None:
    with pytest.raises(tfckpt.NotBuiltError, match=LATE):
        tfckpt.restore(config(saved, include=["net/**"]), net=net(), other=trained(flavour))


def both_ways(k: Any, name: str, *, stateful: bool) -> Any:
    """Of a Bidirectional layer, tf_keras keeps the layer that it was made from, never built."""
    batch = {"batch_shape" if k.__name__ == "keras" else "batch_input_shape": (2, 5, 3)}
    layer = k.layers.Bidirectional(k.layers.LSTM(4, stateful=stateful), name=name)
    model = k.Sequential([k.layers.InputLayer(**batch), layer, k.layers.Dense(2, name="out")])
    model(np.ones((2, 5, 3), "float32"))
    return model


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("kind", ["tensorflow", ".weights.h5", ".h5"])
def test_what_a_layer_only_copied_needs_none(flavour, tmp_path, kind, stateful) -> None:
    model = both_ways(flavour, "both", stateful=stateful)
    path = str(tmp_path / f"saved{kind.removeprefix('tensorflow')}")
    if kind == "tensorflow":
        tf.train.Checkpoint(model=model).write(path)
    elif kind == ".h5" and flavour.__name__ == "keras":
        model.save(path)
    else:
        model.save_weights(path)
    other = both_ways(flavour, "mine", stateful=stateful)
    try:
        tfckpt.restore(path, other)
    except tfckpt.RefusedError as error:  # it has another name
        by_position = {"match": "structure", "on_missing": "warn", "on_unexpected": "warn"}
        tfckpt.restore(path, other, policy=error.suggestion or by_position)
    for one, two in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_array_equal(two.numpy(), one.numpy())


def test_all_that_lack_variables_are_in_one_message(net, built, flavour, tmp_path) -> None:
    optimizer = flavour.optimizers.Adam()
    optimizer.build(built.trainable_variables)
    saved = {"first": built, "second": built, "optimizer": optimizer}
    path = tf.train.Checkpoint(**saved).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.NotBuiltError) as error:
        tfckpt.Checkpoint(first=net(), second=net(), optimizer=flavour.optimizers.Adam()).read(path)
    lines = str(error.value).splitlines()
    assert lines[0] == "3 objects have no variables yet, but the checkpoint has values:"
    assert [line.split()[0] for line in lines[1:4]] == ["first", "second", "optimizer"]
    assert lines[4].strip().startswith("call the model once on a batch before restoring: model(")
    assert lines[5].strip().startswith("call optimizer.build(model.trainable_variables)")
