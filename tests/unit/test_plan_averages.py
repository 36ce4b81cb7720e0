"""``ema``: which weights are loaded from their moving averages, and what the plan says of it."""

from tfckpt.core.inventory import Entry, Inventory, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy


def weight(name):
    return Entry(f"model/{name}", Role.WEIGHT, "float32", (2,), 8, key=name)


def average(name, shape=(2,)):
    of = f"model/{name}"
    full = f"optimizer/moving_average/{name}"
    return Entry(full, Role.SLOT, "float32", shape, 8, f"{name}/EMA", "moving_average", of)


def inventory(*entries):
    return Inventory("here", {entry.name: entry for entry in entries})


STORED = inventory(weight("a/w"), average("a/w"), weight("b/w"))
LIVE = inventory(weight("a/w"), weight("b/w"))


def plan(ema, stored=STORED, live=LIVE, **policy):
    return make_plan(Policy(ema=ema, **policy), stored, live)


def of(plan):
    return {(step.name, step.source): (step.status.value, step.reason) for step in plan.steps}


def test_ignored_an_average_is_a_slot_like_others():
    found = of(plan("ignore"))
    assert found["model/a/w", "model/a/w"] == ("LOADED", "")
    assert found["", "optimizer/moving_average/a/w"][0] == "UNEXPECTED"


def test_preferred_it_stands_for_its_weight_and_the_step_says_so():
    preferred = plan("prefer", **{"assert": "consumed"})
    assert preferred.ok
    assert of(preferred) == {
        ("model/a/w", "optimizer/moving_average/a/w"): ("LOADED", "ema: the moving average"),
        ("", "model/a/w"): ("EXCLUDED", "ema: prefer, its moving average is restored instead"),
        ("model/b/w", "model/b/w"): ("LOADED", ""),
    }
    keys = {step.name: step.stored.key for step in preferred.assignments}
    assert keys == {"model/a/w": "a/w/EMA", "model/b/w": "b/w"}


def test_with_only_a_weight_without_one_is_missing():
    only = plan("only")
    assert not only.ok
    assert of(only)["model/b/w", ""] == (
        "MISSING", "ema: only, but the checkpoint has no moving average of it",
    )  # fmt: skip
    assert of(only)["", "model/b/w"][0] == "EXCLUDED"
    assert plan("only", exclude=["model/b/w"]).ok


def test_rules_speak_of_the_weight():
    live = inventory(weight("encoder/a/w"), weight("encoder/b/w"))
    renamed = plan(
        "prefer", live=live, rename=[{"checkpoint": "model/**", "model": "model/encoder/**"}]
    )
    assert renamed.ok
    step = next(step for step in renamed.assignments if step.name == "model/encoder/a/w")
    assert step.status == "RENAMED"
    assert step.stored.key == "a/w/EMA"
    assert "ema: the moving average; rename:" in step.reason


def test_an_average_that_is_left_in_the_checkpoint_is_not_taken():
    dropped = plan("prefer", exclude_checkpoint=["optimizer/moving_average/**"])
    assert dropped.ok
    assert {step.stored.key for step in dropped.assignments} == {"a/w", "b/w"}


def test_an_average_of_another_shape_is_none():
    stored = inventory(weight("a/w"), average("a/w", (3,)))
    found = of(plan("prefer", stored, inventory(weight("a/w")), on_unexpected="warn"))
    assert found["model/a/w", "model/a/w"] == ("LOADED", "")


def test_where_averages_are_kept_here_too_they_are_also_restored():
    both = inventory(weight("a/w"), average("a/w"))
    found = of(plan("prefer", both, both))
    shadow = "optimizer/moving_average/a/w"
    assert found["model/a/w", shadow][0] == found[shadow, shadow][0] == "LOADED"


def test_slots_are_those_of_the_same_optimizer_with_averages_and_without():
    slot = Entry(
        "optimizer/momentum/a/w", Role.SLOT, "float32", (2,), 8, "m", "momentum", "model/a/w"
    )
    stored = inventory(weight("a/w"), slot, average("a/w"))
    assert plan("prefer", stored, inventory(weight("a/w"), slot)).ok


def test_a_weight_with_two_averages_is_refused_until_one_is_dropped():
    first, slow = average("a/w"), Entry(
        "slow/moving_average/a/w", Role.SLOT, "float32", (2,), 8, "a/w/slow", "moving_average",
        "model/a/w",
    )  # fmt: skip
    stored = inventory(weight("a/w"), first, slow, weight("b/w"))
    twice = plan("prefer", stored, on_unexpected="ignore")
    assert not twice.ok
    (step,) = twice.errors
    assert (step.status.value, step.name) == ("MISMATCH", "model/a/w")
    assert first.name in step.reason
    assert slow.name in step.reason
    for kept, dropped in ((first, slow), (slow, first)):
        once = plan("prefer", stored, exclude_checkpoint=[dropped.name])
        assert once.ok
        assert ("model/a/w", kept.name) in of(once)
    assert plan("prefer", stored, exclude=["model/a/w"], on_unexpected="ignore").ok
