"""What a refused plan suggests for values that another library kept otherwise.

Each policy that is suggested is read and planned anew, as it would be after it was pasted.
"""

from __future__ import annotations

import pytest
from zoo.entries import sequence, weights
from zoo.suggested import (
    CONV,
    DENSE,
    SQUARE,
    TORCH,
    both,
    choices,
    inventory,
    rename,
    suggested,
    torch,
)

from tfckpt.core.inventory import Layer
from tfckpt.planning.suggestion import suggest
from tfckpt.policy import Policy

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
    layers = (
        Layer(name, name, given=True, cls=cls) for name, cls in (("a", "conv1d"), ("b", "dense"))
    )
    live.containers["model"] = sequence(*layers)
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


@pytest.mark.parametrize("word", ["qkv.weight", "in_proj_weight", "attn.c_attn.weight"])
def test_one_value_for_queries_keys_and_values_is_named(word):
    stored = torch(a={word: (24, 8)}, up=TORCH)
    found = suggest(Policy(), *both(stored, attention("mha")))
    assert found.policy is None
    assert f"model/a.{word} has query, key and value in one" in str(found)
