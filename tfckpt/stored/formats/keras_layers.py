"""Keras's own layers: their names, and their variables and inner layers in the order of its files.

Keras 3's files number the values of a layer, ``vars/0``. Their names follow from the layer's class
and the number of values. The table is for readable names only; a value is matched by its index
among the live layer's own values, never by this table alone: a user's class may be called
``Dense``, too.

The orders are those in which ``build`` makes the variables and inner layers, the same in Keras 3
and tf_keras.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Names that Keras gives to layers without one: classes in snake case. The user's own classes come
# from the live model. (Layers with weights of keras.layers and tf_keras.layers of 2.16 to 2.21.)
KERAS_BASES = frozenset(
    """
    activation additive_attention attention batch_normalization bidirectional category_encoding
    conv1d conv1d_transpose conv2d conv2d_transpose conv3d conv3d_transpose conv_lstm1d
    conv_lstm2d conv_lstm3d conv_lstm_cell dense depthwise_conv1d depthwise_conv2d discretization
    einsum_dense embedding functional group_normalization group_query_attention gru gru_cell
    hashing integer_lookup layer_normalization locally_connected1d locally_connected2d lstm
    lstm_cell model multi_head_attention normalization p_re_lu reversible_embedding
    rms_normalization rnn separable_conv1d separable_conv2d sequential simple_rnn simple_rnn_cell
    spectral_normalization stacked_rnn_cells string_lookup sync_batch_normalization
    text_vectorization time_distributed
    """.split()  # noqa: SIM905 (words read better than a list of them)
)
_KERNEL_BIAS = (("kernel", "bias"), ("kernel",))
_RECURRENT = (("kernel", "recurrent_kernel", "bias"), ("kernel", "recurrent_kernel"))
_NORM = (("gamma", "beta"),)
_SEPARABLE = (
    ("depthwise_kernel", "pointwise_kernel", "bias"),
    ("depthwise_kernel", "pointwise_kernel"),
)
_OWN: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "dense": _KERNEL_BIAS,
    "einsum_dense": _KERNEL_BIAS,
    **{f"conv{n}d": _KERNEL_BIAS for n in (1, 2, 3)},
    **{f"conv{n}d_transpose": _KERNEL_BIAS for n in (1, 2, 3)},
    **{f"depthwise_conv{n}d": _KERNEL_BIAS for n in (1, 2)},
    **{f"separable_conv{n}d": _SEPARABLE for n in (1, 2)},
    **{f"locally_connected{n}d": _KERNEL_BIAS for n in (1, 2)},
    **{f"{kind}_cell": _RECURRENT for kind in ("lstm", "gru", "simple_rnn", "conv_lstm")},
    "embedding": (("embeddings",),),
    "reversible_embedding": (("embeddings",),),
    "batch_normalization": (("gamma", "beta", "moving_mean", "moving_variance"),),
    "sync_batch_normalization": (("gamma", "beta", "moving_mean", "moving_variance"),),
    "layer_normalization": _NORM,
    "group_normalization": _NORM,
    "unit_normalization": (),
    "rms_normalization": (("scale",),),
    "p_re_lu": (("alpha",),),
    "normalization": (("mean", "variance", "count"),),
}
_PARTS: Mapping[str, Sequence[str]] = {
    "bidirectional": ("forward_layer", "backward_layer"),
    "multi_head_attention": ("query_dense", "key_dense", "value_dense", "output_dense"),
    "group_query_attention": ("query_dense", "key_dense", "value_dense", "output_dense"),
}
_CELLS = {
    **{kind: f"{kind}_cell" for kind in ("lstm", "gru", "simple_rnn")},
    **{f"conv_lstm{n}d": "conv_lstm_cell" for n in (1, 2, 3)},
}
_DIRECTION = re.compile(r"(forward|backward)_(.+?)(?:_\d+)?")
PROJECTIONS = {
    **{part: f"{part}_dense" for part in ("query", "key", "value")},
    "attention_output": "output_dense",
}


def own_names(cls: str, count: int, config: Mapping[str, Any]) -> list[str] | None:
    """The names of a layer's values, from its class and their count; None if unknown.

    >>> own_names("dense", 2, {}), own_names("dense", 3, {})
    (['kernel', 'bias'], None)
    >>> own_names("batch_normalization", 3, {"scale": False})
    ['beta', 'moving_mean', 'moving_variance']
    """
    for names in _OWN.get(cls, ()):
        left_out = {"gamma": config.get("scale"), "beta": config.get("center")}
        kept = [name for name in names if left_out.get(name) is not False]
        if len(kept) == count:
            return kept
    return None


def holds_values(cls: str) -> bool:
    """Whether layers of a class normally have weights.

    >>> holds_values("lstm"), holds_values("dropout")
    (True, False)
    """
    return bool(_OWN.get(cls)) or cls in _CELLS or cls in _PARTS


def part_class(cls: str, part: str) -> str:
    """The class of a layer inside one of Keras's own, ``""`` if unknown.

    >>> part_class("lstm", "cell"), part_class("multi_head_attention", "query_dense")
    ('lstm_cell', 'einsum_dense')
    """
    if part == "cell":
        return _CELLS.get(cls, "")
    return "einsum_dense" if "attention" in cls and part in _PARTS.get(cls, ()) else ""


def attributes(cls: str, scopes: Sequence[str]) -> list[str]:
    """The attributes that lead to a variable, from the scopes in its name.

    Scopes of unknown meaning are kept.

    >>> attributes("bidirectional", ["forward_lstm", "lstm_cell", "kernel"])
    ['forward_layer', 'cell', 'kernel']
    >>> attributes("multi_head_attention", ["attention_output", "bias"])
    ['output_dense', 'bias']
    """
    *inner, last = scopes
    if cls in _CELLS and len(inner) < 2:  # before Keras 2.3 the cell was no scope
        return ["cell", last]
    if cls == "rnn" and len(inner) == 1:
        return ["cell", last]
    if cls == "time_distributed" and len(inner) < 2:
        return ["layer", last]
    if cls == "bidirectional" and inner and (match := _DIRECTION.fullmatch(inner[0])):
        return [f"{match[1]}_layer", *attributes(match[2], scopes[1:])]
    if cls == "multi_head_attention" and len(inner) == 1:
        return [PROJECTIONS.get(inner[0], inner[0]), last]
    return list(scopes)


def class_and_number(name: str, others: Mapping[str, Any]) -> tuple[str, int]:
    """Class and index of a layer from its group's name, which is numbered per class.

    >>> class_and_number("dense_1", {"dense": 0, "dense_1": 0}), class_and_number("block_2", {})
    (('dense', 1), ('block_2', 0))
    """
    match = re.fullmatch(r"(.+)_([1-9][0-9]{0,8})", name)
    if match and (match[1] in others or match[1] in _OWN or match[1] in _CELLS):
        return match[1], int(match[2])
    return name, 0
