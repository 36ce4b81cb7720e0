"""Objects without variables, and what makes them after the restore."""

from __future__ import annotations

import logging
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


@pytest.fixture
def optimizer(flavour):
    return flavour.optimizers.SGD()


def test_a_variable_that_a_module_gets_later_is_restored(optimizer, tmp_path) -> None:
    module = tf.Module()
    module.v = tf.Variable(7.0)
    path = tfckpt.Checkpoint(module=module, optimizer=optimizer).save(tmp_path / "ckpt")
    later = tf.Module()
    later.w = tf.Variable(1.0)
    status = tfckpt.Checkpoint(module=later, optimizer=optimizer).restore(path)
    later.v = tf.Variable(0.0)
    assert (float(later.v), float(later.w)) == (7.0, 1.0)
    with pytest.raises(AssertionError, match="module/w"):
        status.assert_existing_objects_matched()


def test_a_variable_given_after_the_restore_is_restored(optimizer, tmp_path) -> None:
    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), late=tf.Variable(7.0))
    path = saved.save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0))
    with pytest.raises(AssertionError, match="late"):
        checkpoint.restore(path).assert_consumed()
    status = checkpoint.restore(path)
    checkpoint.late = tf.Variable(0.0)
    assert float(checkpoint.late) == 7.0
    status.assert_consumed()


def test_a_keras_object_given_later_is_not_restored_and_that_is_said(
    flavour, optimizer, tmp_path, caplog
) -> None:
    def model():
        return flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1, name="a")])

    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), net=model(), other=model())
    path = saved.save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0), net=model())
    checkpoint.restore(path).expect_partial()
    late = model()
    before = [value.copy() for value in late.get_weights()]
    checkpoint.other = late
    assert all((old == new).all() for old, new in zip(before, late.get_weights(), strict=True))
    assert "call restore again" in caplog.text


@pytest.mark.parametrize("kind", [tf.train.Checkpoint, tfckpt.Checkpoint])
@pytest.mark.parametrize("method", ["assert_consumed", "assert_existing_objects_matched"])
def test_a_plain_variable_that_came_since_and_got_no_value_is_noticed(
    kind, method, tmp_path
) -> None:
    module = tf.Module()
    module.v = tf.Variable(7.0)
    path = kind(module=module).save(str(tmp_path / "ckpt"))
    module.v.assign(0.0)
    status = kind(module=module).restore(path)
    getattr(status, method)()
    module.w = tf.Variable(1.0)
    with pytest.raises(AssertionError):
        getattr(status, method)()
    assert (float(module.v), float(module.w)) == (7.0, 1.0)
    status.assert_nontrivial_match()


@pytest.mark.parametrize("kind", [tf.train.Checkpoint, tfckpt.Checkpoint])
@pytest.mark.parametrize(
    "made",
    [
        lambda: iter(tf.data.Dataset.range(3)),
        lambda: tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1),
    ],
    ids=["iterator", "table"],
)
def test_an_object_that_the_checkpoint_does_not_have_is_noticed(
    kind, made, optimizer, tmp_path
) -> None:
    path = kind(optimizer=optimizer, step=tf.Variable(3)).save(str(tmp_path / "ckpt"))
    checkpoint = kind(optimizer=optimizer, step=tf.Variable(0), object=made())
    with pytest.raises(AssertionError):
        checkpoint.restore(path).assert_existing_objects_matched()
    with pytest.raises(AssertionError):
        checkpoint.restore(path).assert_consumed()


WRITERS = pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])


class Lazy(tf.Module):
    """Makes its variables when it is called."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value
        self.parts: list[tf.Variable] = []

    def __call__(self, data: Any) -> Any:
        if not self.parts:
            self.parts.append(tf.Variable(self.value))
            self.parts.append(tf.Variable(self.value + 1))
            self._scale = tf.Variable(self.value + 2)
        return data * self.parts[0] + self.parts[1] * self._scale

    @property
    def numbers(self) -> list[float]:
        return [float(v) for v in (*self.parts, self._scale)]


class Holder(tf.Module):
    def __init__(self, layer: Any, value: float) -> None:
        super().__init__()
        self.layer, self.lazy = layer, Lazy(value)


def stack(flavour: Any, *names: str) -> Any:
    layers = [flavour.layers.Dense(3, name=name) for name in names]
    return flavour.Sequential([flavour.Input((3,)), *layers])


def holder(flavour: Any, value: float, *names: str) -> Any:
    return Holder(stack(flavour, *(names or "a")), value)


def model(flavour: Any, value: float) -> Any:
    class Scaled(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = flavour.layers.Dense(3, name="dense")
            self.lazy = Lazy(value)
            self.dense.build((None, 3))
            self.built = True

        def call(self, data: Any) -> Any:
            return self.lazy(self.dense(data))

    return Scaled()


@WRITERS
@pytest.mark.parametrize("build", [holder, model])
@pytest.mark.parametrize("given", ["keyword", "root"])
def test_what_a_module_makes_on_its_first_call_is_named(
    build, given, writer, flavour, tmp_path, caplog
) -> None:
    def checkpoint(kind: Any, obj: Any) -> Any:
        return kind(obj) if given == "root" else kind(thing=obj)

    saved = build(flavour, 7.0)
    saved.lazy(1.0)
    path = checkpoint(writer.Checkpoint, saved).save(str(tmp_path / "ckpt"))
    later = build(flavour, 0.0)
    status = checkpoint(tfckpt.Checkpoint, later).restore(path)
    status.assert_existing_objects_matched()
    (text,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert text.startswith(f"{path}: 3 values stay in the checkpoint, since no object has these ")
    assert "lazy/parts/0" in text
    assert text.endswith("create them first, then restore")
    later.lazy(1.0)
    assert later.lazy.numbers == [0.0, 1.0, 2.0]
    checkpoint(tfckpt.Checkpoint, later).restore(path).assert_consumed()
    assert later.lazy.numbers == [7.0, 8.0, 9.0]


@WRITERS
@pytest.mark.parametrize("kind", ["AdamOptimizer", "MomentumOptimizer"])
def test_an_optimizer_of_tensorflow_1_takes_a_step_first(
    writer, kind, flavour, tmp_path, caplog
) -> None:
    def objects(value: float) -> dict[str, Any]:
        more = {"momentum": 0.9} if kind == "MomentumOptimizer" else {}
        optimizer = getattr(tf.compat.v1.train, kind)(0.1, **more)
        plain = tf.Variable([value, value], name="plain")
        return {"model": stack(flavour, "a"), "plain": plain, "solver": optimizer}

    def step(given: dict[str, Any]) -> None:
        plain = given["plain"]
        given["solver"].apply_gradients([(2 * plain, plain)])

    saved = objects(1.0)
    step(saved), step(saved)
    path = writer.Checkpoint(**saved).save(str(tmp_path / "ckpt"))
    later = objects(5.0)
    tfckpt.Checkpoint(**later).restore(path)
    assert "to restore it, compile the model first, then restore" in caplog.text
    step(later)
    tfckpt.Checkpoint(**later).restore(path).assert_consumed()
    step(saved), step(later)
    np.testing.assert_array_equal(saved["plain"], later["plain"])
