"""What a refused plan suggests: the fewest lines that restore the most, nothing that may be wrong.

Each policy that is suggested is read and planned anew, as it would be after it was pasted.
"""

from __future__ import annotations

import dataclasses

import pytest
from zoo.entries import OPTIMIZER, sequence, slots, weights
from zoo.suggested import (
    CONV,
    DENSE,
    HEAD,
    SQUARE,
    TORCH,
    both,
    choices,
    inventory,
    layer,
    rename,
    suggested,
    torch,
)

from tfckpt.core.inventory import Container, Entry, Layer, Role
from tfckpt.planning import make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy, load_policy


def test_a_plan_that_is_fine_needs_nothing():
    same = inventory(weights(model__a=DENSE))
    assert suggest(Policy(), same, same) is None


def test_a_renamed_layer_keeps_its_slots():
    old, new = weights(model__conv=CONV), weights(model__stem=CONV)
    stored, live = [*old, *slots(old), *OPTIMIZER], [*new, *slots(new), *OPTIMIZER]
    assert suggested(stored, live) == rename(("model/conv/**", "model/stem/**"))
    found = suggest(Policy(), inventory(stored), inventory(live))
    moved = {s.source for s in found.plan.assignments if s.source != s.name}
    assert moved == {entry.name for entry in (*old, *slots(old))}


def test_the_rule_is_about_the_parent_where_all_below_it_agrees():
    layers = {"conv": CONV, "dense": DENSE, "norm": {"gamma": (32,), "beta": (32,)}}
    old = weights(**{f"model__backbone__{name}": shapes for name, shapes in layers.items()})
    new = weights(**{f"model__encoder__{name}": shapes for name, shapes in layers.items()})
    assert suggested(old, new) == rename(("model/backbone/**", "model/encoder/**"))


def test_the_rule_leaves_alone_what_is_at_its_place():
    stored = weights(model__a__conv=CONV, model__a__dense=DENSE)
    live = weights(model__b__conv=CONV, model__a__dense=DENSE)
    assert suggested(stored, live) == rename(("model/a/conv/**", "model/b/conv/**"))


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        # one value of the layer fits, the layer does not
        ({"model__conv": CONV}, {"model__dense": DENSE}),
        # the shapes are those of another variable
        ({"model__a": {"kernel": (32, 32)}}, {"model__b": {"recurrent_kernel": (32, 32)}}),
        # one more variable
        ({"model__a": DENSE}, {"model__b": {**DENSE, "scale": (32,)}}),
        ({"model__a": {**DENSE, "scale": (32,)}}, {"model__b": DENSE}),
        # either of two may be the one
        ({"model__a": DENSE, "model__b": DENSE}, {"model__c": DENSE}),
        ({"model__a": DENSE}, {"model__c": DENSE, "model__d": DENSE}),
        # a normalization is no dense layer
        ({"model__n": {"mean": (8,), "variance": (8,)}}, {"model__d": {"a": (8,), "b": (8,)}}),
    ],
)
def test_nothing_is_suggested_that_may_be_wrong(stored, live):
    assert suggested(weights(**stored), weights(**live)) is None


def test_which_of_two_it_is_is_for_a_person_to_say():
    stored, live = weights(model__a=DENSE, model__b=DENSE), weights(model__c=DENSE, model__d=DENSE)
    either = ("model/a", "model/b")
    assert choices(stored, live) == {"model/c": either, "model/d": either}
    text = " ".join(str(suggest(Policy(), *both(stored, live))).split())
    assert "model/c, model/d: each may be one of model/a, model/b of the checkpoint, or new" in text
    rename = 'rename: [{checkpoint: "model/a/**", model: "model/c/**"}]'
    assert f"if model/c is the checkpoint's model/a: {rename}" in text
    assert 'if model/c is new: exclude: ["model/c/**"]' in text


def test_of_many_candidates_a_few_are_shown_and_the_others_counted():
    stored = weights(**{f"model__x{n}": SQUARE for n in range(9)})
    found = suggest(Policy(), *both(stored, weights(model__c=SQUARE, model__d=SQUARE)))
    text = " ".join(" ".join(found.lines("")).split())
    assert "each may be one of model/x0, model/x1, model/x2, model/x3, model/x4 and 4 more" in text


def test_what_a_person_decided_makes_the_policy_whole():
    stored, live = weights(model__a=DENSE, model__b=DENSE), weights(model__c=DENSE, model__d=DENSE)
    decided = Policy(**rename(("model/a/**", "model/c/**")))
    found = suggest(decided, *both(stored, live))
    assert {(s.source, s.name) for s in found.plan.assignments} == {
        (f"model/{old}/{word}", f"model/{new}/{word}")
        for old, new in (("a", "c"), ("b", "d"))
        for word in DENSE
    }


# --- order


