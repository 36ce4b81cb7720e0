"""Automatic layer names and foreign optimizers: what name and position disagree about.

Layers are written ``dense?`` where their name is automatic and ``head`` where it was chosen.
"""

import dataclasses

import pytest
from zoo.entries import layer, sequence

from tfckpt.core.inventory import LIST, Container, Entry, Inventory, Layer, Role
from tfckpt.planning import make_plan
from tfckpt.policy import Policy


def model(*sequences, optimizer="", slots=()):
    """An inventory of a model with one kernel per layer, and its optimizer's slots."""
    paths = {path: tuple(map(layer, layers)) for path, *layers in sequences}
    weights = [
        Entry(f"{path}/{each.place}/kernel", Role.WEIGHT, "float32", (2,), 8)
        for path, layers in paths.items()
        for each in layers
        if f"{path}/{each.place}" not in paths
    ]
    state = [
        Entry(f"optimizer/{slot}/{w.name[6:]}", Role.SLOT, "float32", (2,), 8, slot=slot, of=w.name)
        for w in weights
        for slot in slots
    ]
    return Inventory(
        "here",
        {entry.name: entry for entry in (*weights, *state)},
        containers={path: sequence(*layers) for path, layers in paths.items()},
        optimizers={"optimizer": optimizer} if slots or optimizer else {},
    )


def statuses(plan):
    return {step.name or step.source: step.status.value for step in plan.steps}


def suspects(stored, live, **policy):
    plan = make_plan(Policy(**policy), stored, live)
    return {step.name for step in plan.steps if step.status == "SUSPECT"}


DEEP = model(("model", "dense?", "dense_1?", "dense_2?"), optimizer="sgd", slots=("momentum",))


def test_the_same_layers_are_believed():
    assert suspects(DEEP, DEEP) == set()


def test_a_layer_taken_out_of_the_middle_makes_its_whole_class_suspect_with_its_slots():
    shallow = model(("model", "dense?", "dense_1?"), optimizer="sgd", slots=("momentum",))
    assert suspects(DEEP, shallow) == {
        "model/dense/kernel",
        "model/dense_1/kernel",
        "optimizer/momentum/dense/kernel",
        "optimizer/momentum/dense_1/kernel",
    }


def test_the_reason_names_both_candidates_and_the_hint_how_to_choose():
    stored = model(("model", "dense?", "conv?", "dense_1?"))
    live = model(("model", "conv?", "dense?", "dense_1?"))
    plan = make_plan(Policy(), stored, live)
    (step,) = (step for step in plan.errors if step.name == "model/dense/kernel")
    assert "[conv, dense, dense_1] in the model" in step.reason
    assert "[start, dense, conv] in the checkpoint" in step.reason
    assert "map them with `rename`" in step.hint
    chosen = {
        match: next(
            step.source
            for step in make_plan(Policy(match=match), stored, live).steps
            if step.name == "model/dense/kernel"
        )
        for match in ("name", "structure")
    }
    assert chosen == {"name": "model/dense/kernel", "structure": "model/conv/kernel"}


def test_a_moved_layer_makes_those_of_the_classes_around_it_suspect():
    stored = model(("model", "conv?", "norm?", "dense?", "dense_1?"))
    live = model(("model", "norm?", "dense?", "conv?", "dense_1?"))
    assert suspects(stored, live) == {"model/dense/kernel", "model/dense_1/kernel"}


def test_the_only_layer_of_its_class_is_that_layer_wherever_it_stands():
    stored = model(("model", "conv?", "norm?", "dense?"))
    assert suspects(stored, model(("model", "norm?", "conv?", "dense?"))) == set()
    wrapped = model(("model", "conv?", "net?", "dense?"), ("model/net", "norm?"))
    assert suspects(stored, wrapped, on_missing="warn", on_unexpected="warn") == {
        "model/conv/kernel",
        "model/dense/kernel",
    }


def test_a_replaced_head_of_ones_own_naming_says_nothing_about_the_body():
    stored = model(("model", "conv?", "conv_1?", "old_head"))
    live = model(("model", "conv?", "conv_1?", "new_head"))
    assert suspects(stored, live, on_missing="warn", on_unexpected="warn") == set()


def test_named_layers_are_believed_wherever_they_stand():
    stored = model(("model", "a", "b", "dense?", "dense_1?"))
    live = model(("model", "b", "a", "dense?", "dense_1?"))
    assert suspects(stored, live) == {"model/dense/kernel", "model/dense_1/kernel"}


