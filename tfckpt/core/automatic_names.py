"""Names that nobody chose: Keras numbers layers and variables that the user did not name.

A second value with a name that is taken ends with ``~2``, which no layer of Keras can.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

# Keras 3 names a functional model `functional` by default, tf_keras `model`.
_SAME_BASE = {"model": "functional"}
_REPEATED = re.compile(r"~\d+$")


def snake_case(name: str) -> str:
    """A class name as Keras turns it into a layer name (keras/src/utils/naming.py).

    >>> snake_case("Conv2DTranspose"), snake_case("LSTM"), snake_case("ReLU")
    ('conv2d_transpose', 'lstm', 're_lu')
    """
    words = re.sub(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\W", "", name))
    return words.lower()


def unnumbered(name: str) -> str:
    """A name without the number that makes it unique.

    >>> unnumbered("dense_12"), unnumbered("conv2d")
    ('dense', 'conv2d')
    """
    return re.sub(r"_\d+$", "", name)


def name_number(label: str) -> int:
    """The number at the end of a name, 0 if there is none.

    >>> name_number("dense_12"), name_number("dense")
    (12, 0)
    """
    match = re.search(r"_(\d{1,18})(_preprocessor)?$", label)
    return int(match[1]) if match else 0


def weak_base(label: str, bases: Collection[str]) -> str:
    """An automatic layer name without its number, ``""`` for a name that the user chose.

    >>> weak_base("dense_3", {"dense"}), weak_base("head_3", {"dense"})
    ('dense', '')
    """
    base = re.sub(r"_\d+(_preprocessor)?$", r"\1", label)  # FeatureSpace adds _preprocessor
    return _SAME_BASE.get(base, base) if base in bases else ""


def given_name(variable: str) -> str:
    """A variable's name with its scopes, ``""`` if it is automatic or a scope is numbered.

    >>> given_name("encoder/scale"), given_name("dense_1/kernel"), given_name("Variable")
    ('encoder/scale', '', '')
    """
    *scopes, last = variable.split("/")
    numbered = any(unnumbered(scope) != scope for scope in scopes)
    return "" if numbered or re.fullmatch(r"[Vv]ariable(_\d+)?", last) else variable


def free_name(name: str, taken: Callable[[str], bool]) -> str:
    """The name, with a number appended if it is taken.

    >>> free_name("model", {"model", "model~2"}.__contains__)
    'model~3'
    """
    free, number = name, 2
    while taken(free):
        free, number = f"{name}~{number}", number + 1
    return free


def without_repeat(name: str) -> str:
    """The name that was taken when :func:`free_name` appended a number to it.

    >>> without_repeat("model~3")
    'model'
    """
    return _REPEATED.sub("", name)