def test_layers_with_names_of_their_own_against_automatic_ones():
    old = weights(model__dense=SQUARE, model__dense_1=SQUARE, model__dense_2=HEAD)
    stored = inventory(old, "dense*", "dense_1*", "dense_2*")
    live = inventory(weights(model__a=SQUARE, model__b=SQUARE, model__c=HEAD), "a", "b", "c")
    assert suggested(stored, live) == {"match": "structure"}


def test_one_layer_more_among_equals_is_a_choice():
    old = weights(model__dense=SQUARE, model__dense_1=SQUARE, model__dense_2=HEAD)
    stored = inventory(old, "dense*", "dense_1*", "dense_2*")
    more = weights(model__a=SQUARE, model__b=SQUARE, model__c=SQUARE, model__d=HEAD)
    fits = ("model/dense", "model/dense_1")
    wanted = dict.fromkeys(("model/a", "model/b", "model/c"), fits)
    assert choices(stored, inventory(more, "a", "b", "c", "d")) == wanted


def test_one_layer_more_of_other_shapes_stays_new():
    stored = inventory(weights(model__dense=SQUARE, model__dense_1=HEAD), "dense*", "dense_1*")
    live = weights(model__a=SQUARE, model__b={"kernel": (8, 5), "bias": (5,)}, model__c=HEAD)
    pairs = ("model/dense/**", "model/a/**"), ("model/dense_1/**", "model/c/**")
    wanted = {**rename(*pairs), "exclude": ["model/b/**"]}
    assert suggested(stored, inventory(live, "a", "b", "c")) == wanted


def test_names_that_speak_against_the_order_make_a_choice():
    """They have changed places, and been given a number."""
    stored = inventory(weights(model__left=SQUARE, model__right=SQUARE), "left", "right")
    live = inventory(weights(model__right_2=SQUARE, model__left_2=SQUARE), "right_2", "left_2")
    pairs = ("model/left/**", "model/left_2/**"), ("model/right/**", "model/right_2/**")
    assert suggested(stored, live) == rename(*pairs)
    automatic = inventory(weights(model__dense=SQUARE, model__right=SQUARE), "dense*", "right")
    assert "model/right_2" in choices(automatic, live)


def test_the_second_of_two_alike_may_be_called_as_the_first_was():
    """`mid` was the first of two alike; the other, which is `dense` now, was `dense_1`."""
    stored = inventory(weights(model__dense=DENSE, model__dense_1=DENSE), "dense*", "dense_1*")
    live = inventory(weights(model__mid=DENSE, model__dense=DENSE), "mid", "dense*")
    found = suggest(Policy(), stored, live)
    steps = found.plan.assignments if found.plan else ()
    assert ("model/dense/kernel", "model/dense/kernel") not in {(s.source, s.name) for s in steps}


def test_a_name_that_somebody_chose_speaks_against_the_order_if_it_looks_automatic():
    """The branches may have been written down the other way round."""
    stored = inventory(weights(model__dense=DENSE, model__left=DENSE), "dense*", "left")
    live = inventory(weights(model__mid=DENSE, model__dense=DENSE), "mid", "dense*")
    first, second = live.containers["model"].layers
    live.containers["model"] = sequence(first, second._replace(given=True))
    either = ("model/dense", "model/left")
    assert choices(stored, live) == {"model/mid": either, "model/dense": either}


def test_layers_that_only_one_side_knows_as_layers_are_paired():
    """A checkpoint does not say which of its objects are layers of a subclassed model."""
    stored = inventory(weights(model__net__a=CONV, model__top=DENSE), "net", "top")
    live = inventory(weights(model__own__stem=CONV, model__top=DENSE), "own", "top")
    for side, name in ((stored, "net"), (live, "own")):
        others = side.containers["model"].layers[1:]
        side.containers["model"] = sequence(Layer(name, name, given=True, cls="net"), *others)
    stem = Layer("stem", "stem", given=True, cls="conv")
    live.containers["model/own"] = Container("attributes", (stem,))
    live = dataclasses.replace(live, listings={"model/own": ("model/own/stem",)})
    assert suggested(stored, live) == rename(("model/net/a/**", "model/own/stem/**"))


def chosen(name, number):
    """A layer of which its user said `dense_4`, say."""
    return Layer(name, f"dense_{number}", True, True, "dense", number)


def test_a_number_that_somebody_chose_is_a_name():
    """Both are the first of their class where they stand, and so have one canonical name."""
    stored = inventory(weights(model__x__dense=DENSE, model__y__dense=DENSE, model__old=CONV))
    live = inventory(weights(model__x__dense=DENSE, model__z__dense=DENSE, model__new=CONV))
    for side, held in ((stored, {"x": 2, "y": 4}), (live, {"x": 4, "z": 2})):
        for name, number in held.items():
            side.containers[f"model/{name}"] = sequence(chosen("dense", number))
    found = suggested(stored, live)["rename"]
    assert {"checkpoint": "model/x/**", "model": "model/z/**"} in found
    assert {"checkpoint": "model/y/**", "model": "model/x/**"} in found


