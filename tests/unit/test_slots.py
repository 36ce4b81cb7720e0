"""Optimizers as a whole, slots of what is not restored, and slots in no list."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from zoo.restores import same, stack, written

import tfckpt
from tfckpt.live.built_optimizers import build_for
from tfckpt.live.inventory import collect
from tfckpt.planning import Status

ANEW: dict[str, Any] = {"optimizer": "reset"}
EVERY_WEIGHT: dict[str, Any] = {"include": ["model/**"]}


def build(k: Any, made: str = "Adam", *, steps: int = 0, rate: float = 0.1, **options: Any) -> Any:
    """A compiled model, as after some steps; before the first one its optimizer has no slots."""
    model = stack(k, "a")
    model.compile(getattr(k.optimizers, made)(rate, **options), "mse")
    if steps:
        model.optimizer.build(model.trainable_variables)
        random = np.random.default_rng(steps)
        for variable in [*model.trainable_variables, *model.optimizer.variables[2:]]:
            if variable.shape:
                variable.assign(random.uniform(0.1, 1, variable.shape))
        model.optimizer._iterations.assign(steps)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.trainable_variables]


def at_the_end(model: Any) -> list[np.ndarray]:
    """The weights that the end of a `fit` without a step leaves."""
    model.optimizer.build(model.trainable_variables)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return weights(model)


def test_averages_are_restored_or_begin_at_the_restored_weights(flavour, tmp_path) -> None:
    for averaged, rest in ((False, {}), (True, {"exclude": ["optimizer/moving_average/**"]})):
        old = build(flavour, steps=4, use_ema=averaged)
        path = written(old, "tfckpt", tmp_path)
        for policy in (rest, {"optimizer": {"slots": "reset"}}, ANEW, EVERY_WEIGHT):
            model = build(flavour, steps=2, use_ema=True)
            tfckpt.restore(path, model, policy=policy)
            same(weights(model), weights(old))
            same(at_the_end(model), weights(old))
    model = build(flavour, use_ema=True)
    tfckpt.restore(path, model)
    same(weights(model), weights(old))
    assert not np.array_equal(weights(old)[0], at_the_end(old)[0])
    same(at_the_end(model), at_the_end(old))


def test_batches_that_accumulate_are_not_updates(tmp_path) -> None:
    old = build(keras, steps=4, gradient_accumulation_steps=2)
    path = written(old, "tfckpt", tmp_path)
    for steps, said in ((None, "batches, of which several are one"), (4, "is of 4 batches in the")):
        with pytest.raises(tfckpt.RefusedError, match=said):
            tfckpt.restore(path, build(keras, gradient_accumulation_steps=steps))
    model = build(keras)
    tfckpt.restore(path, model, optimizer={"iterations": "restore"})
    assert int(model.optimizer.iterations) == 4


def gan(k: Any, rate: float, *, built: bool = True) -> Any:
    class Gan(k.Model):
        def __init__(self) -> None:
            super().__init__()
            self.g, self.d = stack(k, None), stack(k, None)

        def call(self, inputs: Any) -> Any:
            return self.d(self.g(inputs))

        def compile(self) -> None:
            super().compile()
            self.g_optimizer, self.d_optimizer = (k.optimizers.Adam(rate) for _ in "gd")

    made = Gan()
    made(np.zeros((1, 3), "float32"))
    made.compile()
    if built:
        for part, optimizer in ((made.g, made.g_optimizer), (made.d, made.d_optimizer)):
            optimizer.build(part.trainable_variables)
            optimizer.iterations.assign(7)
    return made


@pytest.mark.parametrize(("writer", "built"), [(tf.train, True), (tfckpt, False)])
def test_the_model_means_its_weights_wherever_its_optimizers_are(
    flavour, tmp_path, writer, built
) -> None:
    old = gan(flavour, 0.1)
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = gan(flavour, 0.5, built=built)
    optimizers = model.g_optimizer, model.d_optimizer
    counts = [int(optimizer.iterations) for optimizer in optimizers]
    report = tfckpt.restore(path, model, include=["model/**"])
    same(weights(model), weights(old))
    assert [float(optimizer.learning_rate) for optimizer in optimizers] == [0.5] * 2
    assert [int(optimizer.iterations) for optimizer in optimizers] == counts
    assert "model/** means the weights; name the optimizer to include it" in str(report)
    tfckpt.restore(path, model, include=["model/**", "model/g_optimizer/**"])
    rates = [float(optimizer.learning_rate) for optimizer in optimizers]
    np.testing.assert_allclose(rates, [0.1, 0.5])


class Parts(tf.Module):
    """Variables that are all called `Variable`: their slots are `Adam/m/Variable`, numbered."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.a, self.b, self.c = (tf.Variable(tf.fill((n,), value)) for n in (2, 2, 3))


