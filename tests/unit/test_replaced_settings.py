"""A learning rate of the code that a restore replaces is said, with the key that decides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from zoo.fits import fit, runs_of

import tfckpt
import tfckpt.callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "a policy with `optimizer: {hyperparameters: config}` keeps the values from your code"
RATE = f"optimizer/learning_rate was 0.5 and is 0.05, as in the checkpoint; {KEY}"


@pytest.fixture
def warnings(caplog) -> Callable[[], list[str]]:
    """What was warned of since the last call."""

    def since() -> list[str]:
        found = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        caplog.clear()
        return found

    return since


@pytest.fixture
def run(flavour, tmp_path) -> Callable[..., Any]:
    """``run(rate)``: a model with that rate, and a run of a training of an epoch with 0.05."""
    build = runs_of(flavour, tmp_path / "run")
    model, first = build(every_epochs=1)
    fit(model, 1, first.callback(verbose=0))

    def again(rate: Any, policy: Any = None) -> Any:
        model, run = build(policy)
        model.compile(flavour.optimizers.Adam(rate), "mse")
        return model, run

    return again


def rate_of(model: Any) -> float:
    return float(f"{float(model.optimizer.learning_rate.numpy()):.6g}")


def test_fit_says_it_among_its_lines(run, capsys, warnings) -> None:
    model, second = run(0.5)
    fit(model, 2, second.callback())
    assert f"\n{RATE}\n" in capsys.readouterr().out
    assert warnings() == []
    assert rate_of(model) == 0.05
    model, same = run(0.05)
    fit(model, 2, same.callback())
    assert "learning_rate" not in capsys.readouterr().out


def test_a_loop_is_warned_once_and_the_report_has_it(run, warnings) -> None:
    _, second = run(0.5)
    report = second.restore()
    assert warnings() == [f"{report.path}: {RATE}"]
    assert report.replaced == {"optimizer/learning_rate": (0.5, 0.05)}
    assert RATE in str(report)
    shown = {"name": "optimizer/learning_rate", "code": 0.5, "checkpoint": 0.05}
    assert report.to_json()["replaced"] == [shown]


def test_the_drop_in_classes_warn(run, tmp_path, warnings) -> None:
    path = str(tmp_path / "run" / "ckpt-1")
    model, _ = run(0.5)
    report = tfckpt.Checkpoint(model=model).restore(path).report
    policy = 'policy={"optimizer": {"hyperparameters": "config"}}'
    assert warnings() == [f"{path}: {RATE}: `tfckpt.restore({path!r}, model=…, {policy})`"]
    assert report.replacements == RATE
    model, _ = run(0.5)
    manager = tfckpt.CheckpointManager(tfckpt.Checkpoint(model=model), tmp_path / "run", 3)
    manager.restore_or_initialize()
    assert [RATE in line for line in warnings()] == [True]


def test_the_policy_keeps_it(run, warnings) -> None:
    model, second = run(0.5, {"optimizer": {"hyperparameters": "config"}})
    report = second.restore()
    assert rate_of(model) == 0.5
    assert (warnings(), report.replaced, report.replacements) == ([], {}, "")


def test_the_callback_of_one_line_takes_the_policy(flavour, run, tmp_path, capsys) -> None:
    model, _ = run(0.5)
    policy = {"optimizer": {"hyperparameters": "config"}}
    callback = tfckpt.callbacks.resume(model, tmp_path / "run", policy=policy)
    assert fit(model, 2, callback) == [0, 1]
    assert rate_of(model) == 0.5
    assert "learning_rate" not in capsys.readouterr().out


def test_several_optimizers_are_in_one_line(flavour, tmp_path, warnings) -> None:
    def objects(*rates: float) -> dict[str, Any]:
        optimizers = [flavour.optimizers.SGD(rate, momentum=0.9) for rate in rates]
        weights = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1)])
        for each in optimizers:
            each.build(weights.trainable_variables)
        return {"model": weights, "first": optimizers[0], "second": optimizers[1]}

    path = tfckpt.Checkpoint(**objects(0.1, 0.2)).save(str(tmp_path / "ckpt"))
    tfckpt.Checkpoint(**objects(0.3, 0.4)).restore(path)
    said = "first/learning_rate was 0.3 and is 0.1, second/learning_rate was 0.4 and is 0.2, as in"
    assert [said in line for line in warnings()] == [True]


@pytest.mark.parametrize("saved", [True, False], ids=["schedule saved", "rate saved"])
def test_a_schedule_against_a_rate_is_left_and_said(flavour, tmp_path, saved, warnings) -> None:
    def build(schedule: bool) -> Any:
        rate: Any = 0.05
        if schedule:
            rate = flavour.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        model = flavour.Sequential([flavour.Input((2,)), flavour.layers.Dense(1, name="a")])
        model.compile(flavour.optimizers.SGD(rate), "mse")
        model.optimizer.build(model.trainable_variables)
        return model

    path = tfckpt.Checkpoint(model=build(saved)).save(str(tmp_path / "ckpt"))
    model = build(not saved)
    report = tfckpt.restore(path, model=model)
    assert report.plan.ok
    rate = model.optimizer.learning_rate
    assert float(rate) == pytest.approx(0.05 if saved else 0.1)
    side = "the model, which keeps it" if saved else "the checkpoint, where it stays"
    assert any(f"only in {side}: optimizer/learning_rate" in line for line in warnings())

    policy: dict[str, Any] = {"on_missing": "error", "on_unexpected": "error"}
    config: dict[str, Any] = {"version": 1, "restore": {"path": path, "policy": policy}}
    with pytest.raises(tfckpt.RefusedError) as refused:
        tfckpt.restore(config, model=model)
    rates = [step for step in refused.value.plan.errors if "learning_rate" in step.entry.name]
    assert len(rates) == len(refused.value.plan.errors) > 0
    hint = "optimizer: {hyperparameters: config} keeps the value from your code, or its schedule"
    assert {step.hint for step in rates} == {hint}
    policy["optimizer"] = {"hyperparameters": "config"}
    assert tfckpt.restore(config, model=model).plan.ok


def test_what_a_schedule_comes_to_is_not_what_the_code_says(flavour, tmp_path, warnings) -> None:
    def build() -> Any:
        rate = flavour.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
        model = flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="a")])
        model.compile(flavour.optimizers.SGD(rate), "mse")
        return model

    model = build()
    fit(model, 1)
    path = tfckpt.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    assert tfckpt.Checkpoint(model=build()).restore(path).report.replaced == {}
    assert warnings() == []
