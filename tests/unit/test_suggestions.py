"""What a refused plan suggests: the fewest lines that restore the most, nothing that may be wrong.

Each policy that is suggested is read and planned anew, as it would be after it was pasted.
"""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from zoo.entries import OPTIMIZER, slots, weights

from tfckpt.core.inventory import Entry, Inventory, Layer, Role, Traits
from tfckpt.planning import make_plan
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy, load_policy


def inventory(entries, *layers):
    """The layers of `model` in order: a name, with a star for an automatic one."""
    sequences = {"model": tuple(map(layer, layers))} if layers else {}
    return Inventory("runs/ckpt-1", {entry.name: entry for entry in entries}, sequences)


def layer(text):
    name, star, _ = text.partition("*")
    return Layer(name, base=name.rstrip("_0123456789") if star else "", kind="dense")


CONV = {"kernel": (3, 3, 8, 32), "bias": (32,)}
DENSE = {"kernel": (20, 32), "bias": (32,)}
SQUARE = {"kernel": (8, 8), "bias": (8,)}
HEAD = {"kernel": (8, 3), "bias": (3,)}
TORCH = {"weight": (32, 20), "bias": (32,)}


def both(stored, live):
    return (s if isinstance(s, Inventory) else inventory(s) for s in (stored, live))


def suggested(stored, live):
    """The keys that are suggested, once they have been seen to work; None for none."""
    stored, live = both(stored, live)
    found = suggest(Policy(), stored, live)
    if found is None or found.policy is None:
        return None
    keys = yaml.safe_load(found.yaml)
    assert make_plan(load_policy(keys), stored, live).ok
    return keys


def choices(stored, live):
    found = suggest(Policy(), *both(stored, live))
    assert found is not None
    assert found.policy is None
    return {choice.live: choice.stored for choice in found.choices}


def rename(*pairs):
    return {"rename": [{"checkpoint": old, "model": new} for old, new in pairs]}


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
    chosen = dataclasses.replace(live.sequences["model"][1], traits=Traits(given=True))
    live.sequences["model"] = (live.sequences["model"][0], chosen)
    either = ("model/dense", "model/left")
    assert choices(stored, live) == {"model/mid": either, "model/dense": either}


def test_layers_that_only_one_side_knows_as_layers_are_paired():
    """A checkpoint does not say which of its objects are layers of a subclassed model."""
    stored = inventory(weights(model__net__a=CONV, model__top=DENSE), "net", "top")
    live = inventory(weights(model__own__stem=CONV, model__top=DENSE), "own", "top")
    for side, name in ((stored, "net"), (live, "own")):
        side.sequences["model"] = (Layer(name, kind="net"), *side.sequences["model"][1:])
    members = {"model/own": (Layer("model/own/stem", kind="conv"),)}
    live = dataclasses.replace(live, members=members)
    assert suggested(stored, live) == rename(("model/net/a/**", "model/own/stem/**"))


def chosen(name, number):
    """A layer of which its user said `dense_4`, say."""
    return Layer(name, "dense", kind="dense", number=number, traits=Traits(given=True))


def test_a_number_that_somebody_chose_is_a_name():
    """Both are the first of their class where they stand, and so have one canonical name."""
    stored = inventory(weights(model__x__dense=DENSE, model__y__dense=DENSE, model__old=CONV))
    live = inventory(weights(model__x__dense=DENSE, model__z__dense=DENSE, model__new=CONV))
    stored.sequences.update({"model/x": (chosen("dense", 2),), "model/y": (chosen("dense", 4),)})
    live.sequences.update({"model/x": (chosen("dense", 4),), "model/z": (chosen("dense", 2),)})
    found = suggested(stored, live)["rename"]
    assert {"checkpoint": "model/x/**", "model": "model/z/**"} in found
    assert {"checkpoint": "model/y/**", "model": "model/x/**"} in found


def test_an_order_within_a_class_says_nothing_of_what_is_in_a_layer_of_another():
    """The file has `inner` after all dense layers, wherever it stood."""
    names = ["model/a", "model/b", "model/inner/c"]
    stored = inventory(weights(**{name.replace("/", "__"): DENSE for name in names}))
    stored.sequences["model"] = (
        *(Layer(n, kind="dense") for n in "ab"),
        Layer("inner", kind="net"),
    )
    stored.sequences["model/inner"] = (Layer("c", kind="dense"),)
    listed = frozenset({"model", "model/inner"})
    stored = dataclasses.replace(stored, unordered=listed, listed=listed)
    live = inventory(weights(model__dense=DENSE, model__net__dense=DENSE, model__dense_1=DENSE))
    live.sequences["model"] = (layer("dense*"), Layer("net", "net", kind="net"), layer("dense_1*"))
    live.sequences["model/net"] = (layer("dense*"),)
    assert suggested(stored, live) == rename(
        ("model/a/**", "model/dense/**"),
        ("model/b/**", "model/dense_1/**"),
        ("model/inner/c/**", "model/net/dense/**"),
    )


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