def test_another_class_that_is_the_same_on_both_sides_is_believed():
    stored = model(("model", "conv?", "mid", "dense?", "dense_1?"))
    live = model(("model", "conv?", "mid", "dense?"))
    assert suspects(stored, live) == {"model/dense/kernel"}


def test_a_nested_model_is_judged_by_itself():
    stored = model(("model", "encoder", "head"), ("model/encoder", "dense?", "dense_1?"))
    live = model(("model", "encoder", "head"), ("model/encoder", "dense?"))
    assert suspects(stored, live) == {"model/encoder/dense/kernel"}


def test_a_suspect_nested_model_takes_all_it_holds_with_it():
    stored = model(("model", "functional?", "functional_1?"), ("model/functional", "a"))
    live = model(("model", "functional?"), ("model/functional", "a"))
    assert suspects(stored, live) == {"model/functional/a/kernel"}


def test_where_one_side_has_no_structure_names_are_all_there_is():
    bare = Inventory("here", DEEP.entries, optimizers=DEEP.optimizers)
    assert make_plan(Policy(), bare, DEEP).ok


def test_trusting_names_loads_them_and_says_so():
    stored = model(("model", "dense?", "conv?", "dense_1?"))
    live = model(("model", "conv?", "dense?", "dense_1?"))
    plan = make_plan(Policy(match="name"), stored, live)
    assert plan.ok
    assert set(statuses(plan).values()) == {"LOADED"}
    noted = {step.name for step in plan.steps if step.severity == "note"}
    assert noted == {"model/dense/kernel", "model/dense_1/kernel"}


def test_a_rename_rule_is_somebodys_word_for_it():
    stored = model(("model", "dense?", "dense_1?", "dense_2?"))
    live = model(("model", "dense?", "dense_1?"))
    pairs = [("model/dense/**", "model/dense_1/**"), ("model/dense_2/**", "model/dense/**")]
    rules = tuple({"checkpoint": old, "model": new} for old, new in pairs)
    policy = Policy(rename=rules, exclude_checkpoint=("model/dense_1/**",))
    plan = make_plan(policy, stored, live)
    assert plan.ok


def test_a_rule_for_a_parent_does_not_vouch_for_the_layers_below_it():
    stored = model(("model", "backbone"), ("model/backbone", "dense?", "dense_1?", "dense_2?"))
    live = model(("model", "encoder"), ("model/encoder", "dense?", "dense_1?"))
    rules = ({"checkpoint": "model/backbone/**", "model": "model/encoder/**"},)
    assert suspects(stored, live, rename=rules) == {
        "model/encoder/dense/kernel",
        "model/encoder/dense_1/kernel",
    }
    assert suspects(stored, live, rename=rules, match="name") == set()
    same = model(("model", "encoder"), ("model/encoder", "dense?", "dense_1?", "dense_2?"))
    assert make_plan(Policy(rename=rules), stored, same).ok


def test_a_rule_for_a_variable_does_not_vouch_for_its_layer():
    stored = model(("model", "dense?", "dense_1?", "dense_2?"))
    live = model(("model", "dense?", "dense_1?"))
    entries = [
        entry._replace(name=entry.name.replace("kernel", "weights"))
        for entry in live.entries.values()
    ]
    live = dataclasses.replace(live, entries={entry.name: entry for entry in entries})
    rules = ({"checkpoint": "**/kernel", "model": "**/weights"},)
    assert suspects(stored, live, rename=rules) == set(live.entries)


# --- lists and dicts


def listed(*labels, slots=("momentum",)):
    """A list of layers, each with the name the user gave it, ``""`` for none."""
    plain = model(("model/blocks", *map(str, range(len(labels)))), slots=slots)
    layers = (Layer(str(at), own, given=own != "") for at, own in enumerate(labels))
    return dataclasses.replace(plain, containers={"model/blocks": Container(LIST, tuple(layers))})


def test_layers_that_change_places_in_a_list_are_suspect_with_their_slots():
    assert suspects(listed("a", "b"), listed("b", "a")) == set(listed("a", "b").entries)
    assert suspects(listed("a", "b", "c"), listed("a", "c"), on_unexpected="warn") == {
        "model/blocks/1/kernel",
        "optimizer/momentum/blocks/1/kernel",
    }


