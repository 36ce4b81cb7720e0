"""What a refusal proposes: a rule only where it would be right, and one answer for one cause."""

from __future__ import annotations

import pytest
from zoo.entries import OPTIMIZER, slots, weights

from tfckpt.core.inventory import Inventory
from tfckpt.planning import make_plan, render_text
from tfckpt.policy import Policy


def inventory(entries, **more):
    return Inventory("runs/ckpt-1", {entry.name: entry for entry in entries}, **more)


def hints(stored, live, **policy):
    """Name → hint of each step that is refused."""
    made = make_plan(Policy(**policy), inventory(stored), inventory(live))
    return {step.name or step.source: step.hint for step in made.errors}


CONV = {"kernel": (3, 3, 8, 32), "bias": (32,)}
DENSE = {"kernel": (20, 32), "bias": (32,)}
ASKED = {"on_missing": "error", "on_unexpected": "error"}


# --- optimizers, if everything is asked for


def test_a_model_without_optimizer_is_told_once_to_be_compiled_or_restored_alone():
    model = weights(model__a=DENSE)
    text = render_text(
        make_plan(Policy(**ASKED), inventory([*model, *slots(model), *OPTIMIZER]), inventory(model))
    )
    words = " ".join(text.split())
    assert words.count("the checkpoint has optimizer state, but the model has no optimizer") == 1
    assert '→ compile the model, or restore only the weights: include: ["model/**"]' in words
    made = make_plan(
        Policy(include=["model/**"]),
        inventory([*model, *slots(model), *OPTIMIZER]),
        inventory(model),
    )
    assert made.ok


def test_a_checkpoint_without_optimizer_likewise():
    model = weights(model__a=DENSE)
    live = inventory([*model, *slots(model), *OPTIMIZER])
    words = " ".join(render_text(make_plan(Policy(**ASKED), inventory(model), live)).split())
    assert words.count("the model has an optimizer, but the checkpoint has no optimizer state") == 1
    assert (
        'restore only the weights: include: ["model/**"]; or optimizer: reset starts the optimizer '
        "from scratch" in words
    )
    for policy in (Policy(include=["model/**"]), Policy(optimizer="reset")):
        assert make_plan(policy, inventory(model), live).ok


@pytest.mark.parametrize(
    ("stored", "live", "reason"),
    [
        ("all", "head", "the model has no slot for this variable, which is not trained now"),
        ("head", "all", "the checkpoint has no slot for this variable, which was not trained then"),
        ("all", "none", "the model's optimizer has no such slot"),
        ("none", "all", "the checkpoint's optimizer has no such slot"),
    ],
)
def test_why_a_slot_is_on_one_side_alone(stored, live, reason):
    model = weights(model__conv=CONV, model__head=DENSE)
    kept = {"all": slots(model), "head": slots(model[2:]), "none": []}
    sides = (inventory([*model, *kept[side], *OPTIMIZER]) for side in (stored, live))
    assert {step.reason for step in make_plan(Policy(**ASKED), *sides).errors} == {reason}


@pytest.mark.parametrize("key", ["expect_missing", "expect_unexpected"])
def test_layers_that_are_trained_on_one_side_name_the_reset_if_everything_is_asked_for(key):
    model = weights(model__conv=CONV, model__head=DENSE)
    sides = [*model, *slots(model[2:]), *OPTIMIZER], [*model, *slots(model), *OPTIMIZER]
    stored, live = sides if key == "expect_missing" else sides[::-1]
    found = hints(stored, live, **ASKED)
    assert set(found) == {"optimizer/momentum/conv/kernel", "optimizer/momentum/conv/bias"}
    assert all(hint.startswith("optimizer: reset") for hint in found.values())
    for policy in ({"optimizer": "reset"}, {key: ["optimizer/*/conv/**"]}):
        assert make_plan(Policy(**policy), inventory(stored), inventory(live)).ok


# --- selectors that match nothing


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("head/**", "model/head/**"),
        ("head", "model/head/**"),
        ("model/head", "model/head/**"),
        ("head/kernel", "model/head/kernel"),
        ("head/kernel:0", "model/head/kernel"),
        ("sequential/head/kernel:0", "model/head/kernel"),
        ("sequential_1/body/*/kernel", "model/body/*/kernel"),
        ("model/head/kernel:0", "model/head/kernel"),
        ("block/kernel", "model/body/block/kernel"),
        ("model/haed/kernel", "model/head/kernel"),
    ],
)
def test_a_selector_that_matches_nothing_is_shown_as_it_is_meant(written, meant):
    model = weights(model__head=DENSE, model__body__block=CONV)
    entries = inventory([*model, *slots(model), *OPTIMIZER])
    (problem,) = make_plan(Policy(exclude=[written]), entries, entries).problems
    assert problem.message == f"exclude: {written!r} matches nothing"
    assert problem.hint.startswith(f"did you mean {meant!r}")


def test_what_is_meant_is_shown_with_the_line_of_the_config(tmp_path):
    from tfckpt.policy import load_config

    config = tmp_path / "finetune.yaml"
    config.write_text("version: 1\npolicies:\n  p:\n    exclude:\n      - head/**\n")
    model = weights(model__head=DENSE)
    other = weights(model__head={"kernel": (20, 5), "bias": (5,)})
    made = make_plan(load_config(config).policies["p"], inventory(model), inventory(other))
    assert render_text(made).endswith("matches nothing\n    → did you mean 'model/head/**'?")
    assert f"{config}:5:9: exclude:" in render_text(made).replace("\n    ", " ")


def test_another_model_is_refused_without_a_guess():
    stored = weights(model__conv1={"kernel": (3, 3, 1, 8), "bias": (8,)}, model__conv2=CONV)
    live = weights(model__dense=DENSE, model__head={"kernel": (32, 5), "bias": (5,)})
    text = render_text(make_plan(Policy(), inventory(stored), inventory(live)))
    words = " ".join(text.split())
    assert words.endswith("or it is a checkpoint of another model; allow_empty: true allows it")
