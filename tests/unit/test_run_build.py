"""``build:`` of a policy: a model that was never called is built before it is restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

import tfckpt

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def config(path: str, **policy: Any) -> dict[str, Any]:
    return {"version": 1, "restore": {"path": path, "policy": policy}}


@pytest.fixture
def prefix(tmp_path) -> str:
    return str(tmp_path / "zoo" / "ckpt")


@pytest.fixture
def subclassed(flavour) -> Callable[..., Any]:
    """A model that has no variables before its first call; it takes one input, or two."""

    class Net(flavour.Model):
        def __init__(self, inputs: int = 1) -> None:
            super().__init__()
            self.branches = [flavour.layers.Dense(3, name=f"branch_{n}") for n in range(inputs)]
            self.head = flavour.layers.Dense(2, name="head")
            self.calls = 0

        def call(self, inputs: Any) -> Any:
            self.calls += 1
            if isinstance(inputs, dict):
                inputs = [inputs["left"], inputs["right"]]
            inputs = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            return self.head(
                sum(branch(each) for branch, each in zip(self.branches, inputs, strict=True))
            )

    return Net


SPEC = {"shape": [None, 4]}
BUILDS = [
    (1, SPEC, X),
    (2, [SPEC, {"shape": [None, 4], "dtype": "float32"}], [X, X]),
    (2, {"left": SPEC, "right": SPEC}, {"left": X, "right": X}),
]


@pytest.mark.parametrize(("inputs", "spec", "batch"), BUILDS, ids=["one", "list", "names"])
def test_a_model_never_called_is_built_by_its_spec(subclassed, prefix, inputs, spec, batch) -> None:
    source, target = subclassed(inputs), subclassed(inputs)
    expected = source(batch).numpy()
    path = tfckpt.Checkpoint(model=source).save(prefix)
    tfckpt.restore(config(path, build={"model": spec}), model=target)
    np.testing.assert_array_equal(target(batch).numpy(), expected)


def test_a_model_that_is_built_is_not_called(subclassed, prefix) -> None:
    source, target = subclassed(), subclassed()
    source(X), target(X)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    calls = target.calls
    tfckpt.restore(config(path, build={"model": SPEC}), model=target)
    assert target.calls == calls


def test_without_a_spec_the_error_says_how_to_build(subclassed, prefix) -> None:
    source, target = subclassed(), subclassed()
    source(X)
    path = tfckpt.Checkpoint(model=source).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError) as error:
        tfckpt.restore(config(path), model=target)
    message = str(error.value)
    assert "Net" in message
    assert "model(tf.zeros(" in message
    assert "build:" in message
    assert not target.variables


def test_a_wrong_spec_is_said(subclassed, prefix) -> None:
    source = subclassed(2)
    source([X, X])
    path = tfckpt.Checkpoint(model=source).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError, match="zeros of the declared shape"):
        tfckpt.restore(config(path, build={"model": SPEC}), model=subclassed(2))
    with pytest.raises(
        tfckpt.NotBuiltError, match="was given as 'modle'; models and layers given: model"
    ):
        tfckpt.restore(config(path, build={"modle": SPEC}), model=subclassed(2))
    with pytest.raises(
        tfckpt.NotBuiltError, match="was given as 'model'; other objects given: step"
    ):
        tfckpt.restore(config(path, build={"model": SPEC}), step=tf.Variable(1))
    wide = [{"shape": [None, 7]}] * 2
    with pytest.raises(tfckpt.RefusedError, match="model/branches"):
        tfckpt.restore(config(path, build={"model": wide}), model=subclassed(2))


RENAMED = {
    "api": "read",
    "assert": "existing_objects_matched",
    "rename": [{"checkpoint": "backbone/**", "model": "encoder/**"}],
}


def head(flavour) -> Any:
    return flavour.Sequential([flavour.Input((4,)), flavour.layers.Dense(2, name="out")])


def test_an_unbuilt_model_that_a_rule_renames_is_not_left_random(
    flavour, subclassed, prefix
) -> None:
    source, target = subclassed(), subclassed()
    source(X)
    path = tfckpt.Checkpoint(backbone=source, head=head(flavour)).save(prefix)
    with pytest.raises(tfckpt.NotBuiltError, match=r"encoder .* has no variables yet") as error:
        tfckpt.restore(config(path, **RENAMED), encoder=target, head=head(flavour))
    assert "backbone/" in str(error.value)
    target(X)
    tfckpt.restore(config(path, **RENAMED), encoder=target, head=head(flavour))
    np.testing.assert_array_equal(target(X).numpy(), source(X).numpy())


def test_an_unbuilt_optimizer_that_a_rule_renames_is_not_left_at_zero(flavour, prefix) -> None:
    source, target = head(flavour), head(flavour)
    adam = flavour.optimizers.Adam()
    adam.build(source.trainable_variables)
    policy = {
        "assert": "existing_objects_matched",
        "rename": [{"checkpoint": "old/**", "model": "new/**"}],
        "expect_missing": ["other/**"],
    }
    ones = [np.ones_like(weight.numpy()) for weight in source.trainable_variables]
    adam.apply_gradients(zip(ones, source.trainable_variables, strict=True))
    path = tfckpt.Checkpoint(model=source, old=adam).save(prefix)
    new = flavour.optimizers.Adam()
    names = {"model": target, "new": new, "other": flavour.optimizers.SGD()}
    tfckpt.restore(config(path, **policy), **names)
    np.testing.assert_array_equal(state(new), state(adam))
    assert state(new).any()


def state(optimizer: Any) -> np.ndarray:
    variables = optimizer.variables
    found = variables() if callable(variables) else variables
    return np.concatenate([np.ravel(variable.numpy()) for variable in found])