def test_an_order_within_a_class_says_nothing_of_what_is_in_a_layer_of_another():
    """The file has `inner` after all dense layers, wherever it stood."""
    names = ["model/a", "model/b", "model/inner/c"]
    stored = inventory(weights(**{name.replace("/", "__"): DENSE for name in names}))
    model = sequence(layer("a"), layer("b"), layer("inner")._replace(cls="net"))
    stored.containers["model"] = model._replace(order="class")
    stored.containers["model/inner"] = sequence(layer("c"))._replace(order="class")
    live = inventory(weights(model__dense=DENSE, model__net__dense=DENSE, model__dense_1=DENSE))
    live.containers["model"] = sequence(layer("dense*"), layer("net*"), layer("dense_1*"))
    live.containers["model/net"] = sequence(layer("dense*"))
    assert suggested(stored, live) == {"match": "structure"}
    found = suggest(Policy(), stored, live)
    assert {step.source: step.name for step in found.plan.assignments} == {
        f"{old}/{word}": f"{new}/{word}"
        for old, new in zip(names, ("model/dense", "model/dense_1", "model/net/dense"), strict=True)
        for word in DENSE
    }


def test_two_renamed_blocks_are_told_by_how_their_paths_end():
    stored = weights(model__old__a__dense=DENSE, model__old__b__dense=DENSE)
    live = weights(model__new__a__dense=DENSE, model__new__b__dense=DENSE)
    assert suggested(stored, live) == rename(("model/old/**", "model/new/**"))


# --- words of other libraries


def test_the_words_of_tf1():
    stored = weights(
        model__net__a={"weights": (20, 32), "biases": (32,)},
        model__net__b={"weights": (32, 5), "biases": (5,)},
    )
    live = weights(model__a=DENSE, model__b={"kernel": (32, 5), "bias": (5,)})
    assert suggested(stored, live) == rename(
        ("model/net/**/weights", "model/**/kernel"), ("model/net/**/biases", "model/**/bias")
    )


def test_numbered_blocks_are_one_rule_for_each_kind():
    words = {"query": "q", "key": "k", "value": "v"}
    square = {"weight": (8, 8), "bias": (8,)}
    stored = torch(
        **{f"encoder__layer__{n}__self__{w}": square for n in range(12) for w in words},
        **{f"encoder__layer__{n}__up": TORCH for n in range(12)},
    )
    live = weights(
        **{f"model__block_{n}__attn__{w}": SQUARE for n in range(12) for w in words.values()},
        **{f"model__block_{n}__mlp": DENSE for n in range(12)},
    )
    found = suggest(Policy(), *both(stored, live))
    assert len(found.changes["rename"]) == 8
    went = {s.source: s.name for s in found.plan.assignments}
    for n in range(12):
        for word, short in words.items():
            name = f"model/encoder.layer.{n}.self.{word}.weight"
            assert went[name] == f"model/block_{n}/attn/{short}/kernel"


# --- what is left out, and the optimizer


def test_a_head_of_another_size_stays_new():
    other = {"kernel": (20, 5), "bias": (5,)}
    stored = weights(model__conv=CONV, model__head=DENSE)
    live = weights(model__conv=CONV, model__head=other)
    assert suggested(stored, live) == {"exclude": ["model/head/**"]}
    found = suggest(Policy(), *both(stored, live))
    assert found.lead == "this policy restores 2 of 4 values; model/head stays new:"


def test_a_vocabulary_of_another_size_needs_its_words():
    stored = weights(model__words={"embeddings": (50, 8)}, model__body=DENSE)
    live = weights(model__words={"embeddings": (60, 8)}, model__body=DENSE)
    assert suggested(stored, live) == {"exclude": ["model/words/**"]}
    lead = suggest(Policy(), *both(stored, live)).lead
    assert "of model/words/embeddings, an adapt rule with how: vocabulary moves the rows" in lead


def test_half_a_head_is_none():
    """Its bias would fit, in a head of as many classes on other features."""
    stored = weights(model__conv=CONV, model__head={"kernel": (20, 5), "bias": (5,)})
    live = weights(model__conv=CONV, model__head={"kernel": (64, 5), "bias": (5,)})
    assert suggested(stored, live) == {"exclude": ["model/head/**"]}


def test_a_head_of_another_name_and_size():
    stored = weights(model__conv=CONV, model__top=DENSE)
    live = weights(model__conv=CONV, model__head={"kernel": (20, 5), "bias": (5,)})
    wanted = {"exclude": ["model/head/**"], "exclude_checkpoint": ["model/top/**"]}
    assert suggested(stored, live) == wanted