def torch(**modules):
    return [
        Entry(f"model/{name.replace('__', '.')}.{word}", Role.WEIGHT, "float32", shape, 4)
        for name, shapes in modules.items()
        for word, shape in shapes.items()
    ]


TRANSPOSED = [{"model": "**/kernel", "how": "transpose"}]


def test_kernels_of_pytorch_are_transposed():
    pairs = ("model/fc.weight", "model/fc/kernel"), ("model/fc.bias", "model/fc/bias")
    wanted = {**rename(*pairs), "adapt": TRANSPOSED}
    assert suggested(torch(fc=TORCH), weights(model__fc=DENSE)) == wanted


def test_a_square_kernel_goes_as_the_others_do():
    square = {"weight": (8, 8), "bias": (8,)}
    found = suggested(torch(a=TORCH, b=square), weights(model__a=DENSE, model__b=SQUARE))
    assert found["adapt"] == TRANSPOSED


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


def test_kernels_named_as_in_keras_are_as_in_keras():
    stored, live = weights(model__x=SQUARE), weights(model__y=SQUARE)
    assert suggested(stored, live) == rename(("model/x/**", "model/y/**"))


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


def test_axes_that_are_no_neighbors_are_not_merged():
    stored = weights(model__q={"kernel": (6, 6)}, model__up=CONV)
    live = weights(model__q={"kernel": (2, 6, 3)}, model__up=CONV)
    assert suggested(stored, live) == {"exclude": ["model/q/**"]}


def test_a_flattened_convolution_is_none():
    """PyTorch flattens channels first, Keras last."""
    stored = torch(a={"weight": (8, 12)}, b=TORCH)
    live = inventory(weights(model__a={"kernel": (3, 4, 8)}, model__b=DENSE), "a", "b")
    live.sequences["model"] = (Layer("a", kind="conv1d"), Layer("b", kind="dense"))
    assert suggested(inventory(stored), live)["exclude"] == ["model/a/**"]


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


def test_one_value_for_queries_keys_and_values_is_divided_if_a_person_says_how():
    fused = {"weight": (24, 8), "bias": (24,)}
    stored = torch(**{f"h__{n}__qkv": fused for n in range(12)}, up=TORCH)
    live = attention(*(f"block_{n}" for n in range(12)))
    found = suggest(Policy(), *both(stored, live))
    assert found.policy is None
    ((how, rules),) = found.choices[0].adapt
    assert how == "its query, key and value follow one another"
    assert len(rules) == 6  # two to divide, three kernels to transpose, all to reshape
    decided = suggest(Policy(adapt=rules), *both(stored, live))
    assert decided.plan.ok
    went = {(s.source, s.name) for s in decided.plan.assignments}
    assert {("model/h.7.qkv.bias", f"model/block_7/{role}/bias") for role in THREE} <= went


def test_the_order_of_pytorchs_own_attention_is_known():
    fused = {"in_proj_weight": (24, 8), "in_proj_bias": (24,)}
    found = suggested(torch(a=fused, up=TORCH), attention("mha"))
    assert {
        "how": "split",
        "checkpoint": "model/a.in_proj_weight",
        "model": [f"model/mha/{role}/kernel" for role in THREE],
        "axis": 0,
    } in found["adapt"]


def test_which_of_two_attentions_it_is_is_for_a_person_to_say():
    fused = {"in_proj_weight": (24, 8), "in_proj_bias": (24,)}
    stored, live = torch(self=fused, cross=fused, up=TORCH), attention("first", "second")
    assert suggested(stored, live) is None


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


def test_the_optimizer_of_one_side_alone():
    model = weights(model__a=DENSE)
    trained = [*model, *slots(model), *OPTIMIZER]
    assert suggested(trained, model) == {"exclude_checkpoint": ["optimizer/**"]}
    anew = {"slots": "reset", "iterations": "reset", "hyperparameters": "config"}
    assert suggested(model, trained) == {"optimizer": anew}


def test_what_is_trained_since_has_no_slots_and_the_others_keep_theirs():
    model = weights(model__a=DENSE, model__b=CONV)
    part = [entry for entry in model if "/b/" in entry.name]
    found = suggested([*model, *slots(part), *OPTIMIZER], [*model, *slots(model), *OPTIMIZER])
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
    exec(f"policy = {found.whole_python}", names)
    assert make_plan(load_policy(names["policy"]), stored, live).ok


def test_a_rule_for_a_key_that_is_suggested_already_is_an_item_of_it():
    layers = {f"model__{name}": SQUARE for name in "ab"}
    stored = weights(**layers, model__old=CONV)
    live = weights(model__c=SQUARE, model__d=SQUARE, model__new=CONV)
    text = " ".join(str(suggest(Policy(), *both(stored, live))).split())
    assert "this much is sure: rename:" in text
    assert 'add {checkpoint: "model/a/**", model: "model/c/**"} to rename' in text