def test_slots_that_a_file_only_numbers_are_refused_and_that_is_said(flavour, tmp_path, caplog):
    tf_keras = pytest.importorskip("tf_keras")
    saved, optimizer = Parts(1.0), tf_keras.optimizers.Adam(0.1)
    order = [saved.c, saved.a, saved.b]
    optimizer.apply_gradients([(tf.ones_like(v) * (n + 1.0), v) for n, v in enumerate(order)])
    path = tf.train.Checkpoint(module=saved, opt=optimizer).save(str(tmp_path / "ckpt"))
    new, opt = Parts(5.0), flavour.optimizers.Adam(0.1)
    opt.build([new.c, new.a, new.b])
    with pytest.raises(tfckpt.RefusedError, match=r'optimizer="reset"'):
        tfckpt.restore(path, module=new, opt=opt)
    tfckpt.Checkpoint(module=new, opt=opt).restore(path).expect_partial()
    assert "6 slots in the checkpoint, not used" in caplog.text
    assert "`optimizer: reset` starts the optimizer from scratch: opt/momentum/0" in caplog.text
    caplog.clear()
    tfckpt.Checkpoint(module=Parts(5.0)).restore(path).expect_partial()
    assert "by position" not in caplog.text  # no optimizer was given
    assert tfckpt.restore(path, module=new, opt=opt, policy=ANEW).plan.ok
    assert not any(v.numpy().any() for v in opt.variables if v.numpy().ndim)
    assert int(opt.iterations) == 0
    np.testing.assert_allclose(new.a, [0.9, 0.9], rtol=1e-5)


# A body and a head, of which the head is left

OPTIMIZERS = {
    "adam": lambda k: k.optimizers.Adam(0.01, use_ema=True),
    "adafactor": lambda k: k.optimizers.Adafactor(0.01),
    "legacy": lambda k: k.optimizers.legacy.Adam(0.01),
}


def net(k: Any, optimizer: str = "adam", classes: int = 3) -> Any:
    head = k.layers.Dense(classes, name="classes")
    model = stack(k, "body", head)
    model.compile(OPTIMIZERS[optimizer](k), "mse")
    return model


def built(model: Any) -> Any:
    build_for(model.optimizer, model.trainable_variables)
    return model


def slots(model: Any, of: str) -> dict[str, np.ndarray]:
    live = collect({"model": model})
    return {
        name: np.array(live.variables[name])
        for name, entry in live.inventory.entries.items()
        if entry.of.startswith(f"model/{of}/")
    }


def alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(map(np.array_equal, one.values(), other.values()))


