"""A variable that is not restored keeps its slots: fresh weights get nobody's momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.live.building import build_for
from tfckpt.live.inventory import collect
from tfckpt.planning import Severity, Status, make_plan
from tfckpt.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path


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


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
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
    assert same(slots(new, "body"), slots(old, "body"))
    assert same(slots(new, "classes"), before)
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
    assert same(slots(new, "body"), slots(old, "body"))


def test_what_fits_of_a_slot_of_a_variable_that_does_not_is_not_taken(
    flavour: Any, trained: tuple[Any, Any, str]
) -> None:
    """Adafactor keeps a mean for each row: of the same length, and of other weights."""
    optimizer, old, path = trained
    new = built(net(flavour, optimizer, classes=5))
    before = slots(new, "classes")
    tfckpt.restore(path, new, on_shape_mismatch="skip")
    assert same(slots(new, "body"), slots(old, "body"))
    assert same(slots(new, "classes"), before)


def test_an_optimizer_by_itself_is_restored_whole(
    flavour: Any, trained: tuple[Any, Any, str]
) -> None:
    optimizer, old, path = trained
    new = net(flavour, optimizer)
    tfckpt.restore(path, new, include=["optimizer/**"])
    for layer in ("body", "classes"):
        assert same(slots(new, layer), slots(old, layer))


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
        assert same(slots(new, layer), slots(old, layer))


def weight(name: str, shape: tuple[int, ...] = (2,)) -> Entry:
    return Entry(f"model/{name}", Role.WEIGHT, "float32", shape, 8)


def momentum(name: str) -> Entry:
    of, slot = f"model/{name}", f"optimizer/momentum/{name}"
    return Entry(slot, Role.SLOT, "float32", (2,), 8, slot="momentum", of=of)


def inventory(*entries: Entry) -> Inventory:
    return Inventory("here", {entry.name: entry for entry in entries})


def test_slots_of_a_variable_that_is_missing_are_not_taken() -> None:
    live = inventory(weight("a/w"), weight("b/w"), momentum("a/w"), momentum("b/w"))
    stored = inventory(weight("a/w"), momentum("a/w"), momentum("b/w"))
    plan = make_plan(Policy(on_missing="ignore", on_unexpected="ignore"), stored, live)
    (step,) = [step for step in plan.steps if step.name == "optimizer/momentum/b/w"]
    assert step.status is Status.EXCLUDED
    assert step.reason == "its variable is not restored: not in the checkpoint"


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


def test_a_variable_that_is_refused_has_its_slots_told_as_they_are() -> None:
    live = inventory(weight("a/w"), weight("b/w", (3,)), momentum("a/w"), momentum("b/w"))
    stored = inventory(weight("a/w"), weight("b/w"), momentum("a/w"), momentum("b/w"))
    plan = make_plan(Policy(), stored, live)
    assert [s.name for s in plan.steps if s.severity is Severity.ERROR] == ["model/b/w"]
    assert plan.counts == {Status.LOADED: 3, Status.MISMATCH: 1}
