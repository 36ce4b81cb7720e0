"""Objects without variables, and what makes them after the restore."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from zoo.restores import BATCH, WRITERS, config, numbers, same, stack, written

import tfckpt

LATE = "no variables yet, but the checkpoint has"


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
    model(BATCH)
    return model


def given(net: Callable[[], Any], flavour: Any) -> list[dict[str, Any]]:
    """What has no variables, under another keyword than it was saved under."""
    module = tf.Module()
    module.inner, module.gain = {"models": [net()]}, tf.Variable(1.0)

    class Renamed(flavour.Model):
        def __init__(self) -> None:
            super().__init__()
            self.scale = self.add_weight(shape=(), name="scale")
            self.inner = net()

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs) * self.scale

    return [
        {"model": net()},
        {"model": net(), "step": tf.Variable(0)},  # beside what matches
        {"models": [net(), net()]},
        {"models": {"a": net()}},
        {"module": module},
        {"model": Renamed(), "step": tf.Variable(0)},  # partly built
        {"layer": flavour.layers.Dense(2), "step": tf.Variable(0)},
    ]


def test_under_another_keyword_it_is_not_left_random(flavour, net, built, tmp_path) -> None:
    saved = tf.train.Checkpoint(net=built, step=tf.Variable(7)).save(str(tmp_path / "ckpt"))
    for number, objects in enumerate(given(net, flavour)):
        with pytest.raises(tfckpt.NotBuiltError) as error:
            getattr(tfckpt.Checkpoint(**objects), ("restore", "read")[number % 2])(saved)
        message = str(error.value)
        assert LATE in message
        assert "4 values that may belong to it, the first is 'net/body/bias'" in message
        assert "once on a batch before restoring" in message
        assert int(objects.get("step", 0)) == 0


def test_all_that_lack_variables_are_in_one_message(net, built, flavour, tmp_path, caplog) -> None:
    optimizer = flavour.optimizers.Adam()
    optimizer.build(built.trainable_variables)
    saved = {"first": built, "second": built, "optimizer": optimizer, "step": tf.Variable(7)}
    path = tf.train.Checkpoint(**saved).save(str(tmp_path / "ckpt"))
    with pytest.raises(tfckpt.NotBuiltError) as error:
        tfckpt.Checkpoint(first=net(), second=net(), optimizer=flavour.optimizers.Adam()).read(path)
    lines = str(error.value).splitlines()
    assert lines[0] == "3 objects have no variables yet, but the checkpoint has values:"
    assert [line.split()[0] for line in lines[1:4]] == ["first", "second", "optimizer"]
    assert lines[4].strip().startswith("call the model once on a batch before restoring: model(")
    assert lines[5].strip().startswith("call optimizer.build(model.trainable_variables)")
    module, solver = tf.Module(), flavour.optimizers.Adam()
    module.parts = [tf.Module()]
    module.parts[0].w = tf.Variable(BATCH)
    solver.build([module.parts[0].w])
    lazy = tfckpt.Checkpoint(agent=module, solver=solver).save(tmp_path / "lazy")
    del module.parts[0].w
    with pytest.raises(tfckpt.NotBuiltError, match="call agent once, which makes its variables"):
        tfckpt.Checkpoint(agent=module, solver=flavour.optimizers.Adam()).restore(lazy)
    step = tf.Variable(0)
    alone = tf.train.Checkpoint(solver=optimizer, step=step).save(str(tmp_path / "alone"))
    step.assign(9)
    tfckpt.Checkpoint(opt=flavour.optimizers.Adam(), step=step).restore(alone)
    assert int(step) == 0
    assert "of solver stay in the checkpoint, since no object has this optimizer" in caplog.text


def test_other_formats(net, built, tmp_path) -> None:
    built.export(str(tmp_path / "exported"))
    names = {f"scope/{w}": tf.Variable(v) for w, v in (("w", BATCH), ("b", BATCH[0]))}
    of_tf1 = tf.compat.v1.train.Saver(names).save(None, str(tmp_path / "tf1" / "model"))
    of_keras = written(built, ".weights.h5", tmp_path)
    for path in (of_keras, str(tmp_path / "exported"), str(of_tf1)):
        with pytest.raises(tfckpt.NotBuiltError, match=LATE):
            tfckpt.Checkpoint(model=net()).restore(path)


NONE = (
    "{}(None): no checkpoint was given, so nothing is restored and training starts from the "
    "initial values (tf.train.latest_checkpoint returns None if it finds none)"
)


@pytest.mark.parametrize("how", ["restore", "read"])
def test_none_is_said_once_a_call(caplog, tmp_path, how) -> None:
    step = tf.Variable(1)
    nothing = tf.train.latest_checkpoint(str(tmp_path))
    plain = getattr(tf.train.Checkpoint(step=step), how)(nothing)
    with caplog.at_level("WARNING"):
        status = getattr(tfckpt.Checkpoint(step=step), how)(nothing)
        assert [record.getMessage() for record in caplog.records] == [NONE.format(how)]
        assert type(status) is type(plain)
        with tf.Graph().as_default():  # there it is TensorFlow's own
            tfckpt.Checkpoint(step=tf.Variable(1)).restore(None)
    assert len(caplog.records) == 1


def trained(k: Any, *, state: bool = True) -> Any:
    model = stack(k, "body", "head")
    model.compile(k.optimizers.Adam(0.1), "mse")
    if state:
        model.optimizer.build(model.trainable_variables)
        for n, variable in enumerate([*model.optimizer.variables][2:]):
            variable.assign(tf.fill(variable.shape, 0.5 + n))
        model.optimizer.iterations.assign(3)
    return model


@pytest.mark.parametrize("kind", ["tensorflow", ".weights.h5", ".h5", ".keras"])
def test_weights_alone_need_no_optimizer_and_selected_state_builds_it(
    flavour, tmp_path, kind
) -> None:
    """Also where the file does not say whose slots it has: Keras itself leaves them out then."""
    source = trained(flavour)
    path = written(source, kind, tmp_path)
    for policy in ({"include": ["model/**"]}, {"exclude": ["optimizer/**"]}):
        target = trained(flavour, state=False)
        before = len(target.optimizer.variables)
        tfckpt.restore(config(path, **policy, expect_partial=True), model=target)
        same(target.get_weights(), source.get_weights())
        assert len(target.optimizer.variables) == before
    target = trained(flavour, state=False)
    tfckpt.restore(config(path, expect_partial=True), model=target)
    same(numbers(target), numbers(source))


def test_an_excluded_part_needs_no_variables(net, built, tmp_path) -> None:
    target = net()
    target.body(BATCH)
    path = tf.train.Checkpoint(net=built).save(str(tmp_path / "ckpt"))
    policy = {"exclude": ["model/head/**"], "on_missing": "error"}
    report = tfckpt.restore(config(path, **policy), model=target)
    assert report.counts[tfckpt.Status.EXCLUDED] == 2
    same([target.body.kernel], [built.body.kernel])
    assert not target.head.variables


def test_what_a_layer_only_copied_needs_none(tmp_path) -> None:
    """Of a Bidirectional layer, tf_keras keeps the layer that it was made from, never built."""
    k = pytest.importorskip("tf_keras")

    def both_ways(name: str) -> Any:
        lstm = k.layers.Bidirectional(k.layers.LSTM(2, stateful=True), name=name)
        return k.Sequential([k.layers.InputLayer(batch_input_shape=(2, 3, 2)), lstm])

    model, other = both_ways("both"), both_ways("mine")
    for kind in ("tensorflow", ".weights.h5", ".h5"):
        path = written(model, kind, tmp_path)
        for variable in other.trainable_variables:
            variable.assign(tf.zeros(variable.shape))
        by_position = {"match": "structure", "on_missing": "warn", "on_unexpected": "warn"}
        tfckpt.restore(path, other, policy=by_position)
        same(other.trainable_variables, model.trainable_variables)


# What is there only after the restore


@pytest.fixture
def optimizer(flavour) -> Any:
    return flavour.optimizers.SGD()


def test_a_variable_that_a_module_or_checkpoint_gets_later_is_restored(optimizer, tmp_path) -> None:
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
    saved = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(3), late=tf.Variable(7.0))
    path = saved.save(tmp_path / "other")
    checkpoint = tfckpt.Checkpoint(optimizer=optimizer, step=tf.Variable(0))
    with pytest.raises(AssertionError, match="late"):
        checkpoint.restore(path).assert_consumed()
    status = checkpoint.restore(path)
    checkpoint.late = tf.Variable(0.0)
    assert float(checkpoint.late) == 7.0
    status.assert_consumed()


def test_a_keras_object_given_later_is_not_restored_and_that_is_said(flavour, tmp_path, caplog):
    saved = {"step": tf.Variable(3), "net": stack(flavour, "a"), "other": stack(flavour, "a")}
    path = tfckpt.Checkpoint(**saved).save(tmp_path / "ckpt")
    checkpoint = tfckpt.Checkpoint(step=tf.Variable(0), net=stack(flavour, "a"))
    checkpoint.restore(path).expect_partial()
    late = stack(flavour, "a")
    before = late.get_weights()
    checkpoint.other = late
    same(late.get_weights(), before)
    assert "call restore again" in caplog.text


@WRITERS
def test_what_got_no_value_is_noticed(writer, optimizer, tmp_path) -> None:
    path = writer.Checkpoint(optimizer=optimizer, step=tf.Variable(3)).save(str(tmp_path / "more"))
    iterator = iter(tf.data.Dataset.range(3))
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    for made in (iterator, table):
        checkpoint = writer.Checkpoint(optimizer=optimizer, step=tf.Variable(0), object=made)
        for method in ("assert_existing_objects_matched", "assert_consumed"):
            with pytest.raises(AssertionError):
                getattr(checkpoint.restore(path), method)()


@WRITERS
def test_what_a_step_makes_after_the_restore_is_noticed(writer, tmp_path) -> None:
    """Of tf_keras, since TensorFlow does not see what Keras 3 makes."""
    flavour = pytest.importorskip("tf_keras")
    path = writer.Checkpoint(model=stack(flavour, "a")).save(str(tmp_path / "ckpt"))
    for method in ("assert_consumed", "assert_existing_objects_matched"):
        model, optimizer = stack(flavour, "a"), flavour.optimizers.legacy.Adam()
        status = writer.Checkpoint(model=model, optimizer=optimizer).restore(path)
        weight = model.trainable_variables[0]
        optimizer.apply_gradients([(tf.zeros_like(weight), weight)])
        with pytest.raises(AssertionError):
            getattr(status, method)()


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


def holder(flavour: Any, value: float) -> Any:
    module = tf.Module()
    module.layer, module.lazy = stack(flavour, "a"), Lazy(value)
    return module


def scaled(flavour: Any, value: float) -> Any:
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


@pytest.mark.parametrize(
    ("build", "root", "writer"),
    [(holder, False, tfckpt), (holder, True, tf.train), (scaled, True, tfckpt)],
)
def test_what_a_module_makes_on_its_first_call_is_named(
    build, root, writer, flavour, tmp_path, caplog
) -> None:
    def checkpoint(kind: Any, thing: Any) -> Any:
        return kind(thing) if root else kind(thing=thing)

    saved = build(flavour, 7.0)
    saved.lazy(1.0)
    path = checkpoint(writer.Checkpoint, saved).save(str(tmp_path / "ckpt"))
    later = build(flavour, 0.0)
    checkpoint(tfckpt.Checkpoint, later).restore(path).assert_existing_objects_matched()
    (text,) = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    assert text.startswith(f"{path}: 3 values stay in the checkpoint, since no object has these ")
    assert "lazy/parts/0" in text
    assert text.endswith("create them first, then restore")
    later.lazy(1.0)
    made = [*later.lazy.parts, later.lazy._scale]
    assert [float(v) for v in made] == [0.0, 1.0, 2.0]
    checkpoint(tfckpt.Checkpoint, later).restore(path).assert_consumed()
    assert [float(v) for v in made] == [7.0, 8.0, 9.0]


# A restart that comes before its model: built as it was saved; tests/zoo/kinds has the kinds


def by_checkpoint(path: str, **objects: Any) -> Any:
    return tfckpt.Checkpoint(**objects).restore(path)


def by_run(path: str, **objects: Any) -> Any:
    return tfckpt.from_config(config(path), **objects).restore()


WAYS = pytest.mark.parametrize("restore", [by_checkpoint, by_run, tfckpt.restore])


def agent(flavour: Any, width: int = 3) -> dict[str, Any]:
    """A model that lists its layers, and an optimizer."""

    class Agent(flavour.Model):
        def __init__(self) -> None:
            super().__init__(name="agent")
            self.body = [flavour.layers.Dense(width), flavour.layers.BatchNormalization()]
            self.head = flavour.layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            for layer in self.body:
                inputs = layer(inputs)
            return self.head(inputs)

    return {"model": Agent(), "optimizer": flavour.optimizers.Adam(0.1)}


def saved(objects: dict[str, Any], directory: Any) -> str:
    model, optimizer = objects.values()
    model(BATCH)
    trained = model.trainable_variables
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in trained])
    return str(tfckpt.Checkpoint(**objects).save(str(directory / "ckpt")))


def attributes(objects: dict[str, Any]) -> list[Any]:
    """Of all that a restore may build: what they hold, and how many."""
    model, optimizer = objects.values()
    layers = [*model._flatten_layers(), optimizer]
    return [(type(x), getattr(x, "built", None), len(vars(x)), x.variables) for x in layers[1:]]


@WAYS
def test_a_refused_restore_and_a_plan_leave_it_unbuilt(restore, flavour, tmp_path, caplog) -> None:
    path = saved(agent(flavour), tmp_path)
    target = agent(flavour, width=4)
    before = attributes(target)
    with pytest.raises(tfckpt.RefusedError, match="MISMATCH") as error:
        restore(path, **target)
    assert "model/body/0/kernel" in str(error.value)
    assert attributes(target) == before
    target["model"](BATCH[:, :2])  # of another width than any of them had
    other = agent(flavour)
    before = attributes(other)
    assert tfckpt.plan(path, **other).ok
    assert attributes(other) == before
    assert "could not be taken back" not in caplog.text


def test_only_what_is_selected_is_built(flavour, tmp_path) -> None:
    path = saved(agent(flavour), tmp_path)
    target = agent(flavour)
    tfckpt.restore(config(path, include=["model/body/**"]), **target)
    assert target["model"].body[0].built
    assert not target["model"].head.built
    assert not target["optimizer"].built if flavour.__name__ == "keras" else True


def test_a_layer_that_the_checkpoint_does_not_have_is_in_the_plan(flavour, tmp_path) -> None:
    path, target = saved(agent(flavour), tmp_path), agent(flavour)
    target["model"].body.append(flavour.layers.Dense(3))
    with pytest.raises(tfckpt.RefusedError, match="MISSING") as error:
        tfckpt.restore(path, **target)
    assert "model/body/2/kernel" in str(error.value)


def test_a_record_of_the_last_release_has_no_builds_and_a_newer_one_has_more(
    flavour, tmp_path
) -> None:
    path = saved(agent(flavour), tmp_path)
    record = path + ".tfckpt.json"
    text = Path(record).read_text("utf-8").rpartition(',\n"sha256"')[0]
    text = text.replace('"builds": ', '"of_another_release": ')
    seal = hashlib.sha256(text.encode()).hexdigest()
    Path(record).write_text(f'{text},\n"sha256": "{seal}"\n}}\n', "utf-8")
    target = agent(flavour)
    with pytest.raises(tfckpt.NotBuiltError, match="once on a batch before restoring"):
        tfckpt.restore(path, **target)
    saved(target, tmp_path / "other")
    tfckpt.restore(path, **target)


# A module that makes its variables in its first call


@WAYS
def test_a_lazy_module_waits_and_no_save_loses_it(restore, flavour, tmp_path) -> None:
    module = Lazy(7.0)
    module(1.0)
    path = str(tfckpt.Checkpoint(module=module, step=tf.Variable(3)).save(tmp_path / "ckpt"))
    later = {"module": Lazy(0.0), "step": tf.Variable(0)}
    held = restore(path, **later)
    assert int(later["step"]) == 3
    checkpoint = tfckpt.Checkpoint(**later)
    with pytest.raises(tfckpt.SaveError, match=r"3 values of .*ckpt-1 still wait") as error:
        checkpoint.save(tmp_path / "ckpt")
    assert "call what creates it before this save" in str(error.value)
    later["module"](1.0)
    same([*later["module"].parts, later["module"]._scale], [7.0, 8.0, 9.0])
    checkpoint.save(tmp_path / "ckpt")
    del held


def test_what_will_not_come_is_let_go(tmp_path) -> None:
    module = Lazy(7.0)
    module(1.0)
    path = str(tfckpt.Checkpoint(module=module, step=tf.Variable(3)).save(tmp_path / "ckpt"))
    objects = {"module": Lazy(0.0), "step": tf.Variable(0)}
    tfckpt.Checkpoint(**objects).restore(path).expect_partial()
    tfckpt.Checkpoint(**objects).save(tmp_path / "other")
    objects = {"module": Lazy(0.0), "step": tf.Variable(0)}
    tfckpt.restore(config(path, exclude_checkpoint=["module/parts/**"]), **objects)
    with pytest.raises(tfckpt.SaveError, match=r"1 value of .* still waits"):
        tfckpt.Checkpoint(**objects).save(tmp_path / "other")
    objects["module"](1.0)
    same([*objects["module"].parts, objects["module"]._scale], [0.0, 1.0, 9.0])
    changed = tf.Module()
    changed.v = tf.Variable(0.0)
    with pytest.raises(tfckpt.RefusedError, match="UNEXPECTED"):  # it makes its own at once
        tfckpt.restore(path, module=changed, step=tf.Variable(0))
