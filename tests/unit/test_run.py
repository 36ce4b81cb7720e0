"""A run by config: what is restored into what, what is reset, when it saves."""

from __future__ import annotations

import json
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


# Selecting and renaming


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


def test_rename_takes_the_body_of_one_model_to_another(network, prefix) -> None:
    source, target = network(1, body="backbone"), network(2, body="encoder", head="new", classes=5)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    before = values(target.layers[-1].variables)
    policy = {
        "api": "read",
        "exclude": ["model/new/**"],
        "exclude_checkpoint": ["model/head/**"],
        "rename": [{"checkpoint": "model/backbone/**", "model": "model/encoder/**"}],
    }
    report = tfckpt.restore(config(path, **policy), model=target)
    np.testing.assert_equal(
        values(target.layers[-2].variables), values(source.layers[-2].variables)
    )
    np.testing.assert_equal(values(target.layers[-1].variables), before)
    assert report.counts[tfckpt.Status.RENAMED] == 2


# Optimizers


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


def test_slots_are_reset_although_no_step_is_counted(trained, prefix) -> None:
    source, target = trained("Adagrad", 1), trained("Adagrad", 2)
    path = tfckpt.Checkpoint(model=source, optimizer=source.optimizer).save(prefix)
    target.optimizer.iterations.assign(0)
    tfckpt.restore(
        config(path, optimizer={"slots": "reset", "iterations": "reset"}),
        model=target,
        optimizer=target.optimizer,
    )
    slots = [v.numpy() for v in target.optimizer.variables if v.shape.rank]
    assert slots
    for slot in slots:
        np.testing.assert_array_equal(slot, np.full_like(slot, 0.1))


def test_a_restored_optimizer_trains_on_as_the_saved_one(trained, prefix) -> None:
    source, target = trained("Adam", 1), trained("Adam", 2)
    path = tfckpt.Checkpoint(model=source, optimizer=source.optimizer).save(prefix)
    tfckpt.restore(config(path), model=target, optimizer=target.optimizer)
    for model in (source, target):
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_equal(values(target.trainable_variables), values(source.trainable_variables))


@pytest.mark.parametrize(("word", "rate"), [("config", 0.5), ("restore", 0.05)])
def test_the_learning_rate_is_the_configured_one_on_request(trained, prefix, word, rate) -> None:
    source, target = trained("Adam", 1, rate=0.05), trained("Adam", 2, rate=0.5)
    path = tfckpt.Checkpoint(model=source, optimizer=source.optimizer).save(prefix)
    tfckpt.restore(
        config(path, optimizer={"hyperparameters": word}), model=target, optimizer=target.optimizer
    )
    np.testing.assert_allclose(np.asarray(target.optimizer.learning_rate), rate, rtol=1e-6)
    np.testing.assert_equal(
        int(target.optimizer.iterations.numpy()), int(source.optimizer.iterations.numpy())
    )


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


# The counter of saves


def test_save_counter_belongs_to_restore_and_not_to_read(network, tmp_path) -> None:
    model = network(1)
    manager = {"directory": str(tmp_path)}
    run = tfckpt.from_config({"version": 1, "manager": manager}, model=model)
    run.save(), run.save()
    for api, count in (("restore", 2), ("read", 0)):
        restore = {"directory": str(tmp_path), "policy": {"api": api}}
        later = tfckpt.from_config({"version": 1, "restore": restore}, model=network(2))
        later.restore()
        assert int(later.checkpoint.save_counter) == count


# Saving


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


def test_the_step_is_the_optimizers_where_none_is_given(trained, tmp_path) -> None:
    model = trained("SGD", 1)
    manager = {"directory": str(tmp_path), "save": {"every_steps": 2}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, model=model)
    path = run.save_if_due()
    assert run.save_if_due() is None
    with open(path + ".tfckpt.json", encoding="utf-8") as file:  # noqa: PTH123
        assert json.load(file)["step"] == int(model.optimizer.iterations.numpy()) == 2


def test_a_save_that_was_skipped_is_due_again(tmp_path, monkeypatch) -> None:
    manager = {"directory": str(tmp_path), "save": {"every_steps": 5}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(5))
    with monkeypatch.context() as busy:
        busy.setattr(run.manager, "save_as", lambda about: None)
        assert run.save_if_due() is None
    assert run.save_if_due() is not None
    run.sync()


def test_a_thread_cannot_wait_for_signals_and_says_so(tmp_path) -> None:
    manager = {"directory": str(tmp_path), "save": {"on_signal": ["SIGTERM"]}}
    run = tfckpt.from_config({"version": 1, "manager": manager}, step=tf.Variable(5))
    with ThreadPoolExecutor(1) as other, pytest.raises(tfckpt.TfckptError, match="main thread"):
        other.submit(run.save_if_due).result()


def test_without_a_manager_there_is_nowhere_to_save(network) -> None:
    run = tfckpt.from_config({"version": 1}, model=network(1))
    with pytest.raises(tfckpt.TfckptError, match="manager"):
        run.save()
    run.sync()
    assert run.save_if_epoch_due(1, {}) is None


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


def test_a_gan_of_two_models_and_two_optimizers(flavour, network, tmp_path) -> None:
    def build(seed: int) -> dict[str, Any]:
        objects = {"generator": network(seed), "discriminator": network(seed + 10)}
        for name in list(objects):
            optimizer = flavour.optimizers.Adam(0.01)
            optimizer.build(objects[name].trainable_variables)
            fill(seed + 20, optimizer.variables)
            objects[f"{name}_optimizer"] = optimizer
        return objects

    source, target = build(1), build(2)
    declared = {
        "version": 1,
        "manager": {"directory": str(tmp_path)},
        "restore": {"directory": str(tmp_path)},
    }
    tfckpt.from_config(declared, **source).save()
    # in another order
    report = tfckpt.restore(declared, **dict(reversed(target.items())))
    for name in source:
        np.testing.assert_equal(values(target[name].variables), values(source[name].variables))
    names = set(tfckpt.inventory(**source).entries)
    assert "generator/body/kernel" in names
    assert any(name.startswith("discriminator_optimizer/momentum/") for name in names) or any(
        name.startswith("discriminator_optimizer/m/") for name in names
    )
    assert report.counts[tfckpt.Status.LOADED] == len(report.plan.steps)


def test_one_half_of_a_gan_alone(network, tmp_path) -> None:
    source = {"generator": network(1), "discriminator": network(2)}
    path = tfckpt.Checkpoint(**source).save(str(tmp_path / "ckpt"))
    target = network(3)
    policy = {
        "api": "read",
        "rename": [{"checkpoint": "generator/**", "model": "model/**"}],
        "exclude_checkpoint": ["discriminator/**"],
    }
    tfckpt.restore(config(path, **policy), model=target)
    np.testing.assert_equal(values(target.variables), values(source["generator"].variables))


def test_a_restore_waits_for_what_is_being_saved(tmp_path) -> None:
    value = tf.Variable(5)
    manager = {"directory": str(tmp_path), "enable_async": True}
    restore = {"directory": str(tmp_path), "if_none": "initialize"}
    run = tfckpt.from_config({"version": 1, "manager": manager, "restore": restore}, value=value)
    run.manager.save()
    value.assign(0)
    assert run.restore().path.endswith("ckpt-1")
    assert value.numpy() == 5
