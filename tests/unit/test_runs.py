"""A run by config: what it is given, builds, restores, resets and saves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable


X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
Y = X[:, :2]


def fill(seed: int, variables: list[Any]) -> None:
    random = np.random.default_rng(seed)
    for variable in variables:
        dtype = np.dtype(variable.numpy().dtype)
        low, high = (1, 1000) if dtype.kind in "iu" else (0.1, 1)
        variable.assign(random.uniform(low, high, size=variable.shape).astype(dtype))


def values(variables: list[Any]) -> list[np.ndarray]:
    return [variable.numpy() for variable in variables]


@pytest.fixture
def network(flavour) -> Callable[..., Any]:
    """``network(seed, head="head")``: a model with every value its own."""

    def build(seed: int, head: str = "head", body: str = "body", classes: int = 2) -> Any:
        model = flavour.Sequential(
            [
                flavour.Input((4,)),
                flavour.layers.Dense(3, name=body),
                flavour.layers.Dense(classes, name=head),
            ]
        )
        fill(seed, model.variables)
        return model

    return build


def config(path: str, **policy: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"path": path, "policy": policy}}


@pytest.fixture
def prefix(tmp_path) -> str:
    return str(tmp_path / "zoo" / "ckpt")


def test_include_and_exclude_leave_the_rest_alone(network, prefix) -> None:
    source, target = network(1), network(2)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    before = values(target.layers[-1].variables)
    report = tfckpt.restore(
        config(path, api="read", include=["model/**"], exclude=["model/head/**"]), model=target
    )
    np.testing.assert_equal(values(target.layers[-1].variables), before)
    np.testing.assert_equal(
        values(target.layers[-2].variables), values(source.layers[-2].variables)
    )
    assert {status.value: count for status, count in report.counts.items()} == {
        "LOADED": 2,
        "EXCLUDED": 3,
    }


@pytest.fixture
def trained(network, flavour) -> Callable[..., Any]:
    """``trained("Adagrad", 1)``: a model that has been fitted for some steps."""

    def build(optimizer: str, seed: int, rate: float = 0.05, **more: Any) -> Any:
        model = network(seed)
        model.compile(getattr(flavour.optimizers, optimizer)(rate, **more), "mse")
        model.fit(X, Y, batch_size=4, epochs=seed, verbose=0)
        return model

    return build


OPTIMIZERS = [("Adagrad", {}), ("Adam", {}), ("Ftrl", {}), ("SGD", {"momentum": 0.9})]


@pytest.mark.parametrize(("name", "more"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
def test_a_reset_optimizer_is_a_newly_built_one(
    trained, network, flavour, prefix, name, more
) -> None:
    source, target = trained(name, 1, **more), trained(name, 2, rate=0.5, **more)
    path = tfckpt.Checkpoint(model=source, optimizer=source.optimizer).save(prefix)
    new = getattr(flavour.optimizers, name)(0.5, **more)
    new.build(target.trainable_variables)
    tfckpt.restore(
        config(
            path, optimizer={"slots": "reset", "iterations": "reset", "hyperparameters": "config"}
        ),
        model=target,
        optimizer=target.optimizer,
    )
    np.testing.assert_equal(values(target.optimizer.variables), values(new.variables))
    np.testing.assert_equal(values(target.trainable_variables), values(source.trainable_variables))
    target.fit(X, Y, verbose=0)


def test_an_optimizer_that_no_config_makes_is_refused_before_anything_changes(
    network, flavour, prefix
) -> None:
    class Odd(flavour.optimizers.SGD):
        def get_config(self) -> dict[str, Any]:
            raise NotImplementedError("no config")

    model = network(1)
    optimizer = Odd(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    fill(1, optimizer.variables)
    path = tfckpt.Checkpoint(model=model, optimizer=optimizer).save(prefix)
    fill(2, [*model.variables, *optimizer.variables])
    before = values([*model.variables, *optimizer.variables])
    with pytest.raises(tfckpt.RestoreError, match="cannot be reset"):
        tfckpt.restore(config(path, optimizer={"slots": "reset"}), model=model, optimizer=optimizer)
    np.testing.assert_equal(values([*model.variables, *optimizer.variables]), before)


def test_save_if_due_in_a_loop_and_a_restart(tmp_path) -> None:
    declared = {
        "version": 1,
        "manager": {"directory": str(tmp_path), "max_to_keep": 2, "save": {"every_steps": 3}},
        "restore": {"directory": str(tmp_path), "if_none": "initialize"},
    }

    def train(steps: int) -> tuple[Any, list[int]]:
        step = tf.Variable(0)
        run = tfckpt.from_config(declared, step=step, weight=tf.Variable(0.0))
        run.restore()
        saved = []
        for _ in range(steps):
            step.assign_add(1)
            if run.save_if_due(metrics={"loss": tf.constant(0.5)}):
                saved.append(int(step))
        return run, saved

    run, saved = train(8)
    assert saved == [3, 6]
    assert [path[-6:] for path in run.manager.checkpoints] == ["ckpt-1", "ckpt-2"]
    run, saved = train(7)  # from step 6
    assert run.report.step == 6
    assert run.report.metrics == {"loss": 0.5}
    assert saved == [9, 12]
    assert [path[-6:] for path in run.manager.checkpoints] == ["ckpt-3", "ckpt-4"]


def test_a_thread_cannot_wait_for_signals_and_says_so(tmp_path) -> None:
    manager = {"directory": str(tmp_path), "save": {"on_signal": ["SIGTERM"]}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(5))
    with ThreadPoolExecutor(1) as other, pytest.raises(tfckpt.TfckptError, match="main thread"):
        other.submit(run.save_if_due).result()


def test_without_a_restore_section_there_is_nothing_to_restore(network, tmp_path) -> None:
    model = network(1)
    for declared in ({"version": 1}, {"version": 1, "manager": {"directory": str(tmp_path)}}):
        run = tfckpt.from_config(declared, model=model)
        for ask in (
            run.restore,
            run.plan,
            lambda declared=declared: tfckpt.restore(declared, model=model),
            lambda declared=declared: tfckpt.plan(declared, model=model),
        ):
            with pytest.raises(tfckpt.RestoreError, match="`restore`"):
                ask()
        assert run.report is None


def test_a_save_that_fails_leaves_the_run_as_it_was(network, tmp_path) -> None:
    manager = {"directory": str(tmp_path / "run"), "save": {"every_steps": 1}}
    step = tf.Variable(1)
    run = tfckpt.from_config({"version": 1, "manager": manager}, model=network(1), step=step)
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(tfckpt.TfckptError):
        run.save(epoch=4)
    assert run.epoch == 0
    (tmp_path / "run").unlink()
    assert run.save_if_due() is not None


NO_NUMBERS = [
    {"epoch": -1},
    {"epoch": 1.5},
    {"epoch": "3"},
    {"epoch": True},
    {"epoch": 2**63},
    {"metrics": {"loss": "0.5"}},
    {"metrics": {"loss": None}},
    {"metrics": {"loss": "low"}},
    {"metrics": {"loss": 10**400}},
    {"metrics": {"loss": [0.5, 0.25]}},
    {"metrics": {3: 0.5}},
]


@pytest.mark.parametrize("wrong", NO_NUMBERS, ids=lambda wrong: str(wrong)[:30])
def test_what_no_record_can_hold_is_refused_before_anything_is_written(tmp_path, wrong) -> None:
    run = tfckpt.from_config(
        {"version": 1, "manager": {"directory": str(tmp_path / "run")}}, value=tf.Variable(1.0)
    )
    with pytest.raises(tfckpt.SaveError, match=r"epoch|metric"):
        run.save(**wrong)
    assert not (tmp_path / "run").exists()
    assert (run.epoch, int(run.checkpoint.save_counter)) == (0, 0)
    assert run.save().endswith("ckpt-1")


@pytest.mark.parametrize("wrong", ["x", [1, 2], float("nan")], ids=str)
def test_a_step_that_counts_nothing_is_refused_at_once(tmp_path, wrong) -> None:
    declared = {"version": 1, "manager": {"directory": str(tmp_path / "run")}}
    with pytest.raises(tfckpt.TfckptError, match="another keyword"):
        tfckpt.from_config(declared, step=tf.Variable(wrong))
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_and_tensorflow_are_numbers(tmp_path) -> None:
    declared = {
        "version": 1,
        "manager": {"directory": str(tmp_path)},
        "restore": {"directory": str(tmp_path)},
    }
    run = tfckpt.from_config(declared, step=tf.Variable(7))
    metrics = {"a": np.float32(0.5), "b": tf.constant(0.25), "c": np.int64(3), "d": float("nan")}
    for epoch in (np.int64(3), np.array(3), tf.constant(3), 3):
        run.save(epoch=epoch, metrics=metrics)
        report = tfckpt.restore(declared, step=tf.Variable(0))
        assert (report.epoch, report.step, run.epoch) == (3, 7, 3)
        np.testing.assert_equal(dict(report.metrics), {"a": 0.5, "b": 0.25, "c": 3, "d": np.nan})


@pytest.fixture
def subclassed(flavour) -> Callable[..., Any]:
    """A model that has no variables before its first call; it takes one input, or two."""

    class Net(flavour.Model):
        def __init__(self, inputs: int = 1) -> None:
            super().__init__()
            self.branches = [flavour.layers.Dense(3, name=f"branch_{n}") for n in range(inputs)]
            self.head = flavour.layers.Dense(2, name="head")
            self.calls = 0

        def call(self, inputs: Any) -> Any:
            self.calls += 1
            if isinstance(inputs, dict):
                inputs = [inputs["left"], inputs["right"]]
            inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            return self.head(
                sum(branch(each) for branch, each in zip(self.branches, inputs, strict=True))
            )

    return Net


SPEC = {"shape": [None, 4]}
BUILDS = [
    (1, SPEC, X),
    (2, [SPEC, {"shape": [None, 4], "dtype": "float32"}], [X, X]),
    (2, {"left": SPEC, "right": SPEC}, {"left": X, "right": X}),
]


@pytest.mark.parametrize(("inputs", "spec", "batch"), BUILDS, ids=["one", "list", "names"])
def test_a_model_never_called_is_built_by_its_spec(subclassed, prefix, inputs, spec, batch) -> None:
    source, target = subclassed(inputs), subclassed(inputs)
    expected = source(batch).numpy()
    path = tfckpt.Checkpoint(model=source).save(prefix)
    tfckpt.restore(config(path, build={"model": spec}), model=target)
    np.testing.assert_array_equal(target(batch).numpy(), expected)


def test_a_model_that_is_built_is_not_called(subclassed, prefix) -> None:
    source, target = subclassed(), subclassed()
    source(X), target(X)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    calls = target.calls
    tfckpt.restore(config(path, build={"model": SPEC}), model=target)
    assert target.calls == calls


def test_without_a_spec_the_error_says_how_to_build(subclassed, prefix) -> None:
    source, target = subclassed(), subclassed()
    source(X)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError) as error:
        tfckpt.restore(config(path), model=target)
    message = str(error.value)
    assert "Net" in message
    assert "model(tf.zeros(" in message
    assert "build:" in message
    assert not target.variables


def test_a_wrong_spec_is_said(subclassed, prefix) -> None:
    source = subclassed(2)
    source([X, X])
    path = tfckpt.Checkpoint(model=source).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError, match="zeros of the declared shape"):
        tfckpt.restore(config(path, build={"model": SPEC}), model=subclassed(2))
    with pytest.raises(
        tfckpt.NotBuiltError, match="was given as 'modle'; models and layers given: model"
    ):
        tfckpt.restore(config(path, build={"modle": SPEC}), model=subclassed(2))
    with pytest.raises(
        tfckpt.NotBuiltError, match="was given as 'model'; other objects given: step"
    ):
        tfckpt.restore(config(path, build={"model": SPEC}), step=tf.Variable(1))
    wide = [{"shape": [None, 7]}] * 2
    with pytest.raises(tfckpt.RefusedError, match="model/branches"):
        tfckpt.restore(config(path, build={"model": wide}), model=subclassed(2))


RENAMED = {
    "api": "read",
    "assert": "existing_objects_matched",
    "rename": [{"checkpoint": "backbone/**", "model": "encoder/**"}],
}


def head(flavour) -> Any:
    return flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="out")])


def test_an_unbuilt_model_that_a_rule_renames_is_not_left_random(
    flavour, subclassed, prefix
) -> None:
    source, target = subclassed(), subclassed()
    source(X)
    path = tfckpt.Checkpoint(backbone=source, head=head(flavour)).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError, match=r"encoder .* has no variables yet") as error:
        tfckpt.restore(config(path, **RENAMED), encoder=target, head=head(flavour))
    assert "backbone/" in str(error.value)
    target(X)
    tfckpt.restore(config(path, **RENAMED), encoder=target, head=head(flavour))
    np.testing.assert_array_equal(target(X).numpy(), source(X).numpy())


def test_an_unbuilt_optimizer_that_a_rule_renames_is_not_left_at_zero(flavour, prefix) -> None:
    source, target = head(flavour), head(flavour)
    adam = flavour.optimizers.Adam()
    adam.build(source.trainable_variables)
    policy = {
        "assert": "existing_objects_matched",
        "rename": [{"checkpoint": "old/**", "model": "new/**"}],
        "expect_missing": ["other/**"],
    }
    ones = [np.ones_like(weight.numpy()) for weight in source.trainable_variables]
    adam.apply_gradients(zip(ones, source.trainable_variables, strict=True))
    path = tfckpt.Checkpoint(model=source, old=adam).save(prefix)
    new = flavour.optimizers.Adam()
    names = {"model": target, "new": new, "other": flavour.optimizers.SGD()}
    tfckpt.restore(config(path, **policy), **names)
    np.testing.assert_array_equal(state(new), state(adam))
    assert state(new).any()


def state(optimizer: Any) -> np.ndarray:
    variables = optimizer.variables
    found = variables() if callable(variables) else variables
    return np.concatenate([np.ravel(variable.numpy()) for variable in found])


def test_seeds_come_back_exactly(tmp_path) -> None:
    keras = pytest.importorskip("keras")

    def build(seed: int) -> Any:
        return keras.Sequential(
            [keras.Input((4,)), keras.layers.Dropout(0.5, seed=seed), keras.layers.Dense(2)]
        )

    source, target = build(1), build(2)
    source(X, training=True)
    path = tfckpt.Checkpoint(model=source).save(str(tmp_path / "ckpt"))
    expected = [source(X, training=True).numpy() for _ in range(3)]
    tfckpt.restore({"version": 1, "restore": {"path": path}}, model=target)
    np.testing.assert_equal([target(X, training=True).numpy() for _ in range(3)], expected)


def test_iterators_come_back_exactly(tmp_path) -> None:
    data = tf.data.Dataset.range(40).shuffle(10, seed=3).batch(4)
    iterator, step = iter(data), tf.Variable(0)
    for _ in range(3):
        next(iterator)
    run = tfckpt.from_config(
        {"version": 1, "manager": {"directory": str(tmp_path)}}, iterator=iterator, step=step
    )
    run.save()
    expected = [batch.numpy().tolist() for batch in iterator]
    again = iter(data)
    next(again)
    tfckpt.restore(
        {"version": 1, "restore": {"directory": str(tmp_path)}}, iterator=again, step=step
    )
    assert [batch.numpy().tolist() for batch in again] == expected


def test_training_state_leaves_out_what_it_does_not_list(tmp_path) -> None:
    iterator, step = iter(tf.data.Dataset.range(9)), tf.Variable(5)
    next(iterator)
    manager = {"directory": str(tmp_path)}
    run = tfckpt.from_config({"version": 1, "manager": manager}, iterator=iterator, step=step)
    run.save(epoch=3)
    policy = {"training_state": []}
    other, step = iter(tf.data.Dataset.range(9)), tf.Variable(0)
    later = tfckpt.from_config(
        {"version": 1, "restore": {"directory": str(tmp_path), "policy": policy}},
        iterator=other,
        step=step,
    )
    report = later.restore()
    assert next(other).numpy() == 0
    assert step.numpy() == 5
    assert (report.epoch, later.epoch) == (3, 0)


def test_a_step_that_is_no_number_is_refused_before_anything_is_assigned(tmp_path) -> None:
    step, value = tf.Variable(float("nan")), tf.Variable(1.0)
    path = tfckpt.Checkpoint(step=step, value=value).save(str(tmp_path / "ckpt"))
    step, value = tf.Variable(3.0), tf.Variable(2.0)
    run = tfckpt.from_config({"version": 1, "restore": {"path": path}}, step=step, value=value)
    with pytest.raises(tfckpt.RestoreError, match="`step` is not the number of a training step"):
        run.restore()
    assert (step.numpy(), value.numpy(), run.report) == (3.0, 2.0, None)
