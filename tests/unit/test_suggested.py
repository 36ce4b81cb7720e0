"""What a refused plan suggests: the keys, planned anew; or what a person must decide."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from zoo.entries import OPTIMIZER, layer, sequence, slots, weights

from tfckpt.core.inventory import Entry, Inventory, Ordered, Role
from tfckpt.live.advice import PolicyCall
from tfckpt.planning import make_plan
from tfckpt.planning.report import render_text
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy, load_policy

CONV = {"kernel": (3, 3, 8, 32), "bias": (32,)}
DENSE = {"kernel": (20, 32), "bias": (32,)}
SQUARE = {"kernel": (8, 8), "bias": (8,)}
HEAD = {"kernel": (8, 3), "bias": (3,)}
TORCH = {"weight": (32, 20), "bias": (32,)}
PYTORCH = {"weight": (8, 8), "bias": (8,)}
HEADS = {"kernel": (20, 4, 8), "bias": (4, 8)}
PART = {"kernel": (8, 2, 4), "bias": (2, 4)}
TRANSPOSED = [{"model": "**/kernel", "how": "transpose"}]


def model(**layers):
    """Layers by path below `model`, `__` for a slash."""
    return weights(**{f"model__{path}": shapes for path, shapes in layers.items()})


def torch(**modules):
    return [
        Entry(f"model/{name.replace('__', '.')}.{word}", Role.WEIGHT, "float32", shape, 4)
        for name, shapes in modules.items()
        for word, shape in shapes.items()
    ]


def inventory(entries, *layers):
    """The layers of `model` in order: a name, with a star for an automatic one."""
    kinds = (layer(text, **({} if text.endswith("*") else {"cls": "dense"})) for text in layers)
    held = {"model": sequence(*kinds)} if layers else {}
    return Inventory("runs/ckpt-1", {entry.name: entry for entry in entries}, held)


def sides(stored, live):
    return (s if isinstance(s, Inventory) else inventory(s) for s in (stored, live))


def found(stored, live, **policy):
    """What is suggested, and its text."""
    suggestion = suggest(Policy(**policy), *sides(stored, live))
    return suggestion, " ".join(str(suggestion).split())


def rename(*pairs):
    return {"rename": [{"checkpoint": old, "model": new} for old, new in pairs]}


TRAINED = [*model(a=DENSE), *slots(model(a=DENSE)), *OPTIMIZER]
ASKED = {"on_missing": "error", "on_unexpected": "error"}
# stored, live, the keys that are suggested and settle it; None for none
SUGGESTED = {
    "one value of the layer fits, the layer does not": (
        model(conv=CONV), model(dense=DENSE), {}, None),
    "the shapes are those of another variable": (
        model(a={"kernel": (32, 32)}), model(b={"recurrent_kernel": (32, 32)}), {}, None),
    "one more variable": (model(a=DENSE), model(b={**DENSE, "scale": (32,)}), {}, None),
    "one variable less": (model(a={**DENSE, "scale": (32,)}), model(b=DENSE), {}, None),
    "either of two may be the one": (model(a=DENSE, b=DENSE), model(c=DENSE), {}, None),
    "it may be either of two": (model(a=DENSE), model(c=DENSE, d=DENSE), {}, None),
    "a normalization is no dense layer": (
        model(n={"mean": (8,), "variance": (8,)}), model(d={"a": (8,), "b": (8,)}), {}, None),
    "the words of TF1": (
        model(net__a={"weights": (20, 32), "biases": (32,)},
              net__b={"weights": (32, 5), "biases": (5,)}),
        model(a=DENSE, b={"kernel": (32, 5), "bias": (5,)}), {},
        rename(("model/net/**/weights", "model/**/kernel"),
               ("model/net/**/biases", "model/**/bias"))),
    "a vocabulary of another size": (
        model(words={"embeddings": (50, 8)}, body=DENSE),
        model(words={"embeddings": (60, 8)}, body=DENSE), {}, {"exclude": ["model/words/**"]}),
    "the optimizer of the file alone": (
        TRAINED, model(a=DENSE), ASKED, {"exclude_checkpoint": ["optimizer/**"]}),
    "the optimizer of the model alone": (
        model(a=DENSE), TRAINED, ASKED, {"optimizer": "reset"}),
    "an optimizer that nobody asked for": (TRAINED, model(a=DENSE), {}, None),
    "nor here": (model(a=DENSE), TRAINED, {}, None),
    "kernels of PyTorch": (
        torch(fc=TORCH), model(fc=DENSE), {},
        {**rename(("model/fc.weight", "model/fc/kernel"), ("model/fc.bias", "model/fc/bias")),
         "adapt": TRANSPOSED}),
    "an axis of heads is split": (
        model(q=DENSE, up=CONV), model(q=HEADS, up=CONV), {},
        {"adapt": [{"model": "model/q/**", "how": "reshape"}]}),
    "one word of several": (
        model(a={"weights": (3, 4), "bias": (4,)}, b={"weights": (4, 5), "bias": (5,)}),
        model(a={"w": (3, 4), "bias": (4,)}, b={"w": (4, 5), "bias": (5,)}), {},
        rename(("**/weights", "**/w"))),
    "one word of several, of another meaning": (
        model(a={"gamma": (4,), "beta": (4,)}), model(a={"gamma": (4,), "moving_mean": (4,)}), {},
        None),
    "or merged": (
        model(q=HEADS, up=CONV), model(q=DENSE, up=CONV), {},
        {"adapt": [{"model": "model/q/**", "how": "reshape"}]}),
}  # fmt: skip

ORDERED = (
    {"s": {"depthwise": (3, 3, 8, 1), "pointwise": (1, 1, 8, 8), "bias": (8,)}, "d": DENSE},
    {"s": {"kernel": (3, 3, 8, 8), "bias": (8,)}, "d": DENSE},
)


def numbered(layers):
    """As Keras's files have it: the values of each layer in order."""
    names = {path: [f"model/{path}/{word}" for word in words] for path, words in layers.items()}
    orders = {f"model/{path}": tuple(map(Ordered, each)) for path, each in names.items()}
    return dataclasses.replace(inventory(model(**layers), *layers), own_orders=orders)


