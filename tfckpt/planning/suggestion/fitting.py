"""Whether the values of two layers are the same ones: by their words, and by their shapes."""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

from tfckpt.core.fewest import last_word
from tfckpt.core.inventory import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tfckpt.core.inventory import Entry, Shape

# Another library's word for a value → Keras's, in the order in which they are tried.
_WORDS = {
    "weight": ("kernel", "gamma", "embeddings", "depthwise_kernel"),
    "bias": ("beta",),
    "running_mean": ("moving_mean",),
    "running_var": ("moving_variance",),
    "weights": ("kernel", "embeddings"),
    "biases": ("bias", "beta"),
    "w": ("kernel", "embeddings"),
    "b": ("bias",),
    "depthwise_weights": ("depthwise_kernel", "kernel"),
    "pointwise_weights": ("pointwise_kernel",),
    "": ("embeddings", "kernel"),  # a variable that is all of its layer
}
_OF_KERAS = frozenset(itertools.chain.from_iterable(_WORDS.values()))
_ORDERS = {"kernel": (1, 0), "depthwise_kernel": (0, 1)}  # of PyTorch's first two axes


def long_shape(entry: Entry) -> Shape:
    """The shape without axes of one: some programs keep a bias as a row."""
    return tuple(size for size in entry.shape or () if size > 1)


def fixed_shape(entry: Entry) -> Shape | None:
    """What must be the same; a vocabulary may grow."""
    return entry.shape if entry.role is Role.WEIGHT else None


def _meanings(word: str) -> tuple[str, ...]:
    return _WORDS.get(re.sub(r"(?<=\D)_?[0-9]+\Z", "", word).lower(), ())


def tells(name: str, words: Collection[str]) -> bool:
    """Whether the last word of a name says what a value of a layer is."""
    word = last_word(name)
    return word in words or word in _OF_KERAS or bool(_meanings(word))


def may_mean(stored: str, live: str) -> bool:
    """Whether a value's word is that of the model, or says nothing: ``Variable_3``."""
    known = bool(_meanings(stored)) or stored in _OF_KERAS | _WORDS.keys()
    return stored == live or live in _meanings(stored) or not known


def axes_of(old: Entry, new: Entry) -> tuple[int, ...]:
    """The axes of a kernel of PyTorch in Keras's order, () of anything else."""
    rank, order = len(old.shape or ()), _ORDERS.get(last_word(new.name))
    of_torch = "." in old.name and last_word(old.name) == "weight"  # (out, in, rows, columns)
    return (*range(2, rank), *order) if of_torch and order and rank > 1 else ()


def permuted(shape: Shape | None, axes: tuple[int, ...]) -> Shape | None:
    return tuple((shape or ())[axis] for axis in axes) if axes else shape


def merges(old: Shape | None, new: Shape | None) -> bool:
    """Whether one has two neighboring axes of the other as one: heads and their features.

    >>> merges((8, 8), (8, 2, 4)), merges((6, 8), (2, 3, 8)), merges((8, 8), (4, 8, 2))
    (True, True, False)
    """
    short, long = sorted((old or (), new or ()), key=len)
    merged = ((*long[:at], math.prod(long[at : at + 2]), *long[at + 2 :]) for at in (0, 1))
    few = len(short) in (1, 2) and len(long) == len(short) + 1
    return few and 1 not in long and short in merged


def fitting(
    a: Mapping[str, Entry], b: Mapping[str, Entry], order: Sequence[str]
) -> dict[str, str] | None:
    """Stored word → live word of the values of two layers, None if they do not fit.

    ``order`` is that of the live ones.
    """
    if len(a) != len(b):
        return None
    if all(word.startswith("vars/") for word in a):  # Keras's file knows their order alone
        rows = list(zip(sorted(a, key=lambda word: int(word[5:])), order, strict=False))
        same = all(w in b and a[v].shape == b[w].shape for v, w in rows)
        return dict(rows) if same and len(rows) == len(b) else None
    found, left, rest = {}, [], dict(b)
    for word, entry in a.items():
        means = (word, *_meanings(word))
        fit = (other for other in means if other in rest and _is_like(entry, rest[other]))
        if (other := next(fit, None)) is None:
            left.append(word)
        else:
            found[word] = other
            del rest[other]
    if found and len(left) == 1 and not {*left, *rest} <= _OF_KERAS:  # all else agrees
        (word,), (other,) = left, rest
        if a[word].shape == rest[other].shape is not None:
            return {**found, word: other}
    return None if left else found


def _is_like(old: Entry, new: Entry) -> bool:
    if Role.VOCABULARY in (old.role, new.role):
        return old.role is new.role
    axes = axes_of(old, new)
    shapes = old.shape, permuted(old.shape, axes)
    same = bool(axes) or last_word(old.name) == last_word(new.name)
    row = len(new.shape or ()) == 1 and old.shape == (1, *(new.shape or ()))  # a bias, at times
    return row or new.shape in shapes or (same and any(merges(x, new.shape) for x in shapes))
