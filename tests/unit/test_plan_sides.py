"""Plans of what one side alone has, of averages, and of several sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from zoo.entries import OPTIMIZER, slots, weights

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.errors import PolicyError
from tfckpt.planning import Plan, Severity, Status, make_plan, render_text, union_of
from tfckpt.policy import Policy, load_policy

MODEL = weights(model__a={"kernel": (3, 2), "bias": (2,)}, model__b={"kernel": (2, 2)})
TRAINED = [*MODEL, *slots(MODEL), *OPTIMIZER]
STEP = Entry("step", Role.STATE, "int64", (), 8)
SEED = Entry("seed/drop", Role.SEED, "uint32", (2,), 8)
DATA = Entry("data", Role.ITERATOR, "", None)


def inventory(*entries):
    optimizers = {e.name.partition("/")[0]: "adam" for e in entries if e.role is Role.ITERATIONS}
    named = {entry.name: entry for entry in entries}
    return Inventory("runs/ckpt-1", named, optimizers=optimizers, complete=True)


def below(path, entries):
    """The values of an optimizer, of another one at this path."""
    return [e._replace(name=e.name.replace("optimizer/", f"{path}/")) for e in entries]


def planned(stored, live, **policy):
    return make_plan(Policy(**policy), inventory(*stored), inventory(*live))


def said(plan):
    return " ".join(render_text(plan).split())


def left(plan):
    return {step.name or step.source for step in plan.steps if step.severity == "note"}


ADDED = {
    "an optimizer": (TRAINED, MODEL),
    "a second optimizer": ([*TRAINED, *below("other", TRAINED[3:])], TRAINED),
    "a loss scale": (
        [*TRAINED, Entry("optimizer/loss_scale/dynamic_scale", Role.SLOT, "float32", ())],
        TRAINED,
    ),
    "a rate": (TRAINED, TRAINED[:-1]),
    "a seed": ([*MODEL, SEED], MODEL),
    "a counter": ([*MODEL, STEP], MODEL),
    "a second counter": ([*MODEL, STEP, STEP._replace(name="epoch")], [*MODEL, STEP]),
    "a position in data": ([*MODEL, DATA], MODEL),
}


@pytest.mark.parametrize("what", ADDED)
def test_what_only_one_side_has_is_left_and_said(what):
    more, less = ADDED[what]
    names = {entry.name for entry in more} - {entry.name for entry in less}
    for stored, live in ((more, less), (less, more)):
        plan = planned(stored, live)
        assert plan.ok, render_text(plan)
        assert left(plan) == names
        assert {step.name for step in plan.assignments} == {entry.name for entry in less}
        assert said(plan).count("only in the ") == 1
        report = tfckpt.RestoreReport(plan, "runs/ckpt-1")
        assert report.warnings.startswith(
            f"{len(names)} value{'s' * (len(names) > 1)} only in the "
        )


@pytest.mark.parametrize("what", ADDED)
def test_who_asks_for_everything_gets_everything_or_nothing(what):
    more, less = ADDED[what]
    for key in ({"on_missing": "error"}, {"assert_": "consumed"}):
        assert not planned(less, more, **key).ok
    for key in ({"on_unexpected": "error"}, {"assert_": "consumed"}):
        assert not planned(more, less, **key).ok


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([*MODEL, *below("one", TRAINED[3:])], [*MODEL, *below("other", TRAINED[3:])]),
        ([*MODEL, STEP], [*MODEL, STEP._replace(name="global_step")]),
        ([*MODEL, SEED], [*MODEL, SEED._replace(name="seed/other")]),
        ([*MODEL, DATA], [*MODEL, DATA._replace(name="batches")]),
    ],
    ids=["optimizers", "counters", "seeds", "data"],
)
def test_two_that_may_be_one_are_a_question(stored, live):
    assert not planned(stored, live).ok


@pytest.mark.parametrize(
    "entry",
    [
        Entry("model/c/kernel", Role.WEIGHT, "float32", (2, 2), 16),
        Entry("model/c/vocabulary_size", Role.WEIGHT, "int64", (), 8),
        Entry("table", Role.OBJECT, "", None),
        Entry("prior", Role.STATE, "float32", (3,), 12),
        Entry("temperature", Role.STATE, "float32", (), 4),
    ],
    ids=lambda entry: entry.name,
)
def test_what_a_model_computes_with_is_asked_for(entry):
    assert not planned([*MODEL, entry], MODEL).ok
    assert not planned(MODEL, [*MODEL, entry]).ok


def test_slots_that_an_optimizer_does_not_keep_are_left_and_new_ones_begin():
    more = [*TRAINED, *slots(MODEL, "moving_average")]
    assert planned(more, TRAINED).ok
    assert "since the model's optimizer has no such slot" in said(planned(more, TRAINED))
    assert "starting at the restored weights" in said(planned(TRAINED, more))
    frozen = [e for e in TRAINED if not (e.of or "").startswith("model/a/")]
    assert "since its variable is not trained now" in said(planned(TRAINED, frozen))
    assert "its variable was not trained" in said(planned(frozen, TRAINED))
    for stored in (TRAINED, frozen):
        assert not planned(stored, more, on_missing="error").ok


def test_a_run_asks_for_everything_in_its_own_directory_and_not_elsewhere(flavour, tmp_path):
    def model():
        layers = [flavour.Input((2,)), flavour.layers.Dense(2, name="out")]
        return flavour.Sequential(layers)

    def config(directory):
        own = {"directory": str(tmp_path / directory)}
        source = {"directory": str(tmp_path / "one")}
        return {"version": 1, "manager": own, "restore": source}

    (saved := model()).layers[0].kernel.assign(np.ones((2, 2)))
    tfckpt.from_config(config("one"), saved).save()
    (compiled := model()).compile("adam", "mse")
    compiled.optimizer.build(compiled.trainable_variables)
    before = compiled.get_weights()
    with pytest.raises(tfckpt.RefusedError, match="no optimizer state"):
        tfckpt.from_config(config("one"), compiled).restore()
    np.testing.assert_equal(compiled.get_weights(), before)
    tfckpt.from_config(config("other"), compiled).restore()
    np.testing.assert_array_equal(compiled.layers[0].kernel, np.ones((2, 2)))


def test_an_index_that_was_written_over_is_no_damage(tmp_path, caplog):
    prefix = str(tmp_path / "best")
    weight = tf.Variable([1.0])
    tfckpt.Checkpoint(w=weight).write(prefix)
    tf.train.Checkpoint(w=tf.Variable([2.0])).write(prefix)
    assert Path(f"{prefix}.tfckpt.json").exists()
    assert tfckpt.restore(prefix, w=weight).path == prefix
    assert weight.numpy() == [2.0]
    (said,) = caplog.messages
    assert said.startswith(f"{prefix}: its files were written over since tfckpt saved it")


BODY, HEAD, SLOT = "model/body/kernel", "model/head/kernel", "optimizer/momentum/body/kernel"


def value(name: str, shape: tuple[int, ...] = (2,)) -> Entry:
    if name == SLOT:
        return Entry(name, Role.SLOT, "float32", shape, 8, slot="momentum", of=BODY)
    return Entry(name, Role.WEIGHT, "float32", shape, 8)


def of_source(source: str, *entries: Entry) -> Inventory:
    return Inventory(source, {entry.name: entry for entry in entries})


LIVE = of_source("here", value(BODY), value(HEAD))
WHOLE = value(BODY), value(HEAD)


def plan(source: str, *entries: Entry, live: Inventory = LIVE, **policy: Any) -> Plan:
    return make_plan(Policy(name=f"of {source}", **policy), of_source(source, *entries), live)


def found(united: Plan) -> dict[tuple[str, str], str]:
    """Live name and source → status, of the steps that a live value has."""
    return {(step.name, step.origin): step.status.value for step in united.steps if step.name != ""}


def test_each_value_comes_from_the_source_that_provides_it() -> None:
    united = union_of(
        [plan("a", *WHOLE, include=["model/body/**"]), plan("b", *WHOLE, exclude=["model/body/**"])]
    )
    assert united.ok
    assert found(united) == {(BODY, "a"): "LOADED", (HEAD, "b"): "LOADED"}
    left = {(step.source, step.origin): step.status for step in united.steps if not step.name}
    assert left == {(HEAD, "a"): Status.EXCLUDED, (BODY, "b"): Status.EXCLUDED}
    assert united.source == "a, b"
    assert united.policy == "of a, of b"


def test_two_sources_for_one_value_are_an_error_that_names_both() -> None:
    united = union_of([plan("a", *WHOLE), plan("b", value(HEAD), include=["model/head/**"])])
    (error,) = united.errors
    assert (error.name, error.status) == (HEAD, Status.MISMATCH)
    assert error.reason == "a (policy 'of a') and b (policy 'of b') would both restore it"
    assert "exclude it" in error.hint
    assert [step.name for step in united.assignments] == [BODY]


def test_a_value_that_one_restores_and_another_resets_is_an_error() -> None:
    live = of_source("here", value(BODY), value(SLOT))
    united = union_of(
        [
            plan("a", value(BODY), value(SLOT), live=live),
            plan("b", value(HEAD), live=live, optimizer={"slots": "reset"}, expect_partial=True),
        ]
    )
    (error,) = united.errors
    assert error.name == SLOT
    assert (
        error.reason == "a (policy 'of a') would restore it, and b (policy 'of b') would reset it"
    )


@pytest.mark.parametrize(
    ("first", "second", "severity"),
    [
        ({}, {"on_missing": "ignore"}, Severity.ERROR),
        ({"on_missing": "ignore"}, {"on_missing": "warn"}, Severity.WARN),
        ({"on_missing": "ignore"}, {"on_missing": "ignore"}, Severity.NOTE),
        ({"exclude": ["model/head/**"]}, {"on_missing": "warn"}, Severity.WARN),
    ],
)
def test_what_nobody_provides_is_missing_as_the_strictest_has_it(first, second, severity) -> None:
    other = of_source("here", value(BODY), value(HEAD), value("model/other"))
    united = union_of(
        [
            plan("a", value(BODY), live=other, **first),
            plan("b", value("model/other"), live=other, **second),
        ]
    )
    (head,) = [step for step in united.steps if step.name == HEAD]
    assert (head.status, head.severity) == (Status.MISSING, severity)
    assert [step.name for step in united.assignments] == [BODY, "model/other"]


def test_left_over_values_and_idle_rules_are_judged_for_each_source() -> None:
    united = union_of(
        [
            plan("a", value(BODY), value("model/old")),
            plan("b", value(HEAD), exclude_checkpoint=["model/hed/**"]),
        ]
    )
    (left,) = united.errors
    assert (left.source, left.origin, left.status) == ("model/old", "a", Status.UNEXPECTED)
    (problem,) = united.problems
    assert problem.message == "b: exclude_checkpoint: 'model/hed/**' matches nothing"


def test_policies_of_two_files_keep_their_places(tmp_path) -> None:
    policies = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.yaml"
        path.write_text("allow_empty: true\nexclude:\n  - 'nothing/*'\n", encoding="utf-8")
        policies.append(load_policy(path))
    plans = [make_plan(policy, of_source("a", *WHOLE), LIVE) for policy in policies]
    messages = [problem.message for problem in union_of(plans).problems]
    assert messages == [
        f"{tmp_path}/{name}.yaml:3:5: a: exclude: 'nothing/*' matches nothing"
        for name in ("one", "two")
    ]
    assert f"{tmp_path}/two.yaml:3:5" in str(union_of(plans))


def test_the_report_and_the_json_say_which_value_came_from_where() -> None:
    united = union_of(
        [plan("zoo/a", *WHOLE, include=["model/body/**"]), plan("zoo/b", *WHOLE, exclude=[BODY])]
    )
    assert "LOADED  1 value from zoo/a" in str(united)
    assert "LOADED  1 value from zoo/b" in str(united)
    origins = {step["name"]: step["origin"] for step in united.to_json()["steps"] if step["name"]}
    assert origins == {BODY: "zoo/a", HEAD: "zoo/b"}


def test_a_policy_with_training_state_is_refused_where_a_training_begins() -> None:
    from tfckpt.policy import Config

    policies = {"resume": {"training_state": ["epoch"]}}
    for source in ({"all_of": [{"path": "a", "policy": "resume"}] * 2}, {"average": ["a", "b"]}):
        given = {"policy": "resume", **source} if "average" in source else source
        with pytest.raises(PolicyError, match="policy `resume` has `training_state`"):
            Config(version=1, policies=policies, restore=given)


def weight(name):
    return Entry(f"model/{name}", Role.WEIGHT, "float32", (2,), 8, key=name)


def average(name, shape=(2,)):
    of = f"model/{name}"
    full = f"optimizer/moving_average/{name}"
    return Entry(full, Role.SLOT, "float32", shape, 8, f"{name}/EMA", "moving_average", of)


def kept_here(*entries):
    return Inventory("here", {entry.name: entry for entry in entries})


STORED = kept_here(weight("a/w"), average("a/w"), weight("b/w"))
HERE = kept_here(weight("a/w"), weight("b/w"))


def averaged(ema, stored=STORED, live=HERE, **policy):
    return make_plan(Policy(ema=ema, **policy), stored, live)


def of(averaged):
    return {(step.name, step.source): (step.status.value, step.reason) for step in averaged.steps}


def checkpoint_of(entries, **more):
    return Inventory("runs/ckpt-1", {entry.name: entry for entry in entries}, **more)


DENSE = {"kernel": (20, 32), "bias": (32,)}
ASKED = {"on_missing": "error", "on_unexpected": "error"}


def test_a_checkpoint_without_optimizer_likewise():
    model = weights(model__a=DENSE)
    live = checkpoint_of([*model, *slots(model), *OPTIMIZER])
    words = " ".join(render_text(make_plan(Policy(**ASKED), checkpoint_of(model), live)).split())
    assert words.count("the model has an optimizer, but the checkpoint has no optimizer state") == 1
    assert (
        'restore only the weights: include: ["model/**"]; or optimizer: reset starts the optimizer '
        "from scratch" in words
    )
    for policy in (Policy(include=["model/**"]), Policy(optimizer="reset")):
        assert make_plan(policy, checkpoint_of(model), live).ok
