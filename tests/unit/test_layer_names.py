"""The names of layers, from the names that their variables had in files of both flavours."""

from __future__ import annotations

import pytest

from tfckpt.stored.formats.graph_layers import Scope, layer_names


def made(*names: str, depth: int = 1, sequences: int = 0) -> list[Scope]:
    """Where the variables of one layer were made, as `net/dense`."""
    return [Scope(tuple(name.split("/")) if name else (), depth, sequences) for name in names]


@pytest.mark.parametrize("prefix", ["", "net/", "outer/net/"])
def test_any_number_of_scopes_may_stand_before_the_layers(prefix) -> None:
    layers = [made(f"{prefix}dense"), made(f"{prefix}lstm/lstm_cell", depth=2)]
    assert layer_names(layers) == ["dense", "lstm"]


def test_layers_built_late_are_told_apart_by_each_other() -> None:
    # Keras 3 makes what is inside a block in the scope of the block.
    layers = [made("net/block", depth=2), made("net/block_1", depth=2), made("net/dense")]
    assert layer_names(layers) == ["block", "block_1", "dense"]


def test_a_layer_between_that_opens_no_scope_is_no_harm() -> None:
    # tf_keras's TimeDistributed and ConvLSTM2D
    assert layer_names([made("time_distributed", depth=2), made("dense")]) == [
        "time_distributed",
        "dense",
    ]


def test_a_layer_of_several_is_what_they_have_in_common() -> None:
    attention = made("mha/query", "mha/key", "mha/value", depth=2)
    assert layer_names([attention]) == ["mha"]


def test_one_that_was_adapted_alone_is_no_harm() -> None:
    assert layer_names([made("normalization"), made("net/dense")], usual=1) == [
        "normalization",
        "dense",
    ]


@pytest.mark.parametrize(("usual", "expected"), [(0, "lstm"), (1, "lstm_cell")])
def test_a_single_layer_is_where_layers_of_such_a_model_usually_are(usual, expected) -> None:
    assert layer_names([made("lstm/lstm_cell", depth=2)], usual) == [expected]


def test_what_was_made_outside_of_the_layer_says_nothing() -> None:
    assert layer_names([made("", "dense")]) == ["dense"]
    assert layer_names([made("")]) == [""]


def test_a_later_variable_stands_in_the_layers_scope_alone() -> None:
    # LoRA's, enabled when the model was built
    assert layer_names([made("net/head", "head"), made("net/dense")], usual=1) == ["head", "dense"]


def test_the_scope_of_an_outer_model_is_no_layer() -> None:
    assert layer_names([made("net"), made("net")]) == ["", ""]


def test_a_model_in_a_model_is_not_named_by_its_layer() -> None:
    assert layer_names([made("dense", depth=2, sequences=1)]) == [""]
    assert layer_names([made("body/dense", depth=2, sequences=1)]) == ["body"]


def test_two_of_one_name_are_none() -> None:
    assert layer_names([made("a/dense"), made("b/dense")]) == ["", ""]