def test_the_optimizer_of_one_side_alone_if_everything_is_asked_for():
    model = weights(model__a=DENSE)
    trained = [*model, *slots(model), *OPTIMIZER]
    asked = {"on_missing": "error", "on_unexpected": "error"}
    assert suggested(trained, model, **asked) == {"exclude_checkpoint": ["optimizer/**"]}
    assert suggested(model, trained, **asked) == {"optimizer": "reset"}
    assert suggested(trained, model) == suggested(model, trained) is None


def test_what_is_trained_since_has_no_slots_and_the_others_keep_theirs():
    model = weights(model__a=DENSE, model__b=CONV)
    part = [entry for entry in model if "/b/" in entry.name]
    sides = [*model, *slots(part), *OPTIMIZER], [*model, *slots(model), *OPTIMIZER]
    assert suggested(*sides) is None
    found = suggested(*sides, on_missing="error")
    assert found == {"exclude": ["optimizer/momentum/a/**"]}


def test_another_dtype_is_cast():
    model = weights(model__a=DENSE)
    half = [entry._replace(dtype="float16") for entry in model]
    assert suggested(half, model) == {"on_dtype_mismatch": "cast"}


def test_the_policy_keeps_what_it_says():
    stored = weights(model__conv=CONV, model__top=DENSE)
    live = weights(model__stem=CONV, model__aux=HEAD)
    found = suggest(Policy(name="p", exclude=["model/aux/**"]), *both(stored, live))
    assert found.policy.name == "p"
    assert found.policy.exclude == ("model/aux/**",)
    assert found.policy.exclude_checkpoint == ("model/top/**",)


def test_what_a_rule_of_the_policy_sends_nowhere_is_not_asked_about():
    policy = load_policy({"rename": [{"checkpoint": "model/a/**", "model": "model/b/**"}]})
    sides = weights(model__a=SQUARE, model__c=HEAD)
    assert suggest(policy, *both(sides, sides)) is None


def test_another_model_is_refused_without_a_guess():
    stored = weights(model__conv1={"kernel": (3, 3, 1, 8), "bias": (8,)}, model__conv2=CONV)
    live = weights(model__dense=DENSE, model__head={"kernel": (32, 5), "bias": (5,)})
    assert suggest(Policy(), *both(stored, live)) is None


# --- bounds


def test_a_name_of_thousands_of_levels_takes_no_time():
    deep = "/".join("a" * 20_000)
    entry = Entry(f"model/{deep}/k", Role.WEIGHT, "float32", (2,), 8)
    assert suggest(Policy(), *both([entry, *weights(model__x=DENSE)], weights(model__y=DENSE)))


def test_a_search_that_is_given_up_says_so():
    many, other = (weights(**{f"model__{x}{n}": SQUARE for n in range(20_000)}) for x in ("a", "b"))
    found = suggest(Policy(), *both(many, other))
    assert str(found) == "no policy was searched for, among more than 60,000 values"


def test_no_hint_says_to_leave_what_the_suggestion_restores():
    plan = make_plan(Policy(), *both(weights(model__a=DENSE), weights(model__b=DENSE)))
    text = str(dataclasses.replace(plan, suggest=lambda: suggest(Policy(), *both_of_plan(plan))))
    assert "this policy restores 2 of 2 values" in text
    assert "exclude it" not in text
    assert "drop it" not in text
    assert "allow_empty" not in text


def both_of_plan(plan):
    steps = plan.steps
    return both([s.stored for s in steps if s.stored], [s.live for s in steps if s.live])


def test_rules_that_a_policy_has_already_are_not_shown_as_if_they_replaced_it():
    stored = inventory(weights(model__a=DENSE, model__h=HEAD, model__x=CONV))
    live = inventory(weights(model__b=DENSE, model__h={"kernel": (8, 4), "bias": (4,)}))
    written = Policy(name="mine", exclude_checkpoint=["model/x/**"])
    found = suggest(written, stored, live)
    assert str(found).startswith(
        "with this added, the policy restores 2 of 4 values; model/h stays"
    )
    assert "model/x" not in found.yaml
    names = {}
    exec(f"policy = {found.python}", names)
    assert make_plan(load_policy(names["policy"]), stored, live).ok


def test_a_rule_for_a_key_that_is_suggested_already_is_an_item_of_it():
    layers = {f"model__{name}": SQUARE for name in "ab"}
    stored = weights(**layers, model__old=CONV)
    live = weights(model__c=SQUARE, model__d=SQUARE, model__new=CONV)
    text = " ".join(str(suggest(Policy(), *both(stored, live))).split())
    assert "this much is sure: rename:" in text
    assert 'add {checkpoint: "model/a/**", model: "model/c/**"} to rename' in text
