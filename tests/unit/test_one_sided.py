"""What only one side has at all: it is left, and one line says so. Everything else is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from zoo.entries import OPTIMIZER, slots, weights

import tfckpt
from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan, render_text
from tfckpt.policy import Policy

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


def test_assertions_mean_what_they_mean_in_tensorflow(flavour, tmp_path):
    layers = [flavour.Input((2,)), flavour.layers.Dense(2, name="out")]
    model = flavour.Sequential(layers)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    step = tf.Variable(3, dtype=tf.int64)
    for assertion in ("assert_consumed", "assert_existing_objects_matched"):
        status = tfckpt.Checkpoint(model=model, step=step).restore(path)
        with pytest.raises(AssertionError, match="step"):
            getattr(status, assertion)()
    assert step.numpy() == 3


def test_no_counter_of_saves_is_asked_for_unless_the_policy_says_restore():
    counter = STEP._replace(name="save_counter")
    assert planned(MODEL, [*MODEL, counter]).ok
    assert not planned(MODEL, [*MODEL, counter], api="restore").ok


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
