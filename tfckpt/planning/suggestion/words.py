"""How alike two names are, by the words in them, and what variables are called elsewhere.

TF1's layers had ``weights`` and ``biases``, Sonnet has ``w`` and ``b``, PyTorch says ``weight`` for
the kernel of a layer and for the scale of a normalization.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A variable's name in other libraries → what Keras calls it.
_MEANINGS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "weight": frozenset({"kernel", "gamma", "embeddings", "depthwise_kernel"}),
        "weights": frozenset({"kernel", "embeddings"}),
        "w": frozenset({"kernel", "embeddings"}),
        "depthwise_weights": frozenset({"depthwise_kernel"}),
        "pointwise_weights": frozenset({"pointwise_kernel"}),
        "biases": frozenset({"bias", "beta"}),
        "bias": frozenset({"beta"}),
        "b": frozenset({"bias"}),
        "scale": frozenset({"gamma"}),
        "offset": frozenset({"beta"}),
        "shift": frozenset({"beta"}),
        "mean": frozenset({"moving_mean", "adapt_mean"}),
        "running_mean": frozenset({"moving_mean"}),
        "variance": frozenset({"moving_variance", "adapt_variance"}),
        "var": frozenset({"moving_variance"}),
        "running_var": frozenset({"moving_variance"}),
        "embedding": frozenset({"embeddings"}),
        "embedding_table": frozenset({"embeddings"}),
    }
)
# Abbreviations, and words that say the same of a layer.
_SAME = MappingProxyType(
    {
        "attn": "attention",
        "att": "attention",
        "bn": "norm",
        "conv1d": "conv",
        "conv2d": "conv",
        "conv3d": "conv",
        "dec": "decoder",
        "emb": "embedding",
        "embed": "embedding",
        "embeddings": "embedding",
        "enc": "encoder",
        "fc": "dense",
        "linear": "dense",
        "layernorm": "norm",
        "ln": "norm",
        "normalization": "norm",
        "k": "key",
        "o": "output",
        "out": "output",
        "q": "query",
        "v": "value",
    }
)
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LAST_NUMBER = re.compile(r"_?[0-9]+\Z")
_CLOSE = 0.75
Words = tuple[str, ...]
UNUSED = frozenset({"num_batches_tracked"})
"""Names of variables that other libraries keep, and Keras has not."""


def means(stored: str, live: str) -> bool:
    """Whether a variable of one name may be one of the other name elsewhere.

    >>> means("weights", "kernel"), means("weight", "gamma"), means("kernel", "bias")
    (True, True, False)
    >>> means("w1", "kernel"), means("b_1", "bias")
    (True, True)
    """
    old, new = (_LAST_NUMBER.sub("", each) for each in (stored, live))
    return (
        stored == live
        or live in _MEANINGS.get(old.lower(), ())
        or stored in _MEANINGS.get(new.lower(), ())
    )


def says_nothing(stored: str) -> bool:
    """Whether no library calls a part of a layer by a variable's name.

    >>> says_nothing("Variable_3"), says_nothing("kernel"), says_nothing("w1")
    (True, False, False)
    """
    word = _LAST_NUMBER.sub("", stored).lower()
    return word not in _MEANINGS and all(word not in each for each in _MEANINGS.values())


def last_word(name: str) -> str:
    """What a variable is called, in names with levels or with dots.

    >>> last_word("model/dense/kernel"), last_word("model/encoder.layer.0.query.weight")
    ('kernel', 'weight')
    """
    return name.replace(".", "/").rpartition("/")[2]


def numbers(path: str) -> tuple[int, ...]:
    """The numbers in a path.

    >>> numbers("model/block_2/dense_10"), numbers("encoder.layer.0.query")
    ((2, 10), (0,))
    """
    return tuple(int(each[:18]) for each in _NUMBER.findall(path))


def template(path: str) -> str:
    """The path with each number replaced.

    >>> template("model/block_2/dense_10")
    'model/block_#/dense_#'
    """
    return _NUMBER.sub("#", path)


@lru_cache(maxsize=4096)
def words(path: str) -> Words:
    """The words of a path below its first component, without numbers.

    >>> words("model/encoder.layer.0.attn.q"), words("model/txtEncoder/fc_1")
    (('encoder', 'layer', 'attention', 'query'), ('txt', 'encoder', 'dense'))
    """
    below = path.partition("/")[2] or path
    found = [each.lower() for each in _WORD.findall(below) if not each.isdecimal()]
    return tuple(_SAME.get(each, each) for each in found)


def distinct(paths: Sequence[str]) -> list[Words]:
    """The words of each path that not all of them have.

    >>> distinct(["model/self/query", "model/self/key"]), distinct(["model/query"])
    ([('query',), ('key',)], [('query',)])
    """
    each = list(map(words, paths))
    common = set(each[0]).intersection(*each) if len(each) > 1 else set()
    return [tuple(word for word in found if word not in common) for found in each]


@lru_cache(maxsize=1 << 16)
def likeness(stored: Words, live: Words) -> float:
    """From 0 to 1: how many of the words of two paths are the same, or nearly.

    >>> likeness(("old", "encoder"), ("encoder",)), likeness(("stem",), ("head",))
    (0.6666666666666666, 0.0)
    """
    old, new = list(stored), list(live)
    if not old or not new:
        return 0.0
    total = len(old) + len(new)
    same = 0.0
    for word in list(old):
        if word in new:
            old.remove(word)
            new.remove(word)
            same += 1
    for word in old:
        near = difflib.get_close_matches(word, new, 1, _CLOSE)
        if near:
            new.remove(near[0])
            same += 0.5
    return 2 * same / total
