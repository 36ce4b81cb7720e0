"""Optimizers as a whole, slots of what is not restored, and slots in no list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.live.building import build_for
from tfckpt.live.inventory import collect
from tfckpt.planning import Status, make_plan
from tfckpt.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path


INPUTS, TARGETS = np.ones((8, 3), "float32"), np.zeros((8, 2), "float32")
ANEW: dict[str, Any] = {"optimizer": "reset"}


def build(flavour: Any, *, width: int = 2, steps: int = 0, **options: Any) -> Any:
    """A compiled model after some steps; before the first one its optimizer has no slots."""
    layers = [flavour.Input((3,)), flavour.layers.Dense(width, name="a")]
    model = flavour.Sequential(layers)
    model.compile(flavour.optimizers.Adam(0.1, **options), "mse")
    if steps:
        model.fit(INPUTS, TARGETS, batch_size=8 // steps, verbose=0)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [variable.numpy() for variable in model.trainable_variables]


def at_the_end(model: Any) -> list[np.ndarray]:
    """The weights that the end of a `fit` without a step leaves."""
    model.optimizer.build(model.trainable_variables)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return weights(model)


def same(found: list[np.ndarray], wanted: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("steps", [0, 4], ids=["built now", "trained before"])
@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
@pytest.mark.parametrize(
    "policy",
    [{}, {"optimizer": {"slots": "reset"}}, ANEW, {"include": ["model/**"]}],
    ids=["all", "slots reset", "reset", "weights"],
)
def test_averages_that_the_checkpoint_lacks_begin_at_the_restored_weights(
    flavour, tmp_path, writer, policy, steps
) -> None:
    old = build(flavour, steps=4)
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=steps, use_ema=True)
    model.optimizer.build(model.trainable_variables)
    tfckpt.restore(path, model, policy=policy)
    assert same(weights(model), weights(old))
    assert same(at_the_end(model), weights(old))


@pytest.mark.parametrize(
    "policy",
    [{"exclude": ["optimizer/moving_average/**"]}, ANEW, {"include": ["model/**"]}],
    ids=["excluded", "reset", "weights"],
)
def test_stored_averages_that_are_left_are_not_mixed_with_others(flavour, tmp_path, policy) -> None:
    old = build(flavour, steps=4, use_ema=True)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=2, use_ema=True)
    tfckpt.restore(path, model, policy=policy)
    assert same(at_the_end(model), weights(old))


def test_stored_averages_are_restored(flavour, tmp_path) -> None:
    old = build(flavour, steps=4, use_ema=True)
    old.optimizer.learning_rate = 0.0
    old.layers[-1].kernel.assign_add(np.ones((3, 2)))  # so that they are not the weights
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, use_ema=True)
    tfckpt.restore(path, model)
    assert same(weights(model), weights(old))
    assert same(at_the_end(model), at_the_end(old))


def test_the_copies_of_schedule_free_begin_at_the_restored_weights(tmp_path) -> None:
    made = getattr(keras.optimizers, "ScheduleFreeAdamW", None)
    if made is None:
        pytest.skip("no ScheduleFreeAdamW")
    old = build(keras, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(keras)
    model.compile(made(0.1), "mse")
    model.fit(INPUTS, TARGETS, verbose=0)
    tfckpt.restore(path, model, policy=ANEW)
    copies = [variable.numpy() for variable in model.optimizer._momentums]
    assert same(copies, weights(old))


def test_slots_of_amsgrad_begin_at_zero_beside_the_restored_ones(flavour, tmp_path) -> None:
    old = build(flavour, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour, steps=2, amsgrad=True)
    report = tfckpt.restore(path, model)
    assert int(model.optimizer.iterations) == 4
    assert same(
        [v.numpy() for v in model.optimizer._momentums],
        [v.numpy() for v in old.optimizer._momentums],
    )
    assert not any(v.numpy().any() for v in model.optimizer._velocity_hats)
    assert "2 values starting as in a new optimizer: the checkpoint's optim" in report.warnings


@pytest.mark.parametrize("made", ["SGD", "RMSprop", "Nadam", "Adamax"])
def test_another_class_is_refused_whole_and_begins_anew(flavour, tmp_path, made) -> None:
    old = build(flavour, steps=4)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(flavour)
    model.compile(getattr(flavour.optimizers, made)(0.5), "mse")
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(path, model)
    assert '"optimizer": "reset"' in str(refused.value)
    assert "optimizer/iterations" in {step.name for step in refused.value.plan.errors}
    tfckpt.restore(path, model, policy=ANEW)
    assert same(weights(model), weights(old))
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.learning_rate) == 0.5


def test_batches_that_accumulate_are_not_updates(tmp_path) -> None:
    old = build(keras, steps=4, gradient_accumulation_steps=2)
    path = tfckpt.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = build(keras)
    with pytest.raises(tfckpt.RefusedError, match="counts batches, of which several are one"):
        tfckpt.restore(path, model)
    tfckpt.restore(path, model, policy={"optimizer": {"iterations": "restore"}})
    assert int(model.optimizer.iterations) == 4
    tfckpt.restore(path, model, policy=ANEW)
    assert int(model.optimizer.iterations) == 0
    again = build(keras, gradient_accumulation_steps=2)
    tfckpt.restore(path, again)
    assert int(again.optimizer.iterations) == 2


class _Named:
    """What `compile` of a GAN makes."""

    def compile(self, g_optimizer: Any, d_optimizer: Any) -> None:
        super().compile()  # type: ignore[misc]
        self.g_optimizer, self.d_optimizer = g_optimizer, d_optimizer


def gan(flavour: Any, rate: float, *, built: bool = True) -> Any:
    def init(self: Any) -> None:
        flavour.Model.__init__(self)
        self.g = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(3)])
        self.d = flavour.Sequential([flavour.Input((3,)), flavour.layers.Dense(1)])

    made = type(
        "Gan",
        (_Named, flavour.Model),
        {"__init__": init, "call": lambda self, inputs: self.d(self.g(inputs))},
    )()
    made(np.zeros((1, 2), "float32"))
    made.compile(flavour.optimizers.Adam(rate), flavour.optimizers.Adam(rate))
    if built:
        made.g_optimizer.build(made.g.trainable_variables)
        made.d_optimizer.build(made.d.trainable_variables)
        for optimizer in (made.g_optimizer, made.d_optimizer):
            optimizer.iterations.assign(7)
    return made


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("writer", [tf.train, tfckpt], ids=["tensorflow", "tfckpt"])
def test_the_model_means_its_weights_wherever_its_optimizers_are(
    flavour, tmp_path, writer, built
) -> None:
    old = gan(flavour, 0.1)
    path = writer.Checkpoint(model=old).save(str(tmp_path / "ckpt"))
    model = gan(flavour, 0.5, built=built)
    counts = [int(model.g_optimizer.iterations), int(model.d_optimizer.iterations)]
    report = tfckpt.restore(path, model, include=["model/**"])
    assert same(weights(model), weights(old))
    assert [float(o.learning_rate) for o in (model.g_optimizer, model.d_optimizer)] == [0.5] * 2
    assert [int(o.iterations) for o in (model.g_optimizer, model.d_optimizer)] == counts
    assert "model/** means the weights; name the optimizer to include it" in str(report)
    named = ["model/**", "model/g_optimizer/**"]
    tfckpt.restore(path, model, include=named)
    rates = [float(o.learning_rate) for o in (model.g_optimizer, model.d_optimizer)]
    np.testing.assert_allclose(rates, [0.1, 0.5])


class Parts(tf.Module):
    """Variables that are all called `Variable`, or those of a list of names."""

    def __init__(self, value: float, *names: str | None, sizes: tuple[int, ...] = (2, 2, 3)):
        super().__init__()
        made = [tf.Variable(tf.fill((n,), value)) for n in sizes[len(names) :]]
        self.a, self.b, self.c = [
            *(tf.Variable([value, value], name=name) for name in names),
            *made,
        ]

    def order(self) -> list[tf.Variable]:
        return [self.c, self.a, self.b]


def made(flavour: Any, kind: str) -> Any:
    if kind == "sgd":
        return flavour.optimizers.SGD(0.1, momentum=0.9)
    return flavour.optimizers.Adam(0.1)


def step(module: Parts, optimizer: Any) -> None:
    variables = module.order()
    gradients = [tf.ones_like(v) * (n + 1.0) for n, v in enumerate(variables)]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def after(module: Parts, optimizer: Any) -> list[np.ndarray]:
    step(module, optimizer)
    return [v.numpy() for v in module.order()]


@pytest.fixture
def of_tensorflow(tmp_path) -> str:
    """Its slots are all called `Adam/m/Variable`; only their numbers tell them apart."""
    tf_keras = pytest.importorskip("tf_keras")
    saved = Parts(1.0), tf_keras.optimizers.Adam(0.1)
    step(*saved)
    return str(tf.train.Checkpoint(module=saved[0], opt=saved[1]).save(str(tmp_path / "ckpt")))


def test_slots_that_a_file_only_numbers_are_refused_with_the_line(of_tensorflow, flavour) -> None:
    new = Parts(5.0), made(flavour, "adam")
    new[1].build(new[0].order())
    with pytest.raises(tfckpt.RefusedError, match=r'"optimizer": "reset"'):
        tfckpt.restore(of_tensorflow, module=new[0], opt=new[1])
    report = tfckpt.restore(of_tensorflow, module=new[0], opt=new[1], policy={"optimizer": "reset"})
    assert report.plan.ok
    assert not any(v.numpy().any() for v in new[1].variables if v.numpy().ndim)
    assert int(new[1].iterations) == 0
    np.testing.assert_allclose(new[0].a, [0.9, 0.9], rtol=1e-5)


def test_a_drop_in_says_that_they_are_left(of_tensorflow, flavour, caplog) -> None:
    new = Parts(5.0), made(flavour, "adam")
    new[1].build(new[0].order())
    tfckpt.Checkpoint(module=new[0], opt=new[1]).restore(of_tensorflow).expect_partial()
    assert "6 slots in the checkpoint, not used" in caplog.text
    assert "`optimizer: reset` starts the optimizer from scratch: opt/momentum/0" in caplog.text
    caplog.clear()
    tfckpt.Checkpoint(module=Parts(5.0)).restore(of_tensorflow).expect_partial()
    assert "by position" not in caplog.text  # no optimizer was given


def adam(k: Any) -> Any:
    return k.optimizers.Adam(0.01, use_ema=True)


def adafactor(k: Any) -> Any:
    return k.optimizers.Adafactor(0.01)


def legacy(k: Any) -> Any:
    return k.optimizers.legacy.Adam(0.01) if "tf_keras" in k.__name__ else adam(k)


def net(k: Any, optimizer: Any = adam, classes: int = 3) -> Any:
    model = k.Sequential(
        [
            k.Input((4,)),
            k.layers.Dense(4, name="body"),
            k.layers.Dense(classes, name="classes"),
        ]
    )
    model.compile(optimizer(k), "mse")
    return model


@pytest.fixture(params=[adam, adafactor, legacy])
def trained(request: pytest.FixtureRequest, flavour: Any, tmp_path: Path) -> tuple[Any, Any, str]:
    model = net(flavour, request.param)
    random = np.random.default_rng(7)
    model.fit(random.normal(size=(8, 4)), random.normal(size=(8, 3)), epochs=2, verbose=0)
    return request.param, model, tfckpt.Checkpoint(model=model).save(tmp_path / "ckpt")


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


def equal_weights(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(map(np.array_equal, one.values(), other.values()))


@pytest.mark.parametrize(
    "policy",
    [
        {"exclude": ["model/classes/**"]},
        {"include": ["model/body/**", "optimizer/**"]},
        {"include": ["model/**", "optimizer/**"], "exclude": ["model/classes/*"]},
    ],
)
def test_slots_of_what_is_left_alone_stay(
    flavour: Any, trained: tuple[Any, Any, str], policy: dict[str, Any]
) -> None:
    optimizer, old, path = trained
    new = built(net(flavour, optimizer))
    before = slots(new, "classes")
    report = tfckpt.restore(path, new, policy=policy)
    assert equal_weights(slots(new, "body"), slots(old, "body"))
    assert equal_weights(slots(new, "classes"), before)
    assert int(new.optimizer.iterations.numpy()) == 2
    assert all(
        step.status is Status.EXCLUDED
        for step in report.plan.steps
        if step.entry.of.startswith("model/classes/")
    )


def test_the_report_says_why(flavour: Any, tmp_path: Path) -> None:
    path = tfckpt.Checkpoint(model=built(net(flavour))).save(tmp_path / "ckpt")
    report = str(tfckpt.restore(path, net(flavour), exclude=["model/classes/**"]))
    assert "EXCLUDED  exclude: model/classes/** matches its variable" in report
    report = str(tfckpt.restore(path, net(flavour), include=["model/body/**", "optimizer/**"]))
    assert "EXCLUDED  its variable is not restored: no include rule selects it" in report


def test_a_head_of_another_size_needs_no_rule_for_its_slots(
    flavour: Any, trained: tuple[Any, Any, str]
) -> None:
    optimizer, old, path = trained
    new = net(flavour, optimizer, classes=5)
    tfckpt.restore(path, new, exclude=["model/classes/**"])
    assert equal_weights(slots(new, "body"), slots(old, "body"))


def test_what_fits_of_a_slot_of_a_variable_that_does_not_is_not_taken(
    flavour: Any, trained: tuple[Any, Any, str]
) -> None:
    """Adafactor keeps a mean for each row: of the same length, and of other weights."""
    optimizer, old, path = trained
    new = built(net(flavour, optimizer, classes=5))
    before = slots(new, "classes")
    tfckpt.restore(path, new, on_shape_mismatch="skip")
    assert equal_weights(slots(new, "body"), slots(old, "body"))
    assert equal_weights(slots(new, "classes"), before)


def test_weights_of_one_checkpoint_and_the_optimizer_of_another(
    flavour: Any, trained: tuple[Any, Any, str], tmp_path: Path
) -> None:
    optimizer, old, path = trained
    weights = tfckpt.Checkpoint(model=net(flavour, optimizer)).save(tmp_path / "weights")
    first = {"path": weights, "policy": {"include": ["model/**"]}}
    second = {"path": path, "policy": {"include": ["optimizer/**"]}}
    new = net(flavour, optimizer)
    tfckpt.restore({"version": 1, "restore": {"all_of": [first, second]}}, new)
    for layer in ("body", "classes"):
        assert equal_weights(slots(new, layer), slots(old, layer))


def weight(name: str, shape: tuple[int, ...] = (2,)) -> Entry:
    return Entry(f"model/{name}", Role.WEIGHT, "float32", shape, 8)


def momentum(name: str) -> Entry:
    of, slot = f"model/{name}", f"optimizer/momentum/{name}"
    return Entry(slot, Role.SLOT, "float32", (2,), 8, slot="momentum", of=of)


def inventory(*entries: Entry) -> Inventory:
    return Inventory("here", {entry.name: entry for entry in entries})


def test_exclude_is_about_the_name_after_renaming() -> None:
    live = inventory(weight("a/w"), momentum("a/w"))
    stored = inventory(weight("a/w"), momentum("a/w"), weight("old/w"), momentum("old/w"))
    rename = [{"checkpoint": "model/old/**", "model": "model/head/**"}]
    plan = make_plan(Policy(rename=rename, exclude=["model/head/**"]), stored, live)
    assert plan.ok
    assert {step.source: step.status for step in plan.steps} == {
        "model/a/w": Status.LOADED,
        "optimizer/momentum/a/w": Status.LOADED,
        "model/old/w": Status.EXCLUDED,
        "optimizer/momentum/old/w": Status.EXCLUDED,
    }


class Subclassed(keras.Model):
    """Its variables are `model/kernel` in a file, their slots `model_first_kernel_momentum`."""

    def __init__(self, names: tuple[str, str]) -> None:
        super().__init__(name="model")
        self.first, self.second = (keras.layers.Dense(3, name=name) for name in names)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def trained_as_before_3_6(
    value: float, optimizer: Any, names: tuple[str, str] = ("first", "second")
) -> Any:
    model = Subclassed(names)
    model(np.ones((1, 3), "float32"))
    optimizer.build(model.trainable_variables)
    for n, variable in enumerate(optimizer.variables[2:]):
        variable.assign(tf.fill(variable.shape, value + n))
    return model


def without_lists(optimizer: Any, path: str, model: Any) -> str:
    """Write a checkpoint as Keras 3.6 does."""
    for name in ("_momentums", "_velocities", "_velocity_hats", "_model_variables_moving_average"):
        if name in vars(optimizer):
            setattr(optimizer, name, [])
    return tf.train.Checkpoint(model=model, optimizer=optimizer).save(path)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"use_ema": True}])
def test_they_come_back_by_the_order_of_their_variables(options: Any, tmp_path: Any) -> None:
    old, new = keras.optimizers.Adam(**options), keras.optimizers.Adam(**options)
    source, target = trained_as_before_3_6(1.0, old), trained_as_before_3_6(100.0, new)
    stored = [variable.numpy() for variable in old.variables]
    path = without_lists(old, str(tmp_path / "ckpt"), source)
    tfckpt.Checkpoint(model=target, optimizer=new).restore(path).assert_consumed()
    np.testing.assert_equal([variable.numpy() for variable in new.variables], stored)


def test_names_that_two_variables_share_are_not_guessed(tmp_path: Any) -> None:
    old, new = keras.optimizers.Adam(), keras.optimizers.Adam()
    source, target = (
        trained_as_before_3_6(1.0, old, ("same", "same")),
        trained_as_before_3_6(100.0, new, ("same", "same")),
    )
    path = without_lists(old, str(tmp_path / "ckpt"), source)
    before = [variable.numpy() for variable in new.variables[2:]]
    with pytest.raises(AssertionError, match="no such slot"):
        tfckpt.Checkpoint(model=target, optimizer=new).restore(path).assert_consumed()
    np.testing.assert_equal([variable.numpy() for variable in new.variables[2:]], before)
