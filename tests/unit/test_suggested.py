"""What a refused plan suggests."""

from __future__ import annotations

import pytest
from zoo.entries import OPTIMIZER, slots, weights
from zoo.suggested import (
    CONV,
    DENSE,
    HEAD,
    SQUARE,
    TORCH,
    both,
    choices,
    inventory,
    rename,
    suggested,
    torch,
)

from tfckpt.core.inventory import Entry, Role
from tfckpt.planning import make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy, load_policy


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


def test_one_layer_more_among_equals_is_a_choice():
    old = weights(model__dense=SQUARE, model__dense_1=SQUARE, model__dense_2=HEAD)
    stored = inventory(old, "dense*", "dense_1*", "dense_2*")
    more = weights(model__a=SQUARE, model__b=SQUARE, model__c=SQUARE, model__d=HEAD)
    fits = ("model/dense", "model/dense_1")
    wanted = dict.fromkeys(("model/a", "model/b", "model/c"), fits)
    assert choices(stored, inventory(more, "a", "b", "c", "d")) == wanted


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


def test_a_vocabulary_of_another_size_needs_its_words():
    stored = weights(model__words={"embeddings": (50, 8)}, model__body=DENSE)
    live = weights(model__words={"embeddings": (60, 8)}, model__body=DENSE)
    assert suggested(stored, live) == {"exclude": ["model/words/**"]}
    lead = suggest(Policy(), *both(stored, live)).lead
    assert "of model/words/embeddings, an adapt rule with how: vocabulary moves the rows" in lead


def test_the_optimizer_of_one_side_alone_if_everything_is_asked_for():
    model = weights(model__a=DENSE)
    trained = [*model, *slots(model), *OPTIMIZER]
    asked = {"on_missing": "error", "on_unexpected": "error"}
    assert suggested(trained, model, **asked) == {"exclude_checkpoint": ["optimizer/**"]}
    assert suggested(model, trained, **asked) == {"optimizer": "reset"}
    assert suggested(trained, model) == suggested(model, trained) is None


def test_a_name_of_thousands_of_levels_takes_no_time():
    deep = "/".join("a" * 20_000)
    entry = Entry(f"model/{deep}/k", Role.WEIGHT, "float32", (2,), 8)
    assert suggest(Policy(), *both([entry, *weights(model__x=DENSE)], weights(model__y=DENSE)))


def test_a_search_that_is_given_up_says_so():
    many, other = (weights(**{f"model__{x}{n}": SQUARE for n in range(20_000)}) for x in ("a", "b"))
    found = suggest(Policy(), *both(many, other))
    assert str(found) == "no policy was searched for, among more than 60,000 values"


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


TRANSPOSED = [{"model": "**/kernel", "how": "transpose"}]


def test_kernels_of_pytorch_are_transposed():
    pairs = ("model/fc.weight", "model/fc/kernel"), ("model/fc.bias", "model/fc/bias")
    wanted = {**rename(*pairs), "adapt": TRANSPOSED}
    assert suggested(torch(fc=TORCH), weights(model__fc=DENSE)) == wanted


PYTORCH = {"weight": (8, 8), "bias": (8,)}


def test_kernels_that_are_all_square_may_be_transposed_or_not():
    """They would go in either way, and half of the files have them the other way round."""
    stored, live = torch(fc=PYTORCH), weights(model__fc=SQUARE)
    assert list(choices(stored, live)) == ["model/fc/kernel"]
    text = " ".join(str(suggest(Policy(), *both(stored, live))).split())
    assert "(in, out) in it, as in Keras: nothing more" in text
    assert 'as in PyTorch: adapt: [{model: "**/kernel", how: transpose}]' in text


def test_the_answer_of_how_kernels_were_kept_makes_the_policy_whole():
    stored, live = torch(a=PYTORCH, b=PYTORCH), weights(model__a=SQUARE, model__b=SQUARE)
    found = suggest(Policy(adapt=TRANSPOSED), *both(stored, live))
    assert found.plan.ok
    assert {len(s.changes) for s in found.plan.assignments if s.name.endswith("kernel")} == {1}


def test_depthwise_kernels_of_pytorch_have_an_order_of_their_own():
    stored = torch(a={"weight": (8, 3, 5, 7)}, b={"weight": (8, 1, 5, 7)})
    live = weights(model__a={"kernel": (5, 7, 3, 8)}, model__b={"depthwise_kernel": (5, 7, 8, 1)})
    assert suggested(stored, live)["adapt"] == [
        {"model": "**/kernel", "how": "transpose", "axes": [2, 3, 1, 0]},
        {"model": "**/depthwise_kernel", "how": "transpose", "axes": [2, 3, 0, 1]},
    ]


HEADS = {"kernel": (20, 4, 8), "bias": (4, 8)}


@pytest.mark.parametrize(("stored", "live"), [(DENSE, HEADS), (HEADS, DENSE)])
def test_an_axis_of_heads_is_merged_or_not(stored, live):
    found = suggested(
        weights(model__q=stored, model__up=CONV), weights(model__q=live, model__up=CONV)
    )
    assert found == {"adapt": [{"model": "model/q/**", "how": "reshape"}]}


def test_the_parts_of_a_layer_are_paired_with_layers_of_a_file_that_knows_none():
    stored = torch(self__q=PYTORCH, self__v=PYTORCH, up=TORCH)
    part = {"kernel": (8, 2, 4), "bias": (2, 4)}
    live = inventory(
        weights(model__mha__query=part, model__mha__value=part, model__up=DENSE), "mha", "up"
    )
    found = suggested(inventory(stored), live)
    assert found["adapt"] == [
        {"model": "**/kernel", "how": "transpose"},
        {"model": "model/mha/**", "how": "reshape"},
    ]
    assert {"checkpoint": "model/self.q.weight", "model": "model/mha/query/kernel"} in found[
        "rename"
    ]


PART = {"kernel": (8, 2, 4), "bias": (2, 4)}
THREE = ("query", "key", "value")


def attention(*layers):
    return weights(
        **{f"model__{at}__{role}": PART for at in layers for role in THREE}, model__up=DENSE
    )


@pytest.mark.parametrize("word", ["qkv.weight", "in_proj_weight", "attn.c_attn.weight"])
def test_one_value_for_queries_keys_and_values_is_named(word):
    stored = torch(a={word: (24, 8)}, up=TORCH)
    found = suggest(Policy(), *both(stored, attention("mha")))
    assert found.policy is None
    assert f"model/a.{word} has query, key and value in one" in str(found)
