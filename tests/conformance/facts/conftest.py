"""What the tests of facts share: small models, filled with values one can tell apart."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
WIDTH = 3


def variables_of(thing: Any) -> list[Any]:
    if isinstance(thing, tf.Variable):
        return [thing]
    found = thing.variables
    return list(found() if callable(found) else found)


def read(*things: Any) -> list[np.ndarray]:
    return [variable.numpy() for thing in things for variable in variables_of(thing)]


@contextlib.contextmanager
def _untouched(*things: Any) -> Iterator[None]:
    before = [(value.dtype, value.shape, value.tobytes()) for value in read(*things)]
    yield
    after = [(value.dtype, value.shape, value.tobytes()) for value in read(*things)]
    assert after == before


def _right_or_refused(
    restore: Callable[[], Any], things: Sequence[Any], expected: Sequence[np.ndarray]
) -> None:
    before = read(*things)
    try:
        restore()
    except tfckpt.RefusedError:
        np.testing.assert_equal(read(*things), before)
    else:
        np.testing.assert_equal(read(*things), list(expected))


def _fill(seed: int, *things: Any) -> None:
    random = np.random.default_rng(seed)
    for thing in things:
        for variable in variables_of(thing):
            kind = np.dtype(variable.numpy().dtype)
            if kind.kind in "iu":
                variable.assign(random.integers(1, 1000, size=variable.shape).astype(kind))
            else:
                variable.assign(random.uniform(0.1, 1.0, size=variable.shape).astype(kind))


def _stack(keras: Any, names: Sequence[str | None], kind: str = "functional") -> Any:
    layers = [keras.layers.Dense(WIDTH, name=name) for name in names]
    if kind == "sequential":
        return keras.Sequential([keras.Input((WIDTH,)), *layers])
    inputs = outputs = keras.Input((WIDTH,))
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


@pytest.fixture(scope="session")
def values() -> Callable[..., list[np.ndarray]]:
    """``values(model, optimizer)``: every variable's value, in the order of ``.variables``."""
    return read


@pytest.fixture(scope="session")
def untouched() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """``with untouched(model):`` fails unless every variable stays bit-identical."""
    return _untouched


@pytest.fixture(scope="session")
def right_or_refused() -> Callable[..., None]:
    """``right_or_refused(restore, things, expected)``: what was expected, or nothing, is loaded."""
    return _right_or_refused


@pytest.fixture(scope="session")
def fill() -> Callable[..., None]:
    """``fill(seed, model, optimizer)``: every variable gets values of its own."""
    return _fill


@pytest.fixture(scope="session")
def stack() -> Callable[..., Any]:
    """``stack(keras, names, kind)``: Dense layers of one shape, one after the other.

    A name that is None is left to Keras; the kind is ``functional`` or ``sequential``.
    """
    return _stack


@pytest.fixture(scope="session")
def keys() -> Callable[[str], set[str]]:
    """``keys(prefix)``: the checkpoint keys of the values that TensorFlow lists there."""

    def listed(prefix: str) -> set[str]:
        names = (name for name, _ in tf.train.list_variables(prefix))
        return {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)}

    return listed


@pytest.fixture(scope="session")
def weights() -> Callable[[Any], set[str]]:
    """``weights(inventory)``: the canonical names of the model's weights in it."""

    def named(inventory: Any) -> set[str]:
        return {name for name, entry in inventory.entries.items() if entry.role == "weight"}

    return named


@pytest.fixture(scope="session")
def config() -> Callable[..., dict[str, Any]]:
    """``config(prefix, include=[...])``: a config that restores one checkpoint by one policy."""

    def written(prefix: str, **policy: Any) -> dict[str, Any]:
        if "assert_" in policy:
            policy["assert"] = policy.pop("assert_")
        restore = {"path": prefix, "policy": "p"}
        return {"version": 1, "restore": restore, "policies": {"p": policy}}

    return written