SUGGESTED["another layer, of a file that numbers its values"] = (
    *map(numbered, ORDERED),
    {},
    {
        "exclude": ["model/s/**"],
        "exclude_checkpoint": ["model/s/depthwise", "model/s/pointwise"],
    },
)


@pytest.mark.parametrize("case", SUGGESTED)
def test_what_is_suggested_settles_it_and_nothing_is_that_may_be_wrong(case):
    stored, live, policy, expected = SUGGESTED[case]
    suggestion, _ = found(stored, live, **policy)
    keys = None
    if suggestion is not None and suggestion.policy is not None:
        keys = yaml.safe_load(suggestion.yaml)
        assert make_plan(load_policy(policy | keys), *sides(stored, live)).ok
        said = eval(PolicyCall("dict", ()).by(suggestion.keys))  # the same as Python
        assert make_plan(load_policy(said), *sides(stored, live)).ok
        assert policy or load_policy(said) == load_policy(keys)
    assert keys == expected


def counted(entries, *names):
    return inventory(entries, *(f"{name}*" for name in names))


EITHER = ("model/a", "model/b")
MORE = counted(model(dense=SQUARE, dense_1=SQUARE, dense_2=HEAD), "dense", "dense_1", "dense_2")
# stored, live, which may be which, what is said
CHOICES = {
    "which of two": (
        model(a=DENSE, b=DENSE), model(c=DENSE, d=DENSE), {"model/c": EITHER, "model/d": EITHER},
        ["model/c, model/d: each may be one of model/a, model/b of the checkpoint, or new",
         "if model/c is the checkpoint's model/a, model/d is the checkpoint's model/b: rename: "
         '- {checkpoint: "model/a/**", model: "model/c/**"} '
         '- {checkpoint: "model/b/**", model: "model/d/**"}']),
    "many": (
        model(**{f"x{n}": SQUARE for n in range(9)}), model(c=SQUARE, d=SQUARE), None,
        ["each may be one of model/x{0…8} of the checkpoint, or new",
         "if model/c is the checkpoint's model/x7, model/d is the checkpoint's model/x8; "
         'model/x{0…6} of the checkpoint are left out',
         'exclude_checkpoint: ["model/x[0-6]/**"]']),
    "one layer more among equals": (
        MORE, inventory(model(a=SQUARE, b=SQUARE, c=SQUARE, d=HEAD), "a", "b", "c", "d"),
        dict.fromkeys(("model/a", "model/b", "model/c"), ("model/dense", "model/dense_1")),
        ['exclude: ["model/c/**"]', 'exclude: ["model/a/**"]']),
    # counted from one, or the first one gone and a last one added
    "the first of a row, and the last": (
        inventory(model(b0=SQUARE, b1=SQUARE, b2=SQUARE), "b0", "b1", "b2"),
        inventory(model(b1=SQUARE, b2=SQUARE, b3=SQUARE), "b1", "b2", "b3"),
        {"model/b3": ("model/b0",)}, ['exclude: ["model/b3/**"]']),
    "a layer between those that Keras has named": (
        MORE, inventory(model(dense=SQUARE, new=SQUARE, dense_1=SQUARE, dense_2=HEAD),
                        "dense*", "new", "dense_1*", "dense_2*"),
        None, ["if model/dense, model/dense_1 are the checkpoint's of the same names; model/new "
               'stays new: match: name exclude: ["model/new/**"]']),
    # an answer has all: what nobody doubts, too
    "beside what is sure": (
        model(a=SQUARE, b=SQUARE, old=CONV), model(c=SQUARE, d=SQUARE, new=CONV), None,
        ["if nothing of these is the same; model/c, model/d stay new; model/a, model/b of the "
         'checkpoint are left out: rename: [{checkpoint: "model/old/**", model: "model/new/**"}] '
         'exclude: ["model/c/**", "model/d/**"]']),
    # they would go in either way, and half of the files have them the other way round
    "kernels that are all square": (
        torch(fc=PYTORCH), model(fc=SQUARE), None,
        ["it is square, and no other kernel shows the order of its axes",
         "→ if a kernel is (in, out) in it, as in Keras:",
         "→ if it is (out, in), as in PyTorch:", 'adapt: [{model: "**/kernel", how: transpose}]']),
    "the parts of a layer, in a file that knows no layers": (
        torch(self__q=PYTORCH, self__v=PYTORCH, up=TORCH),
        inventory(model(mha__query=PART, mha__value=PART, up=DENSE), "mha", "up"), None,
        ["if model/mha/query is the checkpoint's model/self.q, model/mha/value",
         'adapt: - {model: "**/kernel", how: transpose} - {model: "model/mha/**", how: reshape}']),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_what_is_for_a_person_to_say(case):
    stored, live, expected, said = CHOICES[case]
    suggestion, text = found(stored, live)
    assert suggestion.policy is None
    choices = {choice.live: choice.stored for choice in suggestion.choices}
    assert choices
    assert expected in (None, choices)
    assert not [each for each in said if each not in text]
    for answer in suggestion.answers:  # one paste settles all of it
        plan = make_plan(load_policy(yaml.safe_load(answer.suggestion.yaml)), *sides(stored, live))
        assert plan.ok


def test_what_a_person_decided_makes_the_policy_whole():
    stored, live = model(a=DENSE, b=DENSE), model(c=DENSE, d=DENSE)
    suggestion, _ = found(stored, live, **rename(("model/a/**", "model/c/**")))
    assert {(s.source, s.name) for s in suggestion.plan.assignments} == {
        (f"model/{old}/{word}", f"model/{new}/{word}")
        for old, new in ("ac", "bd")
        for word in DENSE
    }
    square = torch(a=PYTORCH, b=PYTORCH), model(a=SQUARE, b=SQUARE)
    suggestion, _ = found(*square, adapt=TRANSPOSED)
    assert suggestion.plan.ok
    kernels = [s for s in suggestion.plan.assignments if s.name.endswith("kernel")]
    assert {len(step.changes) for step in kernels} == {1}


def test_numbered_blocks_are_one_rule():
    stored, live = (
        model(**{f"{name}_{n}__self__{part}": SQUARE for n in range(12) for part in "qkv"})
        for name in ("block", "layer")
    )
    suggestion, _ = found(stored, live)
    assert suggestion.changes == rename(("model/block_*/**", "model/layer_*/**"))
    assert {(s.source, s.name) for s in suggestion.plan.assignments} == {
        (entry.name, entry.name.replace("block", "layer")) for entry in stored
    }


def words(digest):
    """A table of words beside its embedding, as in a text model."""
    table = Entry("model/words/vocabulary", Role.VOCABULARY, "string", (3,), crc32c=digest)
    return [table, *model(embedding={"embeddings": (3, 8)}, body=DENSE)]


def test_a_vocabulary_moves_with_its_layer_or_the_embedding_stays():
    moved = [e._replace(name=e.name.replace("words", "tokens")) for e in words(1)]
    changes = found(words(1), moved)[0].changes
    assert changes == rename(("model/words/**", "model/tokens/**"))
    assert found(words(1), [*words(2), *model(head=HEAD)])[0] is None


def test_a_thousand_layers_are_one_question():
    """Each fits each: the pairs are a million."""
    stored, live = (model(**{f"{name}{n}": SQUARE for n in range(1000)}) for name in ("old", "x"))
    suggestion, text = found(stored, live[2:])
    assert len(suggestion.choices) == 999
    assert "model/x{1…999}: each may be one of model/old{0…999} of the checkpoint" in text


def test_a_vocabulary_of_another_size_needs_its_words():
    words = [model(words={"embeddings": (size, 8)}, body=DENSE) for size in (50, 60)]
    lead = found(*words)[0].lead
    assert "of model/words/embeddings, an adapt rule with how: vocabulary moves the rows" in lead


def test_names_of_thousands_of_levels_and_searches_without_end_take_no_time():
    deep = Entry(f"model/{'/'.join('a' * 20_000)}/k", Role.WEIGHT, "float32", (2,), 8)
    assert found([deep, *model(x=DENSE)], model(y=DENSE))[0]
    many, other = (model(**{f"{x}{n}": SQUARE for n in range(20_000)}) for x in ("a", "b"))
    assert found(many, other)[1] == "no policy was searched for, among more than 60,000 values"


def test_rules_that_a_policy_has_already_are_not_shown_as_if_they_replaced_it():
    stored = inventory(model(a=DENSE, h=HEAD, x=CONV))
    live = inventory(model(b=DENSE, h={"kernel": (8, 4), "bias": (4,)}))
    suggestion, text = found(stored, live, name="mine", exclude_checkpoint=["model/x/**"])
    assert text.startswith("with this added, the policy restores 2 of 4 values; model/h stays")
    assert "model/x" not in suggestion.yaml
    keys = eval(PolicyCall("dict", ()).by(suggestion.keys))
    assert make_plan(load_policy(keys), stored, live).ok


def test_depthwise_kernels_of_pytorch_have_an_order_of_their_own():
    stored = torch(a={"weight": (8, 3, 5, 7)}, b={"weight": (8, 1, 5, 7)})
    live = model(a={"kernel": (5, 7, 3, 8)}, b={"depthwise_kernel": (5, 7, 8, 1)})
    suggestion, _ = found(stored, live)
    assert suggestion.plan.ok
    assert yaml.safe_load(suggestion.yaml)["adapt"] == [
        {"model": "**/kernel", "how": "transpose", "axes": [2, 3, 1, 0]},
        {"model": "**/depthwise_kernel", "how": "transpose", "axes": [2, 3, 0, 1]},
    ]


def test_an_average_goes_where_its_weight_goes_and_is_kept_for_it():
    saved = model(a=DENSE, h=HEAD)
    averaged = [*saved, *slots(saved, "moving_average"), *slots(saved), *OPTIMIZER]
    for policy in ({"ema": "prefer"}, {"ema": "prefer", "include": ["model/**"]}):
        suggestion, _ = found(averaged, model(b=DENSE, h=HEAD), **policy)
        gets = {step.name: step.source for step in suggestion.plan.assignments}
        assert gets["model/b/kernel"] == "optimizer/moving_average/a/kernel"
        assert gets["model/h/bias"] == "optimizer/moving_average/h/bias"


def test_a_refusal_of_an_ordinary_model_has_forty_lines_at_most():
    saved, live = ([f"{name}_{n}" for n in range(40)] for name in ("old", "new"))
    entries = [model(**dict.fromkeys(names, SQUARE)) for names in (saved, live)]
    stored, new = (
        inventory(each, *names) for each, names in zip(entries, (saved, live), strict=True)
    )
    plan, suggestion = make_plan(Policy(), stored, new), suggest(Policy(), stored, new)
    code = suggestion.policy and PolicyCall("tfckpt.restore", ("path", "model")).by(suggestion.keys)
    text = f"{render_text(plan, suggestion)}\n\n{suggestion}\n\n{code or ''}"
    assert len(text.splitlines()) <= 40