def test_the_reason_names_both_layers_of_a_list_and_where_the_stored_one_is():
    plan = make_plan(Policy(), listed("a", "b"), listed("b", "c"))
    reasons = {step.name: step.reason for step in plan.errors}
    lost = "'b' in the model and 'a' in the checkpoint, which is not in the model"
    assert lost in reasons["model/blocks/0/kernel"]
    assert (
        "'c' in the model and 'b' in the checkpoint, which is model/blocks/0 in the model"
        in (reasons["model/blocks/1/kernel"])
    )


@pytest.mark.parametrize("match", ["name", "structure"])
def test_the_indices_of_a_list_can_be_trusted(match):
    plan = make_plan(Policy(match=match), listed("a", "b"), listed("b", "a"))
    assert plan.ok
    assert {step.name: step.source for step in plan.assignments} == {
        name: name for name in listed("a", "b").entries
    }


def test_layers_of_a_list_that_nobody_named_go_by_their_index():
    assert make_plan(Policy(), listed("", ""), listed("a", "b")).ok
    assert make_plan(Policy(), listed("a", ""), listed("a", "b")).ok


# --- by position


def test_positions_are_taken_whatever_the_layers_are_called_and_slots_follow():
    stored = model(
        ("model", "dense?", "inner?", "out"), ("model/inner", "dense?"), slots=("momentum",)
    )
    live = model(
        ("model", "first", "encoder", "last"), ("model/encoder", "deep"), slots=("momentum",)
    )
    plan = make_plan(Policy(match="structure"), stored, live)
    assert plan.ok
    pairs = {step.name: step.source for step in plan.steps}
    assert pairs == {
        "model/first/kernel": "model/dense/kernel",
        "model/encoder/deep/kernel": "model/inner/dense/kernel",
        "model/last/kernel": "model/out/kernel",
        "optimizer/momentum/first/kernel": "optimizer/momentum/dense/kernel",
        "optimizer/momentum/encoder/deep/kernel": "optimizer/momentum/inner/dense/kernel",
        "optimizer/momentum/last/kernel": "optimizer/momentum/out/kernel",
    }
    assert {step.status.value for step in plan.steps} == {"RENAMED"}


def test_equal_names_at_other_positions_are_not_taken():
    stored = model(("model", "a", "b"))
    live = model(("model", "b", "a"))
    plan = make_plan(Policy(match="structure"), stored, live)
    assert {step.name: step.source for step in plan.steps} == {
        "model/b/kernel": "model/a/kernel",
        "model/a/kernel": "model/b/kernel",
    }


def test_what_has_no_counterpart_at_its_position_is_missing_or_unexpected():
    long, short = model(("model", "a", "b", "c")), model(("model", "c", "d"))
    policy = Policy(match="structure", on_missing="warn", on_unexpected="warn")
    plan = make_plan(policy, long, short)
    assert [(step.status.value, step.source) for step in plan.steps if not step.name] == [
        ("UNEXPECTED", "model/c/kernel")
    ]
    plan = make_plan(policy, short, long)
    assert [(step.status.value, step.name) for step in plan.steps if not step.source] == [
        ("MISSING", "model/c/kernel")
    ]


# --- optimizers


def test_other_slots_are_suspect_even_where_the_class_is_not_known():
    old = model(("model", "a"), slots=("momentum", "velocity"))
    new = model(("model", "a"), slots=("momentum",))
    assert suspects(old, new) == {"optimizer/momentum/a/kernel"}


@pytest.mark.parametrize("given", [{"match": "name"}, {"optimizer": {"slots": "reset"}}])
def test_foreign_slots_can_be_taken_or_started_anew(given):
    old = model(("model", "a"), optimizer="adam", slots=("momentum",))
    new = model(("model", "a"), optimizer="nadam", slots=("momentum",))
    assert not make_plan(Policy(), old, new).ok
    assert make_plan(Policy(**given), old, new).ok


def test_a_rule_that_turns_one_slot_into_another_is_somebodys_word_for_it():
    old = model(("model", "a"), optimizer="adam", slots=("velocity",))
    new = model(("model", "a"), optimizer="rmsprop", slots=("accumulator",))
    rules = ({"checkpoint": "optimizer/velocity/**", "model": "optimizer/accumulator/**"},)
    assert make_plan(Policy(rename=rules), old, new).ok


def test_an_unknown_class_with_the_same_slots_is_believed():
    old = model(("model", "a"), slots=("momentum",))
    new = model(("model", "a"), optimizer="sgd", slots=("momentum",))
    assert make_plan(Policy(), old, new).ok