@pytest.mark.parametrize("flavour", ["keras3", "tf_keras"], indirect=True)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_slots_go_with_their_variables(flavour: Any, optimizer, tmp_path) -> None:
    if optimizer == "legacy" and flavour.__name__ == "keras":
        return
    old = built(net(flavour, optimizer))
    live = collect({"model": old})
    random = np.random.default_rng(7)
    for name, entry in live.inventory.entries.items():
        if entry.of and entry.shape:
            live.variables[name].assign(random.uniform(0.1, 1, entry.shape))
    old.optimizer.iterations.assign(2)
    path = written(old, "tfckpt", tmp_path)
    for policy in (
        {"exclude": ["model/classes/**"]},
        {"include": ["model/body/**", "optimizer/**"]},
        {"include": ["model/**", "optimizer/**"], "exclude": ["model/classes/*"]},
    ):
        new = built(net(flavour, optimizer))
        before = slots(new, "classes")
        report = tfckpt.restore(path, new, policy=policy)
        assert alike(slots(new, "body"), slots(old, "body"))
        assert alike(slots(new, "classes"), before)
        assert int(new.optimizer.iterations.numpy()) == 2
        steps = [s for s in report.plan.steps if s.entry.of.startswith("model/classes/")]
        assert {step.status for step in steps} == {Status.EXCLUDED}
    # a head of another size needs no rule for its slots
    new = net(flavour, optimizer, classes=5)
    tfckpt.restore(path, new, exclude=["model/classes/**"])
    assert alike(slots(new, "body"), slots(old, "body"))
    # Adafactor keeps a mean for each row: of the same length, and of other weights
    new = built(net(flavour, optimizer, classes=5))
    before = slots(new, "classes")
    tfckpt.restore(path, new, on_shape_mismatch="skip")
    assert alike(slots(new, "body"), slots(old, "body"))
    assert alike(slots(new, "classes"), before)
    # weights of one checkpoint and the optimizer of another
    first = tfckpt.Checkpoint(model=net(flavour, optimizer)).save(tmp_path / "weights")
    members = [
        {"path": first, "policy": EVERY_WEIGHT},
        {"path": path, "policy": {"include": ["optimizer/**"]}},
    ]
    new = net(flavour, optimizer)
    tfckpt.restore({"version": 1, "restore": {"all_of": members}}, new)
    for layer in ("body", "classes"):
        assert alike(slots(new, layer), slots(old, layer))


def test_the_report_says_why(tmp_path) -> None:
    path = written(built(net(keras)), "tfckpt", tmp_path)
    report = str(tfckpt.restore(path, net(keras), exclude=["model/classes/**"]))
    assert "EXCLUDED  exclude: model/classes/** matches its variable" in report
    report = str(tfckpt.restore(path, net(keras), include=["model/body/**", "optimizer/**"]))
    assert "EXCLUDED  its variable is not restored: no include rule selects it" in report


# As Keras before 3.6 wrote them: in no list, by a name such as `model_first_kernel_momentum`


def subclassed(value: float, optimizer: Any, names: tuple[str, str]) -> Any:
    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__(name="model")
            self.first, self.second = (keras.layers.Dense(3, name=name) for name in names)

        def call(self, inputs: Any) -> Any:
            return self.second(self.first(inputs))

    model = Net()
    model(np.ones((1, 3), "float32"))
    optimizer.build(model.trainable_variables)
    for n, variable in enumerate(optimizer.variables[2:]):
        variable.assign(tf.fill(variable.shape, value + n))
    return model


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"use_ema": True}])
def test_they_come_back_by_the_order_of_their_variables_unless_two_share_a_name(
    options, tmp_path
) -> None:
    for names in (("first", "second"), ("same", "same")):
        old, new = keras.optimizers.Adam(**options), keras.optimizers.Adam(**options)
        source, target = subclassed(1.0, old, names), subclassed(100.0, new, names)
        stored, before = (numbers_of(optimizer) for optimizer in (old, new))
        lists = ("_momentums", "_velocities", "_velocity_hats", "_model_variables_moving_average")
        for name in lists:
            if name in vars(old):
                setattr(old, name, [])
        checkpoint = tf.train.Checkpoint(model=source, optimizer=old)
        path = checkpoint.save(str(tmp_path / names[0] / "ckpt"))
        status = tfckpt.Checkpoint(model=target, optimizer=new).restore(path)
        if names[0] == "first":
            status.assert_consumed()
            same(numbers_of(new), stored)
            continue
        with pytest.raises(AssertionError, match="no such slot"):
            status.assert_consumed()
        same(numbers_of(new)[2:], before[2:])


def numbers_of(optimizer: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in optimizer.variables]
